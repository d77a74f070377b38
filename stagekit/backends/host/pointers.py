"""Addresses: a base pointer and an index that keeps its form, until an access needs one pointer per lane.

    A + (row * n + col)     Gep("%A", Linear(...))

Elements of LOCAL memory lie side by side for the lanes: element i of lane l is at `base + i * 32 + l`; only an access knows that.
In a kernel that retypes such memory each lane has its elements side by side instead, at an ordinary address that says which lane.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stagekit import dtypes
from stagekit.backends.host.forms import (
    LANES,
    Form,
    Gep,
    Index,
    Linear,
    Mask,
    Uniform,
    Varying,
    number,
    scalar_text,
    unknown,
)
from stagekit.backends.host.integers import integer_binary
from stagekit.backends.host.lanes import PerLane
from stagekit.backends.host.vectors import as_vector, scalar_vector
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm import arith
from stagekit.backends.llvm.types import Lanes, llvm_type, memory_type
from stagekit.diagnostics import InternalError
from stagekit.dtypes import DType
from stagekit.ir import BinaryKind, CompareKind, Pointer, Space, Type, ops
from stagekit.ir.intervals import Interval


def address_of(form: Form) -> Gep:
    if not isinstance(form, Gep):
        raise InternalError(f"{form} is not an address")
    return form


def as_index(form: Form) -> Index:
    if not isinstance(form, Uniform | Linear | Varying):
        raise InternalError(f"{form} as an index")
    return form


def at(text: str) -> Gep:
    """Return the address that a scalar pointer holds."""
    return Gep(Uniform(text), number(0))


def lane_pointers(text: str) -> Gep:
    """Return the addresses that a `<32 x ptr>` holds."""
    return Gep(Varying(text), number(0))


def emit_offset(warp: Warp, op: ops.Offset) -> None:
    address = address_of(warp[op.pointer])
    index = integer_binary(warp, BinaryKind.ADD, dtypes.INDEX, address.index, warp[op.index])
    warp[op.result] = Gep(address.base, index)


def scalar_pointer(warp: Warp, type_: Pointer, address: Gep) -> str | None:
    """Return the one pointer that all lanes hold, or None."""
    placed = _placed(warp, type_, address)
    return element_pointer(warp, type_.dtype, placed.base.text, placed.index) if placed.is_uniform else None


def vector_pointers(warp: Warp, type_: Pointer, address: Gep) -> str:
    """Return `<32 x ptr>`, the pointer of each lane."""
    placed = _placed(warp, type_, address)
    return lane_elements(warp, type_.dtype, placed.base, as_vector(warp.w, dtypes.INDEX, placed.index))


def lane_elements(warp: Warp, dtype: DType, base: Uniform | Varying, index: Varying) -> str:
    """Move `base` by `index` elements, lane by lane."""
    held = llvm_type(index.held(dtypes.INDEX), LANES)
    start = f"ptr {base.text}" if isinstance(base, Uniform) else f"<{LANES} x ptr> {base.text}"
    return warp.w.emit(f"getelementptr {memory_type(dtype, None)}, {start}, {held} {index.text}")


def _placed(warp: Warp, type_: Pointer, address: Gep) -> Gep:
    """Return the address with its index as memory is laid out: an element of LOCAL memory is a row of 32."""
    if type_.space is not Space.LOCAL or warp.kernel.retypes_local:
        return address
    return Gep(address.base, integer_binary(warp, BinaryKind.MUL, dtypes.INDEX, address.index, number(LANES)))


def element_pointer(warp: Warp, dtype: DType, base: str, index: Form) -> str:
    """Move `base` by `index` elements, both scalars."""
    moved = scalar_text(index)
    return base if moved == "0" else warp.w.emit(f"getelementptr {memory_type(dtype, None)}, ptr {base}, i64 {moved}")


def emit_pointer_compare(warp: Warp, kind: CompareKind, type_: Pointer, a: Form, b: Form) -> Uniform | Mask:
    """Compare addresses as unsigned numbers."""
    left, right = address_of(a), address_of(b)
    one, other = scalar_pointer(warp, type_, left), scalar_pointer(warp, type_, right)
    if one and other:
        return Uniform(arith.compare(warp.w, kind, type_, None, one, other))
    texts = (vector_pointers(warp, type_, left), vector_pointers(warp, type_, right))
    return Mask(arith.compare(warp.w, kind, type_, LANES, *texts))


def retyped(warp: Warp, source: Pointer, target: Pointer, form: Form) -> Gep:
    """Return the same address as a pointer to another dtype."""
    address = address_of(form)
    old, new = source.dtype.itemsize, target.dtype.itemsize
    if old == new:
        return address
    if old % new == 0:
        return Gep(address.base, integer_binary(warp, BinaryKind.MUL, dtypes.INDEX, address.index, number(old // new)))
    if pointer := scalar_pointer(warp, source, address):
        return at(pointer)
    return lane_pointers(vector_pointers(warp, source, address))


def address_as_integer(warp: Warp, source: Pointer, form: Form) -> Index:
    """Return the address in bytes, as an int64."""
    address, interval = address_of(form), Interval.of(dtypes.INDEX)
    if isinstance(address.base, Varying) or source.space is Space.LOCAL:
        text = warp.w.emit(f"ptrtoint <{LANES} x ptr> {vector_pointers(warp, source, address)} to <{LANES} x i64>")
        return Varying(text, interval)
    base = Uniform(warp.w.emit(f"ptrtoint ptr {address.base.text} to i64"), interval)
    size = number(source.dtype.itemsize)
    offset = integer_binary(warp, BinaryKind.MUL, dtypes.INDEX, address.index, size)
    return integer_binary(warp, BinaryKind.ADD, dtypes.INDEX, base, offset)


def local_element(warp: Warp, type_: Pointer, address: Gep) -> Gep:
    """Return, as an ordinary address, where the lanes' own copies of an element of LOCAL memory are."""
    if warp.kernel.retypes_local:
        return address
    placed = _placed(warp, type_, address)
    lanes = Linear(number(0), tuple(range(LANES)))
    return Gep(placed.base, integer_binary(warp, BinaryKind.ADD, dtypes.INDEX, placed.index, lanes))


def full_vector(warp: Warp, type_: Type, form: Form) -> str:
    """Return the text of `<32 x T>` for a value of any type."""
    if isinstance(form, Varying) and not form.is_narrow:
        return form.text
    if isinstance(type_, Pointer):
        return vector_pointers(warp, type_, address_of(form))
    return scalar_vector(warp.w, type_.dtype, form)


def per_lane(warp: Warp, type_: Type, form: Form) -> PerLane:
    """Return a value of any type as an input of scalar code for one lane after another."""
    one = scalar_pointer(warp, type_, address_of(form)) if isinstance(type_, Pointer) else None
    if isinstance(form, Uniform):
        one = form.text
    return PerLane(llvm_type(type_, None), one or full_vector(warp, type_, form), one is not None)


def as_full(type_: Type, text: str) -> Form:
    """Return the form of a vector in the full width of its type."""
    if isinstance(type_, Pointer):
        return lane_pointers(text)
    return Mask(text) if type_.dtype is dtypes.bool_ else Varying(text, unknown(type_.dtype))


def elementwise(
    warp: Warp, args: Sequence[tuple[Type, Form]], result: Type, write: Callable[[Lanes, list[str]], str]
) -> Form:
    """Return what `write` makes of the texts of `args`: of scalars where each is the same in all lanes, else of vectors."""
    lanes = None if {type(form) for _, form in args} <= {Uniform} else LANES
    texts = [scalar_text(form) if lanes is None else full_vector(warp, type_, form) for type_, form in args]
    text = write(lanes, texts)
    return as_full(result, text) if lanes else Uniform(text, unknown(result.dtype))
