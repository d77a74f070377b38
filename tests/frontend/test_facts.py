"""What a trace knows of its arguments, and asks: what is answered with True holds in every thread of every launch that runs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit import testing
from stagekit.dtypes import DType

POWERS = (1, 2, 4, 8, 16, 64, 256)


@sk._direct
def multiple(value: Any, divisor: int) -> bool:
    """Ask as the library does."""
    return sk._is_multiple(value, divisor)


def facts_of(kernel: Any) -> list[str]:
    return [fact.text for fact in kernel.signature.facts]


# -- expressions ------------------------------------------------------------------------------------------------------------

LEAVES = ("a", "b", "c", "block", "thread", "loop")
SMALL = st.integers(-12, 12).map(lambda n: 2 * n if n % 3 else n)
EXPRESSIONS = st.recursive(
    st.sampled_from(LEAVES) | SMALL.map(str),
    lambda inner: (
        st.tuples(inner, st.sampled_from(("+", "-", "*")), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
        | st.tuples(inner, st.integers(0, 5)).map(lambda t: f"({t[0]} << {t[1]})")
        | st.tuples(inner, st.sampled_from(("sk.int32", "sk.int64", "sk.uint32", "sk.int8"))).map(
            lambda t: f"{t[1]}({t[0]})"
        )
        | inner.map(lambda each: f"(-({each}))")
    ),
    max_leaves=5,
)
NUMBERS = st.one_of(st.integers(-40, 40), st.sampled_from([2**31 - 1, -(2**31), 2**30, 96, -128, 0]))


def kernel_of(expression: str, divisor: int, folder: Any) -> Any:
    """Return a kernel that stores the value in each thread and iteration, and what was answered."""
    path = folder / f"kernel_{abs(hash((expression, divisor)))}.py"
    path.write_text(
        "import stagekit as sk\n\n\n"
        "def kernel(out, answer, a: sk.int32, b: sk.int64, c: sk.uint8):\n"
        "    block, thread = sk.cuda.block_idx('x'), sk.cuda.thread_idx('x')\n"
        "    at = (block * 3 + thread) * 2\n"
        "    for loop in range(5, 5 + 2 * b, b):\n"
        f"        value = {expression}\n"
        f"        sk.store(answer, sk._is_multiple(value, {divisor}))\n"
        f"        sk.store(out + at, sk.int64(value) % {divisor})\n"
        "        at += 1\n"
    )
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return sk.jit(names["kernel"])


@settings(max_examples=60, deadline=None)
@given(
    EXPRESSIONS,
    st.sampled_from(POWERS),
    st.lists(st.tuples(NUMBERS, NUMBERS.filter(bool), st.integers(0, 255)), min_size=2, max_size=4),
)
def test_what_is_answered_holds_and_the_other_entries_answer_no_more_than_is_certain(
    tmp_path_factory, expression, divisor, launches
):
    try:
        kernel = kernel_of(expression, divisor, tmp_path_factory.getbasetemp())
        for a, b, c in launches:
            out, answer = np.zeros(12, np.int64), np.zeros(1, np.int32)
            kernel[2, 3](out, answer, a, b, c)
            assert not answer[0] or not out.any(), (expression, divisor, (a, b, c), kernel.signature.facts)
    except sk.StagekitError as error:  # an integer and a uint64, an int that a dtype does not hold
        assert error.id in ("MIXED_PROMOTION", "LITERAL_RANGE", "BAD_OPERANDS"), error


# -- cases ----------------------------------------------------------------------------------------------------------------


def asked(ask: Any, **types: Any) -> tuple[list[bool], list[str]]:
    """Return the answers in the quick entry, and its facts. ask: the kernel's function."""
    kernel = sk.jit(ask).specialize(**types)
    printed = kernel.trace().printed
    return [word == "True" for word in printed[0].split()], facts_of(kernel)


def test_facts_are_as_few_as_the_questions_need():
    def ask(x: sk.Pointer(sk.float32), stride: sk.int32, n: sk.int64):
        row = x + sk.program_id(0) * stride
        sk.static_print(
            multiple(x, 16), multiple(row, 16), multiple(row + 4, 16), multiple(row + 2, 16), multiple(row, 8),
            multiple(sk.program_id(0) * 8, 8), multiple(stride * n, 4), multiple(n, 1), multiple(sk.program_id(0), 2),
        )  # fmt: skip
        sk.store(row, 1)

    answers, facts = asked(ask)
    assert answers == [True, True, True, False, True, True, True, True, False]
    assert facts == ["`x` begins at a multiple of 16 bytes", "`stride` is a multiple of 4"]


def test_of_two_questions_that_exclude_each_other_the_first_is_taken_for_granted():
    def ask(x: sk.Pointer(sk.float32), n: sk.int32):
        sk.static_print(
            sk.speculate(x + n + 1, multiple_of=16), sk.speculate(x + n, multiple_of=16),
            sk.speculate(2 * n + 1, multiple_of=4), sk.speculate(x + n + 5, multiple_of=16),
        )  # fmt: skip
        sk.store(x, 1)

    answers, facts = asked(ask)
    assert answers == [True, False, False, True]
    assert len(facts) == 1


def test_the_library_asks_no_argument_to_be_off_by_a_constant():
    def ask(x: sk.Pointer(sk.float32), n: sk.int32):
        sk.static_print(multiple(x + 1, 16), multiple(x + n - 1, 16), multiple(x + n + 4, 16), multiple(n + 2, 4))
        sk.store(x, 1)

    answers, facts = asked(ask)
    assert answers == [False, False, True, False]
    assert len(facts) == 1


def test_what_is_declared_is_no_question():
    def ask(x: sk.Tensor((None, 64), sk.float32, align=32)):
        sk.static_print(
            multiple(x, 32), multiple(x, 64), multiple(x + 64 * sk.program_id(0), 16), multiple(x.shape[1], 64)
        )
        sk.store(x, 1)

    assert asked(ask) == ([True, True, True, True], ["`x` begins at a multiple of 64 bytes"])


def test_other_divisors_than_powers_of_two_are_asked_of_arguments_and_of_what_cannot_wrap():
    def ask(x: sk.Tensor((None,), sk.float32), n: sk.int32):
        sk.static_print(multiple(n, 12), multiple(n * 12, 12), multiple(x.shape[0] * 12, 12), multiple(3 * n, 3))
        sk.store(x, 1)

    assert asked(ask) == ([True, False, True, False], ["`n` is a multiple of 12"])


def test_strides_sizes_and_loops_are_functions_of_arguments():
    def ask(x: sk.Tensor((None, None), sk.float32), step: sk.int32):
        for i in range(0, x.shape[0], step):
            sk.static_print(multiple(i, 4), multiple(x.shape[1], 2))
            x[i, 0] = 1

    answers, facts = asked(ask)
    assert answers == [True, True]
    assert facts == ["`step` is a multiple of 4", "`x.shape[1]` is a multiple of 2"]


def test_a_step_that_is_taken_for_granted_of_the_first_turn_is_seen_in_the_second():
    rounds = []

    @sk._direct
    def counted(value: Any) -> bool:
        rounds.append(value)
        return sk._is_multiple(value, 64)

    def ask(x: sk.Tensor((None,), sk.float32), n: sk.int32):
        column = sk.int64(0)
        for i in range(n):
            sk.static_print(counted(column))
            x[i] = column
            column += 64

    assert asked(ask) == ([True], [])
    assert len(rounds) == 2


def test_a_step_that_later_turns_do_not_take_is_none():
    @sk.jit
    def turn(out: sk.Tensor((None,), sk.int32), n: sk.int32):
        place = sk.int32(0)
        for i in range(n):
            out[i] = place
            place += 1
            if place == 3:
                place = sk.int32(0)

    kernel, out = turn.specialize(), np.zeros(7, np.int32)
    kernel[1, 1](out, 7)
    np.testing.assert_array_equal(out, np.arange(7) % 3)


def test_a_question_in_code_that_is_not_kept_leaves_no_fact():
    def ask(x: sk.Tensor((None,), sk.float32), n: sk.int32, m: sk.int32):
        total = 0
        for i in range(n):  # traced again, with a number that floats
            if isinstance(total, int):
                sk.speculate(m % 2 == 0)
            total = total + x[i]
        x[0] = total
        sk.static_print(True)

    assert asked(ask)[1] == []


@pytest.mark.parametrize("dtype", [sk.int8, sk.uint8, sk.int16, sk.int32, sk.uint32, sk.int64], ids=lambda d: d.name)
def test_conditions_wrap_as_in_the_kernel(dtype: DType):
    @sk.jit
    def kernel(out, n: dtype, m: dtype):
        sk.store(out, 2 if sk.speculate(n * 3 - m < n ^ 5) else 0)
        if n * 3 - m < n ^ 5:
            sk.store(out + 1, 1)

    edge = [dtype.min, dtype.max, dtype.max // 3 + 1, 0, 5]
    for n in edge:
        for m in edge:
            out = np.zeros(2, np.int32)
            kernel[1, 1](out, n, m)
            assert out[0] == 2 * out[1], (n, m)


def test_conditions_may_be_put_together():
    def ask(x: sk.Tensor((None,), sk.float32), n: sk.int32, on: sk.bool_):
        sk.static_print(
            sk.speculate(1 < n < 100), sk.speculate(n > 5 or not on), sk.speculate((n % 2 == 0) & on),
            sk.speculate(min(n, 7) == 6), sk.speculate(True), sk.speculate(3 > 4),
        )  # fmt: skip
        sk.store(x, 1)

    assert asked(ask)[0] == [True, True, True, True, True, False]


@pytest.mark.parametrize(
    "ask",
    [
        lambda x, n: sk.speculate(sk.load(x) > 1),
        lambda x, n: sk.speculate(sk.cuda.thread_idx("x") % 2 == 0),
        lambda x, n: sk.speculate(x + sk.cuda.thread_idx("x"), multiple_of=16),
        lambda x, n: sk.speculate(n * 0.5 > 1),
        lambda x, n: sk.speculate(n * 3, multiple_of=3),
        lambda x, n: sk.speculate(n % 3 == 0),
    ],
    ids=["memory", "thread", "address of a thread", "float", "may wrap", "uint64"],
)
def test_what_arguments_do_not_decide_is_refused(ask, request):
    number = np.uint64(4) if "uint64" in request.node.name else 4

    @sk.jit
    def kernel(x, n):
        if ask(x, n):
            sk.store(x, 1)

    with pytest.raises(sk.StagingError, match="NOT_OF_ARGUMENTS"):
        kernel[1, 1](np.zeros(4, np.float32), number)


# -- kernels --------------------------------------------------------------------------------------------------------------


@sk.jit
def rows(x, out, n, stride, BLOCK: sk.constexpr):
    """Doubles rows; asks what wide accesses would."""
    start = sk.program_id(0) * stride
    i = sk.arange(0, BLOCK)
    wide = multiple(x + start, 16) & multiple(out + start, 16) & multiple(n, 4)
    y = sk.load(x + start + i, mask=i < n)
    sk.store(out + start + i, y + y if wide else y * 2, mask=i < n)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 33), st.integers(0, 3), st.sampled_from(["cpu", "interp"]))
def test_views_of_any_address_stride_and_size_compute_the_same(first, second, n, gap, target):
    count, stride = 3, n + gap
    memory = np.arange(400, dtype=np.float32)
    x = memory[first : first + count * stride]
    out = np.zeros(400, np.float32)[second : second + count * stride]

    sk.compile(rows.specialize(BLOCK=math.ceil((n + 1) / 32) * 32), target)[count](x, out, np.int16(n), stride)

    wanted = np.zeros_like(out)
    for row in range(count):
        wanted[row * stride : row * stride + n] = 2 * x[row * stride : row * stride + n]
    np.testing.assert_array_equal(out, wanted)


def test_an_array_that_runs_backwards_and_an_empty_one_are_asked_too():
    @sk.jit
    def kernel(x, out):
        quick = sk.speculate(x, multiple_of=8)
        for i in range(x.shape[0]):
            out[i] = x[i] + (10 if quick else 20)

    numbers = np.arange(8, dtype=np.float32)
    start = numbers.ctypes.data // 4 % 2
    for view, answer in [
        (numbers[start:], 10),
        (numbers[start + 1 :], 20),
        (numbers[::-1], 20 - 10 * start),
        (numbers[:0], 0),
    ]:
        out = np.zeros(view.size, np.float32)
        kernel[1, 1](view, out)
        np.testing.assert_array_equal(out, view + answer)


def test_the_report_says_which_launches_an_entry_is_for():
    kernel = sk.jit(rows.function).specialize(BLOCK=32)
    x = np.zeros(64, np.float32)
    x = x[-x.ctypes.data % 16 // 4 :]
    kernel[1](x[:32], x[32:64].copy(), 32, 32)
    assert "the quick entry, for launches where `x` begins at a multiple of 16 bytes" in str(kernel.report())
    testing.force_entry(kernel, "general")[1](x[:32], x[32:64].copy(), 32, 32)
    assert "the general entry, for launches where this is not known: `x` begins" in str(kernel.report())


# -- arrays that are apart -------------------------------------------------------------------------------------------------


def sums_of_three(is_asked: bool) -> Any:
    @sk.jit
    def kernel(
        out: sk.Tensor((None,), sk.float32), x: sk.Tensor((None,), sk.float32), answer: sk.Tensor((1,), sk.int32)
    ):
        answer[0] = sk.int32(sk.speculate(x, apart_from=out)) if is_asked else 0
        for first in range(0, len(x) - 5, 4):
            for k in sk.static_range(4):
                out[first + k] = x[first + k] + x[first + k + 1] + x[first + k + 2]

    return kernel


def test_what_nothing_writes_is_loaded_once_and_through_the_read_only_cache() -> None:
    loads = [sums_of_three(is_asked).specialize().ptx.count("ld.global.nc") for is_asked in (False, True)]

    assert loads == [0, 6]


@pytest.mark.parametrize("target", ["interp", "cpu"])
def test_arrays_that_overlap_have_code_that_takes_nothing_for_granted(target: str) -> None:
    kernel, answer = sk.compile(sums_of_three(True), target), np.zeros(1, np.int32)
    x = np.arange(64, dtype=np.float32)
    out, memory = np.zeros_like(x), np.concatenate([x, x])

    kernel[1, 1](out, x, answer)
    assert answer[0] == 1
    for shift in (0, 1, 63):
        found, wanted = memory.copy(), memory.copy()
        kernel[1, 1](found[shift : shift + 64], found[:64], answer)
        sk.compile(sums_of_three(False), target)[1, 1](wanted[shift : shift + 64], wanted[:64], np.zeros(1, np.int32))
        assert answer[0] == 0
        np.testing.assert_array_equal(found, wanted)


def test_only_array_arguments_are_asked_whether_they_are_apart() -> None:
    @sk.jit
    def kernel(out: sk.Tensor((None,), sk.float32), x: sk.Pointer(sk.float32)):
        sk.speculate(out, apart_from=(x,))

    with pytest.raises(sk.StagekitError, match="give arrays that are arguments"):
        kernel.specialize().trace()
