"""What the launcher sees of an array, whoever made it: an address, a shape, strides, a dtype, and where it lives.

And DLPack, both ways: `peek` looks into another library's capsule, which stays with its owner, since a launch borrows an array;
`wrap` puts GPU memory of ours in a capsule. Source: DLPack 1.0, `dlpack.h`; protocol of the Python array API standard, 2023.12
and before.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from stagekit.dtypes import ELEMENT_DTYPES, DType
from stagekit.limits import MAX_AXES
from stagekit.native_tables import DLPACK_VERSION, ON_CPU, ON_CUDA, READ_ONLY

DeviceKind = Literal["cpu", "cuda", "pinned", "managed", "other"]
"""pinned: host memory that a GPU can read; managed: memory that moves by itself. Both work on either target."""

REACHABLE: dict[str, frozenset[DeviceKind]] = {
    "cpu": frozenset({"cpu", "pinned", "managed"}),
    "cuda": frozenset({"cuda", "pinned", "managed", "cpu"}),
}
"""Per target, the kinds of memory that its launches take. Kernels on a GPU work on copies of what lies in memory of the CPU."""


class Device(NamedTuple):
    kind: DeviceKind
    ordinal: int = 0

    def __str__(self) -> str:
        return "the CPU" if self.kind == "cpu" else f"{self.kind}:{self.ordinal}"


CPU = Device("cpu")


class ArrayView(NamedTuple):
    """A borrowed look at an array. It does not keep the array alive; `owner` is whatever the look itself needs.

    strides: elements per step of each axis, or None if a step is not a whole number of elements. dtype: a name if it is none of
    ours. stream: the CUDA stream on which the owner is still writing, if it says so.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: DType | str
    device: Device
    is_writable: bool
    owner: object = None
    stream: int | None = None

    @property
    def is_contiguous(self) -> bool:
        """Whether this is C order without gaps. Axes of one element may have any stride; an empty array always is."""
        if 0 in self.shape or self.strides is None:
            return 0 in self.shape
        rows = zip(self.shape, self.strides, c_strides(self.shape))
        return all(size == 1 or stride == step for size, stride, step in rows)

    def __str__(self) -> str:
        name = self.dtype.name if isinstance(self.dtype, DType) else self.dtype
        return f"an array of {name} (shape {self.shape})"


def c_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the element strides of C order without gaps."""
    *strides, _ = itertools.accumulate(reversed(shape), operator.mul, initial=1)
    return tuple(strides[::-1])


def element_strides(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, ...] | None:
    """Return byte strides as element strides; None if one along several elements is not a whole number of elements."""
    if itemsize == 0 or any(step % itemsize for size, step in zip(shape, strides) if size > 1):
        return None
    return tuple([step // itemsize for step in strides])


# DLPack's structs ---------------------------------------------------------------------------------------------------

_KINDS: dict[int, DeviceKind] = {ON_CPU: "cpu", ON_CUDA: "cuda", 3: "pinned", 13: "managed"}
_DTYPES = {(d.dlpack, d.itemsize * 8): d for d in ELEMENT_DTYPES}  # by code and bits; a bool has 8 of them there
_ADDRESSES = 1 << 63  # bytes: more than there are for user programs
_FOREIGN = {5: "complex{}", 7: "float8_e3m4", 8: "float8_e4m3", 9: "float8_e4m3b11fnuz", 11: "float8_e4m3fnuz"}


class _DlTensor(ctypes.Structure):
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
    _fields_ = (("tensor", _DlTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DlTensor),
    )


def python_api(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """Return a function of CPython's, which is called with the GIL held."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


is_capsule = python_api("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
capsule_pointer = python_api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)

# Arrays of others ---------------------------------------------------------------------------------------------------


def peek(array: Any, stream_of: Callable[[int], int] | None) -> tuple[ArrayView, bool]:
    """Return a view of an object with `__dlpack__`, and whether its owner knows the protocol of 2023.12.

    stream_of: gives the stream that will read an array on a GPU; the owner orders its own work before it.
    """
    device = _device(*array.__dlpack_device__())
    stream = stream_of(device.ordinal) if stream_of is not None and device.kind == "cuda" else None
    given = {} if stream is None else {"stream": stream or 1}  # the protocol spells the default stream 1
    is_versioned = True
    try:
        capsule = array.__dlpack__(max_version=DLPACK_VERSION, copy=False, **given)
    except TypeError:  # an owner that knows only the protocol before 2023.12
        capsule, is_versioned = array.__dlpack__(**given), False
    tensor, is_writable = _contents(capsule)
    stated = _device(tensor.device_type, tensor.device_id)
    # torch says of pinned memory that it is pinned, and in the capsule that it is the CPU's.
    if stated != device and not {stated.kind, device.kind} <= REACHABLE["cpu"]:
        raise BufferError(f"`__dlpack_device__` says that it is on {device}, `__dlpack__` that it is on {stated}")
    shape = _shape(tensor)
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else c_strides(shape)
    address = ((tensor.data or 0) + tensor.byte_offset) % (2 * _ADDRESSES)
    return ArrayView(address, shape, strides, _dtype(tensor), device, is_writable, capsule), is_versioned


def _device(kind: Any, ordinal: Any) -> Device:
    return Device(_KINDS.get(operator.index(kind), "other"), operator.index(ordinal))


def _contents(capsule: Any) -> tuple[_DlTensor, bool]:
    """Return the tensor in a capsule, and whether it may be written to."""
    if is_capsule(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(capsule_pointer(capsule, b"dltensor_versioned"))
        if versioned.major != DLPACK_VERSION[0]:
            raise BufferError(f"it speaks DLPack {versioned.major}.{versioned.minor}, which is not known here")
        return versioned.tensor, not versioned.flags & READ_ONLY
    return _Managed.from_address(capsule_pointer(capsule, b"dltensor")).tensor, True


def _shape(tensor: _DlTensor) -> tuple[int, ...]:
    if not 0 <= tensor.ndim <= MAX_AXES or (tensor.ndim and not tensor.shape):
        raise BufferError(f"it has {tensor.ndim} axes" if tensor.shape else "it does not say its sizes")
    shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
    if min(shape, default=0) < 0 or math.prod(shape) * tensor.bits >= _ADDRESSES * 8:
        raise BufferError(f"no memory has the shape {shape}")
    return shape


def _dtype(tensor: _DlTensor) -> DType | str:
    if tensor.lanes == 1 and (tensor.code, tensor.bits) in _DTYPES:
        return _DTYPES[tensor.code, tensor.bits]
    name = _FOREIGN.get(tensor.code, f"DLPack type {tensor.code} of {{}} bits").format(tensor.bits)
    return name if tensor.lanes == 1 else f"vectors of {tensor.lanes} × {name}"


# Our arrays for others ----------------------------------------------------------------------------------------------

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
    """Release what a capsule holds when it is freed and nobody has consumed it."""
    if _is_valid_at(capsule, _NAME):
        _release(_pointer_at(capsule, _NAME))


def tensor_of(view: ArrayView) -> _DlTensor:
    """Make a `DLTensor` of an array of ours, with its own shape and strides."""
    axes = ctypes.c_int64 * len(view.shape)
    dtype = view.dtype
    assert isinstance(dtype, DType), "an array of ours has one of our dtypes"
    kind = ON_CUDA if view.device.kind == "cuda" else ON_CPU
    code, bits = dtype.dlpack, dtype.itemsize * 8
    shape, strides = axes(*view.shape), axes(*(view.strides or ()))
    return _DlTensor(view.address, kind, view.device.ordinal, len(view.shape), code, bits, 1, shape, strides, 0)


def wrap(view: ArrayView, owner: object) -> Any:
    """Make a capsule for `view`, which keeps `owner` alive as long as somebody uses it."""
    tensor = tensor_of(view)
    managed = _Managed(tensor, None, ctypes.cast(_release, ctypes.c_void_p))
    address = ctypes.addressof(managed)
    _exported[address] = (owner, managed, tensor)
    return _new_capsule(address, _NAME, ctypes.cast(_drop_unused, ctypes.c_void_p))
