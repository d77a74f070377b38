"""DLPack, both ways: look into another library's capsule, and wrap GPU memory of ours in one.

`peek` reads address, shape, strides and dtype and leaves the capsule with its owner: a launch borrows an array, it does
not take it. Source: DLPack 1.0, `dlpack.h`; protocol of the Python array API standard, 2023.12 and before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from stagekit import native_tables as tables
from stagekit.dtypes import ALL_DTYPES, DType
from stagekit.runtime.views import ArrayView, Device, DeviceKind

CUDA = 2  # kDLCUDA
_KINDS: dict[int, DeviceKind] = {1: "cpu", CUDA: "cuda", 3: "pinned", 13: "managed"}
_FOREIGN = {5: "complex{}", 7: "float8_e3m4", 8: "float8_e4m3", 9: "float8_e4m3b11fnuz", 11: "float8_e4m3fnuz"}
_STREAMS = {0: 1}  # the protocol spells the legacy default stream 1


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


def python_api(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """A function of CPython's, called with the GIL held."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


is_capsule = python_api("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
capsule_pointer = python_api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)


_DTYPES = {(d.dlpack, d.itemsize * 8): d for d in ALL_DTYPES}  # by code and bits; a bool has 8 of them there


def device_of(array: Any) -> Device:
    """Where an object with `__dlpack_device__` lives."""
    kind, index = array.__dlpack_device__()
    return Device(_KINDS.get(int(kind), "other"), int(index))


def peek(array: Any, device: Device, stream: int | None) -> tuple[ArrayView, bool]:
    """A view of an object with `__dlpack__`, and whether the owner knows the protocol of 2023.12.

    stream: the one that will read it (GPU only); the owner orders itself before.
    """
    capsule, is_versioned = _capsule(array, {} if stream is None else {"stream": _STREAMS.get(stream, stream)})
    tensor, is_writable = _contents(capsule)
    shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else c_strides(shape)
    address = (tensor.data or 0) + tensor.byte_offset
    return ArrayView(address, shape, strides, _dtype(tensor), device, is_writable, capsule), is_versioned


def _capsule(array: Any, stream: dict[str, int]) -> tuple[Any, bool]:
    try:
        return array.__dlpack__(max_version=tables.DLPACK_VERSION, copy=False, **stream), True
    except TypeError:  # an owner that knows only the protocol before 2023.12
        return array.__dlpack__(**stream), False


def _contents(capsule: Any) -> tuple[_Tensor, bool]:
    if is_capsule(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(capsule_pointer(capsule, b"dltensor_versioned"))
        if versioned.major != tables.DLPACK_VERSION[0]:
            raise BufferError(f"it speaks DLPack {versioned.major}.{versioned.minor}, which is not known here")
        return versioned.tensor, not versioned.flags & tables.READ_ONLY
    return _Managed.from_address(capsule_pointer(capsule, b"dltensor")).tensor, True


def _dtype(tensor: _Tensor) -> DType | str:
    if tensor.lanes == 1 and (tensor.code, tensor.bits) in _DTYPES:
        return _DTYPES[tensor.code, tensor.bits]
    name = _FOREIGN.get(tensor.code, f"DLPack type {tensor.code} of {{}} bits").format(tensor.bits)
    return name if tensor.lanes == 1 else f"vectors of {tensor.lanes} × {name}"


# Ours for others ----------------------------------------------------------------------------------------------------

_NAME = b"dltensor"
_new_capsule = python_api("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_is_valid_at = python_api("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_pointer_at = python_api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)

_exported: dict[int, tuple[Any, ...]] = {}
"""What each exported struct, by its address, keeps alive until the consumer calls its deleter."""


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # type: ignore[untyped-decorator]
def _release(managed: int) -> None:
    del _exported[managed]


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)  # type: ignore[untyped-decorator]
def _drop_unused(capsule: int) -> None:
    """Destructor of a capsule: if nobody consumed it, its memory is still ours to release."""
    if _is_valid_at(capsule, _NAME):
        _release(_pointer_at(capsule, _NAME))


def tensor_of(view: ArrayView) -> _Tensor:
    """A `DLTensor` of an array of ours, with its own shape and strides."""
    rank = len(view.shape)
    shape = (ctypes.c_int64 * rank)(*view.shape)
    strides = (ctypes.c_int64 * rank)(*(view.strides or ()))
    dtype = view.dtype
    assert isinstance(dtype, DType), "an array of ours has one of our dtypes"
    kind = next(number for number, kind in _KINDS.items() if kind == view.device.kind)
    return _Tensor(
        view.address, kind, view.device.ordinal, rank, dtype.dlpack, dtype.itemsize * 8, 1, shape, strides, 0
    )


def wrap(view: ArrayView, owner: object) -> Any:
    """A capsule for `view`, keeping `owner` alive as long as somebody uses it."""
    tensor = tensor_of(view)
    managed = _Managed(tensor, None, ctypes.cast(_release, ctypes.c_void_p))
    address = ctypes.addressof(managed)
    _exported[address] = (owner, managed, tensor)
    return _new_capsule(address, _NAME, ctypes.cast(_drop_unused, ctypes.c_void_p))


def c_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Element strides of C order without gaps."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
