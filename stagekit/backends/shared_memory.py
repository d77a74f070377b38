"""The shared memory of a kernel: where its arrays lie, and the limit on them, which is the same rule for every target."""

from __future__ import annotations

import math
from collections.abc import Mapping

from stagekit.diagnostics import StagekitError
from stagekit.frontend.errors import NO_GPU, SharedMemoryExceeded
from stagekit.ir import Function, Space, ops, walk
from stagekit.ir.lifetimes import in_use_together
from stagekit.limits import MAX_SHARED_BYTES

Axes = tuple[int, int, int]


class BumpAllocator:
    """Hands out memory from its beginning. size_bytes: what is in use."""

    def __init__(self, size_bytes: int = 0) -> None:
        self.size_bytes = size_bytes

    def take(self, size_bytes: int, align: int) -> int:
        """Return the offset of a new area."""
        start = -(-self.size_bytes // align) * align
        self.size_bytes = start + size_bytes
        return start


def place_shared(fn: Function, block: Axes | None) -> tuple[dict[ops.Alloc, int | None], int]:
    """Return the offset of each shared array, and the bytes up to the end of the last one.

    Arrays that are not in use at the same time may lie in one place. A dynamic array has the offset None: these follow everything
    else. block: the threads of the block along each axis; None if a launch decides.
    """
    arrays = _arrays(fn)
    known = [op for op in arrays if op.count is not None]
    offsets = dict(zip(known, _planned(fn, known, block)))
    return {op: offsets.get(op) for op in arrays}, max(
        [offset + size_of(op) for op, offset in offsets.items()], default=0
    )


def _planned(fn: Function, arrays: list[ops.Alloc], block: Axes | None) -> list[int]:
    """Return the offset of each array: large ones first, each as low as those allow that must not share its memory."""
    if len(arrays) < 2:
        return [0] * len(arrays)
    apart = in_use_together(fn, arrays, math.prod(block) if block else None)
    placed: dict[int, int] = {}
    for number in sorted(range(len(arrays)), key=lambda each: (-size_of(arrays[each]), each)):
        others = sorted((placed[each], size_of(arrays[each])) for each in placed if apart[number] >> each & 1)
        placed[number] = _lowest_gap(others, arrays[number])
    return [placed[number] for number in range(len(arrays))]


def _lowest_gap(taken: list[tuple[int, int]], array: ops.Alloc) -> int:
    """Return the lowest offset at which an array overlaps none of some areas, given as (offset, bytes) in ascending order."""
    place = 0
    for offset, size_bytes in taken:
        if offset >= place + size_of(array):
            break
        place = max(place, -(-(offset + size_bytes) // alignment(array)) * alignment(array))
    return place


def separable(offsets: Mapping[ops.Alloc, int]) -> list[list[ops.Alloc]]:
    """Return arrays in groups, each from its lowest offset on: those of two groups do not overlap.

    Each group starts at a multiple of the alignment of all its arrays, so wherever such a multiple comes to lie, each is aligned.
    """
    groups: list[list[ops.Alloc]] = []
    end = 0
    for op in sorted(offsets, key=lambda each: (offsets[each], -size_of(each))):
        group = [*groups.pop(), op] if offsets[op] < end else [op]
        while offsets[group[0]] % max(map(alignment, group)):
            group = [*groups.pop(), *group]  # there is one before it, since the lowest offset is 0
        groups.append(group)
        end = max(end, offsets[op] + size_of(op))
    return groups


_WIDEST_BYTES = 16  # of one access


def alignment(array: ops.Alloc) -> int:
    """Return what the array's address is a multiple of: as much as its size is, so that its rows are accessed whole."""
    return max(array.align, array.dtype.itemsize, math.gcd(size_of(array) or 1, _WIDEST_BYTES))


def refuse_for_every_gpu(fn: Function) -> None:
    """Refuse a kernel that no GPU could launch. The CPU could, but a kernel means the same everywhere."""
    if sum(map(size_of, _arrays(fn))) > MAX_SHARED_BYTES:
        _, size_bytes = place_shared(fn, fn.attribute("block"))
        refuse_shared(fn, size_bytes, *NO_GPU)


def refuse_shared(fn: Function, total_bytes: int, whose: str, limit: int) -> None:
    """Refuse `fn` if it takes more than `limit`. The error shows the largest array."""
    if total_bytes > limit:
        largest = max(_arrays(fn), key=size_of)
        raise StagekitError(SharedMemoryExceeded(total_bytes, whose, limit), largest.loc)


def _arrays(fn: Function) -> list[ops.Alloc]:
    return [op for op in walk(fn.body) if isinstance(op, ops.Alloc) and op.space is Space.SHARED]


def size_of(array: ops.Alloc) -> int:
    """Return the size that the kernel knows: 0 for a dynamic array."""
    return (array.count or 0) * array.dtype.itemsize
