"""Placement: which thread holds which element of a tile, and in which vector.

In `Layout(extent=4096, threads=128, width=8)` each thread holds four chunks of eight neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import stagekit as sk

WARP = 32  # lanes of a full warp
MAX_THREADS = 1024  # of a block
_FEW_THREADS = 128  # up to so many elements a tile has a thread for each
_PER_THREAD = 16  # elements of a long tile
_FEWEST_IN_VECTORS = 4  # elements of a thread; with fewer, taking vectors apart for memory costs as much as they save

_ADD, _MULTIPLY, _LESS = map(sk._operation, ("+", "*", "<"))


@dataclass(frozen=True)
class Layout:
    """Spreads `extent` elements over `threads` threads, each of which holds chunks of `width` neighbours.

    Element e of thread t is neighbour j = e % width of chunk c = e // width. Its index is (c * threads + t) * width + j; where
    that is not below `extent` there is no such element. width: a power of two up to 8.
    """

    extent: int
    threads: int
    width: int = 1

    @property
    def count(self) -> int:
        """How many elements each thread holds, those that do not exist included."""
        return -(-self.extent // (self.threads * self.width)) * self.width

    @property
    def widths(self) -> list[int]:
        """The widths of the vectors that hold a thread's elements, in order. A vector of width 1 is a scalar."""
        count = self.count
        if self.width > 1:
            return [self.width] * (count // self.width)
        if count < _FEWEST_IN_VECTORS:
            return [1] * count
        return [8] * (count // 8) + [width for width in (4, 2, 1) if count % 8 & width]

    def offset(self, element: int) -> int:
        """Return the index of an element of thread 0. The same element of thread t is t * width further on."""
        chunk, neighbour = divmod(element, self.width)
        return chunk * self.threads * self.width + neighbour

    @sk._direct
    def first(self) -> Any:
        """Return the index of this thread's first element, a run-time number."""
        t = sk.cuda.thread_idx("x")
        return t if self.width == 1 else _MULTIPLY(t, self.width)

    @sk._direct
    def valid(self) -> list[Any]:
        """Return for each element whether it exists: True itself, not a run-time value, where it does in every thread."""
        offsets = [self.offset(e) for e in range(self.count)]
        last = (self.threads - 1) * self.width  # how far the last thread's elements are from those of thread 0
        first = self.first() if offsets[-1] + last >= self.extent else 0
        return [True if o + last < self.extent else _LESS(_ADD(first, o), self.extent) for o in offsets]


def default_threads(extent: int) -> int:
    """Return how many threads a tile gets where nothing else decides: one for each element up to 128, then 128, then whole warps.

    Up to 16,384 elements a thread has at most 16; above that the block has up to 1024 threads. Measured on an H200, rows of 1,024
    elements went fastest with 64 to 128 threads, of 4,096 and 8,192 with 128 to 512, of 32,768 with 1,024.
    """
    if extent <= _FEW_THREADS:
        return extent
    per_thread = max(_PER_THREAD, -(-extent // MAX_THREADS))
    return max(_FEW_THREADS, _whole_warps(extent, per_thread))


def cpu_threads(extent: int) -> int:
    """Return `default_threads` for the CPU: one for each element up to 1024, else whole warps that share the elements evenly.

    There the lanes of a warp are one vector, so that more elements of a thread only make longer code.
    """
    return extent if extent <= MAX_THREADS else _whole_warps(extent, -(-extent // MAX_THREADS))


def _whole_warps(extent: int, per_thread: int) -> int:
    return WARP * -(-extent // (WARP * per_thread))
