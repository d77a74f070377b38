"""Loops over the whole grid that are run round by round: every element is met as often as the loop says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.backends.host import entry
from stagekit.backends.host.rounds import rounds_of

VECTOR = sk.Tensor((None,), sk.int32)


@sk.inline
def first():
    return sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")


@sk.inline
def all_threads():
    return sk.cuda.grid_dim("x") * sk.cuda.block_dim("x")


@sk.jit
def by_for(x: VECTOR, y: VECTOR, n: sk.int64):
    for i in range(first(), n, all_threads()):
        y[i] = 3 * y[i] + x[i]


@sk.jit
def from_an_offset_in_int32(x: VECTOR, y: VECTOR, n: sk.int64):
    for i in range(sk.int32(first()) + 5, sk.int32(n), sk.int32(2 * all_threads())):
        y[i] = 3 * y[i] + x[i // 3]


@sk.jit
def by_while(x: VECTOR, y: VECTOR, n: sk.int64):
    i = first()
    while n - 1 > i:
        y[i + 1] = 3 * y[i + 1] + x[i]
        i += all_threads()


@sk.jit
def by_blocks(x: VECTOR, y: VECTOR, n: sk.int64):
    block = sk.cuda.block_dim("x")
    for start in range(sk.cuda.block_idx("x") * block, n, sk.cuda.grid_dim("x") * block):
        i = start + sk.cuda.thread_idx("x")
        if i < n and x[i] % 2 == 0:
            for k in range(x[i] % 5):
                y[i] = 3 * y[i] + k


@sk.jit
def of_atomics(x: VECTOR, y: VECTOR, n: sk.int64):
    for i in range(first(), n, all_threads()):
        sk.atomic_add(y + x[i] % n, i)


@sk.jit
def from_a_clamp(x: VECTOR, y: VECTOR, n: sk.int64):
    for i in range(max(first(), 1), n, all_threads()):
        sk.atomic_add(y + i, x[i])


@sk.jit
def that_carries(x: VECTOR, y: VECTOR, n: sk.int64):
    total = sk.int32(0)
    for i in range(first(), n, all_threads()):
        total += x[i]
    sk.atomic_add(y + 0, total)


@sk.jit
def of_rows(x: VECTOR, y: VECTOR, n: sk.int64):
    for i in range(sk.cuda.thread_idx("x"), n, sk.cuda.block_dim("x")):
        sk.atomic_add(y + i, x[i])


BY_ROUNDS = (by_for, from_an_offset_in_int32, by_while, by_blocks, of_atomics, from_a_clamp)
AS_WRITTEN = (that_carries, of_rows)


@settings(max_examples=60, deadline=None)
@given(
    kernel=st.sampled_from(BY_ROUNDS + AS_WRITTEN),
    grid=st.sampled_from((1, 2, 3, 17)),
    block=st.sampled_from((1, 32, 33, 64, 256)),
    near=st.sampled_from((0, 1, 2, 7)),
    off=st.integers(-2, 2),
)
@example(
    kernel=from_a_clamp, grid=1, block=1, near=1, off=0
)  # no thread begins where the first one would without the clamp
def test_every_element_is_met_as_the_interpreter_meets_it(kernel, grid: int, block: int, near: int, off: int) -> None:
    n = max(near * grid * block + off, 0)
    results = [_run(sk.compile(kernel, target), grid, block, n) for target in ("cpu", "interp")]
    np.testing.assert_array_equal(*results)


def _run(kernel, grid: int, block: int, n: int) -> np.ndarray:
    x, y = np.random.default_rng(0).integers(0, 100, (2, n + 1)).astype(np.int32)
    kernel[grid, block](x, y, n)
    return y


@pytest.mark.parametrize("kernel", BY_ROUNDS + AS_WRITTEN, ids=lambda kernel: kernel.__name__)
def test_rounds_are_for_loops_over_the_grid_that_carry_nothing(kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    monkeypatch.setattr(entry, "rounds_of", lambda fn: found.append(rounds_of(fn)) or found[-1])
    monkeypatch.setenv("STAGEKIT_CACHE", "0")
    _run(sk.compile(kernel, "cpu"), 2, 96, 5)
    assert [each is not None for each in found] == [kernel in BY_ROUNDS]
