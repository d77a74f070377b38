"""R25: what would take for ever or all memory while specialising is refused in words, at its line, within a moment."""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import Any

import numpy as np
import pytest

import stagekit as sk

LONG = range(10**18)
HUGE = np.broadcast_to(np.float32(1), (1 << 20, 1 << 20))
DIGITS = 10**5000


def spin(n):
    while True:
        n = n * n


CASES = {
    "a list of a range": (lambda n: list(LONG), "UNROLL_BUDGET"),
    "a tuple of one": (lambda n: tuple(LONG), "UNROLL_BUDGET"),
    "a set of one": (lambda n: set(LONG), "UNROLL_BUDGET"),
    "a dict of one": (lambda n: dict.fromkeys(LONG), "UNROLL_BUDGET"),
    "its sum": (lambda n: sum(LONG), "UNROLL_BUDGET"),
    "its items as arguments": (lambda n: max(*LONG), "UNROLL_BUDGET"),
    "sorted": (lambda n: sorted(LONG), "UNROLL_BUDGET"),
    "a comprehension": (lambda n: [i for i in LONG], "UNROLL_BUDGET"),  # noqa: C416
    "pairs": (lambda n: list(zip(LONG, LONG, strict=True)), "UNROLL_BUDGET"),
    "reduced": (lambda n: functools.reduce(max, LONG), "UNROLL_BUDGET"),
    "longer than any length": (lambda n: list(range(10**30)), "UNROLL_BUDGET"),
    "a repeated list": (lambda n: [0] * 10**10, "BAD_OPERANDS"),
    "repeated from the left": (lambda n: 10**10 * (n,), "BAD_OPERANDS"),
    "a repeated text": (lambda n: "a" * 10**10, "BAD_OPERANDS"),
    "a power": (lambda n: 10**10**10, "BAD_OPERANDS"),
    "a shift": (lambda n: 1 << 10**10, "BAD_OPERANDS"),
    "squares of squares": (spin, "BAD_OPERANDS"),
    "a format": (lambda n: f"{1:>100000000000}", "STATIC_FAILURE"),
    "a format that a machine of 128 GiB could hold": (lambda n: f"{1:.10000000000f}", "STATIC_FAILURE"),
    "a run-time number's format": (lambda n: print(f"{n:>10000000000}"), "STATIC_FAILURE"),
    "a format by %": (lambda n: "%100000000000d" % 1, "STATIC_FAILURE"),  # noqa: F501, UP031
    "digits": (lambda n: f"{DIGITS}", "STATIC_FAILURE"),
    "an array": (lambda n: np.zeros((1 << 22, 1 << 22)), "STATIC_FAILURE"),
    "a number past all floats": (lambda n: sk.exp(n * 1.0) + DIGITS, "LITERAL_RANGE"),
    "a captured array": (lambda n: HUGE[0, 0], "CAPTURE_TOO_LARGE"),
    "one handed to Python": (lambda n: np.sum(HUGE), "CAPTURE_TOO_LARGE"),
}


@sk.jit
def runs(out, n, DO: sk.constexpr):
    DO(10 if DO is spin else n)
    out[0] = 1


@pytest.mark.parametrize("name", CASES)
def test_work_without_end_is_refused_at_once(name: str) -> None:
    do, expected = CASES[name]
    begin = time.monotonic()
    with pytest.raises(sk.StagekitError) as caught:
        runs[1, 1](np.zeros(1, np.float32), 3, do)
    assert caught.value.id == expected
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize(
    ("do", "expected"),
    [
        (lambda: len([0] * 1000), 1000),
        (lambda: (1 << 100) >> 98, 4),
        (lambda: 0 << 10**10, 0),
        (lambda: 1**10**10, 1),
        (lambda: (-1) ** (10**10 + 1), -1),
        (lambda: len(list(range(70_000))), 70_000),
        (lambda: 10**17 in LONG, 1),
        (lambda: LONG[10**17] // 10**16, 10),
    ],
)
def test_work_that_ends_is_done(do: Any, expected: int) -> None:
    @sk.jit
    def kernel(out):
        out[0] = do()

    out = np.zeros(1, np.int32)
    kernel[1, 1](out)
    assert out[0] == expected


@dataclasses.dataclass(frozen=True)
class Holds:
    table: Any = dataclasses.field(hash=False)


def test_a_huge_array_in_a_constexpr_is_refused() -> None:
    @sk.jit
    def kernel(out, c: sk.constexpr):
        out[0] = 1

    with pytest.raises(sk.SpecializeError) as caught:
        kernel[1, 1](np.zeros(1), Holds(HUGE))
    assert caught.value.id == "CAPTURE_TOO_LARGE"


def test_an_array_of_the_largest_size_is_captured() -> None:
    table = np.zeros((1 << 20, 64), np.uint8)

    @sk.jit
    def kernel(out):
        out[0] = table[5, 5]

    out = np.zeros(1, np.int32)
    kernel[1, 1](out)
    table[5, 5] = 7
    kernel[1, 1](out)
    assert out[0] == 7


def test_a_long_default_runs_though_no_file_holds_it() -> None:
    @sk.jit
    def kernel(out, a: sk.float32 = DIGITS):
        out[0] = a

    out = np.zeros(1, np.float32)
    kernel[1, 1](out, 2)
    assert out[0] == 2


def test_arithmetic_of_an_array_without_axes_names_the_number_in_it() -> None:
    @sk.jit
    def kernel(out, n):
        out[0] = n + 1

    with pytest.raises(sk.StagekitError, match=r"the number in it is `n\[\(\)\]`"):
        kernel[1, 1](np.zeros(1), np.array(3.0))


@pytest.mark.parametrize("text", ["N", "'N'", "M"])
def test_a_size_that_stands_for_itself_is_refused(text: str) -> None:
    """It was evaluated for ever."""

    @sk.jit
    def kernel(x: sk.Tensor(("N",), sk.float32), M: sk.constexpr, N: sk.constexpr):
        x[0] = 1

    with pytest.raises(sk.SpecializeError) as caught:
        kernel[1, 1](np.zeros(3, np.float32), "N", text)
    assert caught.value.id == "BAD_ANNOTATION"
