"""Tensor maps, and the copies of tiles that read them: what the TMA unit does from compute capability 9.0 on.

A *tensor map* says how a tile of an array lies in global memory (its address, sizes and strides) and in shared memory (the box
and its swizzle). The launcher builds it, and hands it to the kernel as a parameter of 128 bytes. Here it is a number, its
*handle*: on cuda the address of that parameter, in the interpreter the number that the trace gave it.

All arrays have five axes here, the first of which may have one element, so that there is one record of each kind. Users call the
methods of `sk.tensor_map`. A copy is given its array besides the map: every analysis then sees which memory it reads or writes.
Source: PTX ISA, "cp.async.bulk.tensor", "Tensors: tiled mode, swizzling modes"; CUDA driver API, cuTensorMapEncodeTiled; CUDA C++
Programming Guide, "Tensor Memory Access", for where a tile may begin. An H200 ends the context at a tile that begins elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stagekit import dtypes
from stagekit.dtypes import DType
from stagekit.intrinsics.hopper import HOPPER, MBARRIER, ON_CPU, for_threads, ordered_ptx
from stagekit.intrinsics.registry import define
from stagekit.ir import (
    I32,
    INDEX,
    PURE,
    U64,
    Builder,
    Expand,
    Intrinsic,
    Limits,
    Lowering,
    Native,
    Param,
    Pointer,
    Scalar,
    Sig,
    Space,
    Value,
)
from stagekit.limits import MAX_CLUSTER_BLOCKS, TENSOR_MAP_AXES
from stagekit.signature import TENSOR_MAP_UNIT

DTYPES = tuple(d for d in dtypes.ALL_DTYPES if d.kind != "bool")
_WORDS = frozenset({dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64})
_HALVES = frozenset({dtypes.float16, dtypes.bfloat16})
_ORDERED = _WORDS | _HALVES
REDUCTIONS: Mapping[str, frozenset[DType]] = {
    "add": frozenset({*_HALVES, dtypes.int32, dtypes.uint32, dtypes.uint64, dtypes.float32, dtypes.float64}),
    "min": _ORDERED,
    "max": _ORDERED,
    "and": _WORDS - {dtypes.int64},
    "or": _WORDS - {dtypes.int64},
    "xor": _WORDS - {dtypes.int64},
}
"""Of which dtypes `tma_reduce` does each operation. Source: PTX ISA, "cp.reduce.async.bulk", but for bits of int64, which an H200
refuses as an illegal instruction."""


def misplaced(dtype: DType, first: Sequence[int], to_array: bool) -> str:
    """Return why no tile may begin at these coordinates, "" if one may. to_array: it is stored, or combined, and not loaded."""
    unit, last = TENSOR_MAP_UNIT // dtype.itemsize, len(first) - 1
    if first[last] % unit:
        return f"at {first[last]} along axis {last}, which is no multiple of {unit}: of {TENSOR_MAP_UNIT} bytes of {dtype.name}"
    below = [axis for axis, place in enumerate(first) if place < 0]
    if to_array and below:
        return f"at {first[below[0]]} along axis {below[0]}, and a store begins at 0 or above"
    return ""


_AXES = range(TENSOR_MAP_AXES)
_COORDINATES = [f"i{axis}" for axis in _AXES]
_AT = (I32,) * TENSOR_MAP_AXES
_RANK = Param("rank", tuple(axis + 1 for axis in _AXES))
Values = tuple[Value, ...]

tensor_map = define(
    name="tensor_map",
    args=("source", *[f"{what}{axis}" for what in ("size", "stride") for axis in _AXES]),
    sigs=tuple(Sig((Pointer(d, Space.GLOBAL), *[INDEX] * 2 * TENSOR_MAP_AXES), (U64,)) for d in DTYPES),
    params=(Param("number", int), Param("box", tuple), Param("swizzle", int), Param("fill", str)),
    effects=PURE,
    lower={"cuda": Native.TENSOR_MAP, "cpu": ON_CPU, "interp": Native.TENSOR_MAP},
    level="thread",
    doc="The handle of map `number` of the kernel, of an array and a box of its elements. What `sk.tensor_map` makes.",
    source="CUDA driver API, cuTensorMapEncodeTiled",
    min_capability=HOPPER,
    public_in=(),
)


def _instruction(text: str, names: Sequence[str]) -> Expand:
    """Return an instruction. text: with the names of arguments in braces, and `{place}` for the map with the coordinates.

    names: of the arguments before the coordinates, of which PTX takes the innermost axis first.
    """

    def build(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Values:
        rank, *rest = params
        taken = {name: value for name, value in zip(names, args) if f"{{{name}}}" in text or name == "map"}
        numbers = {name: f"${i}" for i, name in enumerate(taken)}
        first, places = len(taken), args[: -rank - 1 : -1]
        place = f"[{numbers['map']}, {{{', '.join(f'${first + axis}' for axis in range(rank))}}}]"
        written = text.format(**numbers, place=place, rank=rank, op=rest[0] if rest else "")
        letters = ",".join(["h" if name == "ranks" else "l" for name in taken] + ["r"] * rank)
        return ordered_ptx(written, letters).build(b, (*taken.values(), *places), ())  # type: ignore[no-any-return]

    return Expand(build)


def _tile(
    name: str, text: str, on_interp: Lowering, doc: str, source: str, sigs: Mapping[str, Any], **fields: Any
) -> Intrinsic:
    """Define what is done with a tile. text: see `_instruction`. sigs: by argument, its type, or the space of a pointer."""
    given = fields.pop("dtypes", DTYPES)
    rows = [[Pointer(d, each) if isinstance(each, Space) else each for each in sigs.values()] for d in given]
    return for_threads(
        name,
        _instruction(text, ("map", *sigs)),
        on_interp,
        doc,
        source,
        args=("map", *sigs, *_COORDINATES),
        sigs=tuple(Sig((U64, *row, *_AT), ()) for row in (rows if sigs else [[]])),
        params=(_RANK, *fields.pop("params", ())),
        is_asynchronous=bool(sigs),
        public_in=(),
        **fields,
    )


_FROM = {"target": Space.SHARED, "source": Space.GLOBAL, "mbarrier": MBARRIER}
_TO = {"target": Space.GLOBAL, "source": Space.SHARED}
_NOTHING = Expand(lambda b, args, params: ())

tma_load = _tile(
    "tma_load",
    "cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [{target}], {place}, [{mbarrier}];",
    Native.TILE_COPY,
    "Begin to copy a tile from global to shared memory, with zeros, or NaN, where the array has no elements. All its bytes count "
    "for the phase of `mbarrier` that expects them.",
    "cp.async.bulk.tensor",
    _FROM,
    only_reads=("source",),
)
tma_load_multicast = _tile(
    "tma_load_multicast",
    "cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
    "[{target}], {place}, [{mbarrier}], {ranks};",
    Native.TILE_COPY,
    "As `tma_load`, to the same place in shared memory of each block of the cluster whose bit is set in `ranks`; each time the "
    "bytes count for the mbarrier that is there in that block.",
    "cp.async.bulk.tensor, .multicast::cluster",
    {**_FROM, "ranks": Scalar(dtypes.uint16)},
    only_reads=("source",),
    limits={"ranks": Limits(1, (1 << MAX_CLUSTER_BLOCKS) - 1)},
    max_capability=110,  # from 12.0 on ptxas advises against it
)
tma_store = _tile(
    "tma_store",
    "cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group {place}, [{source}];",
    Native.TILE_COPY,
    "Begin to copy a tile from shared to global memory, but for what lies outside the array. The thread waits for it as "
    "for `cp_async_bulk_s2g`.",
    "cp.async.bulk.tensor",
    _TO,
    only_reads=("source",),
)
tma_reduce = _tile(
    "tma_reduce",
    "cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{op}.tile.bulk_group {place}, [{source}];",
    Native.TILE_COPY,
    "As `tma_store`, but each element of the array is combined with that of the tile, atomically.",
    "cp.reduce.async.bulk.tensor",
    _TO,
    params=(Param("op", tuple(REDUCTIONS)),),
    only_reads=("source",),
)
tma_prefetch = _tile(
    "tma_prefetch",
    "cp.async.bulk.prefetch.tensor.{rank}d.L2.global.tile {place};",
    _NOTHING,
    "Bring a tile nearer, to the L2 cache.",
    "cp.async.bulk.prefetch.tensor",
    {},
)
prefetch_tensor_map = for_threads(
    "prefetch_tensor_map",
    ordered_ptx("prefetch.tensormap [$0];", "l"),
    _NOTHING,
    "Bring a tensor map itself nearer, which the first copy would wait for.",
    "prefetch",
    args=("map",),
    sigs=(Sig((U64,), ()),),
    public_in=(),
)
