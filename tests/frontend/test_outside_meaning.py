"""A pure operation called from ordinary Python gives what a kernel gives: folded while specialising, and at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.dtypes import ALL_DTYPES, DType
from stagekit.intrinsics import all_intrinsics
from stagekit.ir import Intrinsic, Scalar, Sig
from tests.cells import cell

PURE = [spec for spec in all_intrinsics() if spec.is_elementwise]
VALUES: dict[str, list[float]] = {
    "float": [0.0, -0.0, 1.0, -2.5, 100.0, float("inf"), float("nan"), 0.375],
    "int": [0, 1, -1, 7, -8, 100, -100, 3],
    "uint": [0, 1, 2, 3, 7, 8, 100, 127],
    "bool": [False, True] * 4,
}
ROWS = 8


def columns(sig: Sig) -> list[np.ndarray]:
    """Arguments lane by lane, each in another order."""
    types = [each for each in sig.args if isinstance(each, Scalar)]
    return [np.roll(np.array(VALUES[t.dtype.kind], t.dtype.numpy), 3 * place) for place, t in enumerate(types)]


def seen(values: Any) -> tuple[np.dtype[Any], list[str]]:
    """The dtype of an array, and its elements as texts, which tell zeros apart and not NaNs."""
    array = np.asarray(values)
    return array.dtype, [str(x) for x in array.astype(np.float64 if array.dtype.kind == "V" else array.dtype).tolist()]


def row_by_row(folded: Any, computed: Any, spec: Any, calls: Any, arrays: Any) -> None:
    for row in sk.static_range(ROWS):
        folded[row] = spec(*calls[row])
        computed[row] = spec(*[array[row] for array in arrays])


@sk.jit
def of_one(folded, computed, x, SPEC: sk.constexpr, CALLS: sk.constexpr):
    row_by_row(folded, computed, SPEC, CALLS, [x])


@sk.jit
def of_two(folded, computed, x, y, SPEC: sk.constexpr, CALLS: sk.constexpr):
    row_by_row(folded, computed, SPEC, CALLS, [x, y])


@sk.jit
def of_three(folded, computed, x, y, z, SPEC: sk.constexpr, CALLS: sk.constexpr):
    row_by_row(folded, computed, SPEC, CALLS, [x, y, z])


@pytest.mark.parametrize("spec", PURE, ids=lambda spec: spec.name)
def test_numbers_and_arrays_give_what_a_kernel_folds_and_what_it_computes(spec: Intrinsic) -> None:
    for sig in spec.sigs:
        with cell(sig.args[0]):
            check(spec, sig)


def check(spec: Intrinsic, sig: Sig) -> None:
    arrays = columns(sig)
    calls = tuple(zip(*arrays, strict=True))
    result = sig.results[0]
    assert isinstance(result, Scalar)
    folded, computed = (np.zeros(ROWS, result.dtype.numpy) for _ in range(2))
    kernel = (of_one, of_two, of_three)[len(arrays) - 1].specialize(SPEC=spec, CALLS=calls)

    sk.compile(kernel, "interp")[1, 1](folded, computed, *arrays)

    assert seen(spec(*arrays)) == seen([spec(*call) for call in calls]) == seen(folded) == seen(computed)


# -- any arguments --------------------------------------------------------------------------------------------------------


def outcome(call: Callable[[], Any]) -> str:
    """The type and text of a result, or the id of the error."""
    try:
        value = call()
    except sk.StagekitError as error:
        assert error.loc is not None
        assert error.loc.file == __file__
        return error.id
    return f"{type(value).__name__} {value!r}"


@sk.jit
def finds(CALL: sk.constexpr, ARGS: sk.constexpr, WANTED: sk.constexpr):
    found = CALL(*ARGS)
    sk.static_assert(f"{type(found).__name__} {found!r}" == WANTED, f"{found!r}, outside {WANTED}")


LITERALS = [True, False, 0, 1, -3, 300, 2**31, 2**64, -(2**70), 0.0, -0.0, 2.5, 3e9, 1e300, float("inf"), float("nan")]
TYPED = [dtype(number) for dtype in ALL_DTYPES for number in (-3, 0, 1, 2.5, 100, 300)]
numbers = st.one_of(st.sampled_from(LITERALS), st.sampled_from(TYPED))
any_time = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@any_time
@given(call=st.sampled_from([*PURE, sk.where]), drawn=st.lists(numbers, min_size=3, max_size=3))
def test_any_numbers_give_what_a_kernel_folds_or_the_same_error(call: Any, drawn: list[Any]) -> None:
    args = tuple(drawn if call is sk.where else drawn[: len(call.args)])
    wanted = outcome(lambda: call(*args))

    inside = outcome(lambda: finds.specialize(CALL=call, ARGS=args, WANTED=wanted).trace() and None)

    assert inside == wanted or inside.startswith("NoneType")


@any_time
@given(dtype=st.sampled_from(ALL_DTYPES), number=st.one_of(numbers, st.integers(), st.floats()))
def test_a_dtype_converts_a_number_as_a_kernel_does(dtype: DType, number: Any) -> None:
    wanted = outcome(lambda: dtype(number))

    assert outcome(lambda: finds.specialize(CALL=dtype, ARGS=(number,), WANTED=wanted).trace() and None).startswith(
        "NoneType"
    )


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=repr)
def test_a_dtype_converts_what_holds_numbers_one_by_one(dtype: DType) -> None:
    numbers = [0, 1, 3e9, 2**70, Fraction(7, 2), np.float16(2.5), True]
    one_by_one = [dtype(float(number) if isinstance(number, Fraction) else number) for number in numbers]

    assert seen(dtype(numbers)) == seen(one_by_one)
    assert seen(dtype(np.array([1, 2], ">i4"))) == seen(dtype([1, 2]))


# -- arrays ---------------------------------------------------------------------------------------------------------------


def test_arrays_are_broadcast_and_literals_take_their_dtype() -> None:
    column, row = np.array([[1], [5]], np.float16), np.arange(3, dtype=np.float16)

    largest, chosen = sk.maximum(column, row), sk.where(column > row, column, 0.1)

    np.testing.assert_array_equal(largest, np.maximum(column, row), strict=True)
    np.testing.assert_array_equal(chosen, np.where(column > row, column, np.float16(0.1)), strict=True)


def test_a_result_is_an_array_of_its_own() -> None:
    given = np.arange(3)

    sk.floor(given)[:] = sk.int64(given)[1:2] = 7

    assert [0, 1, 2] == given.tolist()


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda: sk.fma(np.zeros(2), np.zeros(3), 1.0), "BAD_OPERANDS"),
        (lambda: sk.where(np.zeros(2) > 0, np.zeros(3), 1.0), "BAD_OPERANDS"),
        (lambda: sk.where(np.zeros(2) > 0, "text", 1.0), "BAD_OPERANDS"),
        (lambda: sk.exp(np.zeros(2, complex)), "NO_OVERLOAD"),
        (lambda: sk.exp(np.ma.array([1.0, 2.0], mask=[0, 1])), "NO_OVERLOAD"),
        (lambda: sk.popcount(np.zeros(2)), "NO_OVERLOAD"),
        (lambda: sk.maximum(np.zeros(2, np.uint8), 300), "LITERAL_RANGE"),
        (lambda: sk.minimum(np.zeros(2, np.int64), np.uint64(1)), "MIXED_PROMOTION"),
        (lambda: sk.static_assert(1 > 2, "why"), "STATIC_ASSERTION"),
        (lambda: sk.static_range(1.5), "BAD_CALL"),
        (lambda: sk.where(True), "BAD_CALL"),
    ],
)
def test_what_does_not_fit_is_refused_at_its_line(call: Callable[[], Any], problem: str) -> None:
    assert outcome(call) == problem


# -- fragments ------------------------------------------------------------------------------------------------------------


@sk.inline
def polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    sk.static_assert(len(coefficients) > 0)
    total = sk.float32(0)
    for each in sk.static_range(len(coefficients)):
        total = sk.fma(total, x, coefficients[each])
    return sk.where(x > 0, total, -sk.exp(x))


@pytest.mark.parametrize("x", [np.float32(0.75), np.float32(-0.75)])
def test_a_fragment_gives_in_plain_python_what_it_gives_in_a_kernel(x: np.float32) -> None:
    @sk.jit
    def kernel(out, x):
        out[0] = polynomial(x, (0.5, 0.25, 3.0))

    out = np.zeros(1, np.float32)
    sk.compile(kernel, "interp")[1, 1](out, x)

    plain = polynomial(x, (0.5, 0.25, 3.0))

    assert seen([plain]) == seen(out)


def test_a_static_print_prints(capsys: pytest.CaptureFixture[str]) -> None:
    sk.static_print("tiles:", 3)

    assert "tiles: 3\n" == capsys.readouterr().out
