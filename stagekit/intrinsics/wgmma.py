"""Products of a warpgroup, four warps from a multiple of four on, which read both factors from shared memory while threads go on.

    wgmma_fence()
    sums = wgmma_m64n128(a, b, *sums)              begun; nobody may look at the sums yet, but another product may go on with them
    wgmma_commit()
    sums = wgmma_wait_m64n128(*sums, pending=0)    now they are there

A product is 64 by N, and 32 bytes deep. Warp w of four has rows 16 * w to 16 * w + 15, and lane 4 * g + t of these

    row g: the columns 2 * t and 2 * t + 1 of the first 8, of row g + 8 the same, then of the next 8 columns, and so on

as `mma.sync` has them, one of which has 8 columns. A factor lies in *panels* whose rows are 128 bytes; in each row the
8 chunks of 16 bytes are exclusive-ored with the number of the row, and a panel begins at a multiple of 1024 bytes. Rows are those
of M or of N, 32 bytes along K from the pointer on; or with `trans` those of K, and M or N goes on in the next panel.

`wgmma_rs_m64n128(a0, a1, a2, a3, b, *sums)` takes its left factor from registers, as four words of 32 bits: word w of lane
4 * g + t has 4 bytes of row g, or of row g + 8 where w is odd, from byte 4 * t on, or from 4 * t + 16 on where w is 2 or 3. So
the sums of one product, rounded to 16 bits, are the left factor of the next.

`descriptor` is what the instruction is told of that. Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from stagekit import dtypes
from stagekit.dtypes import DType
from stagekit.intrinsics.hopper import EFFECTS, for_threads, ordered_ptx
from stagekit.ir import (
    U32,
    U64,
    Builder,
    Effect,
    Expand,
    Intrinsic,
    Native,
    Param,
    Pointer,
    Scalar,
    Sig,
    Space,
    Type,
    Unsupported,
    Value,
)
from stagekit.limits import WARPGROUP_CAPABILITY

DEPTH_BYTES = 32  # of a product along K
ROW_BYTES = 128  # of a panel
ATOM_BYTES = 8 * ROW_BYTES  # after which the order of chunks repeats
ROWS = 64  # of a product
WORDS = 4  # of 32 bits that a thread has of a left factor in registers
COLUMNS = (8, 16, 32, 64, 96, 128, 192, 256)  # of products, of those that PTX has
_GROUPS = 8  # of products that a thread may leave under way: the instruction has a number in it
_ON_CPU = Unsupported(
    "no processor has it, and threads wait there at barriers of the whole block alone; `sk.dot` multiplies on every target, and "
    "`sk.sanitize` runs this without a GPU"
)
Values = tuple[Value, ...]


class FactorKind(NamedTuple):
    """A dtype of factors. ptx: how that spells it. total: the dtype of sums."""

    ptx: str
    total: DType


FACTORS: dict[DType, FactorKind] = {
    dtypes.float16: FactorKind("f16", dtypes.float32),
    dtypes.bfloat16: FactorKind("bf16", dtypes.float32),
    dtypes.float32: FactorKind("tf32", dtypes.float32),
    dtypes.float8_e4m3fn: FactorKind("e4m3", dtypes.float32),
    dtypes.float8_e5m2: FactorKind("e5m2", dtypes.float32),
    dtypes.int8: FactorKind("s8", dtypes.int32),
    dtypes.uint8: FactorKind("u8", dtypes.int32),
}
PAIRS = [
    (a, b)
    for a in FACTORS
    for b in FACTORS
    if a is b or (a.itemsize == b.itemsize == 1 and FACTORS[a].total is FACTORS[b].total)
]
"""Which factors go together: of 8 bits all floats, and all integers."""


def descriptor(address: int, *, is_turned: bool, panel_bytes: int) -> int:
    """Return what a product is told of a factor at an address of shared memory, a multiple of 16 bytes.

    panel_bytes: from one panel to the next, of a factor that is turned. Of the address 18 bits count: what is above them says in
    a cluster which block's memory it is. Source: PTX ISA, "Matrix Descriptor Format" (bits 0 to 13 the address, 16 to 29 and 32
    to 45 the leading and the stride byte offset, each in 16 bytes; 62 and 63 the order of chunks).
    """
    return address >> 4 & 0x3FFF | _layout(is_turned, panel_bytes)


def _layout(is_turned: bool, panel_bytes: int) -> int:
    leading = panel_bytes >> 4 if is_turned else 1
    return leading << 16 | (ATOM_BYTES >> 4) << 32 | 1 << 62


def _described(b: Builder, pointer: Value, is_turned: bool, panel_bytes: int) -> Value:
    """Build the descriptor of a factor."""
    (address,) = b.asm("mov.b64 $0, $1;", "=l,l", (pointer,), (U64,), has_side_effects=False, host=None)
    place = b.and_(b.shr(address, b.constant(4, dtypes.uint64)), b.constant(0x3FFF, dtypes.uint64))
    return b.or_(place, b.constant(_layout(is_turned, panel_bytes), dtypes.uint64))


def _listed(first: int, count: int) -> str:
    return "{" + ", ".join(f"${first + i}" for i in range(count)) + "}"


_LETTER = {dtypes.float32: "f", dtypes.int32: "r"}


def _tied(b: Builder, text: str, sums: Sequence[Value], more: Sequence[Value] = ()) -> Values:
    """Build an instruction whose results stay in the registers of `sums`. more: its other operands, words and descriptors."""
    count, types = len(sums), [each.type for each in sums]
    letters = [f"={_LETTER[each.dtype]}" for each in types]
    others = ["r" if each.type == U32 else "l" for each in more]
    constraints = ",".join([*letters, *map(str, range(count)), *others])
    return ordered_ptx(text, constraints, *types).build(b, (*sums, *more), ())  # type: ignore[no-any-return]


def _begin(b: Builder, columns: int, args: Sequence[Value], params: Sequence[Any]) -> Values:
    left, right, *sums = args
    trans_a, trans_b, panel_a, panel_b, *offsets = params
    factors = _described(b, left, trans_a, panel_a), _described(b, right, trans_b, panel_b)
    (one, other), before = _moved([2 * len(sums), 2 * len(sums) + 1], offsets)
    text = _text(columns, left.type.dtype, right.type.dtype, one, other, params[:2])
    return _tied(b, before.format(text), sums, factors)


def _begin_from_registers(b: Builder, columns: int, args: Sequence[Value], params: Sequence[Any]) -> Values:
    words, right, sums = args[:WORDS], args[WORDS], args[WORDS + 1 :]
    dtype, first = right.type.dtype, 2 * len(sums)
    *turned, offset = params
    (place,), before = _moved([first + WORDS], [offset])
    text = _text(columns, dtype, dtype, _listed(first, WORDS), place, params[:1])
    return _tied(b, before.format(text), sums, (*words, _described(b, right, *turned)))


def _moved(operands: Sequence[int], offsets: Sequence[int]) -> tuple[list[str], str]:
    """Return the descriptors of an instruction, moved by so many bytes, and the text that moves them, with a place for it.

    What the text does, LLVM does not see. It would keep each of them in registers of their own throughout a loop.
    """
    names = [f"moved{i}" if offset else f"${operand}" for i, (operand, offset) in enumerate(zip(operands, offsets))]
    steps = [
        f".reg .b64 {name}; add.s64 {name}, ${operand}, {offset >> 4};"
        for name, operand, offset in zip(names, operands, offsets)
        if offset
    ]
    return names, f"{{{{ {' '.join(steps)} {{}} }}}}" if steps else "{}"


def _text(columns: int, left: DType, right: DType, a: str, b: str, turns: Sequence[bool]) -> str:
    """Return the instruction. a, b: its operands. turns: whether factors of 16 bits, of those from shared memory, are turned."""
    (one, total), (other, _) = FACTORS[left], FACTORS[right]
    depth, of_sums = DEPTH_BYTES // left.itemsize, "f32" if total.is_float else "s32"
    more = ["1", *["1"] * (2 * total.is_float), *[str(int(each)) for each in turns if left.itemsize == 2]]
    name = f"wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.{of_sums}.{one}.{other}"
    return f"{name} {_listed(0, columns // 2)}, {a}, {b}, {', '.join(more)};"


def _wait(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Values:
    return _tied(b, f"wgmma.wait_group.sync.aligned {params[0]};", args)


def _define(
    name: str, args: tuple[str, ...], sigs: Sequence[Sig], on_cuda: Expand, doc: str, **fields: Any
) -> Intrinsic:
    return for_threads(
        name,
        on_cuda,
        Native.WARPGROUP_PRODUCT,
        doc,
        "wgmma",
        _ON_CPU,
        args=args,
        sigs=tuple(sigs),
        effects=EFFECTS | {Effect.COLLECTIVE},
        max_capability=WARPGROUP_CAPABILITY,
        **fields,
    )


def _misfit(types: Sequence[Type], params: Sequence[Any]) -> str:
    """Return why factors of these dtypes cannot lie like that. params: of both factors, or of the right one."""
    count = len(params) // 3
    pointers = [each for each in types if isinstance(each, Pointer)]
    columns = 2 * (len(types) - (count if count == 2 else WORDS + 1))
    parts = params[:count], params[count : 2 * count], params[2 * count :]
    for letter, type_, is_turned, panel_bytes, offset in zip("ab"[-count:], pointers, *parts):
        if is_turned and type_.dtype.itemsize != 2:
            return f"`trans_{letter}` is for 16 bits; {type_.dtype.name} lies along K"
        if offset < 0 or offset % 16:
            return f"`offset_{letter}` is {offset}, and factors begin at multiples of 16 bytes"
        if panel_bytes < 0 or panel_bytes % ATOM_BYTES:
            return f"`panel_{letter}` is {panel_bytes}, and panels begin at multiples of {ATOM_BYTES} bytes"
        if is_turned and panel_bytes == 0 and letter == "b" and columns > ROW_BYTES // 2:
            return f"`panel_{letter}` says how far the next panel is: a row of one has {ROW_BYTES // 2} elements"
    return ""


_SHARED = {element: Pointer(element, Space.SHARED) for element in FACTORS}


@functools.cache
def _sums(element: DType, columns: int) -> tuple[Type, ...]:
    return (Scalar(FACTORS[element].total),) * (columns // 2)


def _turns(letters: str) -> tuple[Param, ...]:
    turned = [Param(f"trans_{letter}", (False, True), False) for letter in letters]
    return (*turned, *[Param(f"{what}_{letter}", int, 0) for what in ("panel", "offset") for letter in letters])


def _product(columns: int) -> Intrinsic:
    count = columns // 2
    return _define(
        f"wgmma_m64n{columns}",
        ("a", "b", *[f"c{i}" for i in range(count)]),
        [Sig((_SHARED[a], _SHARED[b], *_sums(a, columns)), _sums(a, columns)) for a, b in PAIRS],
        Expand(lambda b, args, params: _begin(b, columns, args, params)),
        f"Begin c + a @ b of a warpgroup: a 64 rows, b {columns} columns, 32 bytes deep, of float16, bfloat16, float32 of which "
        "the lowest 13 bits are not looked at, two floats of 8 bits or two integers of 8 bits; both in panels of shared memory, "
        f"behind `fence_proxy_async` and a barrier. c: {count} sums, of int32 for integers, which wrap. trans_a, trans_b: of 16 "
        "bits, rows of the panel are those of K, and `panel_a`, `panel_b` bytes lie between panels. offset_a, offset_b: bytes, a "
        "multiple of 16, by which factors begin behind their pointers; so several products need one address in registers. Sums "
        "may be read, and what was multiplied written again, behind a wait.",
        params=_turns("ab"),
        misfit=_misfit,
        only_reads=("a", "b"),
        is_asynchronous=True,
    )


def _product_of_registers(columns: int) -> Intrinsic:
    count = columns // 2
    words = tuple([f"a{i}" for i in range(WORDS)])
    return _define(
        f"wgmma_rs_m64n{columns}",
        (*words, "b", *[f"c{i}" for i in range(count)]),
        [Sig((U32,) * WORDS + (_SHARED[b], *_sums(b, columns)), _sums(b, columns)) for b in FACTORS],
        Expand(lambda b, args, params: _begin_from_registers(b, columns, args, params)),
        f"`wgmma_m64n{columns}` with a, of the dtype of b, from registers: four words of each thread. They are there before "
        "`wgmma_fence`, and belong to the product from then on.",
        params=_turns("b"),
        misfit=_misfit,
        only_reads=("b",),
        is_asynchronous=True,
    )


def _waiting(columns: int) -> Intrinsic:
    count = columns // 2
    return _define(
        f"wgmma_wait_m64n{columns}",
        tuple([f"c{i}" for i in range(count)]),
        [Sig((Scalar(total),) * count, (Scalar(total),) * count) for total in _LETTER],
        Expand(_wait),
        f"Wait until at most `pending` groups of this warpgroup's products, the latest ones, are under way, and return the "
        f"{count} sums of one that is not.",
        params=(Param("pending", tuple(range(_GROUPS)), 0),),
    )


def _plain(name: str, text: str, doc: str) -> Intrinsic:
    return _define(name, (), (Sig((), ()),), ordered_ptx(f"{text}.sync.aligned;"), doc)


wgmma_fence = _plain(
    "wgmma_fence",
    "wgmma.fence",
    "Order what this warpgroup did with registers before the products that it begins next: before the first one, and where sums "
    "have changed otherwise.",
)
wgmma_commit = _plain(
    "wgmma_commit",
    "wgmma.commit_group",
    "Make a group of the products that this warpgroup has begun since the last one; of none an empty one.",
)
wgmma_m64n8 = _product(8)
wgmma_m64n16 = _product(16)
wgmma_m64n32 = _product(32)
wgmma_m64n64 = _product(64)
wgmma_m64n96 = _product(96)
wgmma_m64n128 = _product(128)
wgmma_m64n192 = _product(192)
wgmma_m64n256 = _product(256)
wgmma_rs_m64n8 = _product_of_registers(8)
wgmma_rs_m64n16 = _product_of_registers(16)
wgmma_rs_m64n32 = _product_of_registers(32)
wgmma_rs_m64n64 = _product_of_registers(64)
wgmma_rs_m64n96 = _product_of_registers(96)
wgmma_rs_m64n128 = _product_of_registers(128)
wgmma_rs_m64n192 = _product_of_registers(192)
wgmma_rs_m64n256 = _product_of_registers(256)
wgmma_wait_m64n8 = _waiting(8)
wgmma_wait_m64n16 = _waiting(16)
wgmma_wait_m64n32 = _waiting(32)
wgmma_wait_m64n64 = _waiting(64)
wgmma_wait_m64n96 = _waiting(96)
wgmma_wait_m64n128 = _waiting(128)
wgmma_wait_m64n192 = _waiting(192)
wgmma_wait_m64n256 = _waiting(256)
