"""Loads of elements that lie close together in any order: whole vectors over all of them, then shuffles.

    x[3 * t + c]        3 loads of 32 neighbours, the last one ending with the last element; 3 shuffles
    x[t // 4]           1 load of 8 neighbours, 1 shuffle

Only where every lane is on: the first and the last element are then asked for, and what lies between them, less than a
page, is readable with them.
"""

from __future__ import annotations

from stagekit.backends.host.forms import LANES, Linear, Steps
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm.types import memory_type, vector_of
from stagekit.dtypes import DType

MAX_SPAN = 4 * LANES  # elements from the first to the last; beyond, a gather has fewer instructions


def has_window(index: Linear) -> bool:
    """Do the lanes' elements lie in one short stretch, wherever that is?"""
    return not index.scaled and max(index.offsets) - min(index.offsets) < MAX_SPAN


def load_window(warp: Warp, dtype: DType, pointer: str, offsets: Steps) -> str:
    """`<32 x T>` of the elements at `pointer` moved by each of `offsets`."""
    first, last = min(offsets), max(offsets)
    count = min(last - first + 1, LANES)
    starts = [*range(first, last - count + 1, LANES), last - count + 1]
    result = ""
    for start in starts:
        result = _taken(warp, dtype, result, pointer, start, count, offsets)
    return result


def _taken(warp: Warp, dtype: DType, result: str, pointer: str, start: int, count: int, offsets: Steps) -> str:
    """`result`, with the lanes whose elements are among the `count` from `start` on."""
    w, element = warp.w, memory_type(dtype, None)
    held, place = vector_of(element, count), w.emit(f"getelementptr {element}, ptr {pointer}, i64 {start}")
    chunk = w.emit(f"load {held}, ptr {place}, align {dtype.itemsize}")
    inside = [offset - start if start <= offset < start + count else None for offset in offsets]
    if not result:
        picks = ", ".join("i32 poison" if at is None else f"i32 {at}" for at in inside)
        return w.emit(f"shufflevector {held} {chunk}, {held} poison, <{LANES} x i32> <{picks}>")
    picks = ", ".join(f"i32 {lane if at is None else LANES + at}" for lane, at in enumerate(inside))
    return w.emit(f"shufflevector {held} {result}, {held} {chunk}, <{LANES} x i32> <{picks}>")
