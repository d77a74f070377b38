"""Exchange between the 32 lanes of a warp: shuffles, votes, matches and whole-warp reductions.

The hardware moves 32 bits at a time: `shuffle_*` and `match_any` are that, on `uint32`. The functions meant for kernels take
any dtype and are expansions that cut a value into 32-bit words and put it together again:

    shfl_xor_sync(mask, x: f64, 1)   ->   2 shuffles of its halves

`mask` names the lanes that take part; each of them must call with the same mask. A read from a lane that does not take part
gives an unspecified value.

Source: PTX ISA, sections shfl.sync, vote.sync, match.sync, activemask, redux.sync.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stagekit import dtypes
from stagekit.intrinsics import bits, rounding
from stagekit.intrinsics.registry import define
from stagekit.ir import (
    BOOL,
    I32,
    TARGETS,
    U32,
    BinaryKind,
    Builder,
    CompareKind,
    Effect,
    Effects,
    Expand,
    Intrinsic,
    Native,
    Scalar,
    Sig,
    Type,
    Value,
)

_COLLECTIVE: Effects = frozenset({Effect.COLLECTIVE})
_VALUES = tuple(Scalar(d) for d in dtypes.ARITHMETIC_DTYPES)

Words = tuple[Value, ...]


def to_words(b: Builder, value: Value) -> Words:
    """The bits of a scalar as uint32 words, lowest first; narrow values are extended with zeros."""
    dtype = value.type.dtype
    raw = b.cast(value, dtypes.uint32) if dtype.bits == 1 else b.bitcast(value, Scalar(dtype.unsigned))
    low = b.cast(raw, dtypes.uint32)
    if dtype.bits <= 32:
        return (low,)
    return (low, b.cast(b.shr(raw, b.constant(32, dtypes.uint64)), dtypes.uint32))


def from_words(b: Builder, words: Words, dtype: dtypes.DType) -> Value:
    """The scalar of `dtype` whose bits are `words`: the inverse of `to_words`."""
    if dtype.bits == 1:
        return b.cast(words[0], dtype)
    raw = b.cast(words[0], dtype.unsigned)
    if dtype.bits == 64:
        high = b.cast(words[1], dtypes.uint64)
        raw = b.or_(raw, b.shl(high, b.constant(32, dtypes.uint64)))
    return b.bitcast(raw, Scalar(dtype))


# -- shuffles ---------------------------------------------------------------------------------------------------------


def _shuffle_word(name: str, native: Native, doc: str, mode: str) -> Intrinsic:
    return define(
        name=name,
        args=("mask", "value", "lane"),
        sigs=(Sig((U32, U32, I32), (U32,)),),
        effects=_COLLECTIVE,
        lower=dict.fromkeys(TARGETS, native),
        public_in=(),
        doc=f"{doc} One 32-bit word; `{name.replace('shuffle', 'shfl').replace('_idx', '')}_sync` takes any dtype.",
        source=f"PTX ISA, shfl.sync.{mode}",
    )


shuffle_idx = _shuffle_word("shuffle_idx", Native.SHUFFLE_IDX, "`value` of lane `lane % 32`.", "idx")
shuffle_up = _shuffle_word("shuffle_up", Native.SHUFFLE_UP, "`value` of the lane `lane` places below.", "up")
shuffle_down = _shuffle_word("shuffle_down", Native.SHUFFLE_DOWN, "`value` of the lane `lane` places above.", "down")
shuffle_xor = _shuffle_word("shuffle_xor", Native.SHUFFLE_XOR, "`value` of lane `lane_id ^ lane`.", "bfly")


def _shuffle(name: str, word: Intrinsic, lane: str, doc: str) -> Intrinsic:
    """The shuffle of any dtype made from the shuffle of one word."""

    def build(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Words:
        mask, value, distance = args
        moved = tuple(b.call_one(word, (mask, each, distance)) for each in to_words(b, value))
        return (from_words(b, moved, value.type.dtype),)

    return define(
        name=name,
        args=("mask", "value", lane),
        sigs=tuple(Sig((U32, v, I32), (v,)) for v in _VALUES),
        effects=_COLLECTIVE,
        lower=dict.fromkeys(TARGETS, Expand(build)),
        doc=doc,
        source=word.source,
    )


shfl_sync = _shuffle(
    "shfl_sync", shuffle_idx, "lane", "`value` of lane `lane`, taken modulo 32, of this warp. Any dtype."
)
shfl_up_sync = _shuffle(
    "shfl_up_sync",
    shuffle_up,
    "delta",
    "`value` of the lane `delta` (0 to 31) below this one; the lowest `delta` lanes keep their own.",
)
shfl_down_sync = _shuffle(
    "shfl_down_sync",
    shuffle_down,
    "delta",
    "`value` of the lane `delta` (0 to 31) above this one; the highest `delta` lanes keep their own.",
)
shfl_xor_sync = _shuffle(
    "shfl_xor_sync",
    shuffle_xor,
    "lane_mask",
    "`value` of the lane whose index differs from this one's in the bits of `lane_mask` (0 to 31).",
)

# -- votes ------------------------------------------------------------------------------------------------------------

ballot_sync = define(
    name="ballot_sync",
    args=("mask", "predicate"),
    sigs=(Sig((U32, BOOL), (U32,)),),
    effects=_COLLECTIVE,
    lower=dict.fromkeys(TARGETS, Native.BALLOT),
    doc="A bit per lane: set where the lane is in `mask` and its `predicate` holds.",
    source="PTX ISA, vote.sync.ballot",
)

any_sync = define(
    name="any_sync",
    args=("mask", "predicate"),
    sigs=(Sig((U32, BOOL), (BOOL,)),),
    effects=_COLLECTIVE,
    lower=dict.fromkeys(TARGETS, Native.VOTE_ANY),
    doc="Does `predicate` hold for any lane of `mask`?",
    source="PTX ISA, vote.sync.any",
)

all_sync = define(
    name="all_sync",
    args=("mask", "predicate"),
    sigs=(Sig((U32, BOOL), (BOOL,)),),
    effects=_COLLECTIVE,
    lower=dict.fromkeys(TARGETS, Native.VOTE_ALL),
    doc="Does `predicate` hold for all lanes of `mask`?",
    source="PTX ISA, vote.sync.all",
)

activemask = define(
    name="activemask",
    args=(),
    sigs=(Sig((), (U32,)),),
    effects=_COLLECTIVE,
    lower=dict.fromkeys(TARGETS, Native.ACTIVE_MASK),
    doc="A bit per lane that runs this instruction together with this one. A snapshot: it promises nothing for the next one.",
    source="PTX ISA, activemask",
)

match_any = define(
    name="match_any",
    public_in=(),
    args=("mask", "value"),
    sigs=(Sig((U32, U32), (U32,)),),
    effects=_COLLECTIVE,
    lower=dict.fromkeys(TARGETS, Native.MATCH_ANY),
    doc="A bit per lane of `mask` that has the same 32-bit word; `match_any_sync` takes any dtype.",
    source="PTX ISA, match.sync.any.b32",
)


def _match_words(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Words:
    mask, value = args
    first, *others = (b.call_one(match_any, (mask, word)) for word in to_words(b, value))
    for other in others:
        first = b.and_(first, other)
    return (first,)


match_any_sync = define(
    name="match_any_sync",
    args=("mask", "value"),
    sigs=tuple(Sig((U32, v), (U32,)) for v in _VALUES),
    effects=_COLLECTIVE,
    lower=dict.fromkeys(TARGETS, Expand(_match_words)),
    doc="A bit per lane of `mask` whose `value` has the same bits as this lane's (so -0.0 does not match 0.0).",
    source="PTX ISA, match.sync.any",
)

# -- reductions -------------------------------------------------------------------------------------------------------

Combine = Callable[[Builder, Value, Value], Value]


def _over_lanes(combine: Combine) -> Expand:
    """Fold over the lanes of `mask`, lowest first: one shuffle per set bit, so that any mask is right.

    while rest != 0: source = lowest set bit of rest; total = combine(total, value of source); rest &= rest - 1
    """

    def build(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Words:
        mask, value = args
        first = _from_lowest(b, mask, value, mask)
        carried = (Value(U32), Value(value.type))
        with b.block(carried) as before:
            b.condition(b.compare(CompareKind.NE, carried[0], b.constant(0, dtypes.uint32)), *carried)
        rest, total = Value(U32), Value(value.type)
        with b.block((rest, total)) as after:
            b.yield_(_without_lowest(b, rest), combine(b, total, _from_lowest(b, mask, value, rest)))
        _, result = b.while_((_without_lowest(b, mask), first), before.done(), after.done())
        return (result,)

    return Expand(build)


def _without_lowest(b: Builder, mask: Value) -> Value:
    return b.and_(mask, b.sub(mask, b.constant(1, dtypes.uint32)))


def _from_lowest(b: Builder, mask: Value, value: Value, among: Value) -> Value:
    """`value` of the lowest lane set in `among`."""
    below = b.sub(b.and_(among, b.neg(among)), b.constant(1, dtypes.uint32))
    lane = b.cast(b.call_one(bits.popcount, (below,)), dtypes.int32)
    (word,) = to_words(b, value)
    return from_words(b, (b.call_one(shuffle_idx, (mask, word, lane)),), value.type.dtype)


def _binary(kind: BinaryKind) -> Combine:
    return lambda b, x, y: b.binary(kind, x, y)


def _call(spec: Intrinsic) -> Combine:
    return lambda b, x, y: b.call_one(spec, (x, y))


def _instruction(verb: str, suffixes: tuple[str, str]) -> Expand:
    """`redux.sync` on values of type int32 or uint32, whose spellings in PTX are `suffixes`."""
    spelling: dict[Type, str] = dict(zip((I32, U32), suffixes, strict=True))

    def build(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Words:
        mask, value = args
        text = f"redux.sync.{verb}.{spelling[value.type]} $0, $1, $2;"
        return b.asm(text, "=r,r,r", (value, mask), (value.type,), has_side_effects=True, host=None)

    return Expand(build)


def _redux(verb: str, combine: Combine, suffixes: tuple[str, str]) -> Intrinsic:
    return define(
        name=f"redux_sync_{verb}",
        args=("mask", "value"),
        sigs=tuple(Sig((U32, v), (v,)) for v in (I32, U32)),
        effects=_COLLECTIVE,
        lower={
            "cuda": _instruction(verb, suffixes),
            "cpu": _over_lanes(combine),
            "interp": _over_lanes(combine),
        },
        doc=f"The {verb} of `value` over the lanes of `mask`, by the one instruction that compute capability 8.0 brought. "
        "`warp_reduce` does the same by shuffles, for any dtype and on every device.",
        source=f"PTX ISA, redux.sync.{verb}",
        min_capability=80,
    )


redux_sync_add = _redux("add", _binary(BinaryKind.ADD), ("s32", "u32"))
redux_sync_min = _redux("min", _call(rounding.minimum), ("s32", "u32"))
redux_sync_max = _redux("max", _call(rounding.maximum), ("s32", "u32"))
redux_sync_and = _redux("and", _binary(BinaryKind.AND), ("b32", "b32"))
redux_sync_or = _redux("or", _binary(BinaryKind.OR), ("b32", "b32"))
redux_sync_xor = _redux("xor", _binary(BinaryKind.XOR), ("b32", "b32"))
