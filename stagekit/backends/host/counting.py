"""What counts a loop over `range(start, stop, step)`: the arithmetic of `ir.trips` over forms, a scalar index, or lanes that
start side by side and step together, in whole iterations and a rest.

    for i = tid; i < n; i += BLOCK:
        remaining = n - base
        while remaining > 31:   body, all lanes            base += step; remaining -= step
        if remaining > 0:       body, lanes < remaining

`remaining` counts down, so nothing wraps; it is exact as long as a step is at least as long as the lanes are apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stagekit import dtypes
from stagekit.backends.host.compute import against, are_small, compare, difference, is_plain
from stagekit.backends.host.forms import ALL_LANES, Form, Linear, Mask, Uniform, known, number, scalar_text, truth
from stagekit.backends.host.integers import integer_binary, integer_cast
from stagekit.backends.host.joins import select
from stagekit.backends.host.linear import extended_scalar
from stagekit.backends.host.vectors import as_mask
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm import arith
from stagekit.backends.llvm.blocks import OpenPhi, open_phi
from stagekit.backends.llvm.types import scalar_type
from stagekit.backends.llvm.writer import Writer
from stagekit.dtypes import DType
from stagekit.ir import BOOL, BinaryKind, CompareKind, Scalar, intervals
from stagekit.ir.intervals import Interval
from stagekit.ir.trips import Trips

_NEVER = truth(False)


Trip = Trips[Form]


@dataclass(frozen=True, slots=True)
class _Forms:
    """`ir.trips.LoopArithmetic` in one warp."""

    warp: Warp
    dtype: DType

    def interval(self, value: Form) -> Interval:
        return known(value)

    def number(self, value: int) -> Form:
        return number(value)

    def add(self, a: Form, b: Form) -> Form:
        return integer_binary(self.warp, BinaryKind.ADD, self.dtype, a, b)

    def sub(self, a: Form, b: Form) -> Form:
        return integer_binary(self.warp, BinaryKind.SUB, self.dtype, a, b)

    def compare(self, kind: CompareKind, a: Form, b: Form) -> Form:
        return compare(self.warp, kind, self.dtype, a, b)

    def is_longer(self, a: Form, b: Form) -> Form:
        unsigned = self.dtype.unsigned
        longer, shorter = (integer_cast(self.warp, self.dtype, unsigned, each) for each in (a, b))
        return compare(self.warp, CompareKind.GT, unsigned, longer, shorter)

    def select(self, condition: Form, if_true: Form, if_false: Form) -> Form:
        return select(self.warp, Scalar(self.dtype), condition, if_true, if_false)

    def both(self, a: Form, b: Form) -> Form:
        return select(self.warp, BOOL, a, b, _NEVER)


def trip_of(warp: Warp, dtype: DType, bounds: Sequence[Form]) -> Trip:
    return Trips(_Forms(warp, dtype), *bounds)


class ScalarTrips:
    """`range` over scalars, which counts a scalar loop."""

    def __init__(self, trip: Trip) -> None:
        self._trip = trip.enter()
        self.begins = scalar_text(trip.begins())

    def open(self, w: Writer, entry: str) -> Form:
        """The index in the loop."""
        self._slot: OpenPhi = open_phi(w, scalar_type(self._trip.dtype), scalar_text(self._trip.start), entry)
        self._index = Uniform(self._slot.name, self._trip.index_interval)
        return self._index

    def advance(self, w: Writer) -> str:
        """Step on; is there another iteration?"""
        following = self._trip.following(self._index)
        self._next = scalar_text(following)
        return scalar_text(self._trip.goes_on(self._index, following))

    def close(self, w: Writer, back: str) -> None:
        self._slot.close(w, self._next, back)

    def leave(self, w: Writer, back: str) -> None:
        """The index is not seen behind the loop."""


MAX_STEP = 1 << 62  # `remaining - step` stays in range


@dataclass(frozen=True, slots=True)
class Stride:
    """A loop of this kind. first, last: the lowest and highest offset of a lane that is on."""

    dtype: DType
    start: Linear
    stop: Uniform
    step: Uniform
    first: int
    last: int


def stride_of(warp: Warp, trip: Trip) -> Stride | None:
    """`trip` as a stride, if it is one."""
    start, stop, step = trip.start, trip.stop, trip.step
    if not (isinstance(start, Linear) and isinstance(stop, Uniform) and isinstance(step, Uniform)):
        return None
    if start.scaled or not are_small(start.offsets) or not (is_plain(start, trip.dtype) and is_plain(stop, trip.dtype)):
        return None
    offsets = [offset for lane, offset in enumerate(start.offsets) if lanes_on(warp) >> lane & 1]
    first, last = min(offsets), max(offsets)
    if not max(last - first, 1) <= known(step).lo <= known(step).hi <= MAX_STEP:
        return None
    return Stride(trip.dtype, start, stop, step, first, last)


def lanes_on(warp: Warp) -> int:
    """The lanes that may be on here, as far as is known now."""
    for mask in (warp.mask, warp.full):
        if mask is not None and mask.lanes is not None:
            return mask.lanes
    return ALL_LANES


class WholeTrips:
    """The loop over whole iterations, as `loops.scalar_loop` writes it; then the rest."""

    def __init__(self, warp: Warp, stride: Stride) -> None:
        self.stride = stride
        w, dtype = warp.w, stride.dtype
        self.remaining = difference(w, dtype, stride.stop, stride.start.base)
        self.step_wide = extended_scalar(w, dtype, dtypes.int64, stride.step).text
        self.begins = self._is_whole(w, self.remaining.text)
        self._left: tuple[str, str] = (stride.start.base.text, self.remaining.text)

    def _is_whole(self, w: Writer, remaining: str) -> str:
        return arith.compare(w, CompareKind.GT, dtypes.int64, None, remaining, str(self.stride.last))

    def open(self, w: Writer, entry: str) -> Linear:
        """The index in the loop."""
        start = self.stride.start
        self._base: OpenPhi = open_phi(w, scalar_type(self.stride.dtype), start.base.text, entry)
        self._count: OpenPhi = open_phi(w, "i64", self.remaining.text, entry)
        return self._index(self._base.name, known(self.stride.stop).hi - 1 - self.stride.last)

    def _index(self, base: str, highest: int) -> Linear:
        start, step = known(self.stride.start.base), known(self.stride.step)
        found = intervals.counted(start, Interval.exactly(highest + 1), step)
        return Linear(Uniform(base, found), self.stride.start.offsets)

    def advance(self, w: Writer) -> str:
        """Step on; is there another whole iteration?"""
        base = arith.binary(w, BinaryKind.ADD, self.stride.dtype, None, self._base.name, self.stride.step.text)
        remaining = arith.binary(w, BinaryKind.SUB, dtypes.int64, None, self._count.name, self.step_wide)
        self._left = (base, remaining)
        return self._is_whole(w, remaining)

    def close(self, w: Writer, back: str) -> None:
        for slot, latest in zip((self._base, self._count), self._left, strict=True):
            slot.close(w, latest, back)

    def leave(self, w: Writer, back: str) -> None:
        """Behind the loop: which base and count it ended with."""
        base, remaining = (
            slot.after(w, latest, back) for slot, latest in zip((self._base, self._count), self._left, strict=True)
        )
        self._left = (base, remaining)

    def rest(self, warp: Warp) -> tuple[Linear, Mask]:
        """The index in the last iteration, and for which lanes there is one."""
        base, remaining = self._left
        grain = math.gcd(known(self.remaining).multiple, known(self.stride.step).multiple) or 1
        interval = Interval(known(self.remaining).lo - MAX_STEP, self.stride.last // grain * grain, grain)
        mask = against(warp.w, CompareKind.LT, self.stride.start.offsets, Uniform(remaining, interval))
        highest = known(self.stride.stop).hi - 1 - self.stride.first
        return self._index(base, highest), as_mask(warp.w, mask)
