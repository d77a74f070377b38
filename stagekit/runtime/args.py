"""Look at any array that a user may pass: NumPy, stagekit's own, torch, and whatever speaks DLPack or
`__cuda_array_interface__` (CuPy, JAX, Numba, Warp).

    read_array(np.ones((2, 3), "f4"))   ArrayView(address, (2, 3), (3, 1), float32, CPU, is_writable=True)
    read_array([1, 2])                  None

Which way an object is read is decided once per type. torch has a short cut through its own methods: at 1 µs per tensor
it costs a third of a DLPack capsule.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stagekit.diagnostics import StagekitError, shown
from stagekit.dtypes import ALL_DTYPES, DType, dtype_from_numpy
from stagekit.runtime import dlpack, native_process
from stagekit.runtime.native_process import address_of
from stagekit.runtime.views import CPU, ArrayView, Device

StreamOf = Callable[[int], int]
"""From a device number to the CUDA stream on which the launch will run."""

Reader = Callable[[Any, StreamOf | None], ArrayView]


class Unreadable(BufferError):
    """An array that its owner does not let us see, in the owner's words."""


def read_array(value: Any, stream_of: StreamOf | None = None) -> ArrayView | None:
    """A view of `value`, or None if it is no array. stream_of: for GPU launches, whom the owner must order itself before.

    Raises Unreadable whatever the owner's methods raise.
    """
    reader = _reader_of(value)
    if reader is None:
        return None
    try:
        return reader(value, stream_of)
    except StagekitError:
        raise
    except Exception as error:
        raise Unreadable(str(error) or type(error).__name__) from error


def _reader_of(value: Any) -> Reader | None:
    """How this object is read. One that raises when it is asked is no array."""
    try:
        reader = _reader_for(type(value))  # type: ignore[arg-type]  # mypy takes types for unhashable
        if reader is None and isinstance(value.__cuda_array_interface__, dict):  # of this object, not of its type
            return _read_cuda_interface
    except Exception:
        return None
    return reader


@functools.lru_cache(maxsize=256)
def _reader_for(kind: type) -> Reader | None:
    """How objects of this type are read; the first way that fits."""
    if issubclass(kind, np.ndarray):
        return _read_numpy
    if issubclass(kind, np.generic):
        return None
    if _is_torch_tensor(kind):
        native_process.offer_exchange(kind, is_torch=True)
        return _read_torch
    if hasattr(kind, "__stagekit_view__"):
        return _read_own
    if hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__"):
        if "__dlpack_c_exchange_api__" in vars(kind):  # an inherited one may not fit
            native_process.offer_exchange(kind, is_torch=False)
        return _read_dlpack
    return _read_cuda_interface if hasattr(kind, "__cuda_array_interface__") else None


# NumPy --------------------------------------------------------------------------------------------------------------


def _read_numpy(array: np.ndarray[Any, Any], _: StreamOf | None) -> ArrayView:
    dtype = dtype_from_numpy(array.dtype) or str(array.dtype)
    strides = element_strides(array.shape, array.strides, array.itemsize)
    return ArrayView(address_of(array), array.shape, strides, dtype, CPU, array.flags.writeable)


def element_strides(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, ...] | None:
    """Byte strides as element strides; None where a step that is ever taken is not a whole number of elements."""
    if itemsize == 0 or any(step % itemsize for size, step in zip(shape, strides) if size > 1):
        return None
    return tuple(step // itemsize for step in strides)


# torch --------------------------------------------------------------------------------------------------------------


def _is_torch_tensor(kind: type) -> bool:
    """Is this a plain tensor? Subclasses may hold something else than their memory shows and go through DLPack."""
    torch = sys.modules.get("torch")
    return torch is not None and kind in (torch.Tensor, torch.nn.Parameter)


def _read_torch(tensor: Any, stream_of: StreamOf | None) -> ArrayView:
    device = tensor.device
    if tensor.is_neg():  # torch would hand it out as it lies in memory
        raise BufferError("it stands for the negative of what is in its memory: pass tensor.resolve_neg()")
    if device.type not in ("cpu", "cuda") or tensor.is_conj():
        return _peek(tensor, stream_of)[0]
    where = CPU if device.type == "cpu" else Device("cuda", device.index)
    dtype = _torch_dtypes().get(tensor.dtype) or str(tensor.dtype).removeprefix("torch.")
    return ArrayView(tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), dtype, where, is_writable=True)


@functools.cache
def _torch_dtypes() -> dict[Any, DType]:
    torch = sys.modules["torch"]
    return {getattr(torch, d.name): d for d in ALL_DTYPES if hasattr(torch, d.name)}


# Streams ------------------------------------------------------------------------------------------------------------


def owners_stream(arguments: Sequence[Any]) -> StreamOf | None:
    """What gives the stream that is current to the library of the first array that has such a thing, or None.

    Native launchers go by the same rule.
    """
    cupy = sys.modules.get("cupy")
    for argument in arguments:
        if cupy is not None and isinstance(argument, cupy.ndarray):
            return cupy_stream
        address = native_process.stream_of((argument,)) if native_process.is_available() else 0
        if address:
            return functools.partial(native_process.ask_stream, address)
    return None


def cupy_stream(device: int) -> int:
    """CuPy's current stream on a device; machine code calls this too, as CuPy has no exchange API."""
    return int(sys.modules["cupy"].cuda.get_current_stream(device).ptr)


# Everyone else ------------------------------------------------------------------------------------------------------


def _read_own(array: Any, _: StreamOf | None) -> ArrayView:
    view: ArrayView = array.__stagekit_view__()
    return view


def _read_dlpack(array: Any, stream_of: StreamOf | None) -> ArrayView:
    view, is_versioned = _peek(array, stream_of)
    cupy = sys.modules.get("cupy")
    is_cupys = cupy is not None and isinstance(array, cupy.ndarray)
    native_process.offer_capsules(type(array), id(cupy_stream) if is_cupys else 0, is_versioned=is_versioned)
    return view


def _peek(array: Any, stream_of: StreamOf | None) -> tuple[ArrayView, bool]:
    device = dlpack.device_of(array)
    stream = stream_of(device.ordinal) if stream_of is not None and device.kind == "cuda" else None
    return dlpack.peek(array, device, stream)


def _read_cuda_interface(array: Any, _: StreamOf | None) -> ArrayView:
    """CUDA Array Interface, version 3. It does not say which device: the driver knows by the address."""
    interface = array.__cuda_array_interface__
    address, is_read_only = interface["data"]
    numpy_dtype = np.dtype(interface["typestr"])
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    steps = dlpack.c_strides(shape) if strides is None else element_strides(shape, strides, numpy_dtype.itemsize)
    dtype = dtype_from_numpy(numpy_dtype) or str(numpy_dtype)
    device = Device("cuda", _device_of_address(address))
    return ArrayView(address, shape, steps, dtype, device, not is_read_only, stream=interface.get("stream"))


def _device_of_address(address: int) -> int:
    from stagekit.runtime import driver

    return driver.device_of_address(address) if address else 0


# Words --------------------------------------------------------------------------------------------------------------


def describe(value: Any) -> str:
    """What a user passed, for an error text: "an array of float64 (shape (10,))", "3.5 (float)", "a list". Never raises."""
    kind = type(value)  # not `isinstance`, which asks the object for its class
    if value is None:
        return "None"
    if issubclass(kind, (bool, int, float, complex, str, np.generic)):
        return f"{_short(value)} ({kind.__name__})"
    if issubclass(kind, np.ndarray):
        with contextlib.suppress(Unreadable):
            return str(read_array(value))
    what = "an object" if _reader_of(value) is None else "an array"
    return f"{what} of type {kind.__name__}"


def _short(value: Any) -> str:
    text = str(value) if type(value).__module__ == "numpy" else shown(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
