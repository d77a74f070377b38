"""The scratch memory of a worker: static shared memory, per-thread arrays of values that cross barriers, LOCAL arrays.

    [ shared allocations | slots | LOCAL allocations ]  then, from `scratch_bytes` on, the dynamic shared memory

A slot has an element per thread, warp by warp, padded to whole warps so that every access is a full vector. Bools take a
bit: one 32-bit word per warp.
"""

from __future__ import annotations

from stagekit import dtypes
from stagekit.backends.host.forms import LANES, Form, Mask, Vector, unknown
from stagekit.backends.host.pointers import full_vector, lane_pointers
from stagekit.backends.host.spread import as_mask, lane_word
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm.types import llvm_type
from stagekit.ir import Pointer, Scalar, Type, Value

ALIGN = 64  # bytes: a cache line, and the widest vector
_POINTER_BYTES = 8


class Layout:
    """Hands out scratch memory from its beginning."""

    def __init__(self, size_bytes: int = 0) -> None:
        self.size_bytes = size_bytes

    def take(self, size_bytes: int, align: int) -> int:
        """The offset of a new area."""
        step = max(align, 1)
        start = -(-self.size_bytes // step) * step
        self.size_bytes = start + size_bytes
        return start

    @property
    def padded_bytes(self) -> int:
        return -(-self.size_bytes // ALIGN) * ALIGN


def is_bool(type_: Type) -> bool:
    return isinstance(type_, Scalar) and type_.dtype is dtypes.bool_


def warp_bytes(type_: Type) -> int:
    """What one warp takes in a slot."""
    if is_bool(type_):
        return 4
    return LANES * (_POINTER_BYTES if isinstance(type_, Pointer) else type_.dtype.itemsize)


def load_slot(warp: Warp, value: Value, offset_bytes: int) -> Form:
    """What the warp's threads have in the slot of `value`."""
    pointer, type_ = _pointer(warp, value, offset_bytes), value.type
    if is_bool(type_):
        word = warp.w.emit(f"load i32, ptr {pointer}, align 4")
        return Mask(warp.w.emit(f"bitcast i32 {word} to <{LANES} x i1>"))
    text = warp.w.emit(f"load {llvm_type(type_, LANES)}, ptr {pointer}, align {_alignment(type_)}")
    if isinstance(type_, Pointer):
        return lane_pointers(text)
    return Vector(text, unknown(type_.dtype))


def store_slot(warp: Warp, value: Value, offset_bytes: int, form: Form) -> None:
    """Put `form` into the slot of `value`; lanes that are no threads get anything."""
    pointer, type_ = _pointer(warp, value, offset_bytes), value.type
    if is_bool(type_):
        warp.w.line(f"store i32 {lane_word(warp.w, as_mask(warp, form))}, ptr {pointer}, align 4")
        return
    held = llvm_type(type_, LANES)
    warp.w.line(f"store {held} {full_vector(warp, type_, form)}, ptr {pointer}, align {_alignment(type_)}")


def _alignment(type_: Type) -> int:
    return min(warp_bytes(type_), ALIGN)


def _pointer(warp: Warp, value: Value, offset_bytes: int) -> str:
    w, size = warp.w, warp_bytes(value.type)
    if warp.number.constant is not None:
        return w.emit(f"getelementptr i8, ptr %scratch, i64 {offset_bytes + size * warp.number.constant}")
    moved = w.emit(f"mul i64 {warp.number.text}, {size}")
    start = w.emit(f"getelementptr i8, ptr %scratch, i64 {offset_bytes}")
    return w.emit(f"getelementptr i8, ptr {start}, i64 {moved}")
