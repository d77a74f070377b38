"""Conditions that several choices share, the later taking the earlier: their rows are decided once, and code comes to an end."""

from __future__ import annotations

import numpy as np
import pytest

import stagekit as sk
from stagekit.testing import run_in_python


@sk.jit
def chosen_again(a, n):
    pid = sk.program_id(0)
    s = 2
    for _ in sk.static_range(2):
        s = sk.where(n > pid, s, abs(s))
        a[pid] -= s


@sk.jit
def chosen_in_a_chain(a, n):
    pid = sk.program_id(0)
    s = pid
    for step in sk.static_range(24):
        s = sk.where(n > pid, s + step, s - 1)
    a[pid] += s


@sk.jit
def chosen_crosswise(a, n):
    pid = sk.program_id(0)
    s, t = pid, n
    for _ in sk.static_range(6):
        s = sk.where(n > pid, t + 1, s)
        t = sk.where(n < pid + 2, s - 1, t)
    a[pid] += s + t


@sk.jit
def least_and_greatest(a, n):
    pid = sk.program_id(0)
    s = pid
    for _ in sk.static_range(8):
        s = max(min(s, n), 1) + min(s, n)
    a[pid] += s


@sk.jit
def chosen_by_what_was_chosen(a, n):
    pid = sk.program_id(0)
    s = pid
    for _ in sk.static_range(8):
        s = sk.where(s > n, s - n, sk.where(n > pid, s + 1, abs(s)))
    a[pid] += s


KERNELS = (chosen_again, chosen_in_a_chain, chosen_crosswise, least_and_greatest, chosen_by_what_was_chosen)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_choices_may_share_conditions(kernel):
    compiled = sk.compile(kernel.specialize(), "cpu")
    for n in (0, 2, 5, 100):
        found, expected = np.zeros(4, np.float32), np.zeros(4, np.float32)
        compiled[4](found, n)
        run_in_python(kernel, 4, expected, n)
        assert found.tolist() == expected.tolist(), n
