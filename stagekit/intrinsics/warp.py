"""Exchange between the 32 lanes of a warp: shuffles, votes, matches and whole-warp reductions.

The hardware moves 32 bits at a time: `shuffle_*` and `match_any` are that, on `uint32`. The functions meant for kernels take
any dtype and are expansions that cut a value into 32-bit words and put it together again:

    shfl_xor_sync(mask, x: f64, 1)   ->   2 shuffles of its halves

`mask` names the lanes that take part; each of them must call with the same mask. A read from a lane that does not take part
gives an unspecified value. A shuffle of `width` lanes stays within so many neighbours, as if each such group were a warp.

Source: PTX ISA, sections shfl.sync, vote.sync, match.sync, activemask, redux.sync.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stagekit import dtypes
from stagekit.intrinsics.registry import define
from stagekit.intrinsics.terms import Term, expand, repeat_while
from stagekit.ir import (
    BOOL,
    I32,
    TARGETS,
    U32,
    Builder,
    Effect,
    Expand,
    Intrinsic,
    Native,
    Param,
    Scalar,
    Sig,
    Type,
    Value,
)
from stagekit.limits import WARP

_COLLECTIVE = frozenset({Effect.COLLECTIVE})
_VALUES = tuple(Scalar(d) for d in dtypes.ARITHMETIC_DTYPES)

Words = tuple[Value, ...]


def to_words(b: Builder, value: Value) -> Words:
    """Return the bits of a scalar as uint32 words, lowest first; narrow values are extended with zeros."""
    dtype = value.type.dtype
    raw = b.cast(value, dtypes.uint32) if dtype.bits == 1 else b.bitcast(value, Scalar(dtype.unsigned))
    low = b.cast(raw, dtypes.uint32)
    if dtype.bits <= 32:
        return (low,)
    return (low, b.cast(b.shr(raw, b.constant(32, dtypes.uint64)), dtypes.uint32))


def from_words(b: Builder, words: Words, dtype: dtypes.DType) -> Value:
    """Return the scalar of `dtype` whose bits are `words`: the inverse of `to_words`."""
    if dtype.bits == 1:
        return b.cast(words[0], dtype)
    raw = b.cast(words[0], dtype.unsigned)
    if dtype.bits == 64:
        high = b.cast(words[1], dtypes.uint64)
        raw = b.or_(raw, b.shl(high, b.constant(32, dtypes.uint64)))
    return b.bitcast(raw, Scalar(dtype))


# -- shuffles ---------------------------------------------------------------------------------------------------------


_WIDTH = Param("width", (1, 2, 4, 8, 16, 32), WARP)


def _native(
    name: str,
    native: Native,
    args: Mapping[str, Type],
    result: Type,
    doc: str,
    source: str,
    *,
    is_public: bool = True,
    params: tuple[Param, ...] = (),
) -> Intrinsic:
    """Define what the hardware does. One that is not public is for the functions of any dtype to be built of."""
    return define(
        name=name,
        args=tuple(args),
        sigs=(Sig(tuple(args.values()), (result,)),),
        params=params,
        effects=_COLLECTIVE,
        lower=dict.fromkeys(TARGETS, native),
        public_in=("stagekit",) if is_public else (),
        doc=doc,
        source=f"PTX ISA, {source}",
    )


def _shuffle_word(name: str, native: Native, doc: str, mode: str) -> Intrinsic:
    any_dtype = f"{name.replace('shuffle', 'shfl').replace('_idx', '')}_sync"
    doc = f"{doc} One 32-bit word; `{any_dtype}` takes any dtype."
    args = {"mask": U32, "value": U32, "lane": I32}
    return _native(name, native, args, U32, doc, f"shfl.sync.{mode}", is_public=False, params=(_WIDTH,))


shuffle_idx = _shuffle_word("shuffle_idx", Native.SHUFFLE_IDX, "`value` of lane `lane % 32`.", "idx")
shuffle_up = _shuffle_word("shuffle_up", Native.SHUFFLE_UP, "`value` of the lane `lane` places below.", "up")
shuffle_down = _shuffle_word("shuffle_down", Native.SHUFFLE_DOWN, "`value` of the lane `lane` places above.", "down")
shuffle_xor = _shuffle_word("shuffle_xor", Native.SHUFFLE_XOR, "`value` of lane `lane_id ^ lane`.", "bfly")


def _shuffle(name: str, word: Intrinsic, lane: str, doc: str) -> Intrinsic:
    """Define the shuffle of any dtype by the shuffle of one word."""

    def build(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Words:
        mask, value, distance = args
        moved = tuple(b.call_one(word, (mask, each, distance), params) for each in to_words(b, value))
        return (from_words(b, moved, value.type.dtype),)

    return define(
        name=name,
        args=("mask", "value", lane),
        sigs=tuple(Sig((U32, v, I32), (v,)) for v in _VALUES),
        params=(_WIDTH,),
        effects=_COLLECTIVE,
        lower=dict.fromkeys(TARGETS, Expand(build)),
        doc=doc,
        source=word.source,
    )


shfl_sync = _shuffle(
    "shfl_sync",
    shuffle_idx,
    "lane",
    "`value` of lane `lane`, taken modulo `width`, of this warp, or of these `width` lanes of it. Any dtype.",
)
shfl_up_sync = _shuffle(
    "shfl_up_sync",
    shuffle_up,
    "delta",
    "`value` of the lane `delta` (0 to 31) below this one; the lowest `delta` lanes of each `width` keep their own.",
)
shfl_down_sync = _shuffle(
    "shfl_down_sync",
    shuffle_down,
    "delta",
    "`value` of the lane `delta` (0 to 31) above this one; the highest `delta` lanes of each `width` keep their own.",
)
shfl_xor_sync = _shuffle(
    "shfl_xor_sync",
    shuffle_xor,
    "lane_mask",
    "`value` of the lane whose index differs from this one's in the bits of `lane_mask` (0 to `width` - 1).",
)

# -- votes ------------------------------------------------------------------------------------------------------------


def _vote(mode: str, native: Native, result: Type, doc: str) -> Intrinsic:
    args = {"mask": U32, "predicate": BOOL}
    return _native(f"{mode}_sync", native, args, result, doc, f"vote.sync.{mode}")


_SET = "A bit per lane: set where the lane is in `mask` and its `predicate` holds."
_RUN = "A bit per lane that runs this instruction together with this one. A snapshot: it promises nothing for the next one."
_SAME = "A bit per lane of `mask` that has the same 32-bit word; `match_any_sync` takes any dtype."

ballot_sync = _vote("ballot", Native.BALLOT, U32, _SET)
any_sync = _vote("any", Native.VOTE_ANY, BOOL, "Does `predicate` hold for any lane of `mask`?")
all_sync = _vote("all", Native.VOTE_ALL, BOOL, "Does `predicate` hold for all lanes of `mask`?")
activemask = _native("activemask", Native.ACTIVE_MASK, {}, U32, _RUN, "activemask")
match_any = _native(
    "match_any", Native.MATCH_ANY, {"mask": U32, "value": U32}, U32, _SAME, "match.sync.any.b32", is_public=False
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


def _over_lanes(combine: Callable[[Term, Term], Term]) -> Expand:
    """Return the lowering that folds over the lanes of `mask`, lowest first: one shuffle per set bit, so that any mask is right.

    while rest != 0: total = combine(total, value of the lowest lane of rest); rest = rest without its lowest lane
    """

    def formula(mask: Term, value: Term) -> Term:
        def of_lowest(among: Term) -> Term:
            lane = ((among & -among) - 1).call("popcount").cast(dtypes.int32)
            (word,) = to_words(value.builder, value.value)
            moved = mask.call("shuffle_idx", Term(mask.builder, word), lane)
            return Term(mask.builder, from_words(mask.builder, (moved.value,), value.dtype))

        def step(rest: Term, total: Term) -> tuple[Term, Term]:
            return rest & (rest - 1), combine(total, of_lowest(rest))

        first = of_lowest(mask)
        _, total = repeat_while((mask & (mask - 1), first), lambda rest, _: rest.differs(0), step)
        return total

    return expand(formula)


def _redux(verb: str, combine: Callable[[Term, Term], Term], suffixes: tuple[str, str] = ("s32", "u32")) -> Intrinsic:
    """Define a reduction over the warp. suffixes: how PTX spells the instruction's two types, int32 and uint32."""
    spelling: dict[Type, str] = dict(zip((I32, U32), suffixes, strict=True))

    def instruction(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Words:
        mask, value = args
        text = f"redux.sync.{verb}.{spelling[value.type]} $0, $1, $2;"
        return b.asm(text, "=r,r,r", (value, mask), (value.type,), has_side_effects=True, host=None)

    by_shuffles = _over_lanes(combine)
    return define(
        name=f"redux_sync_{verb}",
        args=("mask", "value"),
        sigs=tuple(Sig((U32, v), (v,)) for v in (I32, U32)),
        effects=_COLLECTIVE,
        lower={"cuda": Expand(instruction), "cpu": by_shuffles, "interp": by_shuffles},
        doc=f"The {verb} of `value` over the lanes of `mask`, by the one instruction that compute capability 8.0 brought. "
        "`warp_reduce` does the same by shuffles, for any dtype and on every device.",
        source=f"PTX ISA, redux.sync.{verb}",
        min_capability=80,
    )


redux_sync_add = _redux("add", lambda x, y: x + y)
redux_sync_min = _redux("min", lambda x, y: x.call("minimum", y))
redux_sync_max = _redux("max", lambda x, y: x.call("maximum", y))
redux_sync_and = _redux("and", lambda x, y: x & y, ("b32", "b32"))
redux_sync_or = _redux("or", lambda x, y: x | y, ("b32", "b32"))
redux_sync_xor = _redux("xor", lambda x, y: x ^ y, ("b32", "b32"))
