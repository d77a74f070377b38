"""The CUDA driver: loaded when it is first needed, every call checked, one retained primary context per device.

    with driver.on_device(0):
        address = driver.call("cuMemAlloc", 1024)
    driver.wait(0)                                     can be interrupted
    driver.free_later(0, "cuMemFree", address)         for finalisers

cuda-python is imported here and nowhere else. The primary context is the one that torch, CuPy and the CUDA runtime use,
so their arrays and streams are ours too.

A fault of a kernel is reported by whichever call comes next, and by all calls after it. `failure` tells such errors, which are
the context's, from those of the call itself. Handles of a process are nothing to its forked children: there every call says so.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import operator
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stagekit import native_tables as tables
from stagekit.diagnostics import hide_frames, shown, wrong_arguments
from stagekit.runtime import native_process
from stagekit.runtime.errors import (
    HARDWARE_FAULTS,
    KERNEL_FAULTS,
    ContextLost,
    CudaError,
    DriverCallFailed,
    ForkedProcess,
    NoCudaDriver,
)


def api() -> Any:
    """The initialised `cuda.bindings.driver`; a `CudaError` where there is no driver or no GPU, or in a forked child."""
    if _is_forked:
        raise CudaError(ForkedProcess())
    return _initialised_api()


@functools.cache
def _initialised_api() -> Any:
    from cuda.bindings import driver

    try:
        (status,) = driver.cuInit(0)
    except RuntimeError as error:  # the library itself is missing
        raise CudaError(NoCudaDriver(str(error))) from None
    if status.name == "CUDA_ERROR_NOT_INITIALIZED":  # so cuInit answers where a parent process has used CUDA without us
        raise CudaError(ForkedProcess())
    if status:
        raise CudaError(NoCudaDriver(f"cuInit: {_status_text(driver, status)}"))
    os.register_at_fork(after_in_child=_note_fork)
    return driver


_is_forked = False


def _note_fork() -> None:
    """The parent has used CUDA, whose state does not survive a fork: from here on the child asks the driver nothing."""
    global _is_forked
    _is_forked = True
    _contexts.clear()
    _lost.clear()


def call(name: str, *args: Any) -> Any:
    """Call a driver function: its one result, a tuple of several, or None; its failure as a `CudaError`."""
    status, *results = getattr(api(), name)(*args)
    if status:
        raise failure(name, status)
    if len(results) > 1:
        return tuple(results)
    return results[0] if results else None


def failure(call: str, status: Any, culprit: str = "") -> CudaError:
    """The error for a driver function's status. culprit: the one kernel that can have failed, where that is known."""
    if status.name == "CUDA_ERROR_NOT_INITIALIZED":
        return CudaError(ForkedProcess())
    device = _failing_device(status)
    if device is not None and device not in _lost:
        _lost[device] = _context_lost(call, status, device, culprit)
    if device is not None:
        return CudaError(_lost[device])
    return CudaError(DriverCallFailed(call, *_status_text(api(), status).split(" ", 1)))


_lost: dict[int, ContextLost] = {}
"""Devices whose context is lost, and what was said about it first: launches that came later have not failed but been refused."""


def _context_lost(call: str, status: Any, device: int, culprit: str) -> ContextLost:
    last = _KERNELS[last_launches[device]] if device < tables.DEVICES else ""
    if status.name in HARDWARE_FAULTS:
        blamed, advice = "the hardware failed, and no kernel is to blame", "nvidia-smi and the system's log tell more"
    elif culprit:
        blamed, advice = f"the kernel `{culprit}` failed", f"`sk.sanitize({culprit})` finds the line, without a GPU"
    elif last:
        blamed = f"the kernel launched last there is `{last}`: it failed, or one that was launched before it"
        advice = (
            f"`sk.sanitize({last})` finds the line, without a GPU; under `debug=True` launches wait and name the kernel"
        )
    else:
        blamed, advice = "stagekit launched no kernel there: another library's failed", "its documentation tells more"
    error_name, text = _status_text(api(), status).split(" ", 1)
    return ContextLost(f"cuda:{device}", blamed, call, error_name, text, advice)


def _failing_device(status: Any) -> int | None:
    """The device whose context is lost; None where the status is of the call itself."""
    current = next((d for d in _contexts if int(_contexts[d]) == int(api().cuCtxGetCurrent()[1] or 0)), None)
    if current in _lost:
        return current
    if status.name not in KERNEL_FAULTS | HARDWARE_FAULTS:
        return None
    known = [device for device in _contexts if _is_context_lost(device)]
    return next(iter(known), current if current is not None else 0)


def _is_context_lost(device: int) -> bool:
    """Does a context answer a question without any effect by an error that stays with it?"""
    if device in _lost:
        return False
    before = api().cuCtxGetCurrent()[1]
    api().cuCtxSetCurrent(_contexts[device])
    status = api().cuStreamQuery(0)[0]
    api().cuCtxSetCurrent(before)
    return bool(status) and status.name in KERNEL_FAULTS | HARDWARE_FAULTS


# Launches -----------------------------------------------------------------------------------------------------------

_KERNELS: list[str] = [""]
last_launches = (ctypes.c_uint64 * tables.DEVICES)()
"""For each device the number of the kernel. Native launchers write to it too."""


@functools.cache
def kernel_number(name: str) -> int:
    """What stands for a kernel's name in the table of last launches."""
    _KERNELS.append(name)
    return len(_KERNELS) - 1


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
        raise wrong_arguments(function, f"`device` is {shown(device)}, not the number of a device")
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


_contexts: dict[int, Any] = {}


def _context(device: int) -> Any:
    """The primary context, retained until the process ends."""
    if device in _lost:
        raise CudaError(_lost[device])
    context = _contexts.get(device)
    if context is None:
        context = _contexts[device] = call("cuDevicePrimaryCtxRetain", _handle(device))
    return context


def context_handle(device: int) -> int:
    """The primary context of a device as the driver's own pointer."""
    return int(_context(device))


def used_devices() -> tuple[int, ...]:
    """The devices on which this process has done anything through stagekit."""
    return tuple(sorted(_contexts))


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


def device_address(address: int) -> int | None:
    """Where kernels on a GPU find memory of the host: None unless it is pinned."""
    if not is_available():
        return None
    with on_device(current_device()):
        status, found = api().cuPointerGetAttribute(
            api().CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address
        )
    return None if status else int(found)


# Waiting and freeing ------------------------------------------------------------------------------------------------

_SPIN_S = 200e-6  # so long a wait asks without a pause: what is short ends as early as the driver's own wait would
_PAUSE_SHARE, _LONGEST_PAUSE_S = 1 / 16, 5e-3  # a pause is a share of the time waited so far


def wait(device: int, culprit: str = "") -> None:
    """Wait until a device has done everything. A signal is seen meanwhile, as the driver's own wait would not.

    culprit: the one kernel that can fail in this wait.
    """
    with on_device(device):
        is_complete, start = _record(device, culprit), time.perf_counter()
        while (status := api().cuEventQuery(_event(device))[0]).name == "CUDA_ERROR_NOT_READY":
            waited = time.perf_counter() - start
            if waited > _SPIN_S:
                time.sleep(min(waited * _PAUSE_SHARE, _LONGEST_PAUSE_S))
        if not status and not is_complete:
            status = api().cuCtxSynchronize()[0]
        if status:
            raise failure("cuEventQuery", status, culprit)
        _free_retired(device)


def _record(device: int, culprit: str = "") -> bool:
    """Let the device's event stand for all that the current context has been given. False where it stands for less."""
    try:
        status, is_complete = api().cuCtxRecordEvent(_contexts[device], _event(device))[0], True
    except (
        RuntimeError
    ):  # from cuda-python: drivers before CUDA 12.5 have no such function, and streams can stand apart
        status, is_complete = api().cuEventRecord(_event(device), 0)[0], False
    if status:
        raise failure("cuCtxRecordEvent", status, culprit)
    return is_complete


@functools.cache
def _event(device: int) -> Any:
    return call("cuEventCreate", api().CUevent_flags.CU_EVENT_DISABLE_TIMING)


_retired: deque[tuple[int, str, Any]] = deque()


def free_later(device: int, function: str, handle: Any) -> None:
    """For finalisers: free something when the launches that may use it have ended: now, or with the next wait or allocation.

    This neither waits, where a signal would go unseen, nor raises, where nobody would hear it.
    """
    if _is_forked or device in _lost:
        return  # it is the parent's, or gone with the context
    _retired.append((device, function, handle))
    with contextlib.suppress(CudaError), on_device(device):  # what is wrong with the context, the next call says
        if _record(device) and not api().cuEventQuery(_event(device))[0]:
            _free_retired(device)


def _free_retired(device: int) -> None:
    """Free what was retired on a device that is current and idle."""
    for _ in range(len(_retired)):
        with contextlib.suppress(IndexError):  # another thread was faster
            entry = _retired.popleft()
            if entry[0] == device:
                call(*entry[1:])
            elif entry[0] not in _lost:
                _retired.append(entry)


def allocate(size: int, device: int) -> int:
    """Memory of a device that is current; where there is none, what was retired is waited for."""
    status, address = api().cuMemAlloc(size)
    if status and status.name == "CUDA_ERROR_OUT_OF_MEMORY" and _retired:
        wait(device)
        status, address = api().cuMemAlloc(size)
    if status:
        raise failure("cuMemAlloc", status)
    return int(address)


# Streams ------------------------------------------------------------------------------------------------------------


def current_stream(device: int) -> int:
    """torch's current stream on a device where torch uses CUDA in this process, else the default stream."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    native_process.trust_torch_stream(torch.Tensor)
    return int(torch.cuda.current_stream(device).cuda_stream)


def is_capturing(stream: int) -> bool:
    """Do launches on a stream go into a graph for now? It may not be waited for then."""
    return bool(int(call("cuStreamIsCapturing", stream)))


def wait_for(stream: int, producer: int) -> None:
    """Let `stream` wait for what `producer` has been given so far."""
    event = call("cuEventCreate", api().CUevent_flags.CU_EVENT_DISABLE_TIMING)
    call("cuEventRecord", event, producer)
    call("cuStreamWaitEvent", stream, event, 0)
    call("cuEventDestroy", event)
