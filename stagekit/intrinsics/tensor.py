"""Small matrix products that a warp computes together, and how their operands come from shared memory.

A warp holds a matrix in *fragments*: lane 4 * g + t, for g of 0 to 7 and t of 0 to 3, has in its 32-bit words (in its float64)

    a: of rows g and g + 8 (g alone, of m8n8k4) the words t, then the words t + 4;  of a word k grows from the lowest bits on
    b: of column g the word t, then the word t + 4, of those that lie along k
    c: of row g the columns 2 * t and 2 * t + 1, then of row g + 8 the same

so that one table row says all of an instruction, and `ldmatrix` reads fragments of any dtype of up to 32 bits. Where there is no
such instruction, lanes get rows and columns by shuffles, and multiply in the order of k.

Source: PTX ISA, "Warp Level Matrix Instructions" (mma, ldmatrix) and "Data Movement and Conversion Instructions: cp.async".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from stagekit import dtypes
from stagekit.dtypes import DType
from stagekit.intrinsics.registry import by_name, define, sig
from stagekit.intrinsics.terms import Term, asm, expand
from stagekit.ir import (
    BOOL,
    U32,
    Builder,
    CompareKind,
    Effect,
    Expand,
    Intrinsic,
    Native,
    Param,
    Pointer,
    Scalar,
    Sig,
    Space,
    Unsupported,
    Value,
    semantics,
)
from stagekit.ir.semantics import Array

_COLLECTIVE = frozenset({Effect.COLLECTIVE})
_PLACES = ("stagekit.cuda",)
CHUNK_BYTES = 16  # a row of a matrix of fragments, and the most that one instruction copies
_AMPERE = 80  # the compute capability that brought these shapes, times ten
_HOPPER = 90  # that which stores fragments by an instruction
Values = tuple[Value, ...]


class Product(NamedTuple):
    """One instruction. shape: m, n, k. element: of both factors; of tf32, which is held as float32, 13 bits are not looked at."""

    shape: tuple[int, int, int]
    element: DType
    total: DType
    ptx: tuple[str, str]  # how it spells both

    @property
    def holder(self) -> DType:
        """What a lane holds elements of the factors in."""
        return dtypes.float64 if self.element is dtypes.float64 else dtypes.uint32

    @property
    def is_tf32(self) -> bool:
        return self.ptx[0] == "tf32"

    @property
    def halves(self) -> int:
        """How many rows of a a lane has."""
        return self.shape[0] // 8

    @property
    def words(self) -> int:
        """How many holders a row of a, or a column of b, has."""
        return self.shape[2] * self.element.itemsize // self.holder.itemsize

    @property
    def counts(self) -> tuple[int, int]:
        """How many operands the fragments of a and of b are."""
        return self.halves * self.words // 4, self.words // 4


PRODUCTS = {
    "mma_m16n8k16_f16": Product((16, 8, 16), dtypes.float16, dtypes.float32, ("f16", "f32")),
    "mma_m16n8k16_bf16": Product((16, 8, 16), dtypes.bfloat16, dtypes.float32, ("bf16", "f32")),
    "mma_m16n8k8_tf32": Product((16, 8, 8), dtypes.float32, dtypes.float32, ("tf32", "f32")),
    "mma_m16n8k32_s8": Product((16, 8, 32), dtypes.int8, dtypes.int32, ("s8", "s32")),
    "mma_m16n8k32_u8": Product((16, 8, 32), dtypes.uint8, dtypes.int32, ("u8", "s32")),
    "mma_m8n8k4_f64": Product((8, 8, 4), dtypes.float64, dtypes.float64, ("f64", "f64")),
}


def _product(name: str) -> Intrinsic:
    row = PRODUCTS[name]
    m, n, k = row.shape
    names = [f"{letter}{i}" for letter, count in zip("abc", (*row.counts, 2 * row.halves)) for i in range(count)]
    held, total = Scalar(row.holder), Scalar(row.total)
    by_lanes = Expand(lambda b, args, params: _by_lanes(b, row, args))
    ignored = ", of which the lowest 13 bits are not looked at" if row.is_tf32 else ""
    return define(
        name=name,
        args=tuple(names),
        sigs=(Sig((held,) * sum(row.counts) + (total,) * 2 * row.halves, (total,) * 2 * row.halves),),
        effects=_COLLECTIVE,
        lower={
            "cuda": Expand(lambda b, args, params: _instruction(b, row, args)),
            "cpu": by_lanes,
            "interp": Native.WARP_PRODUCT,
        },
        doc=f"c + a @ b of a warp, all 32 lanes: a {m} by {k}, b {k} by {n} of {row.element.name}{ignored}, "
        f"c {m} by {n} of {row.total.name}, in fragments. "
        + (
            "Sums wrap."
            if row.total.is_integer
            else "On a GPU the order of additions, and their rounding, are the hardware's."
        ),
        source="PTX ISA, mma.sync",
        min_capability=_AMPERE,
        older=by_lanes,
        public_in=_PLACES,
    )


_LETTER = {dtypes.uint32: "r", dtypes.int32: "r", dtypes.float32: "f", dtypes.float64: "d"}


def _instruction(b: Builder, row: Product, args: Sequence[Value]) -> Values:
    sums = 2 * row.halves
    groups = [sums, *row.counts, sums]
    starts = [sum(groups[:i]) for i in range(len(groups))]
    operands = ["{" + ", ".join(f"${s + i}" for i in range(c)) + "}" for s, c in zip(starts, groups)]
    element, total = row.ptx
    shape = "m{}n{}k{}".format(*row.shape)
    text = f"mma.sync.aligned.{shape}.row.col.{total}.{element}.{element}.{total} {', '.join(operands)};"
    result = _LETTER[row.total]
    constraints = [f"={result}"] * sums + [_LETTER[value.type.dtype] for value in args]
    results = (Scalar(row.total),) * sums
    return b.asm(text, ",".join(constraints), args, results, has_side_effects=True, host=None)


def _by_lanes(b: Builder, row: Product, args: Sequence[Value]) -> Values:
    """Multiply the rows that a lane has by its two columns, which it gets from the lanes that have them."""
    count_a, count_b = row.counts
    a, other, c = args[:count_a], args[count_a : count_a + count_b], args[count_a + count_b :]
    lane = b.cast(b.call_one(by_name("lane_id"), ()), dtypes.int32)
    group, place = b.shr(lane, _number(b, 2)), b.and_(lane, _number(b, 3))

    def line(parts: Sequence[Value], step: int, first: Value) -> list[Value]:
        """Return elements along k. parts: of which each lane has its own; first: the lane with the first of them."""
        words = [
            _from_lane(b, parts[step * (word // 4)], b.add(first, _number(b, word % 4))) for word in range(row.words)
        ]
        return [element for word in words for element in _elements(b, row, word)]

    rows = [line(a[half:], row.halves, b.shl(group, _number(b, 2))) for half in range(row.halves)]
    columns = [line(other, 1, b.add(b.shl(place, _number(b, 3)), _number(b, 4 * j))) for j in range(2)]
    return tuple([_sum(b, c[2 * i + j], rows[i], columns[j]) for i in range(row.halves) for j in range(2)])


def _number(b: Builder, value: int) -> Value:
    return b.constant(value, dtypes.int32)


def _from_lane(b: Builder, value: Value, lane: Value) -> Value:
    return b.call_one(by_name("shfl_sync"), (b.constant(0xFFFFFFFF, dtypes.uint32), value, lane))


def _elements(b: Builder, row: Product, word: Value) -> Iterator[Value]:
    """Return the elements of a word in the dtype of the sums, lowest bits first."""
    if row.holder is dtypes.float64:
        yield word
        return
    if row.is_tf32:
        yield b.bitcast(b.and_(word, b.constant(0xFFFFE000, dtypes.uint32)), Scalar(dtypes.float32))
        return
    for shift in range(0, 32, row.element.bits):
        part = b.cast(b.shr(word, b.constant(shift, dtypes.uint32)), row.element.unsigned)
        yield b.cast(b.bitcast(part, Scalar(row.element)), row.total)


def _sum(b: Builder, total: Value, row: Sequence[Value], column: Sequence[Value]) -> Value:
    for x, y in zip(row, column, strict=True):
        total = b.call_one(by_name("fma"), (x, y, total)) if total.type.dtype.is_float else b.add(b.mul(x, y), total)
    return total


mma_m16n8k16_f16 = _product("mma_m16n8k16_f16")
mma_m16n8k16_bf16 = _product("mma_m16n8k16_bf16")
mma_m16n8k8_tf32 = _product("mma_m16n8k8_tf32")
mma_m16n8k32_s8 = _product("mma_m16n8k32_s8")
mma_m16n8k32_u8 = _product("mma_m16n8k32_u8")
mma_m8n8k4_f64 = _product("mma_m8n8k4_f64")


def _rounded(x: Term) -> Term:
    """Round the magnitude as an integer; an infinity stays one, and so does a NaN, which might carry into the sign."""
    rounded = ((x.bits + 0x1000) & 0xFFFFE000).bitcast(dtypes.float32)
    return x.select_if(x.differs(x), rounded)


def _rounded_by_numpy(x: Array) -> Array:
    rounded = ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isnan(x), x, rounded)


round_tf32 = define(
    name="round_tf32",
    args=("x",),
    sigs=(sig([dtypes.float32], dtypes.float32),),
    lower={"cuda": expand(lambda x: asm("cvt.rna.tf32.f32 $0, $1;", "=f,f", x)), "cpu": expand(_rounded)},
    evaluate=_rounded_by_numpy,
    doc="`x` rounded to 10 bits behind the leading one, as factors of tf32 have: to nearest, ties away from zero.",
    source="PTX ISA, cvt.rna.tf32.f32",
    min_capability=_AMPERE,
    older=expand(_rounded),
    public_in=_PLACES,
)

# -- fragments in shared memory -----------------------------------------------------------------------------------------

_MOVED = [d for d in dtypes.ALL_DTYPES if d.bits in (8, 16, 32) and d.kind != "bool"]


def _words(b: Builder, pointer: Value) -> Value:
    return b.bitcast(pointer, Pointer(dtypes.uint32, pointer.type.space))  # type: ignore[union-attr]


def _fragments(name: str, count: int) -> Intrinsic:
    by_lanes = Expand(lambda b, args, params: _loaded_by_lanes(b, count, args[0], is_turned=params[0]))
    return define(
        name=name,
        args=("pointer",),
        params=(Param("trans", (False, True), False),),
        sigs=tuple([Sig((Pointer(d, Space.SHARED),), (U32,) * count) for d in _MOVED]),
        effects=_COLLECTIVE | {Effect.READ},
        lower={
            "cuda": Expand(lambda b, args, params: _ldmatrix(b, count, args[0], is_turned=params[0])),
            "cpu": by_lanes,
            "interp": Native.FRAGMENTS,
        },
        doc=f"{count} matri{'ces' if count > 1 else 'x'} of 8 rows of 16 bytes: to lane 4 * g + t the word t of row g of each. "
        f"Lane 8 * i + r points to row r of matrix i, to a multiple of 16 bytes{'' if count == 4 else '; other lanes to none'}. "
        "trans: of 8 by 8 elements of 16 bits, rows are columns, so that a lane gets elements g of rows 2 * t and 2 * t + 1.",
        source="PTX ISA, ldmatrix.sync",
        public_in=_PLACES,
    )


def _ldmatrix(b: Builder, count: int, pointer: Value, *, is_turned: bool) -> Values:
    places = ", ".join(f"${i}" for i in range(count))
    text = f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if is_turned else ''}.shared.b16 {{{places}}}, [${count}];"
    constraints = ",".join(["=r"] * count + ["l"])
    return b.asm(text, constraints, (pointer,), (U32,) * count, has_side_effects=True, host=None)


def _loaded_by_lanes(b: Builder, count: int, pointer: Value, *, is_turned: bool) -> Values:
    """Let each lane load the row that it points to, and get its words from the lanes that have them."""
    lane = b.cast(b.call_one(by_name("lane_id"), ()), dtypes.int32)
    group, place = b.shr(lane, _number(b, 2)), b.and_(lane, _number(b, 3))
    exists = b.compare(CompareKind.LT, lane, _number(b, 8 * count))
    start, nothing = _words(b, pointer), b.constant(0, dtypes.uint32)
    row = [
        b.load(b.offset(start, b.index(i)), exists, nothing, align=CHUNK_BYTES if i == 0 else None) for i in range(4)
    ]

    def word(lane: Value, which: Value) -> Value:
        """Return a word of the row of a lane, by its number."""
        parts = [_from_lane(b, each, lane) for each in row]
        found = parts[0]
        for i in range(1, 4):
            found = b.select(b.compare(CompareKind.EQ, which, _number(b, i)), parts[i], found)
        return found

    def turned(matrix: int) -> Value:
        both = []
        for i in range(2):
            source = b.add(b.shl(place, _number(b, 1)), _number(b, 8 * matrix + i))
            bits = b.cast(b.shl(b.and_(group, _number(b, 1)), _number(b, 4)), dtypes.uint32)
            half = b.shr(word(source, b.shr(group, _number(b, 1))), bits)
            both.append(b.and_(half, b.constant(0xFFFF, dtypes.uint32)))
        return b.or_(both[0], b.shl(both[1], b.constant(16, dtypes.uint32)))

    if is_turned:
        return tuple([turned(matrix) for matrix in range(count)])
    return tuple([word(b.add(group, _number(b, 8 * matrix)), place) for matrix in range(count)])


ldmatrix_x1 = _fragments("ldmatrix_x1", 1)
ldmatrix_x2 = _fragments("ldmatrix_x2", 2)
ldmatrix_x4 = _fragments("ldmatrix_x4", 4)


def _stored_fragments(name: str, count: int) -> Intrinsic:
    by_lanes = Expand(lambda b, args, params: _stored_by_lanes(b, args[0], args[1:], is_turned=params[0]))
    return define(
        name=name,
        args=("pointer", *[f"w{i}" for i in range(count)]),
        params=(Param("trans", (False, True), False),),
        sigs=tuple([Sig((Pointer(d, Space.SHARED), *(U32,) * count), ()) for d in _MOVED]),
        effects=_COLLECTIVE | {Effect.WRITE},
        lower={
            "cuda": Expand(lambda b, args, params: _stmatrix(b, args, is_turned=params[0])),
            "cpu": by_lanes,
            "interp": Native.FRAGMENTS,
        },
        doc=f"What `ldmatrix_x{count}` loads, stored: {count} matri{'ces' if count > 1 else 'x'} of 8 rows of 16 bytes, of which "
        "lane 4 * g + t has the word t of row g of each. Lane 8 * i + r points to where row r of matrix i goes, to a multiple of "
        f"16 bytes{'' if count == 4 else '; other lanes to none'}. trans: of 8 by 8 elements of 16 bits, a lane has elements g "
        "of rows 2 * t and 2 * t + 1.",
        source="PTX ISA, stmatrix.sync",
        min_capability=_HOPPER,
        older=by_lanes,
        public_in=_PLACES,
    )


def _stmatrix(b: Builder, args: Sequence[Value], *, is_turned: bool) -> Values:
    count = len(args) - 1
    words = ", ".join(f"${i + 1}" for i in range(count))
    text = f"stmatrix.sync.aligned.m8n8.x{count}{'.trans' if is_turned else ''}.shared.b16 [$0], {{{words}}};"
    return b.asm(text, ",".join(["l", *"r" * count, "~{memory}"]), args, (), has_side_effects=True, host=None)


def _stored_by_lanes(b: Builder, pointer: Value, words: Sequence[Value], *, is_turned: bool) -> Values:
    """Let each lane get the words of the row that it points to from the lanes that have them, and store them."""
    lane = b.cast(b.call_one(by_name("lane_id"), ()), dtypes.int32)
    row, matrix = b.and_(lane, _number(b, 7)), b.shr(lane, _number(b, 3))
    exists = b.compare(CompareKind.LT, lane, _number(b, 8 * len(words)))

    def word(source: Value) -> Value:
        """Return the word of this lane's matrix that a lane has."""
        found = _from_lane(b, words[0], source)
        for i, each in enumerate(words[1:], start=1):
            found = b.select(b.compare(CompareKind.EQ, matrix, _number(b, i)), _from_lane(b, each, source), found)
        return found

    def half(column: int) -> Value:
        """Return an element of 16 bits of this lane's row: lane 4 * column + row / 2 has it."""
        bits = b.cast(b.shl(b.and_(row, _number(b, 1)), _number(b, 4)), dtypes.uint32)
        source = b.add(_number(b, 4 * column), b.shr(row, _number(b, 1)))
        return b.and_(b.shr(word(source), bits), b.constant(0xFFFF, dtypes.uint32))

    start = _words(b, pointer)
    for i in range(4):
        if is_turned:
            found = b.or_(half(2 * i), b.shl(half(2 * i + 1), b.constant(16, dtypes.uint32)))
        else:
            found = word(b.add(b.shl(row, _number(b, 2)), _number(b, i)))
        b.store(b.offset(start, b.index(i)), found, exists, align=CHUNK_BYTES if i == 0 else None)
    return ()


stmatrix_x1 = _stored_fragments("stmatrix_x1", 1)
stmatrix_x2 = _stored_fragments("stmatrix_x2", 2)
stmatrix_x4 = _stored_fragments("stmatrix_x4", 4)

# -- copies that go on meanwhile ----------------------------------------------------------------------------------------

_COPIED = [d for d in dtypes.ALL_DTYPES if d.kind != "bool"]
_COPIES = tuple([Sig((Pointer(d, Space.SHARED), Pointer(d, Space.GLOBAL), BOOL), ()) for d in _COPIED])
_MEMORY = frozenset({Effect.READ, Effect.WRITE})


def _copied(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Values:
    """Copy one element after the other, as older devices and the CPU do."""
    target, source, mask = args
    dtype = source.type.dtype
    for i in range(params[0] // dtype.itemsize):
        place, align = b.index(i), params[0] if i == 0 else None
        value = b.load(b.offset(source, place), mask, b.constant(semantics.round_to(0, dtype), dtype), align=align)
        b.store(b.offset(target, place), value, align=align)
    return ()


def _copied_late(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Values:
    target, source, mask = args
    size = source.type.dtype.itemsize
    for i in range(params[0] // size):
        place = b.index(i)
        checked = (params[0], params[0] // size) if i == 0 else (size, 0)
        b.call(copy_element_async, (b.offset(target, place), b.offset(source, place), mask), checked)
    return ()


def _cp_async(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Values:
    """Copy, or write zeros where the source is to be ignored."""
    target, source, mask = args
    (size,) = params
    how = "cg.shared.global.L2::128B" if size == CHUNK_BYTES else "ca.shared.global"
    text = f"cp.async.{how} [$0], [$1], {size}, $2;"
    return b.asm(text, "l,l,b", (target, source, b.not_(mask)), (), has_side_effects=True, host=None)


def _async(text: str) -> Expand:
    """Return an instruction without operands but {}, the parameter."""
    return Expand(lambda b, args, params: b.asm(text.format(*params), "", (), (), has_side_effects=True, host=None))


_ELSEWHERE = Unsupported("it is a part of `cp_async` in the interpreter alone")
_NOTHING = Expand(lambda b, args, params: ())

copy_element_async = define(
    name="copy_element_async",
    args=("target", "source", "mask"),
    params=(Param("align", int), Param("covers", int)),
    sigs=_COPIES,
    effects=_MEMORY,
    only_reads=("source",),
    is_asynchronous=True,
    lower={"cuda": _ELSEWHERE, "cpu": _ELSEWHERE, "interp": Native.COPY_ASYNC},
    doc="One element of what `cp_async` copies, in the interpreter.",
    source="PTX ISA, cp.async",
    public_in=(),
)
cp_async = define(
    name="cp_async",
    args=("target", "source", "mask"),
    params=(Param("size", (4, 8, 16)),),
    defaults=(),
    sigs=_COPIES,
    effects=_MEMORY,
    only_reads=("source",),
    is_asynchronous=True,
    lower={"cuda": Expand(_cp_async), "cpu": Expand(_copied), "interp": Expand(_copied_late)},
    doc="Copy `size` bytes, of which both addresses are multiples, to shared memory, while the thread goes on; zeros where "
    "`mask` is false. They are there for the thread behind `cp_async_wait`, for others behind a barrier after it.",
    source="PTX ISA, cp.async",
    min_capability=_AMPERE,
    older=Expand(_copied),
    public_in=_PLACES,
)
cp_async_commit = define(
    name="cp_async_commit",
    effects=_MEMORY,
    lower={"cuda": _async("cp.async.commit_group;"), "cpu": _NOTHING, "interp": Native.COPY_COMMIT},
    doc="Make a group of the copies that this thread has begun since the last one; of none an empty one.",
    source="PTX ISA, cp.async.commit_group",
    min_capability=_AMPERE,
    older=_NOTHING,
    public_in=_PLACES,
)
cp_async_wait = define(
    name="cp_async_wait",
    params=(Param("pending", int, 0),),
    effects=_MEMORY,
    lower={"cuda": _async("cp.async.wait_group {};"), "cpu": _NOTHING, "interp": Native.COPY_WAIT},
    doc="Wait until at most `pending` groups of this thread's copies, the latest ones, are under way.",
    source="PTX ISA, cp.async.wait_group",
    min_capability=_AMPERE,
    older=_NOTHING,
    public_in=_PLACES,
)
