"""Every pure record: what it expands to on a target, against its `evaluate`; and `evaluate` against exact arithmetic."""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit.dtypes import FLOAT_DTYPES, INTEGER_DTYPES, DType, bfloat16, float16, float32, float64, int32
from stagekit.intrinsics import all_intrinsics, by_name
from stagekit.ir import Expand, Extern, Intrinsic, Scalar, Sig, semantics
from tests.cells import cell
from tests.numerics import exact
from tests.numerics.ir_eval import NoSuchInstruction, expand_and_evaluate

TARGETS = ("cuda", "cpu")
Lanes = np.ndarray[Any, Any]


def overloads(lowering: type) -> Iterator[tuple[Intrinsic, Sig, str]]:
    """(record, signature, target) of the pure records that a target lowers in this way."""
    for record in all_intrinsics():
        if record.evaluate is None or record.effects or not record.args:
            continue
        for sig, target in itertools.product(record.sigs, TARGETS):
            if isinstance(record.lowering(target, sig.args, fastmath=False), lowering):
                yield record, sig, target


ABOVE = {"lgamma": -2.0}  # where the record promises its error


def arguments(record: Intrinsic, sig: Sig, count: int) -> list[Lanes]:
    arrays = [exact.samples(t.dtype, count, seed) for seed, t in enumerate(sig.args)]
    if record.name in ABOVE:
        arrays = [a[~(a <= ABOVE[record.name])] for a in arrays]
    size = min(map(len, arrays))
    return [a[:size] for a in arrays]


def allowed_ulp(record: Intrinsic, target: str, dtype: DType) -> float:
    """The record's tolerance; a 16-bit float is rounded once more."""
    stated = record.tolerance.get(target, 0.0)
    return min(stated, 1.0) if dtype.bits == 16 else stated


def worst(record: Intrinsic, sig: Sig, target: str, args: list[Lanes]) -> tuple[float, Any]:
    """The largest distance from `evaluate`, and where it is."""
    assert record.evaluate is not None
    (result,) = (t.dtype for t in sig.results)
    expected, actual = np.asarray(record.evaluate(*args)), expand_and_evaluate(record, target, args)
    assert expected.dtype == actual.dtype == result.numpy
    if not result.is_float:
        distance = np.where(expected == actual, 0.0, np.inf)
    else:
        distance = exact.ulp_distance(expected, actual, result)
    place = int(np.argmax(distance))
    return float(distance[place]), (*(a[place] for a in args), expected[place], actual[place])


EXPANDED = {record: list(rows) for record, rows in itertools.groupby(overloads(Expand), lambda row: row[0])}


TINY = np.finfo(np.float32).tiny


def of_normal_results(record: Intrinsic, args: list[Lanes]) -> list[Lanes]:
    """Return arguments, 0 where a record that flushes may give 0."""
    if not record.flushes or args[0].dtype == np.float64:
        return args
    return [np.where(np.asarray(record.evaluate(*args)) < TINY, args[0].dtype.type(0), args[0]), *args[1:]]


@pytest.mark.parametrize("record", EXPANDED, ids=lambda r: r.name)
def test_an_expansion_means_what_evaluate_says(record: Intrinsic) -> None:
    for _, sig, target in EXPANDED[record]:
        with cell(sig.args[0], target):
            args = of_normal_results(record, arguments(record, sig, 400))
            try:
                distance, where = worst(record, sig, target, args)
            except NoSuchInstruction:
                assert target == "cuda"
                continue
            assert distance <= allowed_ulp(record, target, sig.args[0].dtype), where


UNARY = [
    r
    for r in all_intrinsics()
    if r.evaluate and not r.effects and Sig((Scalar(float16),), (Scalar(float16),)) in r.sigs
]


@pytest.mark.parametrize("dtype", [pytest.param(float16, marks=pytest.mark.slow), bfloat16], ids=lambda d: d.short)
@pytest.mark.parametrize("record", UNARY, ids=lambda r: r.name)
def test_every_16_bit_float_is_within_one_ulp(record: Intrinsic, dtype: DType) -> None:
    """All 65536 float16, through float32 and rounded back; of the bfloat16, each of which is a float32, every ninth."""
    sig = Sig((Scalar(dtype),), (Scalar(dtype),))

    args = of_normal_results(record, [exact.every_float16(dtype)[:: 9 if dtype is bfloat16 else 1]])
    distance, where = worst(record, sig, "cpu", args)

    assert distance <= allowed_ulp(record, "cpu", dtype), where


@pytest.mark.parametrize("name", ["exp", "exp2", "fast_exp", "fast_exp2"])
def test_no_result_is_rounded_to_0(name: str) -> None:
    """It is chosen: a processor takes a hundred cycles for a product that is subnormal or 0."""
    least = {"exp": -104.1, "exp2": -150.1, "fast_exp": -87.34, "fast_exp2": -126.1}[name]
    with np.errstate(under="raise"):
        for dtype, lowest in ((float32, least), (float64, -1080.0)):
            x = np.array([lowest, 2 * lowest, -1e30, -math.inf], dtype.numpy)
            assert not expand_and_evaluate(by_name(name), "cpu", [x]).any()


OWN = ("exp", "exp2", "log", "log2", "log10", "sin", "cos", "tan", "tanh", "sigmoid", "rsqrt")


@pytest.mark.parametrize("name", OWN)
def test_float32_expansions_are_within_their_error_densely(name: str) -> None:
    """Every 65521st float32, and the neighbourhoods where the formulas change or cancel."""
    stride = np.arange(0, 1 << 32, 65521, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = np.concatenate(
        [np.linspace(c - 0.01, c + 0.01, 4001) for c in (0, 0.625, 0.7071, 1, 1.4142, math.pi / 2, -1)]
    )
    turns = np.arange(1, 40000, 7) * (math.pi / 2)
    special = np.concatenate([2.0 ** np.arange(-149, 128), 10.0 ** np.arange(-45, 39)])
    args = [np.concatenate([stride, *(a.astype(np.float32) for a in (near, turns, special))])]

    distance, where = worst(by_name(name), Sig((Scalar(float32),), (Scalar(float32),)), "cpu", args)

    assert distance <= by_name(name).tolerance["cpu"], where


@pytest.mark.parametrize(("record", "sig", "target"), [row for row in overloads(Extern) if row[2] == "cpu"], ids=str)
def test_the_c_library_is_within_the_stated_error(record: Intrinsic, sig: Sig, target: str) -> None:
    lowering = record.lowering(target, sig.args, fastmath=False)
    assert isinstance(lowering, Extern)
    assert record.evaluate is not None
    dtype = sig.args[0].dtype
    args = arguments(record, sig, 1000)

    distance = exact.ulp_distance(np.asarray(record.evaluate(*args)), _called(lowering.symbol, dtype, args), dtype)

    worst_place = int(np.argmax(distance))
    assert distance[worst_place] <= record.tolerance[target], [a[worst_place] for a in args]


def _called(symbol: str, dtype: DType, args: list[Lanes]) -> Lanes:
    """The C function lane by lane."""
    c_type = {float32: ctypes.c_float, float64: ctypes.c_double}[dtype]
    function = getattr(ctypes.CDLL("libm.so.6"), symbol)
    function.restype, function.argtypes = c_type, [c_type] * len(args)
    return np.array([function(*map(float, lane)) for lane in zip(*args, strict=True)], dtype=dtype.numpy)


# -- the meanings themselves ------------------------------------------------------------------------------------------

FEW = settings(max_examples=100, deadline=None)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=lambda d: d.short)
@FEW
@given(data=st.data())
def test_fma_is_rounded_once(dtype: DType, data: st.DataObject) -> None:
    number = (st.floats(-1e4, 1e4) | st.floats() | st.floats(1, 2)).map(lambda v: float(semantics.round_to(v, dtype)))
    x, y, z = (data.draw(number) for _ in range(3))
    if not all(map(math.isfinite, (x, y, z))):
        return
    assert by_name("fma").evaluate is not None

    result = by_name("fma").evaluate(*(np.array([semantics.typed(v, dtype)]) for v in (x, y, z)))[0]

    assert exact.rounded(Fraction(x) * Fraction(y) + Fraction(z), dtype) == float(result)


EDGES = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=lambda d: d.short)
@pytest.mark.parametrize("name", ["minimum", "maximum", "fmin", "fmax"])
def test_the_extrema_of_edges(name: str, dtype: DType) -> None:
    """NaN by the name's rule, -0.0 below +0.0; otherwise NumPy's."""
    pick = min if "min" in name else max

    def expected(x: float, y: float) -> float:
        numbers = [v for v in (x, y) if not math.isnan(v)]
        if len(numbers) < 2 and not (name.startswith("f") and numbers):
            return math.nan
        return pick(numbers, key=lambda v: (v, math.copysign(1, v)))

    pairs = list(itertools.product(EDGES, EDGES))
    x, y = (np.array(side).astype(dtype.numpy) for side in zip(*pairs, strict=True))
    evaluate = by_name(name).evaluate
    assert evaluate is not None

    assert [repr(expected(a, b)) for a, b in pairs] == [repr(float(v)) for v in evaluate(x, y)]


@pytest.mark.parametrize("dtype", INTEGER_DTYPES, ids=lambda d: d.short)
@FEW
@given(data=st.data())
def test_bit_counts(dtype: DType, data: st.DataObject) -> None:
    value = data.draw(st.integers(dtype.min, dtype.max) | st.sampled_from([0, dtype.min, dtype.max, 1]))
    digits = f"{value % (1 << dtype.bits):0{dtype.bits}b}"
    expected = {
        "popcount": digits.count("1"),
        "clz": dtype.bits - len(digits.lstrip("0")),
        "ctz": dtype.bits - len(digits.rstrip("0")),
        "ffs": dtype.bits - len(digits.rstrip("0")) + 1 if value else 0,
        "bit_reverse": semantics.round_to(int(digits[::-1], 2), dtype),
    }

    actual = {name: int(by_name(name).evaluate(np.array([value], dtype.numpy))[0]) for name in expected}  # type: ignore[misc]

    assert expected == actual


FOUR_BYTES = st.binary(min_size=4, max_size=4)


@FEW
@given(low=FOUR_BYTES, high=FOUR_BYTES, digits=st.lists(st.integers(0, 15), min_size=4, max_size=4))
def test_byte_perm_picks_bytes(low: bytes, high: bytes, digits: list[int]) -> None:
    selector = sum(d << (4 * i) for i, d in enumerate(digits))
    args = [np.array([n], np.uint32) for n in (int.from_bytes(low, "little"), int.from_bytes(high, "little"), selector)]

    picked = bytes((low + high)[d % 8] for d in digits)

    assert int.from_bytes(picked, "little") == expand_and_evaluate(by_name("byte_perm"), "cpu", args)[0]


@pytest.mark.parametrize(
    ("base", "exponent", "expected"),
    [
        (3, 4, 81),
        (2, 31, int32.min),
        (2, 32, 0),
        (0, 0, 1),
        (7, -1, 0),
        (0, -1, 0),
        (-1, -3, -1),
        (-1, -2, 1),
        (1, -9, 1),
    ],
)
def test_integer_power(base: int, exponent: int, expected: int) -> None:
    args = [np.array([n], np.int32) for n in (base, exponent)]

    assert expected == expand_and_evaluate(by_name("pow"), "cpu", args)[0] == by_name("pow").evaluate(*args)[0]  # type: ignore[misc]
