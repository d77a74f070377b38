"""The arithmetic of `ir.trips` over forms: scalars for a uniform loop, masks for one whose lanes leave one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stagekit.backends.host.compute import compare
from stagekit.backends.host.forms import Form, Uniform, known, number
from stagekit.backends.host.integers import integer_binary, integer_cast
from stagekit.backends.host.selection import select
from stagekit.backends.host.warp import Warp
from stagekit.dtypes import DType
from stagekit.ir import BOOL, BinaryKind, CompareKind, Scalar
from stagekit.ir.intervals import Interval
from stagekit.ir.trips import Trips

_NEVER = Uniform("false")


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
