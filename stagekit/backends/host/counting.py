"""Counting the iterations of a `for` in one warp, by the tests of `ir.trips`.

A loop whose bounds are scalars has a scalar index, for all lanes alike (`ScalarTrips`). A loop whose lanes start side by side
and step together is split into iterations in which all lanes take part, and one last iteration for some of them (`WholeTrips`):

    for i = tid; i < n; i += BLOCK:
        remaining = n - base                            how far the stop is from lane 0
        while remaining > 31:   body, all lanes         base += step; remaining -= step
        if remaining > 0:       body, lanes < remaining

Since `remaining` counts down, no number wraps. One masked iteration is enough as long as a step takes each lane at least as far
as the lanes are apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from stagekit import dtypes
from stagekit.backends.host.compute import against, are_small, compare, difference, is_plain
from stagekit.backends.host.forms import ALL_LANES, Form, Linear, Mask, Uniform, known, number, scalar_text, truth
from stagekit.backends.host.integers import integer_binary, integer_cast
from stagekit.backends.host.joins import select
from stagekit.backends.host.linear import extended_scalar
from stagekit.backends.host.vectors import as_mask
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm import arith
from stagekit.backends.llvm.types import scalar_type
from stagekit.dtypes import DType
from stagekit.frozen import frozen
from stagekit.ir import BOOL, BinaryKind, CompareKind, Scalar, intervals
from stagekit.ir.intervals import Interval
from stagekit.ir.trips import Trips

_NEVER = truth(False)


Trip = Trips[Form]


@frozen()
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
    """Counts a loop over a `range` of scalars by one phi, the index.

    begins: whether there is a first iteration. starts: type and first value of each phi. is_resumed: whether somebody reads the
    phis after the loop.
    """

    is_resumed = False

    def __init__(self, trip: Trip) -> None:
        self._trip = trip.enter()
        self.begins = scalar_text(trip.begins())
        self.starts = ((scalar_type(trip.dtype), scalar_text(trip.start)),)

    def index(self, name: str) -> Uniform:
        """Return the index in the loop, of the names of the phis."""
        return Uniform(name, self._trip.index_interval)

    def advance(self, name: str) -> tuple[tuple[str, ...], str]:
        """Step on: return what the phis hold next, and whether there is another iteration."""
        index = self.index(name)
        following = self._trip.following(index)
        return (scalar_text(following),), scalar_text(self._trip.goes_on(index, following))


MAX_STEP = 1 << 62  # `remaining - step` stays in range


@frozen()
class Stride:
    """A loop of this kind. first, last: the lowest and highest offset of a lane that is on."""

    dtype: DType
    start: Linear
    stop: Uniform
    step: Uniform
    first: int
    last: int


def stride_of(warp: Warp, trip: Trip) -> Stride | None:
    """Return the stride that `trip` is, or None."""
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
    """Return the lanes that may be on here, as bits, as far as is known now."""
    for mask in (warp.mask, warp.full):
        if mask is not None and mask.lanes is not None:
            return mask.lanes
    return ALL_LANES


class WholeTrips:
    """Counts the whole iterations of a stride, as `ScalarTrips` does a scalar loop, by two phis: the base of the index, and how
    far the stop is from it. Then `rest` tells what is left.
    """

    is_resumed = True

    def __init__(self, warp: Warp, stride: Stride) -> None:
        self.stride, self._w, dtype = stride, warp.w, stride.dtype
        self.remaining = difference(warp.w, dtype, stride.stop, stride.start.base)
        self._step_wide = extended_scalar(warp.w, dtype, dtypes.int64, stride.step).text
        self.begins = self._is_whole(self.remaining.text)
        self.starts = ((scalar_type(dtype), stride.start.base.text), ("i64", self.remaining.text))

    def _is_whole(self, remaining: str) -> str:
        return arith.compare(self._w, CompareKind.GT, dtypes.int64, None, remaining, str(self.stride.last))

    def index(self, base: str, remaining: str) -> Linear:
        return self._index(base, known(self.stride.stop).hi - 1 - self.stride.last)

    def _index(self, base: str, highest: int) -> Linear:
        start, step = known(self.stride.start.base), known(self.stride.step)
        found = intervals.counted(start, Interval.exactly(highest + 1), step)
        return Linear(Uniform(base, found), self.stride.start.offsets)

    def advance(self, base: str, remaining: str) -> tuple[tuple[str, ...], str]:
        base = arith.binary(self._w, BinaryKind.ADD, self.stride.dtype, None, base, self.stride.step.text)
        remaining = arith.binary(self._w, BinaryKind.SUB, dtypes.int64, None, remaining, self._step_wide)
        return (base, remaining), self._is_whole(remaining)

    def rest(self, base: str, remaining: str) -> tuple[Linear, Mask]:
        """Return the index in the last iteration, and for which lanes there is one. base, remaining: after the loop."""
        grain = math.gcd(known(self.remaining).multiple, known(self.stride.step).multiple) or 1
        interval = Interval(known(self.remaining).lo - MAX_STEP, self.stride.last // grain * grain, grain)
        mask = against(self._w, CompareKind.LT, self.stride.start.offsets, Uniform(remaining, interval))
        highest = known(self.stride.stop).hi - 1 - self.stride.first
        return self._index(base, highest), as_mask(self._w, mask)
