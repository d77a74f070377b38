"""Products of bfloat16 that a warp computes together out of shared memory, for processors that have a unit for them.

    sums[r, lane] += sum of a[r, k] * b[k, lane] over k          r: 0 to rows; k: 0 to depth; lane: 0 to 32

    a      rows of bfloat16, `pitch` elements from one to the next
    b      rows of 32 words, each two neighbours along k, the first one in its low half
    sums   rows of 32 float32

That is how the tiles of AMX lie in memory. Where there is no such unit, a lane multiplies its column, eight rows at a time.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, "Programming with Intel AMX"; TDPBF16PS.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stagekit import dtypes
from stagekit.dtypes import DType
from stagekit.intrinsics.registry import by_name, define
from stagekit.ir import INDEX, Builder, Effect, Expand, Native, Param, Pointer, Scalar, Sig, Space, Unsupported, Value
from stagekit.ir.intrinsic import Limits
from stagekit.limits import WARP

UNIT = 32  # rows, and numbers along the depth, that come together
_AT_ONCE = 8  # rows, whose sums are in registers
_MOST = 1 << 20


def _by_lanes(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> tuple[Value, ...]:
    """Multiply by loops over rows and over pairs along the depth."""
    sums, a, columns, rows, depth, pitch = args
    (is_added,) = params
    words = b.bitcast(a, _pointer(dtypes.uint32))
    lane, width = b.cast(b.call_one(by_name("lane_id"), ()), dtypes.INDEX), b.index(WARP)
    pairs, row_words = [b.shr(each, b.index(1)) for each in (depth, pitch)]

    def from_row(first: Value) -> None:
        places = [b.offset(sums, b.add(b.mul(b.add(first, b.index(i)), width), lane)) for i in range(_AT_ONCE)]
        starts = [b.mul(b.add(first, b.index(i)), row_words) for i in range(_AT_ONCE)]
        inits = [b.load(place) if is_added else b.constant(0.0, dtypes.float32) for place in places]
        number, *totals = [Value(each.type) for each in (pairs, *inits)]
        with b.block((number, *totals)) as body:
            column = _floats(b, b.load(b.offset(columns, b.add(b.mul(number, width), lane))))
            factors = [_floats(b, b.load(b.offset(words, b.add(start, number)))) for start in starts]
            b.yield_(*[_added(b, x, column, total) for x, total in zip(factors, totals)])
        found = b.for_((b.index(0), pairs, b.index(1)), tuple(inits), body.done())
        for place, each in zip(places, found):
            b.store(place, each)

    b.call(by_name("syncwarp"), (b.constant(0xFFFFFFFF, dtypes.uint32),))
    first = Value(INDEX)
    with b.block((first,)) as body:
        from_row(first)
        b.yield_()
    b.for_((b.index(0), rows, b.index(_AT_ONCE)), (), body.done())
    b.call(by_name("syncwarp"), (b.constant(0xFFFFFFFF, dtypes.uint32),))
    return ()


def _floats(b: Builder, word: Value) -> list[Value]:
    """Return both numbers of a word as float32, which bfloat16 is the upper half of."""
    low = b.shl(word, b.constant(16, dtypes.uint32))
    high = b.and_(word, b.constant(0xFFFF0000, dtypes.uint32))
    return [b.bitcast(each, Scalar(dtypes.float32)) for each in (low, high)]


def _added(b: Builder, pair: list[Value], other: list[Value], total: Value) -> Value:
    for x, y in zip(pair, other):
        total = b.call_one(by_name("fma"), (x, y, total))
    return total


def _pointer(dtype: DType) -> Pointer:
    return Pointer(dtype, Space.SHARED)


BY_LANES = Expand(_by_lanes)
_HELD = dtypes.bfloat16, dtypes.uint32  # a row of a, by its numbers, or two of them in a word

warp_product_bf16 = define(
    name="warp_product_bf16",
    args=("sums", "a", "b", "rows", "depth", "pitch"),
    params=(Param("is_added", (True, False), True),),
    sigs=tuple(
        [Sig((_pointer(dtypes.float32), _pointer(a), _pointer(dtypes.uint32), INDEX, INDEX, INDEX), ()) for a in _HELD]
    ),
    effects=frozenset({Effect.READ, Effect.WRITE, Effect.COLLECTIVE}),
    only_reads=("a", "b"),
    limits={"rows": Limits(0, _MOST, UNIT), "depth": Limits(0, _MOST, UNIT), "pitch": Limits(UNIT, _MOST, 2)},
    lower={
        "cuda": Unsupported("it is for processors; a warp of a GPU has `sk.cuda.mma_m16n8k16_bf16`"),
        "cpu": Native.WARP_PRODUCT,
        "interp": BY_LANES,
    },
    doc="Add a @ b to sums of a warp, all 32 lanes, which give the same arguments and wait for each other before and behind it. "
    "a: `rows` rows of bfloat16, `pitch` of them apart, or words of two; b: for each lane a column of `depth` numbers, "
    "as words of two, the first in the low half; sums: rows of 32 float32. is_added=False: sums begin at 0. A processor with AMX "
    "adds even and odd products apart, and takes subnormal numbers as zeros.",
    source="Intel 64 and IA-32 Architectures Software Developer's Manual, TDPBF16PS",
    public_in=("stagekit",),
)
