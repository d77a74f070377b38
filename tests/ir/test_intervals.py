"""Whatever a program computes lies in the interval that was found for it, and is divisible by the divisor."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit import dtypes
from stagekit.diagnostics import UNKNOWN
from stagekit.dtypes import DType
from stagekit.intrinsics.index import lane_id
from stagekit.ir import BOOL, BinaryKind, Builder, CompareKind, Scalar, UnaryKind, Value, intervals, semantics
from stagekit.ir.intervals import Interval, Intervals

KINDS = tuple(kind for kind in BinaryKind if kind is not BinaryKind.DIV)


@st.composite
def values(draw: st.DrawFn, dtype: DType, small: bool = False) -> tuple[Interval, int]:
    """An interval within `dtype`, and a number that is in it."""
    ends = st.integers(max(dtype.min, -70), min(dtype.max, 70)) if small else st.integers(dtype.min, dtype.max)
    multiple = draw(st.sampled_from((1, 1, 2, 3, 32)))
    first, second, number = (each // multiple * multiple for each in (draw(ends), draw(ends), draw(ends)))
    low, number, high = sorted((first, second, number))
    if low < dtype.min:
        return Interval.exactly(0), 0
    return Interval(low, high, multiple if low != high else abs(low)), number


def holds(found: Interval, number: int) -> bool:
    return found.lo <= number <= found.hi and (number % found.multiple == 0 if found.multiple else number == 0)


@settings(max_examples=600, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(dtypes.INTEGER_DTYPES), kind=st.sampled_from(KINDS), small=st.booleans())
def test_a_result_lies_in_its_interval(data: st.DataObject, dtype: DType, kind: BinaryKind, small: bool) -> None:
    (a, x), (b, y) = data.draw(values(dtype, small)), data.draw(values(dtype, small))

    found = intervals.binary(kind, dtype, a, b)

    assert holds(found, int(semantics.binary(kind, dtype, dtype.numpy.type(x), dtype.numpy.type(y))))


@settings(max_examples=300, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(dtypes.INTEGER_DTYPES), kind=st.sampled_from(list(CompareKind)))
def test_a_comparison_that_is_decided_comes_out_so(data: st.DataObject, dtype: DType, kind: CompareKind) -> None:
    (a, x), (b, y) = data.draw(values(dtype, True)), data.draw(values(dtype, True))

    answer = intervals.compare(kind, a, b)

    assert answer is None or answer is bool(semantics.compare(kind, dtype, dtype.numpy.type(x), dtype.numpy.type(y)))


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_the_index_of_a_loop_lies_in_its_interval(data: st.DataObject) -> None:
    (start, first), (stop, end), (step, by) = (data.draw(values(dtypes.int32, True)) for _ in range(3))

    found = intervals.counted(start, stop, step)

    assert not by or all(holds(found, index) for index in range(first, end, by))


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_values_of_a_program_lie_in_their_intervals(data: st.DataObject) -> None:
    """Programs of all ops that the analysis follows, computed beside it."""
    names = ("int64", "int32", "uint8", "int8")
    params = [Value(Scalar(getattr(dtypes, name)), name) for name in names] + [Value(BOOL, "flag")]
    b = Builder(UNKNOWN, params)
    numbers = {p: semantics.typed(data.draw(st.integers(-3, 200)), p.type.dtype) for p in params}
    known = Intervals(b.definition_of)
    known.known[params[0]] = Interval(-3, 200)

    for _ in range(data.draw(st.integers(1, 12))):
        value = data.draw(st.sampled_from(list(numbers)))
        dtype = value.type.dtype
        twins = [v for v in numbers if v.type is value.type]
        other = data.draw(st.sampled_from(twins))
        match data.draw(st.sampled_from(("binary", "unary", "cast", "select", "constant", "float"))):
            case "binary" if dtype.is_integer:
                kind = data.draw(st.sampled_from(KINDS))
                made = b.binary(kind, value, other)
                numbers[made] = semantics.binary(kind, dtype, numbers[value], numbers[other])
            case "unary":
                kind = data.draw(st.sampled_from(list(UnaryKind))) if dtype.is_integer else UnaryKind.NOT
                made = b.unary(kind, value)
                numbers[made] = semantics.unary(kind, dtype, numbers[value])
            case "select":
                made = b.select(params[-1], value, other)
                numbers[made] = numbers[value if numbers[params[-1]] else other]
            case "constant":
                given = data.draw(st.integers(-128, 127))
                made = b.constant(given, dtypes.int8)
                numbers[made] = np.int8(given)
            case "float":
                wide = semantics.cast(numbers[value], dtype, dtypes.float32)
                made = b.cast(b.cast(value, dtypes.float32), dtypes.uint8)
                numbers[made] = semantics.cast(wide, dtypes.float32, dtypes.uint8)
            case _:
                target = data.draw(st.sampled_from((*dtypes.INTEGER_DTYPES, dtypes.bool_)))
                made = b.cast(value, target)
                numbers[made] = semantics.cast(numbers[value], dtype, target)

    for value, number in numbers.items():
        assert holds(known[value], int(number))


def test_a_value_that_is_used_twice_in_each_step_is_followed_once() -> None:
    b = Builder(UNKNOWN)
    value = b.call_one(lane_id, ())
    for _ in range(56):
        value = b.add(value, value)

    assert Intervals(b.definition_of)[value] == Interval(0, 31 << 56)
