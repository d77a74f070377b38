"""The CUDA driver: loaded when it is first needed, every call checked, one retained primary context per device.

    with driver.on_device(0):
        address = driver.call("cuMemAlloc", 1024)

cuda-python is imported here and nowhere else. The primary context is the one that torch, CuPy and the CUDA runtime use,
so their arrays and streams are ours too.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stagekit.diagnostics import hide_frames, wrong_arguments
from stagekit.runtime import native
from stagekit.runtime.errors import CudaError, DriverCallFailed, NoCudaDriver


@functools.cache
def api() -> Any:
    """The initialised `cuda.bindings.driver`; a `CudaError` where there is no driver or no GPU."""
    from cuda.bindings import driver

    try:
        (status,) = driver.cuInit(0)
    except RuntimeError as error:  # the library itself is missing
        raise CudaError(NoCudaDriver(str(error))) from None
    if status:
        raise CudaError(NoCudaDriver(f"cuInit: {_status_text(driver, status)}"))
    return driver


def call(name: str, *args: Any) -> Any:
    """Call a driver function: its one result, a tuple of several, or None; its failure as a `CudaError`."""
    status, *results = getattr(api(), name)(*args)
    if status:
        check(name, status)
    if len(results) > 1:
        return tuple(results)
    return results[0] if results else None


def check(name: str, status: int) -> None:
    """Raise the failure of a driver function as a `CudaError`. status: 0 is success."""
    if status:
        error_name, text = _status_text(api(), status).split(" ", 1)
        raise CudaError(DriverCallFailed(name, error_name, text))


def function_address(name: str) -> int:
    """Where a driver function is, for machine code that calls it."""
    address, _ = call("cuGetProcAddress", name.encode(), _CUDA_12, 0)
    return int(address)


_CUDA_12 = 12000  # the version whose functions are meant


def _status_text(driver: Any, status: Any) -> str:
    _, text = driver.cuGetErrorString(status)
    return f"{status.name} {text.decode() if text else 'unknown error'}"


# Devices ------------------------------------------------------------------------------------------------------------


def device_number(function: Callable[..., Any], device: Any) -> int:
    """The `device` that a public function was given; whether there is such a device, the driver says."""
    try:
        number = -1 if isinstance(device, bool) else operator.index(device)
    except TypeError:
        number = -1
    if not 0 <= number <= _LAST_DEVICE:
        raise wrong_arguments(function, f"`device` is {device!r}, not the number of a device")
    return number


_LAST_DEVICE = 2**31 - 1  # that the driver's `int` holds


@hide_frames
def device_count() -> int:
    """How many CUDA devices this process sees; 0 without a driver."""
    try:
        return int(call("cuDeviceGetCount"))
    except CudaError:
        return 0


@hide_frames
def is_available() -> bool:
    """Is there a CUDA device that this process can use?"""
    return device_count() > 0


def capability_if_present() -> int | None:
    """Compute capability of the current device, ten times the version; None without a GPU."""
    return capability(current_device()) if is_available() else None


@functools.cache
def capability(device: int = 0) -> int:
    """Compute capability of a device, ten times the version: 90 for an H100."""
    major = attribute("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR", device)
    return 10 * major + attribute("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR", device)


def attribute(name: str, device: int) -> int:
    """A `CUdevice_attribute` by name."""
    return int(call("cuDeviceGetAttribute", getattr(api().CUdevice_attribute, name), _handle(device)))


@functools.cache
def device_name(device: int) -> str:
    """Such as "cuda:0 (NVIDIA H200)"."""
    text = call("cuDeviceGetName", 100, _handle(device)).split(b"\0", 1)[0].decode()
    return f"cuda:{device} ({text})"


@functools.cache
def _handle(device: int) -> Any:
    return call("cuDeviceGet", device)


_used_devices: set[int] = set()


@functools.cache
def _context(device: int) -> Any:
    """The primary context, retained until the process ends."""
    context = call("cuDevicePrimaryCtxRetain", _handle(device))
    _used_devices.add(device)
    return context


def context_handle(device: int) -> int:
    """The primary context of a device as the driver's own pointer."""
    return int(_context(device))


def used_devices() -> tuple[int, ...]:
    """The devices on which this process has done anything through stagekit."""
    return tuple(sorted(_used_devices))


@contextmanager
def on_device(device: int) -> Iterator[None]:
    """Make a device current for this thread, and what was current before again; a thread that had none keeps it."""
    wanted, before = _context(device), call("cuCtxGetCurrent")
    if int(before) == int(wanted):
        yield
        return
    call("cuCtxSetCurrent", wanted)
    try:
        yield
    finally:
        if int(before):
            call("cuCtxSetCurrent", before)


def current_device() -> int:
    """The device of this thread's current context, else 0."""
    return int(call("cuCtxGetDevice")) if int(call("cuCtxGetCurrent")) else 0


def device_of_address(address: int) -> int:
    """On which device a pointer was allocated."""
    ordinal = api().CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    return int(call("cuPointerGetAttribute", ordinal, address))


# Streams ------------------------------------------------------------------------------------------------------------


def current_stream(device: int) -> int:
    """torch's current stream on a device where torch uses CUDA in this process, else the default stream."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    native.trust_torch_stream()
    return int(torch.cuda.current_stream(device).cuda_stream)


def wait_for(stream: int, producer: int) -> None:
    """Let `stream` wait for what `producer` has been given so far."""
    event = call("cuEventCreate", api().CUevent_flags.CU_EVENT_DISABLE_TIMING)
    call("cuEventRecord", event, producer)
    call("cuStreamWaitEvent", stream, event, 0)
    call("cuEventDestroy", event)
