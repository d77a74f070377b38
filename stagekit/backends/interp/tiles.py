"""Copies of tiles by tensor maps: flights as other bulk copies are, between a box of an array and a tile in shared memory.

    tile, swizzle of 128 bytes        row r of the box is 128 bytes; its chunk c of 16 bytes lies at c ^ (r % 8)

The bytes of a tile lie exactly as the hardware has them, so that a kernel which reads them by another rule computes what it
would there. A load fills in elements of the box outside the array, a store leaves them out; all bytes of a tile count.
Source: PTX ISA, "Tensors: tiled mode, bounding box, swizzling modes"; "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor".
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from stagekit.backends.interp.access import touches
from stagekit.backends.interp.asynchronous import (
    Arrange,
    Flight,
    Signal,
    begin,
    only,
    run_of,
    signalling,
    signalling_at,
)
from stagekit.backends.interp.clusters import report_strangers, there
from stagekit.backends.interp.findings import TileMisplaced
from stagekit.backends.interp.memory import AnyPointers, Array, in_lane
from stagekit.backends.interp.program import Built, Compiler
from stagekit.backends.interp.team import Access, Run, Team, Values
from stagekit.dtypes import DType
from stagekit.intrinsics.tensor_maps import misplaced, tma_load, tma_load_multicast
from stagekit.ir import Native, ops
from stagekit.limits import TENSOR_MAP_AXES

_TILE_ALIGN = 128  # bytes
_RANKS = 16  # bits of what names the blocks of a cluster
_ROWS = 8  # of a swizzle's width, after which its pattern begins again


class Tiling(NamedTuple):
    """How the tiles of an array lie. address: of its first element. shape, strides: in elements, of each axis of the box."""

    address: AnyPointers
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    fill: str

    @property
    def align(self) -> int:
        """Bytes of which the address of a tile must be a multiple."""
        return max(_TILE_ALIGN, _ROWS * self.swizzle)

    def elements(self, first: tuple[int, ...]) -> tuple[Array, Array]:
        """Return which elements of the box, in its order, the array has, and how far each of those is from its first one."""
        index = np.array(first)[:, None] + _indices(self.box)
        is_there = ((index >= 0) & (index < np.array(self.shape)[:, None])).all(axis=0)
        return np.flatnonzero(is_there), np.array(self.strides) @ index[:, is_there]


@functools.cache
def _indices(box: tuple[int, ...]) -> Array:
    return np.indices(box).reshape(len(box), -1)


@functools.cache
def _places(box: tuple[int, ...], swizzle: int, itemsize: int) -> Array:
    """Return where each element of the box, in its order, is in the tile."""
    number = np.arange(math.prod(box))
    turn = (number * itemsize // _TILE_ALIGN) & (max(swizzle // 16, 1) - 1)
    return np.asarray(number ^ (turn * 16 // itemsize))


def build_tensor_map(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    """Build a map, which is the same in every thread."""
    number, box, swizzle, fill = op.params
    address, *extents = c.numbers(op.args)
    result, rank = c.number(op.result), len(box)
    sizes, strides = (row[-rank:] for row in (extents[:TENSOR_MAP_AXES], extents[TENSOR_MAP_AXES:]))

    def step(values: Values, team: Team) -> None:
        lane = int(np.argmax(team.active_lanes()))
        shape, steps = (tuple(in_lane(values[n], lane) for n in row) for row in (sizes, strides))
        team.launch.tensor_maps[number] = Tiling(values[address], shape, steps, box, swizzle, fill)
        values[result] = np.uint64(number)

    return (step,)


def build_tile_copy(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    """Build the start of copies of tiles, of one lane after the other."""
    given = dict(zip(op.spec.args, op.args))
    rank, *reduction = op.params
    is_load = op.spec in (tma_load, tma_load_multicast)
    tile, handle = given["target" if is_load else "source"], c.number(given["map"])
    of_tile = c.access(op, "write" if is_load else "read", tile)
    of_array = c.access(op, "read" if is_load else "write", given["source" if is_load else "target"])
    if reduction:
        of_array = replace(of_array, role="atomic", order="relaxed", scope="gpu")
    coordinates, tiles_of = c.numbers(op.args[-rank:]), _tiles(c, op, c.number(tile))

    def step(values: Values, team: Team) -> None:
        for lane, place, signal in tiles_of(values, team):
            tensor_map = team.launch.tensor_maps[int(in_lane(values[handle], lane))]
            first = tuple(int(in_lane(values[n], lane)) for n in coordinates)
            if why := misplaced(of_tile.dtype, first, not is_load):
                name = next(iter(tensor_map.address.parts(only(team, lane))))[0].allocation.name
                team.report(TileMisplaced(name, why), op.loc, only(team, lane), name)
                continue
            whole = run_of(team, place, lane, math.prod(tensor_map.box), of_tile, tensor_map.align)
            numbers, offsets = tensor_map.elements(first)
            elements = _elements(team, tensor_map.address, lane, offsets, of_array)
            if whole is None or elements is None:
                continue
            places = _places(tensor_map.box, tensor_map.swizzle, of_tile.dtype.itemsize)[numbers]
            if is_load:
                begin(Flight(elements, whole, signal, 0, _filled(places, of_tile.dtype, tensor_map.fill)))
            elif len(places):
                part = whole._replace(index=whole.index[places], lanes=whole.lane_numbers[places])
                arrange = _COMBINE[reduction[0]] if reduction else _stored
                begin(Flight(part, elements, None, int(team.bulk_closed[lane]), arrange))

    return (step,)


def _tiles(
    c: Compiler, op: ops.IntrinsicOp, tile: int
) -> Callable[[Values, Team], Iterator[tuple[int, AnyPointers, Signal | None]]]:
    """Return what yields the tiles of each lane that begins a copy, of one or of several blocks, with what they signal."""
    if op.spec is not tma_load_multicast:
        signals_of = signalling(c, op)
        return lambda values, team: ((lane, values[tile], each) for lane, each in signals_of(values, team).items())
    ranks, (mbarrier, signals_at) = c.number(op.args[op.spec.args.index("ranks")]), signalling_at(c, op)

    def of_several(values: Values, team: Team) -> Iterator[tuple[int, AnyPointers, Signal | None]]:
        for lane in np.flatnonzero(team.active_lanes()).tolist():
            mask = only(team, lane)
            for rank in np.flatnonzero(np.int64(in_lane(values[ranks], lane)) >> np.arange(_RANKS) & 1).tolist():
                report_strangers(team, rank, mask, op)
                if rank < len(team.cluster.memory):
                    target, full = (there(team, values[n], rank) for n in (tile, mbarrier))
                    yield from ((lane, target, each) for each in signals_at(team, full, mask).values())

    return of_several


def _elements(team: Team, address: AnyPointers, lane: int, offsets: Array, access: Access) -> Run | None:
    """Return the elements so far from an address; None, and a report, where memory does not have them."""
    mask = only(team, lane)
    for extreme in {int(offsets.min()), int(offsets.max())} if len(offsets) else ():
        if next(touches(team, address + np.int64(extreme), mask, access), None) is None:
            return None
    part, _ = next(iter(address.parts(mask)))
    allocation = part.allocation
    index, lanes = in_lane(part.index, lane) + offsets, np.full(len(offsets), lane)
    return Run(team, access, allocation, allocation.view(access.dtype, part.phase), index, lanes, part.phase)


def _filled(places: Array, dtype: DType, fill: str) -> Arrange:
    """Return what puts elements at their places in a tile, and fills the rest."""

    def arrange(value: Array, before: Array) -> Array:
        tile = np.full(len(before), np.nan if fill == "nan" else 0, before.dtype)
        tile[places] = value
        return tile

    return arrange


def _stored(value: Array, before: Array) -> Array:
    return value


def _combining(combine: Callable[[Any, Any], Any]) -> Arrange:
    def arrange(value: Array, before: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(combine(before, value)).astype(before.dtype)

    return arrange


_COMBINE: dict[str, Arrange] = {
    "add": _combining(np.add),
    "min": _combining(np.fmin),
    "max": _combining(np.fmax),
    "and": _combining(np.bitwise_and),
    "or": _combining(np.bitwise_or),
    "xor": _combining(np.bitwise_xor),
}
