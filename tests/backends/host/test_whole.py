"""Loops over tiles in two parts, of which the first has no masks: they do what the loop does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.backends.host import compiler, whole

LENGTH = 300


def _counts(start_at, stop_at, beyond, asked, STEP: int):
    """A kernel that counts how often each place is reached, and adds up the numbers that its threads see, in order."""

    @sk.jit
    def counts(out, sums, first: sk.int64, n: sk.int64):
        lane = sk.cuda.thread_idx("x")
        total = sk.int64(0)
        for start in range(start_at(first), stop_at(n), STEP):
            i = beyond(start, lane)
            if asked(i, stop_at(n)):
                if (i >= 0) & (i < LENGTH):
                    sk.atomic_add(out + i, 1)
                total = total * 3 + start
        sums[lane] = total

    return counts


PLAIN = (lambda first: 0, lambda n: n, lambda start, lane: start + lane, lambda i, n: i < n)
FORMS = {
    "plain": PLAIN,
    "from a number on": (lambda first: first, *PLAIN[1:]),
    "to a sum": (PLAIN[0], lambda n: n + 5, *PLAIN[2:]),
    "in order of lanes": (*PLAIN[:2], lambda start, lane: 31 + start - lane, PLAIN[3]),
    "beyond the step": (*PLAIN[:2], lambda start, lane: start + lane + 40, PLAIN[3]),
    "before the index": (*PLAIN[:2], lambda start, lane: start + lane - 4, PLAIN[3]),
    "the other way round": (*PLAIN[:3], lambda i, n: n > i),
    "the last one too": (*PLAIN[:3], lambda i, n: i <= n),
}
STEPS = (1, 32, 48, 64)
KERNELS = {(form, step): _counts(*parts, step) for form, parts in FORMS.items() for step in STEPS}


@settings(max_examples=40, deadline=None)
@given(
    form=st.sampled_from(sorted(FORMS)),
    step=st.sampled_from(STEPS),
    block=st.sampled_from((1, 20, 32, 64)),
    first=st.integers(-70, 70),
    n=st.integers(-70, LENGTH) | st.sampled_from((0, 1, 47, 48, 49, 64, 96, 128)),
)
def test_each_iteration_is_run_once_and_in_order(form: str, step: int, block: int, first: int, n: int) -> None:
    start_at, stop_at, beyond, asked = FORMS[form]
    out, sums = np.zeros(LENGTH, np.int64), np.zeros(block, np.int64)

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("STAGEKIT_TARGET", "cpu")
        KERNELS[form, step][1, block](out, sums, first, n)

    counted, totals = np.zeros(LENGTH, np.int64), [0] * block
    for start in range(start_at(first), stop_at(n), step):
        for lane in range(block):
            i = beyond(start, lane)
            if asked(i, stop_at(n)):
                counted[i : i + 1] += 0 <= i < LENGTH
                totals[lane] = totals[lane] * 3 + start
    np.testing.assert_array_equal(out, counted)
    assert sums.tolist() == [((total + (1 << 63)) % (1 << 64)) - (1 << 63) for total in totals]


@pytest.mark.parametrize(
    ("form", "step", "block", "is_apart"),
    [
        ("plain", 64, 64, True),
        ("from a number on", 64, 32, True),
        ("the other way round", 48, 48, True),
        ("plain", 32, 64, False),  # the last thread comes again
        ("beyond the step", 64, 64, False),
        ("the last one too", 64, 64, False),
    ],
)
def test_masks_are_left_out_where_the_step_covers_all_threads(
    monkeypatch, form: str, step: int, block: int, is_apart: bool
) -> None:
    changed = list[bool]()

    def watched(fn, shape):
        found = whole.take_apart(fn, shape)
        changed.append(found is not fn)
        return found

    monkeypatch.setenv("STAGEKIT_CACHE", "0")
    monkeypatch.setenv("STAGEKIT_TARGET", "cpu")
    monkeypatch.setattr(compiler, "take_apart", watched)

    _counts(*FORMS[form], step)[1, block](np.zeros(LENGTH, np.int64), np.zeros(block, np.int64), 0, 0)

    assert changed == [is_apart]


@pytest.mark.parametrize("n", [-(2**63), -(2**63) + 100, 2**63 - 1, 2**63 - 64])
def test_distances_that_do_not_fit_are_no_matter(monkeypatch, n: int) -> None:
    """From far below zero, or to far above it: a loop that ends at once, or begins near its end."""
    monkeypatch.setenv("STAGEKIT_TARGET", "cpu")
    out, sums = np.zeros(LENGTH, np.int64), np.zeros(64, np.int64)
    first = n - 40 if n > 0 else 2**63 - 1

    KERNELS["from a number on", 64][1, 64](out, sums, first, n)

    with np.errstate(over="ignore"):
        asked = (first + np.arange(64) < n) & (first < n)  # the last threads wrap
    assert (sums == first).tolist() == asked.tolist()
