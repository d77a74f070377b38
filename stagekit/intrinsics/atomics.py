"""Read, change and write one element in one indivisible step; the result is the value from before.

The hardware does integers (8 to 64 bits) and the addition of floats. Everything else is an expansion, on the CPU that of
16-bit floats too:

    atomic_sub(p, v)           ->  atomic_add(p, -v)
    atomic_exchange(p, v: f32) ->  the same on the bits, as uint32
    atomic_max(p, v: f32)      ->  while the bits at p are not what was read: try again with maximum(read, v)

Float minimum and maximum propagate NaN, as `minimum` and `maximum` do. A floating-point sum depends on the order in which
threads arrive. `atomic_load` and `atomic_store` are what `load` and `store` with an order are made of.

Source: PTX ISA, sections atom, ld and st; LLVM Language Reference, atomicrmw, cmpxchg, load and store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stagekit import dtypes
from stagekit.intrinsics import rounding
from stagekit.intrinsics.families import ByDtype
from stagekit.intrinsics.order import ORDERS, PTX_SCOPES, PTX_SPACES, SCOPE, order_param
from stagekit.intrinsics.registry import by_name, define, sig
from stagekit.intrinsics.terms import Term
from stagekit.ir import (
    TARGETS,
    U32,
    Builder,
    CompareKind,
    Effect,
    Expand,
    Intrinsic,
    Native,
    Pointer,
    Scalar,
    Sig,
    Space,
    Value,
)

Combine = Callable[[Builder, Value, Value], Value]
_SPACES = (Space.GLOBAL, Space.SHARED, Space.CLUSTER)
Results = tuple[Value, ...]


def _as_bits(b: Builder, pointer: Value) -> tuple[Value, Scalar]:
    """Return the address as that of an unsigned integer of the element's size, and the type of this integer."""
    assert isinstance(pointer.type, Pointer)
    dtype, space = pointer.type.dtype.unsigned, pointer.type.space
    return b.bitcast(pointer, Pointer(dtype, space)), Scalar(dtype)


def _on_bits(spec: Callable[[], Intrinsic]) -> Expand:
    """Return the lowering that does `spec` on the bits of floats. `spec` is a function, as the record expands into itself."""

    def build(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Results:
        pointer, *values = args
        place, word = _as_bits(b, pointer)
        old = b.call_one(spec(), (place, *(b.bitcast(v, word) for v in values)), params)
        return (b.bitcast(old, Scalar(pointer.type.dtype)),)

    return Expand(build)


def _retry(combine: Combine) -> Expand:
    """Return the lowering that swaps `combine(seen, value)` in, again and again, until the element is what was seen.

    The first guess is loaded, which costs less than a swap that fails; a plain load would be a race. The bits are compared, not
    the numbers: a NaN at the address would never equal itself.
    """

    def build(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Results:
        pointer, value = args
        place, word = _as_bits(b, pointer)
        first = b.call_one(by_name("atomic_load"), (place,), ("relaxed", params[1]))
        seen = Value(word)
        with b.block((seen,)) as before:
            changed = b.bitcast(combine(b, b.bitcast(seen, value.type), value), word)
            found = b.call_one(atomic_cas, (place, seen, changed), params)
            b.condition(b.compare(CompareKind.NE, found, seen), found)
        latest = Value(word)
        with b.block((latest,)) as after:
            b.yield_(latest)
        (old,) = b.while_((first,), before.done(), after.done())
        return (b.bitcast(old, value.type),)

    return Expand(build)


def _atomic(
    name: str, by_dtype: ByDtype, doc: str, source: str, *values: str, on_cuda: ByDtype | None = None
) -> Intrinsic:
    """Define an operation on one element and `values` (by default one, `value`). on_cuda: what lowerings are others there."""
    args = ("pointer", *(values or ("value",)))
    return define(
        name=name,
        args=args,
        sigs=tuple(sig([Pointer(d, s), *[d] * (len(args) - 1)], d) for d in by_dtype for s in _SPACES),
        params=(order_param(*ORDERS), SCOPE),
        effects=frozenset({Effect.READ, Effect.WRITE}),
        lower={**dict.fromkeys(TARGETS, by_dtype), "cuda": {**by_dtype, **(on_cuda or {})}},
        doc=f"{doc} Returns the element from before.",
        source=source,
    )


def _integers(native: Native) -> ByDtype:
    return dict.fromkeys(dtypes.INTEGER_DTYPES, native)


def _floats(lowering: Expand) -> ByDtype:
    return dict.fromkeys(dtypes.FLOAT_DTYPES, lowering)


def _ptx(native: Native) -> str:
    return f"PTX ISA, {native.value.replace('atomic_', 'atom.')}"


def _extremum(native: Native, spec: Intrinsic, which: str) -> Intrinsic:
    by_dtype = {**_integers(native), **_floats(_retry(lambda b, x, y: b.call_one(spec, (x, y))))}
    doc = f"Replace the element by the {which} of itself and `value`; NaN wins."
    return _atomic(native.value, by_dtype, doc, _ptx(native))


def _bitwise(native: Native, verb: str) -> Intrinsic:
    return _atomic(native.value, _integers(native), f"{verb} the bits of `value` into the element.", _ptx(native))


atomic_cas: Intrinsic = _atomic(
    "atomic_cas",
    {**_integers(Native.ATOMIC_CAS), **_floats(_on_bits(lambda: atomic_cas))},
    "Replace the element by `desired` if it equals `expected`; floats are compared by their bits.",
    "PTX ISA, atom.cas",
    "expected",
    "desired",
)
atomic_add = _atomic(
    "atomic_add",
    {
        **_integers(Native.ATOMIC_ADD),
        **dict.fromkeys((dtypes.float32, dtypes.float64), Native.ATOMIC_ADD),
        **dict.fromkeys((dtypes.float16, dtypes.bfloat16), _retry(Builder.add)),
    },
    "Add `value` to the element; integers wrap. On cuda the hardware's float32 addition in global memory flushes subnormals.",
    "PTX ISA, atom.add",
    on_cuda=dict.fromkeys((dtypes.float16, dtypes.bfloat16), Native.ATOMIC_ADD),
)
atomic_sub = _atomic(
    "atomic_sub",
    dict.fromkeys(
        (*dtypes.INTEGER_DTYPES, *dtypes.FLOAT_DTYPES),
        Expand(lambda b, args, params: b.call(atomic_add, (args[0], b.neg(args[1])), params)),
    ),
    "Subtract `value` from the element; integers wrap.",
    "CUDA C++ Programming Guide, atomicSub; PTX ISA, atom.add",
)
atomic_min = _extremum(Native.ATOMIC_MIN, rounding.minimum, "smaller")
atomic_max = _extremum(Native.ATOMIC_MAX, rounding.maximum, "larger")
atomic_and = _bitwise(Native.ATOMIC_AND, "And")
atomic_or = _bitwise(Native.ATOMIC_OR, "Or")
atomic_xor = _bitwise(Native.ATOMIC_XOR, "Exclusive-or")
atomic_exchange: Intrinsic = _atomic(
    "atomic_exchange",
    {**_integers(Native.ATOMIC_EXCHANGE), **_floats(_on_bits(lambda: atomic_exchange))},
    "Replace the element by `value`.",
    "PTX ISA, atom.exch",
)


def _counting(name: str, native: Native, step: Callable[[Term, Term], Term], doc: str, source: str) -> Intrinsic:
    """Define a counter of uint32 that wraps at a limit; native on cuda alone. step: the next number of an element and a limit."""

    def next_of(b: Builder, seen: Value, limit: Value) -> Value:
        return step(Term(b, seen), Term(b, limit)).value

    by_dtype = {dtypes.uint32: _retry(next_of)}
    return _atomic(name, by_dtype, doc, source, "limit", on_cuda={dtypes.uint32: native})


atomic_inc = _counting(
    "atomic_inc",
    Native.ATOMIC_INC,
    lambda old, limit: old.like(0).select_if(old >= limit, old + 1),
    "Replace a uint32 element by the next number, or by 0 where it is `limit` or more.",
    "PTX ISA, atom.inc",
)
atomic_dec = _counting(
    "atomic_dec",
    Native.ATOMIC_DEC,
    lambda old, limit: limit.select_if(old - 1 >= limit, old - 1),  # what is before 0 is the largest number
    "Replace a uint32 element by the number before, or by `limit` where it is 0 or more than `limit`.",
    "PTX ISA, atom.dec",
)


# -- two 16-bit floats ------------------------------------------------------------------------------------------------


def _one_by_one(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Results:
    pointer, first, second = args
    other = b.offset(pointer, b.constant(1, dtypes.int64))
    return b.call_one(atomic_add, (pointer, first), params), b.call_one(atomic_add, (other, second), params)


def _as_a_word(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Results:
    """Add both by one instruction, whose operand is a word of two halves."""
    pointer, *values = args
    assert isinstance(pointer.type, Pointer)
    dtype, space = pointer.type.dtype, pointer.type.space
    low, high = (Term(b, value).bits.cast(dtypes.uint32) for value in values)
    text = f"{_atom(b, params)}.{PTX_SPACES[space]}.add.noftz.{dtype.short}x2 $0, [$1], $2;"
    word = b.asm(
        text, "=r,l,r,~{memory}", (pointer, (low | high << 16).value), (U32,), has_side_effects=True, host=None
    )
    old = Term(b, word[0])
    return tuple((old >> shift).cast(dtypes.uint16).bitcast(dtype).value for shift in (0, 16))


def _atom(b: Builder, params: Sequence[Any]) -> str:
    """Return how PTX begins an atomic with an order and a scope. It has `seq_cst` as a fence in front of `acq_rel`."""
    order, scope = params
    if order == "seq_cst":
        b.call(by_name("fence"), (), (order, scope))
    return f"atom.{'acq_rel' if order == 'seq_cst' else order}.{PTX_SCOPES[scope]}"


atomic_add_pair = define(
    name="atomic_add_pair",
    args=("pointer", "first", "second"),
    sigs=tuple(sig([Pointer(d, s), d, d], d, d) for d in (dtypes.float16, dtypes.bfloat16) for s in _SPACES),
    params=(order_param(*ORDERS), SCOPE),
    effects=frozenset({Effect.READ, Effect.WRITE}),
    lower={**dict.fromkeys(TARGETS, Expand(_one_by_one)), "cuda": Expand(_as_a_word)},
    older=Expand(  # the instruction for bfloat16 is of compute capability 9.0
        lambda b, args, params: (_as_a_word if args[1].type.dtype is dtypes.float16 else _one_by_one)(b, args, params)
    ),
    min_capability=90,
    doc="Add to two neighbouring 16-bit floats, the first at a multiple of four bytes; each addition is indivisible by itself. "
    "Returns both elements from before. On cuda it is one instruction.",
    source="PTX ISA, atom.add.noftz.f16x2, .bf16x2",
)


# -- two words at once ------------------------------------------------------------------------------------------------


def _as_128_bits(verb: str) -> Expand:
    """Return the lowering to one instruction of PTX, which takes a register of two words. verb: `exch` or `cas`."""

    def build(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Results:
        pointer, *values = args
        assert isinstance(pointer.type, Pointer)
        names = ["expected", "new"][-len(values) // 2 :]
        made = [f"mov.b128 {name}, {{${3 + 2 * k}, ${4 + 2 * k}}};" for k, name in enumerate(names)]
        step = f"{_atom(b, params)}.{PTX_SPACES[pointer.type.space]}.{verb}.b128 old, [$2], {', '.join(names)};"
        text = f"{{ .reg .b128 old, {', '.join(names)}; {' '.join(made)} {step} mov.b128 {{$0, $1}}, old; }}"
        constraints = f"=l,=l,l,{'l,' * len(values)}~{{memory}}"
        return b.asm(text, constraints, tuple(args), (values[0].type,) * 2, has_side_effects=True, host=None)

    return Expand(build)


def _wide(name: str, native: Native, verb: str, doc: str, *values: str) -> Intrinsic:
    """Define an operation on two neighbouring 64-bit integers in one indivisible step."""
    return define(
        name=name,
        args=("pointer", *values),
        sigs=tuple(
            sig([Pointer(d, s), *[d] * len(values)], d, d) for d in (dtypes.int64, dtypes.uint64) for s in _SPACES
        ),
        params=(order_param(*ORDERS), SCOPE),
        effects=frozenset({Effect.READ, Effect.WRITE}),
        lower={**dict.fromkeys(TARGETS, native), "cuda": _as_128_bits(verb)},
        min_capability=90,
        doc=f"{doc}, both in one indivisible step; the first lies at a multiple of 16 bytes. Returns both elements from before.",
        source=f"PTX ISA, atom.{verb}.b128",
    )


atomic_exchange_pair = _wide(
    "atomic_exchange_pair",
    Native.ATOMIC_EXCHANGE_PAIR,
    "exch",
    "Replace two neighbouring 64-bit integers",
    "first",
    "second",
)
atomic_cas_pair = _wide(
    "atomic_cas_pair",
    Native.ATOMIC_CAS_PAIR,
    "cas",
    "Replace two neighbouring 64-bit integers by `first` and `second` if they equal the two expected ones",
    *("expected_first", "expected_second", "first", "second"),
)


_ACCESSED = (*dtypes.INTEGER_DTYPES, *dtypes.FLOAT_DTYPES)
_PLACES = [Pointer(dtype, space) for dtype in _ACCESSED for space in _SPACES]

atomic_load = define(
    name="atomic_load",
    public_in=(),
    args=("pointer",),
    params=(order_param("relaxed", "acquire", "seq_cst"), SCOPE),
    sigs=tuple(sig([place], place.dtype) for place in _PLACES),
    effects=frozenset({Effect.READ, Effect.ORDER}),
    lower=dict.fromkeys(TARGETS, Native.ATOMIC_LOAD),
    doc="Read the element in one indivisible step.",
    source="PTX ISA, ld.relaxed, ld.acquire",
)
atomic_store = define(
    name="atomic_store",
    public_in=(),
    args=("pointer", "value"),
    params=(order_param("relaxed", "release", "seq_cst"), SCOPE),
    sigs=tuple(Sig((place, Scalar(place.dtype)), ()) for place in _PLACES),
    effects=frozenset({Effect.WRITE, Effect.ORDER}),
    lower=dict.fromkeys(TARGETS, Native.ATOMIC_STORE),
    doc="Write the element in one indivisible step.",
    source="PTX ISA, st.relaxed, st.release",
)
