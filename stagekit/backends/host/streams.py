"""Where a kernel is cut although it has no barrier there: between accesses that are a block apart.

    y[i] = a * x[i] + y[i]                            warps 0 to 7 go through elements 0 to 255,
    y[i + 256] = a * x[i + 256] + y[i + 256]          then through elements 256 to 511

Threads of a block without barriers run in any order, so that this is what the kernel means. Warp by warp, both parts of each
array would take turns, line by line, and a processor would see no stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from stagekit.ir import Block, Effect, Function, Native, Op, Pointer, Space, ops, walk
from stagekit.ir.affine import Sum, Sums

_COMPUTES = frozenset({Effect.VARYING})
Place = tuple[type[Op], Sum]


class _BlockSums(Sums):
    """The sums of a kernel whose blocks have so many threads along x."""

    def __init__(self, block: Block, threads: int) -> None:
        super().__init__(block)
        self._threads = threads

    def _of_index(self, op: Op | None, lane: int) -> Sum | None:
        match op:
            case ops.IntrinsicOp(params=("x",)) if op.spec.lower["cpu"] is Native.BLOCK_DIM:
                return Sum(self._threads)
        return super()._of_index(op, lane)


def stream_ends(fn: Function, threads: int) -> frozenset[Op]:
    """Return the ops after which a block has another part of the same arrays before it, where all that `fn` does are accesses.

    A part reads and writes what the one before it does, as many elements further as the block has threads, or more.
    """
    parts = list(_parts(fn.body.ops[:-1]))
    if len(parts) < 2 or not all(map(_is_plain, walk(fn.body))):
        return frozenset()
    sums = _BlockSums(fn.body, threads)
    places = [_places(sums, part) for part in parts]
    return frozenset(
        [part[-1] for part, pair in zip(parts, pairwise(places), strict=False) if _is_further(*pair, threads)]
    )


def _parts(every: Iterable[Op]) -> Iterator[Sequence[Op]]:
    """Yield what stands between stores, each with the op that stores."""
    part = list[Op]()
    for op in every:
        part.append(op)
        if any(isinstance(each, ops.Store) for each in _within((op,))):
            yield part
            part = []


def _within(every: Iterable[Op]) -> Sequence[Op]:
    return walk(Block((), tuple(every)))


def _is_plain(op: Op) -> bool:
    """Return whether threads need not be where others are: no atomics, no memory of their own, which each warp has but once."""
    if isinstance(op, ops.Alloc | ops.While):
        return False
    return isinstance(op, ops.Load | ops.Store) or op.effects <= _COMPUTES


def _places(sums: Sums, part: Sequence[Op]) -> Sequence[Place]:
    """Return the elements that a part accesses in global memory, in order."""
    accesses = [op for op in _within(part) if isinstance(op, ops.Load | ops.Store)]
    return [(type(op), sums.of(op.pointer)) for op in accesses if _is_global(op)]


def _is_global(op: ops.Load | ops.Store) -> bool:
    return isinstance(op.pointer.type, Pointer) and op.pointer.type.space is Space.GLOBAL


def _is_further(places: Sequence[Place], others: Sequence[Place], threads: int) -> bool:
    """Return whether all that lanes access as neighbours is as far from where it was, by a block at least."""
    if [kind for kind, _ in places] != [kind for kind, _ in others]:
        return False
    apart = {other.plus(place, -1) for (_, place), (_, other) in zip(places, others, strict=True)}
    if len(apart) != 1 or any(place.per_thread != 1 for _, place in places):
        return False
    (distance,) = apart
    return distance == Sum(distance.constant) and abs(distance.constant) >= threads
