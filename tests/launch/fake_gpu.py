"""Two GPUs without a GPU, for machine code: a driver of C functions, and tensors that speak DLPack's C exchange API."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from stagekit import native_tables as tables
from stagekit.runtime import native_process
from stagekit.runtime.views import _DlTensor, _Managed, _Versioned
from tests.runtime.fake_driver import FakeDriver, Status


class _Launch(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        *((f"{what}_{axis}", ctypes.c_uint) for what in ("grid", "block") for axis in "xyz"),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Launch), *[ctypes.c_void_p] * 3)
_ENCODE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_size_t,
    *[ctypes.POINTER(ctypes.c_uint64)] * 2, *[ctypes.POINTER(ctypes.c_uint32)] * 2, *[ctypes.c_int] * 4,
)  # fmt: skip
_GET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_size_t))
_SET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_size_t)


class FakeNativeDriver(FakeDriver):
    """Its functions have addresses too. native: what machine code launched: function, sizes, stream, parameters. attributes: of
    each of these launches, their numbers and values.

    on_launch: called at each of these launches.
    """

    CUresult = Status

    def __init__(self) -> None:
        super().__init__()
        self.native: list[tuple[Any, ...]] = []
        self.attributes: list[list[tuple[int, tuple[int, ...]]]] = []
        self.maps: list[tuple[Any, ...]] = []
        self.status = 0
        self.on_launch: Callable[[], None] = lambda: None
        self._functions = {
            b"cuLaunchKernelEx": _LAUNCH(self._launch),
            b"cuTensorMapEncodeTiled": _ENCODE(self._encode),
            b"cuCtxGetCurrent": _GET(self._get),
            b"cuCtxSetCurrent": _SET(self._set),
        }

    def cuGetProcAddress(self, name: bytes, *_: int) -> tuple[int, int, int]:
        return 0, ctypes.cast(self._functions[name], ctypes.c_void_p).value or 0, 0

    def do_cuModuleGetFunction(self, module: str, name: bytes) -> Any:
        return 1000 + self.current

    def _get(self, out: Any) -> int:
        out[0] = self.current
        return 0

    def _set(self, context: int) -> int:
        self.current = context
        return 0

    def _encode(
        self,
        address: int,
        dtype: int,
        rank: int,
        start: int,
        shape: Any,
        strides: Any,
        box: Any,
        steps: Any,
        *form: int,
    ) -> int:
        """Note what a tensor map is made of, and leave its number in its first word."""
        assert address % 64 == 0
        extents = shape[:rank], strides[: rank - 1], box[:rank], steps[:rank]
        self.maps.append((dtype, rank, start, *map(tuple, extents), form))
        ctypes.c_uint64.from_address(address).value = len(self.maps) - 1
        return 0

    def _launch(self, launch: Any, function: int, pointers: int, _: int) -> int:
        *sizes, stream, attributes, count = (getattr(launch[0], name) for name, *_ in _Launch._fields_)
        given = (tables.LaunchAttribute * count).from_address(attributes) if count else ()
        self.attributes.append([(each.id, tuple(each.value)) for each in given])
        slots = (ctypes.POINTER(ctypes.c_uint64) * self.parameter_count).from_address(pointers)
        parameters = tuple(slot[0] for slot in slots)
        self.on_launch()
        self.native.append((function, self.current, sizes, stream or 0, parameters))
        return self.status


_READ = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_DlTensor))
_STREAM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_size_t))


@_READ
def _read(tensor: Any, out: Any) -> int:
    if tensor.fails:
        return -1
    out[0] = tensor.struct
    return 0


@_STREAM
def _stream(kind: int, device: int, out: Any) -> int:
    out[0] = 7000 + 10 * kind + device
    return 0


_api = native_process._ExchangeApi(
    1, 3, None, 1, 1, 1, ctypes.cast(_read, ctypes.c_void_p), ctypes.cast(_stream, ctypes.c_void_p)
)
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
STREAM_OF_FIRST, STREAM_OF_SECOND = 7020, 7021


class FakeTensor:
    """A tensor on a GPU whose memory is not there. address, strides: as told. is_negated: like torch's lazy negation."""

    __dlpack_c_exchange_api__ = _new_capsule(ctypes.addressof(_api), b"dlpack_exchange_api", None)

    def __init__(
        self,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        *,
        device: int = 0,
        kind: int = 2,
        code: tuple[int, int] = (2, 32),
        address: int = 0x10000,
        is_negated: bool = False,
    ) -> None:
        self.shape = shape
        self.fails = False
        self.is_negated = is_negated
        rank = len(shape)
        steps = None if strides is None else (ctypes.c_int64 * rank)(*strides)
        self.struct = _DlTensor(address, kind, device, rank, *code, 1, (ctypes.c_int64 * rank)(*shape), steps, 0)

    def is_neg(self) -> bool:
        return self.is_negated


class ForeignTensor(FakeTensor):
    """Of a library that may have read-only arrays."""


native_process.offer_exchange(FakeTensor, is_torch=True)
native_process.offer_exchange(ForeignTensor, is_torch=False)


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _count_freed(capsule: int) -> None:
    CapsuleTensor.freed += 1


_new_capsule_with = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, type(_count_freed))(
    ("PyCapsule_New", ctypes.pythonapi)
)


class CapsuleTensor(FakeTensor):
    """Of a library that knows no exchange API: all it makes are capsules. device: as `__dlpack_device__` answers.

    major: of the DLPack that it speaks, 0 before there were versions. asked: what `__dlpack__` was given.
    """

    __dlpack_c_exchange_api__ = None
    freed = 0  # capsules, of all tensors
    made = 0

    def __init__(self, *given: Any, major: int = 1, is_read_only: bool = False, name: bytes = b"", **more: Any) -> None:
        super().__init__(*given, **more)
        self.device: Any = (self.struct.device_type, self.struct.device_id)
        self.asked: list[dict[str, Any]] = []
        if major:
            self.managed = _Versioned(major, 0, None, None, is_read_only, self.struct)
        else:
            self.managed = _Managed(self.struct, None, None)
        self.name = name or (b"dltensor_versioned" if major else b"dltensor")

    def __dlpack_device__(self) -> Any:
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        self.asked.append(options)
        CapsuleTensor.made += 1
        return _new_capsule_with(ctypes.addressof(self.managed), self.name, _count_freed)


class OldCapsuleTensor(CapsuleTensor):
    """Of a library that knows the protocol before 2023.12."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, major=0, **more)

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        return super().__dlpack__(stream=stream)
