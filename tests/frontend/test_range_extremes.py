"""`range` at the ends of its dtype is Python's, or refused: loops, loops that are left early, len, in, reversed (R27)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.backends import ptxas

TARGETS = ("interp", "cpu")
MOST = 12  # numbers of a range that is tried


@sk.jit
def plain(out, bounds, STEP: sk.constexpr):
    t = sk.cuda.thread_idx("x")
    n = 0
    for i in range(bounds[t, 0], bounds[t, 1], bounds[t, 2] if STEP is None else STEP):
        out[t, n] = i
        n += 1
    out[t, 15] = n


@sk.jit
def left_early(out, bounds, STEP: sk.constexpr):
    t = sk.cuda.thread_idx("x")
    n = 0
    for i in range(bounds[t, 0], bounds[t, 1], bounds[t, 2] if STEP is None else STEP):
        if n >= 14:
            break
        out[t, n] = i
        n += 1
    out[t, 15] = n


@sk.jit
def uniform(out, start, stop, STEP: sk.constexpr, BREAKS: sk.constexpr):
    n = 0
    for i in range(start, stop, STEP):
        if BREAKS:
            if n >= 14:
                break
        out[0, n] = i
        n += 1
    out[0, 15] = n


LOW, HIGH = -(2**63), 2**63 - 1


@st.composite
def ranges(draw, low=LOW, high=HIGH):
    """Ranges of few numbers, often about an end of the dtype."""
    step = draw(st.sampled_from([1, 2, 3, 5, 2**31, 2**62, 2**63 - 1]) | st.integers(1, 2**63 - 1))
    if low < 0:
        step *= draw(st.sampled_from([1, -1]))
    near = st.sampled_from([low, high, 0, (low + high) // 2]).flatmap(lambda e: st.integers(e - 40, e + 40))
    start, stop = (min(max(draw(near | st.integers(low, high)), low), high) for _ in range(2))
    found = range(start, stop, step)
    if found[MOST:]:
        stop = start + MOST * step + draw(st.integers(-1, 1))
        assume(low <= stop <= high)
    return range(start, stop, step)


def expected(numbers):
    return [*numbers, *[0] * (15 - len(numbers)), len(numbers)]


@pytest.mark.parametrize("kernel", [plain, left_early], ids=lambda k: k.name)
@settings(max_examples=60, deadline=None)
@example([range(2**63 - 2, 2**63 - 1, 2)], True)
@example([range(2**63 - 2, 2**63 - 1, 2), range(0, 3, 2), range(-(2**63) + 1, -(2**63), -2)], False)
@given(st.lists(ranges(), min_size=1, max_size=4), st.booleans())
def test_loops_at_the_ends_of_int64_are_pythons(kernel, rows, is_static):
    rows = rows[:1] if is_static else rows
    bounds = np.array([[r.start, r.stop, r.step] for r in rows], np.int64)

    for target in TARGETS:
        out = np.zeros((len(rows), 16), np.int64)
        made = kernel.specialize(STEP=rows[0].step if is_static else None)
        sk.compile(made, target)[1, len(rows)](out, bounds)
        assert out.tolist() == [expected(r) for r in rows]


@pytest.mark.parametrize("breaks", [False, True])
@settings(max_examples=40, deadline=None)
@example(range(2**63, 2**63 + 6, 2))
@example(range(2**64 - 2, 2**64 - 1, 2))
@given(ranges(0, 2**64 - 1))
def test_loops_over_uint64_are_pythons(breaks, numbers):
    for target in TARGETS:
        out = np.zeros((1, 16), np.uint64)
        made = uniform.specialize(STEP=numbers.step, BREAKS=breaks)
        sk.compile(made, target)[1, 1](out, np.uint64(numbers.start), np.uint64(numbers.stop))
        assert out.tolist() == [expected(numbers)]


@sk.jit
def asked(out, inside, start, stop, candidates, STEP: sk.constexpr):
    numbers = range(start, stop, STEP)
    out[0] = len(numbers)
    for k in range(len(candidates)):
        inside[k] = candidates[k] in numbers
    n = 1
    for i in reversed(numbers):
        out[n] = i
        n += 1


@settings(max_examples=60, deadline=None)
@example(range(LOW, LOW + 3), [])
@example(range(LOW, LOW), [])
@example(range(HIGH, HIGH - 8, -3), [])
@given(ranges(), st.lists(st.integers(LOW, HIGH), max_size=3))
def test_len_in_and_reversed_are_pythons(numbers, others):
    about = [x + d for x in (numbers.start, numbers.stop) for d in (-1, 0, 1) if LOW <= x + d <= HIGH]
    candidates = np.array([*others, *numbers, *about], np.int64)
    wanted = [len(numbers), *reversed(numbers)]

    for target in TARGETS:
        out, inside = np.zeros(16, np.int64), np.zeros(len(candidates), np.bool_)
        bounds = np.int64(numbers.start), np.int64(numbers.stop)
        sk.compile(asked.specialize(STEP=numbers.step), target)[1, 1](out, inside, *bounds, candidates)
        assert out[: len(wanted)].tolist() == wanted
        assert inside.tolist() == [x in numbers for x in candidates.tolist()]


@sk.jit
def backwards(out, start, stop, STEP: sk.constexpr):
    n = 0
    for i in reversed(range(start, stop, STEP)):
        if n >= 14:
            break
        out[0, n] = i
        n += 1
    out[0, 15] = n
    out[0, 14] = (start in reversed(range(start, stop, STEP))) == (start < stop)


@settings(max_examples=30, deadline=None)
@example(range(0, 3))
@example(range(0, 0))
@given(ranges(0, 2**64 - 1))
def test_reversed_of_uint64_is_pythons(numbers):
    for target in TARGETS:
        out = np.zeros((1, 16), np.uint64)
        bounds = np.uint64(numbers.start), np.uint64(numbers.stop)
        sk.compile(backwards.specialize(STEP=numbers.step), target)[1, 1](out, *bounds)
        row = expected(numbers[::-1])
        assert out.tolist() == [[*row[:14], 1, row[15]]]


@pytest.mark.parametrize("numbers", [range(HIGH - 2, HIGH + 1), range(LOW + 4, LOW - 1, -2), range(LOW, LOW + 3)[::-1]])
def test_a_known_range_needs_no_dtype_that_holds_its_stop(numbers):
    @sk.jit
    def kernel(out, NUMBERS: sk.constexpr):
        n = 0
        for i in range(NUMBERS.start, NUMBERS.stop, NUMBERS.step):
            out[n] = i
            n += 1
        out[15] = i

    for target in TARGETS:
        out = np.zeros(16, np.int64)
        sk.compile(kernel.specialize(NUMBERS=numbers), target)[1, 1](out)
        assert out.tolist() == [*numbers, *[0] * (15 - len(numbers)), numbers[-1]]


@sk.jit
def counted(out, start, stop, STEP: sk.constexpr):
    out[0] = len(range(start, stop, STEP))


@pytest.mark.parametrize(
    "numbers", [range(LOW, HIGH), range(LOW, 0), range(HIGH, LOW, -1), range(LOW, HIGH, 2), range(LOW, HIGH, 3)]
)
@pytest.mark.parametrize("target", TARGETS)
def test_a_length_that_no_int64_holds_is_an_assertion(numbers, target):
    out, kernel = np.zeros(1, np.int64), sk.compile(counted.specialize(STEP=numbers.step), target)
    bounds = np.int64(numbers.start), np.int64(numbers.stop)

    if numbers[HIGH:]:  # 2**63 numbers or more
        with pytest.raises(sk.KernelAssertionError, match=r"2\*\*63 or more"):
            kernel[1, 1](out, *bounds)
    else:
        kernel[1, 1](out, *bounds)
        assert out.tolist() == [len(numbers)]


def test_lengths_that_an_int64_holds_are_not_checked():
    arrays = {"out": sk.Tensor((None,), sk.int64)}

    for kinds in ({"start": sk.int32, "stop": sk.int32}, {"start": sk.uint32, "stop": sk.int64}):
        assert "assert" not in counted.specialize(STEP=1, **arrays, **kinds).ir


def test_a_step_of_zero_is_refused_in_any_dtype():
    @sk.jit
    def kernel(out, n):
        for _ in range(n, 0, np.int32(0)):
            out[0] = 1

    with pytest.raises(sk.StagingError) as caught:
        kernel[1, 1](np.zeros(1, np.int64), 3)

    assert caught.value.id == "BAD_CALL"


@settings(max_examples=40, deadline=None)
@given(ranges(), st.integers(LOW, HIGH))
def test_in_of_a_range_that_is_known_is_pythons(numbers, number):
    @sk.jit
    def kernel(out, given, NUMBERS: sk.constexpr):
        for k in range(len(given)):
            out[k] = given[k] in NUMBERS

    given_numbers = np.array([number, *numbers], np.int64)
    out = np.zeros(len(given_numbers), np.bool_)
    kernel[1, 1](out, given_numbers, numbers)
    assert out.tolist() == [x in numbers for x in given_numbers.tolist()]


@pytest.mark.parametrize(
    ("bounds", "identifier"),
    [
        ((np.int64(0), np.uint64(9)), "MIXED_PROMOTION"),
        ((np.uint64(9), np.int32(0)), "MIXED_PROMOTION"),
        ((2**63, 2**63 + 5), "LITERAL_RANGE"),
    ],
)
def test_bounds_that_no_dtype_holds_are_refused(bounds, identifier):
    @sk.jit
    def run_time(out, a, b):
        for i in range(a, b):
            out[0] = i

    @sk.jit
    def static(out, A: sk.constexpr, B: sk.constexpr):
        for i in range(A, B):
            out[0] = i

    kernel = static if identifier == "LITERAL_RANGE" else run_time
    with pytest.raises(sk.StagingError) as caught:
        kernel[1, 1](np.zeros(1, np.int64), *bounds)

    assert caught.value.id == identifier


def test_the_ptx_of_loops_over_ranges_is_assembled():
    arrays = {name: sk.Tensor((None, None), sk.int64) for name in ("out", "bounds")}
    wide = {"out": sk.Tensor((1, 16), sk.uint64), "start": sk.uint64, "stop": sk.uint64}

    for kernel, step in ((plain, None), (left_early, None), (left_early, -3), (left_early, 7)):
        ptxas.assemble(kernel.specialize(STEP=step, **arrays).ptx)
    ptxas.assemble(uniform.specialize(STEP=5, BREAKS=True, **wide).ptx)


def test_a_loop_that_cannot_wrap_carries_its_counter_alone():
    kinds = {"out": sk.Tensor((1, 16), sk.int64), "start": sk.int32, "stop": sk.int32}

    for step in (1, -1):
        text = uniform.specialize(STEP=step, BREAKS=True, **kinds).ir
        assert "more" not in text
