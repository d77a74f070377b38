"""The CUDA driver: it is loaded when it is first needed, every call is checked, and one primary context per device is retained.

    with driver.on_device(0):
        address = driver.call("cuMemAlloc", 1024)
    driver.wait(0)                                     a signal interrupts it
    driver.free_later(0, "cuMemFree", address)         for finalisers

cuda-python is imported here and nowhere else. torch, CuPy and the CUDA runtime use the primary context too, so that their arrays
and streams can be used here.

The driver reports a fault of a kernel from whichever call comes next, and from all calls after it. `failure` tells such errors,
which are the context's, from those of the call itself. A forked child cannot use its parent's handles: there every call raises.
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
from stagekit.runtime import errors, native_process
from stagekit.runtime.errors import CudaError


def api() -> Any:
    """Return the initialised `cuda.bindings.driver`; raise `CudaError` without a driver or a GPU, or in a forked child."""
    if _is_forked:
        raise CudaError(errors.ForkedProcess())
    return _initialised_api()


@functools.cache
def _initialised_api() -> Any:
    from cuda.bindings import driver

    try:
        (status,) = driver.cuInit(0)
    except RuntimeError as error:  # the library itself is missing
        raise CudaError(errors.NoCudaDriver(str(error))) from None
    if status.name == "CUDA_ERROR_NOT_INITIALIZED":  # the answer of cuInit if a parent process has used CUDA without us
        raise CudaError(errors.ForkedProcess())
    if status:
        raise CudaError(errors.NoCudaDriver("cuInit: " + " ".join(_status_texts(driver, status))))
    os.register_at_fork(after_in_child=_note_fork)
    return driver


_is_forked = False


def _note_fork() -> None:
    """In a forked child, call the driver no more: the state of the CUDA that its parent has used does not survive a fork."""
    global _is_forked
    _is_forked = True
    _contexts.clear()
    _lost.clear()


def call(name: str, *args: Any) -> Any:
    """Call a driver function; return its one result, a tuple of several, or None. Its failure raises a `CudaError`."""
    status, *results = getattr(api(), name)(*args)
    if status:
        raise failure(name, status)
    if len(results) > 1:
        return tuple(results)
    return results[0] if results else None


def failure(call: str, status: Any, culprit: str = "") -> CudaError:
    """Return the error for a driver function's status. culprit: the one kernel that can have failed, if that is known."""
    if status.name == "CUDA_ERROR_NOT_INITIALIZED":
        return CudaError(errors.ForkedProcess())
    device = _failing_device(status)
    if device is None:
        return CudaError(errors.DriverCallFailed(call, *_status_texts(api(), status)))
    if device not in _lost:
        _lost[device] = _context_lost(call, status, device, culprit)
    return CudaError(_lost[device])


_lost: dict[int, errors.ContextLost] = {}
"""Devices whose context is lost, and the first error that said so: launches that came later were only refused."""


def _context_lost(call: str, status: Any, device: int, culprit: str) -> errors.ContextLost:
    last = _KERNELS[last_launches[device]] if device < tables.DEVICES else ""
    if status.name in errors.HARDWARE_FAULTS:
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
    return errors.ContextLost(f"cuda:{device}", blamed, call, *_status_texts(api(), status), advice)


def _status_texts(driver: Any, status: Any) -> tuple[str, str]:
    """Return the name of a status, and what it means."""
    _, text = driver.cuGetErrorString(status)
    return status.name, text.decode() if text else "unknown error"


def _failing_device(status: Any) -> int | None:
    """Return the device whose context is lost; None if the status is that of the call itself."""
    current = next((d for d in _contexts if int(_contexts[d]) == int(api().cuCtxGetCurrent()[1] or 0)), None)
    if current in _lost:
        return current
    if status.name not in errors.KERNEL_FAULTS | errors.HARDWARE_FAULTS:
        return None
    known = [device for device in _contexts if _is_context_lost(device)]
    return next(iter(known), current if current is not None else 0)


def _is_context_lost(device: int) -> bool:
    """Return whether a context answers a query that has no effect with an error that stays with the context."""
    if device in _lost:
        return False
    before = api().cuCtxGetCurrent()[1]
    api().cuCtxSetCurrent(_contexts[device])
    status = api().cuStreamQuery(0)[0]
    api().cuCtxSetCurrent(before)
    return bool(status) and status.name in errors.KERNEL_FAULTS | errors.HARDWARE_FAULTS


# Launches -----------------------------------------------------------------------------------------------------------

_KERNELS: list[str] = [""]
last_launches = (ctypes.c_uint64 * tables.DEVICES)()
"""For each device, the number of the kernel launched last. Native launchers write to it too."""


@functools.cache
def kernel_number(name: str) -> int:
    """Return the number that stands for a kernel's name in `last_launches`."""
    _KERNELS.append(name)
    return len(_KERNELS) - 1


def function_address(name: str) -> int:
    """Return the address of a driver function of CUDA 12, for machine code that calls it."""
    address, _ = call("cuGetProcAddress", name.encode(), 12000, 0)
    return int(address)


# Devices ------------------------------------------------------------------------------------------------------------


def device_number(function: Callable[..., Any], device: Any) -> int:
    """Return the `device` that a public function was given as a number; the driver says whether there is such a device."""
    try:
        number = -1 if isinstance(device, bool) else operator.index(device)
    except TypeError:
        number = -1
    if not 0 <= number < 1 << 31:  # which the driver's `int` holds
        raise wrong_arguments(function, f"`device` is {shown(device)}, not the number of a device")
    return number


@hide_frames
def device_count() -> int:
    """Return how many CUDA devices this process sees; 0 without a driver."""
    try:
        return int(call("cuDeviceGetCount"))
    except CudaError:
        return 0


@hide_frames
def is_available() -> bool:
    """Return whether there is a CUDA device that this process can use."""
    return device_count() > 0


def capability_if_present() -> int | None:
    """Return the compute capability of the current device, ten times the version; None without a GPU."""
    return capability(current_device()) if is_available() else None


@functools.cache
def capability(device: int = 0) -> int:
    """Return the compute capability of a device, ten times the version: 90 for an H100."""
    major = attribute("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR", device)
    return 10 * major + attribute("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR", device)


def attribute(name: str, device: int) -> int:
    """Return a `CUdevice_attribute` by its name."""
    return int(call("cuDeviceGetAttribute", getattr(api().CUdevice_attribute, name), _handle(device)))


@functools.cache
def device_name(device: int) -> str:
    """Return a name such as "cuda:0 (NVIDIA H200)"."""
    text = call("cuDeviceGetName", 100, _handle(device)).split(b"\0", 1)[0].decode()
    return f"cuda:{device} ({text})"


@functools.cache
def _handle(device: int) -> Any:
    return call("cuDeviceGet", device)


_contexts: dict[int, Any] = {}


def context_of(device: int) -> Any:
    """Return the primary context of a device, which is retained until the process ends."""
    if device in _lost:
        raise CudaError(_lost[device])
    context = _contexts.get(device)
    if context is None:
        context = _contexts[device] = call("cuDevicePrimaryCtxRetain", _handle(device))
    return context


def used_devices() -> tuple[int, ...]:
    """Return the devices on which this process has done anything through stagekit."""
    return tuple(sorted(_contexts))


@contextmanager
def on_device(device: int) -> Iterator[None]:
    """Make a device current for this thread, then restore what was current before; a thread that had none keeps the device."""
    wanted, before = context_of(device), call("cuCtxGetCurrent")
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
    """Return the device of this thread's current context, else 0."""
    return int(call("cuCtxGetDevice")) if int(call("cuCtxGetCurrent")) else 0


def device_of_address(address: int) -> int:
    """Return on which device an address was allocated."""
    ordinal = api().CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    return int(call("cuPointerGetAttribute", ordinal, address))


def device_address(address: int) -> int | None:
    """Return the address by which kernels on a GPU reach host memory; None unless it is pinned."""
    if not is_available():
        return None
    attribute = api().CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_POINTER
    with on_device(current_device()):
        status, found = api().cuPointerGetAttribute(attribute, address)
    return None if status else int(found)


# Waiting and freeing ------------------------------------------------------------------------------------------------

_SPIN_S = 200e-6  # a wait polls without a pause for this long, so that a short one ends as early as the driver's own
_PAUSE_SHARE, _LONGEST_PAUSE_S = 1 / 16, 5e-3  # a pause is a share of the time waited so far


def wait(device: int, culprit: str = "") -> None:
    """Wait until a device has done everything. Python handles signals meanwhile, as in the driver's own wait it could not.

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
    """Record the device's event after all that the current context has been given. Return False if it covers less than that."""
    try:
        status, is_complete = api().cuCtxRecordEvent(_contexts[device], _event(device))[0], True
    except RuntimeError:  # of cuda-python: drivers before CUDA 12.5 lack it; an event misses non-blocking streams
        status, is_complete = api().cuEventRecord(_event(device), 0)[0], False
    if status:
        raise failure("cuCtxRecordEvent", status, culprit)
    return is_complete


@functools.cache
def _event(device: int) -> Any:
    return call("cuEventCreate", api().CUevent_flags.CU_EVENT_DISABLE_TIMING)


_retired: deque[tuple[int, str, Any]] = deque()


def free_later(device: int, function: str, handle: Any) -> None:
    """Free something, for a finaliser, once the launches that may use it have ended: now, or at the next wait or allocation.

    A finaliser must not wait, where no signal would be handled, nor raise, where nobody would catch it.
    """
    if _is_forked or device in _lost:
        return  # the parent owns it, or it is gone with the context
    _retired.append((device, function, handle))
    with contextlib.suppress(CudaError), on_device(device):  # the next call reports a lost context
        if _record(device) and not api().cuEventQuery(_event(device))[0]:
            _free_retired(device)


def _free_retired(device: int) -> None:
    """Free what `free_later` was given for a device that is current and idle."""
    for _ in range(len(_retired)):
        with contextlib.suppress(IndexError):  # another thread was faster
            entry = _retired.popleft()
            if entry[0] == device:
                call(*entry[1:])
            elif entry[0] not in _lost:
                _retired.append(entry)


def allocate(size: int, device: int) -> int:
    """Allocate memory of a device that is current. If there is too little, first free what `free_later` was given."""
    status, address = api().cuMemAlloc(size)
    if status and status.name == "CUDA_ERROR_OUT_OF_MEMORY" and _retired:
        wait(device)
        status, address = api().cuMemAlloc(size)
    if status:
        raise failure("cuMemAlloc", status)
    return int(address)


# Streams ------------------------------------------------------------------------------------------------------------


def current_stream(device: int) -> int:
    """Return torch's current stream on a device if torch uses CUDA in this process, else the default stream."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    native_process.trust_torch_stream(torch.Tensor)
    return int(torch.cuda.current_stream(device).cuda_stream)


def wait_for(stream: int, producer: int) -> None:
    """Make `stream` wait for what `producer` has been given so far."""
    event = call("cuEventCreate", api().CUevent_flags.CU_EVENT_DISABLE_TIMING)
    try:
        call("cuEventRecord", event, producer)
        call("cuStreamWaitEvent", stream, event, 0)
    finally:
        call("cuEventDestroy", event)
