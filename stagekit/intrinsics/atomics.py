"""Read, change and write one element in one indivisible step; the result is the value from before.

The hardware does integers (8 to 64 bits) and the addition of float32 and float64. Everything else is an expansion:

    atomic_sub(p, v)           ->  atomic_add(p, -v)
    atomic_exchange(p, v: f32) ->  the same on the bits, as uint32
    atomic_max(p, v: f32)      ->  while the bits at p are not what was read: try again with maximum(read, v)

Order: relaxed; use a fence or a barrier to order other accesses. Float minimum and maximum propagate NaN, as
`minimum` and `maximum` do. A floating-point sum depends on the order in which threads arrive.

Source: PTX ISA, section atom; LLVM Language Reference, atomicrmw and cmpxchg.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stagekit import dtypes
from stagekit.dtypes import DType
from stagekit.intrinsics import rounding
from stagekit.intrinsics.registry import define
from stagekit.ir import (
    TARGETS,
    Builder,
    CompareKind,
    Effect,
    Effects,
    Expand,
    Intrinsic,
    Lowering,
    Native,
    Pointer,
    Scalar,
    Sig,
    Space,
    Type,
    Value,
)

_EFFECTS: Effects = frozenset({Effect.READ, Effect.WRITE})
_SPACES = (Space.GLOBAL, Space.SHARED)
_INTEGERS = dtypes.INTEGER_DTYPES
_FLOATS = dtypes.FLOAT_DTYPES
_NATIVE_ADD = (*_INTEGERS, dtypes.float32, dtypes.float64)

Combine = Callable[[Builder, Value, Value], Value]
Results = tuple[Value, ...]


def _pointee(pointer: Value) -> DType:
    return pointer.type.dtype


def _as_bits(b: Builder, pointer: Value) -> Value:
    """The same address, seen as an unsigned integer of the element's size."""
    kind = pointer.type
    assert isinstance(kind, Pointer)
    return b.bitcast(pointer, Pointer(kind.dtype.unsigned, kind.space))


def _on_bits(spec: Callable[[], Intrinsic]) -> Expand:
    """Do `spec` on the bits of floats. `spec` is called late: the record expands into itself."""

    def build(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Results:
        pointer, *values = args
        place = _as_bits(b, pointer)
        words = [b.bitcast(v, Scalar(_pointee(place))) for v in values]
        return (b.bitcast(b.call_one(spec(), (place, *words)), Scalar(_pointee(pointer))),)

    return Expand(build)


def _retry(combine: Combine) -> Expand:
    """Compare-and-swap `combine(seen, value)` in until what was seen is what is there.

    The first guess is 0: a wrong guess costs one failed swap, which is also the read. A plain load would be a race.
    The bits are compared, not the numbers: a NaN at the address would never equal itself.
    """

    def build(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Results:
        pointer, value = args
        place, dtype = _as_bits(b, pointer), _pointee(pointer)
        word = Scalar(_pointee(place))
        seen = Value(word)
        with b.block((seen,)) as before:
            changed = b.bitcast(combine(b, b.bitcast(seen, Scalar(dtype)), value), word)
            found = b.call_one(atomic_cas, (place, seen, changed))
            b.condition(b.compare(CompareKind.NE, found, seen), found)
        latest = Value(word)
        with b.block((latest,)) as after:
            b.yield_(latest)
        (old,) = b.while_((b.constant(0, word.dtype),), before.done(), after.done())
        return (b.bitcast(old, Scalar(dtype)),)

    return Expand(build)


def _by_dtype(*parts: tuple[Sequence[DType], Lowering]) -> Mapping[str, Mapping[DType, Lowering]]:
    """The same table for every target: each part gives some dtypes their lowering."""
    table = {dtype: lowering for some, lowering in parts for dtype in some}
    return dict.fromkeys(TARGETS, table)


def _sigs(some: Sequence[DType], *, values: int) -> tuple[Sig, ...]:
    def sig(dtype: DType, space: Space) -> Sig:
        element: Type = Scalar(dtype)
        return Sig((Pointer(dtype, space), *(element,) * values), (element,))

    return tuple(sig(d, s) for d in some for s in _SPACES)


def _atomic(name: str, lower: Mapping[str, Mapping[DType, Lowering]], doc: str, source: str) -> Intrinsic:
    return define(
        name=name,
        args=("pointer", "value"),
        sigs=_sigs(tuple(lower["cpu"]), values=1),
        effects=_EFFECTS,
        lower=lower,
        doc=f"{doc} Returns the element from before.",
        source=source,
    )


def _negated(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Results:
    pointer, value = args
    return b.call(atomic_add, (pointer, b.neg(value)))


def _minimum(b: Builder, x: Value, y: Value) -> Value:
    return b.call_one(rounding.minimum, (x, y))


def _maximum(b: Builder, x: Value, y: Value) -> Value:
    return b.call_one(rounding.maximum, (x, y))


atomic_cas: Intrinsic = define(
    name="atomic_cas",
    args=("pointer", "expected", "desired"),
    sigs=_sigs((*_INTEGERS, *_FLOATS), values=2),
    effects=_EFFECTS,
    lower=_by_dtype((_INTEGERS, Native.ATOMIC_CAS), (_FLOATS, _on_bits(lambda: atomic_cas))),
    doc="Replace the element by `desired` if it equals `expected`. Returns the element from before. Floats are compared by "
    "their bits.",
    source="PTX ISA, atom.cas",
)

atomic_add: Intrinsic = _atomic(
    "atomic_add",
    _by_dtype((_NATIVE_ADD, Native.ATOMIC_ADD), ((dtypes.float16, dtypes.bfloat16), _retry(Builder.add))),
    "Add `value` to the element; integers wrap. On cuda the hardware's float32 addition in global memory flushes subnormals.",
    "PTX ISA, atom.add",
)

atomic_sub = _atomic(
    "atomic_sub",
    _by_dtype(((*_INTEGERS, *_FLOATS), Expand(_negated))),
    "Subtract `value` from the element; integers wrap.",
    "CUDA C++ Programming Guide, atomicSub; PTX ISA, atom.add",
)

atomic_min = _atomic(
    "atomic_min",
    _by_dtype((_INTEGERS, Native.ATOMIC_MIN), (_FLOATS, _retry(_minimum))),
    "Replace the element by the smaller of itself and `value`; NaN wins.",
    "PTX ISA, atom.min",
)

atomic_max = _atomic(
    "atomic_max",
    _by_dtype((_INTEGERS, Native.ATOMIC_MAX), (_FLOATS, _retry(_maximum))),
    "Replace the element by the larger of itself and `value`; NaN wins.",
    "PTX ISA, atom.max",
)

atomic_and = _atomic(
    "atomic_and",
    _by_dtype((_INTEGERS, Native.ATOMIC_AND)),
    "And the bits of `value` into the element.",
    "PTX ISA, atom.and",
)

atomic_or = _atomic(
    "atomic_or",
    _by_dtype((_INTEGERS, Native.ATOMIC_OR)),
    "Or the bits of `value` into the element.",
    "PTX ISA, atom.or",
)

atomic_xor = _atomic(
    "atomic_xor",
    _by_dtype((_INTEGERS, Native.ATOMIC_XOR)),
    "Exclusive-or the bits of `value` into the element.",
    "PTX ISA, atom.xor",
)

atomic_exchange: Intrinsic = _atomic(
    "atomic_exchange",
    _by_dtype((_INTEGERS, Native.ATOMIC_EXCHANGE), (_FLOATS, _on_bits(lambda: atomic_exchange))),
    "Replace the element by `value`.",
    "PTX ISA, atom.exch",
)
