"""What the lanes of a warp do together: shuffles, votes, matches, and barriers in a block of one warp.

All is within vectors: the warp is in lockstep. The lanes that take part are those that are on and in the `mask` argument; a
read from any other gives the reader's own value.

    shuffle by a known distance      shufflevector
    one lane to all                  extract it
    any other                        through the stack

At a barrier there is nothing to wait for, but every thread must be here: one under a condition that only some threads took ends
the kernel with a fault. Blocks of several warps: `blockflow.py`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable

from stagekit import dtypes
from stagekit.backends.host.forms import ALL_LANES, LANES, Form, Mask, Uniform, Varying, number
from stagekit.backends.host.joins import select
from stagekit.backends.host.pointers import full_vector
from stagekit.backends.host.vectors import as_mask, constant_vector, mask_and, splat
from stagekit.backends.host.warp import Warp, leave_unless
from stagekit.diagnostics import InternalError
from stagekit.ir import I32, U32, Native, ops
from stagekit.ir.intervals import Interval

_WORDS = f"<{LANES} x i32>"
_FLAGS = f"<{LANES} x i1>"
_LANE_NUMBERS = constant_vector("i32", tuple(range(LANES)))

# Each rule: (own lane, argument) -> source lane, for numbers; one outside of the lane's `width` means the lane's own.
_SOURCES: dict[Native, Callable[[int, int], int]] = {
    Native.SHUFFLE_UP: operator.sub,
    Native.SHUFFLE_DOWN: operator.add,
    Native.SHUFFLE_XOR: operator.xor,
}
# The same as LLVM code on vectors of i32; of `shfl_sync`, counted from the first of the `width`.
_SOURCE_CODE: dict[Native, str] = {
    Native.SHUFFLE_IDX: f"and {_WORDS} {{argument}}, splat (i32 {{last}})",
    Native.SHUFFLE_UP: f"sub {_WORDS} {_LANE_NUMBERS}, {{argument}}",
    Native.SHUFFLE_DOWN: f"add {_WORDS} {_LANE_NUMBERS}, {{argument}}",
    Native.SHUFFLE_XOR: f"xor {_WORDS} {_LANE_NUMBERS}, {{argument}}",
}


def emit_shuffle(warp: Warp, op: ops.IntrinsicOp, native: Native) -> Form:
    mask, value, argument = map(warp.__getitem__, op.args)
    if isinstance(value, Uniform):
        return value  # whatever lane it comes from
    takes_part, (width,) = _participants(warp, mask), op.params
    if isinstance(argument, Uniform) and argument.constant is not None:
        return _known_shuffle(warp, value, _sources_of(native, argument.constant, width), takes_part)
    if isinstance(argument, Uniform) and native is Native.SHUFFLE_IDX and takes_part is None and width == LANES:
        place = warp.w.emit(f"and i32 {argument.text}, {LANES - 1}")
        text = warp.w.emit(f"extractelement {_WORDS} {full_vector(warp, U32, value)}, i32 {place}")
        return Uniform(text, Interval.of(dtypes.uint32))
    return _shuffle(warp, native, value, argument, takes_part, width)


def _participants(warp: Warp, mask: Form) -> Mask | None:
    """Return the lanes that are on and named by the `mask` argument; where lanes give different masks, each names itself."""
    if isinstance(mask, Uniform):
        if mask.constant is not None and dtypes.uint32.wrap(mask.constant) == ALL_LANES:
            return warp.mask
        return mask_and(warp.w, warp.mask, Mask(warp.w.emit(f"bitcast i32 {mask.text} to {_FLAGS}")))
    own_bits = warp.w.emit(f"lshr {_WORDS} {full_vector(warp, U32, mask)}, {_LANE_NUMBERS}")
    return mask_and(warp.w, warp.mask, Mask(warp.w.emit(f"trunc {_WORDS} {own_bits} to {_FLAGS}")))


def _known_shuffle(warp: Warp, value: Form, sources: tuple[int, ...], takes_part: Mask | None) -> Form:
    if takes_part is not None and takes_part.lanes is not None:
        sources = tuple([s if takes_part.lanes >> s & 1 else lane for lane, s in enumerate(sources)])
        takes_part = None
    places = f"<{LANES} x i32> {constant_vector('i32', sources)}"
    own = full_vector(warp, U32, value)
    moved = warp.w.emit(f"shufflevector {_WORDS} {own}, {_WORDS} poison, {places}")
    if takes_part is None:
        return Varying(moved, Interval.of(dtypes.uint32))
    is_on = warp.w.emit(f"shufflevector {_FLAGS} {takes_part.text}, {_FLAGS} poison, {places}")
    return select(warp, U32, Mask(is_on), Varying(moved, Interval.of(dtypes.uint32)), value)


@functools.cache
def _sources_of(native: Native, argument: int, width: int) -> tuple[int, ...]:
    """Return the lane from which each lane takes its value."""
    if native is Native.SHUFFLE_IDX:
        return tuple([lane & -width | argument % width for lane in range(LANES)])
    rule = _SOURCES[native]
    sources = [rule(lane, argument) for lane in range(LANES)]
    return tuple([source if source & -width == lane & -width else lane for lane, source in enumerate(sources)])


def _shuffle(warp: Warp, native: Native, value: Form, argument: Form, takes_part: Mask | None, width: int) -> Form:
    w, firsts = warp.w, constant_vector("i32", tuple(lane & -width for lane in range(LANES)))
    source = w.emit(_SOURCE_CODE[native].format(argument=full_vector(warp, I32, argument), last=width - 1))
    if native is Native.SHUFFLE_IDX:
        place = w.emit(f"or {_WORDS} {source}, {firsts}")
    else:
        first = w.emit(f"and {_WORDS} {source}, splat (i32 {-width})")
        is_lane = w.emit(f"icmp eq {_WORDS} {first}, {firsts}")
        place = w.emit(f"select {_FLAGS} {is_lane}, {_WORDS} {source}, {_WORDS} {_LANE_NUMBERS}")
    if takes_part is not None:
        word = splat(w, "i32", takes_part.word(w))
        is_on = w.emit(f"trunc {_WORDS} {w.emit(f'lshr {_WORDS} {word}, {place}')} to {_FLAGS}")
        place = w.emit(f"select {_FLAGS} {is_on}, {_WORDS} {place}, {_WORDS} {_LANE_NUMBERS}")
    return Varying(_permute(warp, full_vector(warp, U32, value), place), Interval.of(dtypes.uint32))


def _permute(warp: Warp, words: str, place: str) -> str:
    """Return, in each lane, the word of lane `place`."""
    w, buffer = warp.w, warp.kernel.buffer("i32", LANES, "shuffle")
    w.line(f"store {_WORDS} {words}, ptr {buffer}, align 64")
    pointers = w.emit(f"getelementptr i32, ptr {buffer}, {_WORDS} {place}")
    name = f"llvm.masked.gather.v{LANES}i32.v{LANES}p0"
    args = [(f"<{LANES} x ptr> align 4", pointers), (_FLAGS, "splat (i1 true)"), (_WORDS, "zeroinitializer")]
    return w.call(_WORDS, name, args)


# -- votes ------------------------------------------------------------------------------------------------------------


def active_word(warp: Warp) -> Uniform:
    """Return the lanes that are on, as a uint32."""
    if warp.mask is None:
        return number(ALL_LANES)
    if warp.mask.lanes is not None:
        return number(warp.mask.lanes)
    return Uniform(warp.mask.word(warp.w), Interval(0, ALL_LANES))


def ballot_word(warp: Warp, predicate: Form) -> str:
    """Return, as an i32, the lanes that are on and where `predicate` holds."""
    on = mask_and(warp.w, warp.mask, as_mask(warp.w, predicate))
    return "-1" if on is None else on.word(warp.w)


def _among(warp: Warp, word: str, mask: Form) -> Uniform | Varying:
    """Return the bits of `word` that the `mask` argument names."""
    w, interval = warp.w, Interval.of(dtypes.uint32)
    if isinstance(mask, Uniform):
        return Uniform(w.emit(f"and i32 {word}, {wrap_text(mask)}"), interval)
    return Varying(w.emit(f"and {_WORDS} {splat(w, 'i32', word)}, {full_vector(warp, U32, mask)}"), interval)


def wrap_text(mask: Uniform) -> str:
    return mask.text if mask.constant is None else str(dtypes.int32.wrap(mask.constant))


def emit_vote(warp: Warp, op: ops.IntrinsicOp, native: Native) -> Form:
    """Emit the lanes that take part where the predicate holds; or whether it holds in any, or in none not."""
    mask, predicate = (warp[a] for a in op.args)
    asked = as_mask(warp.w, predicate).inverted(warp.w) if native is Native.VOTE_ALL else predicate
    word = _among(warp, ballot_word(warp, asked), mask)
    if native is Native.BALLOT:
        return word
    relation = "eq" if native is Native.VOTE_ALL else "ne"
    if isinstance(word, Uniform):
        return Uniform(warp.w.emit(f"icmp {relation} i32 {word.text}, 0"))
    return Mask(warp.w.emit(f"icmp {relation} {_WORDS} {word.text}, zeroinitializer"))


def emit_match_any(warp: Warp, op: ops.IntrinsicOp, native: Native) -> Form:
    mask, value = (warp[a] for a in op.args)
    active = active_word(warp)
    if isinstance(value, Uniform):
        return _among(warp, wrap_text(active), mask)
    w, own, found = warp.w, full_vector(warp, U32, value), "zeroinitializer"
    for lane in range(LANES):
        places = f"<{LANES} x i32> splat (i32 {lane})"
        other = w.emit(f"shufflevector {_WORDS} {own}, {_WORDS} poison, {places}")
        is_equal = w.emit(f"icmp eq {_WORDS} {own}, {other}")
        bit = w.emit(f"or {_WORDS} {found}, splat (i32 {dtypes.int32.wrap(1 << lane)})")
        found = w.emit(f"select {_FLAGS} {is_equal}, {_WORDS} {bit}, {_WORDS} {found}")
    matching = w.emit(f"and {_WORDS} {found}, {splat(w, 'i32', wrap_text(active))}")
    asked = full_vector(warp, U32, mask)
    return Varying(w.emit(f"and {_WORDS} {matching}, {asked}"), Interval.of(dtypes.uint32))


def emit_barrier(warp: Warp, op: ops.IntrinsicOp, native: Native) -> None:
    """Check that all threads of a block of one warp are here, and give what the barrier counts."""
    if not warp.kernel.is_one_warp:
        raise InternalError("a barrier within a piece of a block of several warps")
    w = warp.w
    if warp.mask is not warp.full:
        here = warp.mask.word(w) if warp.mask else "-1"
        are_all = w.emit(f"icmp eq i32 {here}, {dtypes.int32.wrap(warp.kernel.lanes_of(0))}")
        leave_unless(w, are_all, warp.kernel.numbers[op])
    if native is not Native.BARRIER:
        count = w.call("i32", "llvm.ctpop.i32", [("i32", ballot_word(warp, warp[op.args[0]]))])
        warp[op.result] = counted_at_barrier(warp, native, count)


def counted_at_barrier(warp: Warp, native: Native, count: str) -> Uniform:
    """Return what a barrier gives when its predicate holds in `count` threads of the block."""
    threads = warp.kernel.threads
    if native is Native.BARRIER_COUNT:
        return Uniform(count, Interval(0, threads))
    wanted = "ne i32 {}, 0" if native is Native.BARRIER_OR else f"eq i32 {{}}, {threads}"
    return Uniform(warp.w.emit(f"icmp {wanted.format(count)}"))
