"""Kernels are cut where a block goes on to another part of the same arrays, and do what they did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stagekit as sk

FLOATS = sk.Tensor((None,), sk.float32)


def parts(distance: int, count: int, *, guarded: bool = True) -> Any:
    """A thread's elements lie `distance` apart."""

    @sk.jit
    def add(x: FLOATS, y: FLOATS, a: sk.float32):
        t, block = sk.cuda.thread_idx("x"), sk.cuda.block_idx("x")
        for e in sk.static_range(count):
            i = block * sk.cuda.block_dim("x") * count + t + e * distance
            if not guarded or i < x.shape[0]:
                y[i] = a * x[i] + y[i] + e

    return add


def loops(kernel: Any, threads: int) -> int:
    """Over how many loops over warps a block goes, in the code without guards if it has one."""
    text = kernel.specialize(x=FLOATS, y=FLOATS, a=sk.float32).compile("cpu", block=threads).stages["llvm"]
    return text.partition("guarded")[0 if "unguarded" not in text else 2].partition("\nguarded")[0].count("\nwarp")


@pytest.mark.parametrize(
    ("distance", "threads", "expected"),
    [(256, 256, 3), (300, 256, 3), (-256, 256, 3), (255, 256, 1), (1, 256, 1), (0, 256, 1), (256, 64, 3), (64, 96, 1)],
)
@pytest.mark.parametrize("guarded", [True, False])
def test_parts_that_are_a_block_apart_have_a_loop_each(
    distance: int, threads: int, expected: int, guarded: bool
) -> None:
    assert loops(parts(distance, 3, guarded=guarded), threads) == expected


@sk.jit
def reads_across(x: FLOATS, y: FLOATS, a: sk.float32):
    """What the second part needs was loaded for the first."""
    t = sk.cuda.thread_idx("x")
    v = x[t]
    y[t] = a * v
    y[t + 256] = a * v


@sk.jit
def counts(x: FLOATS, y: FLOATS, a: sk.float32):
    t = sk.cuda.thread_idx("x")
    for e in sk.static_range(2):
        sk.atomic_add(y + (t + e * 256), a * x[t + e * 256])
        y[t + e * 256] = a


@sk.jit
def keeps(x: FLOATS, y: FLOATS, a: sk.float32):
    """A thread has memory of its own."""
    t, own = sk.cuda.thread_idx("x"), sk.alloc_local((2,), sk.float32)
    for e in sk.static_range(2):
        own[e] = x[t + e * 256]
        y[t + e * 256] = own[e] * a


@sk.jit
def broadcasts(x: FLOATS, y: FLOATS, a: sk.float32):
    """Both parts read the same elements: together they do it once."""
    t = sk.cuda.thread_idx("x")
    for e in sk.static_range(2):
        y[t + e * 256] = a * x[t]


@pytest.mark.parametrize("kernel", [reads_across, counts, keeps, broadcasts])
def test_what_is_no_repetition_or_would_have_to_be_kept_stays_together(kernel: Any) -> None:
    assert loops(kernel, 256) == 1


def shifted(memory: np.ndarray, apart: int) -> tuple[np.ndarray, np.ndarray]:
    return memory[64:1100], memory[64 + apart : 1100 + apart]


@pytest.mark.parametrize("threads", [33, 64, 100, 256])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("make", [lambda m: (m[:1036], m[1036:]), lambda m: shifted(m, 0)], ids=["two", "one"])
def test_results_are_those_of_the_statements(threads: int, count: int, make: Callable[..., Any]) -> None:
    """Arrays apart, and one array as both; the last block is not full, and blocks of 33 and 100 end in part of a warp."""
    memory = np.random.default_rng(0).random(2072).astype(np.float32)
    expected = memory.copy()
    (x, y), (x2, y2) = make(memory), make(expected)
    i = np.arange(len(x))
    y2[:] = np.float32(2) * x2 + y2 + (i // threads % count).astype(np.float32)

    parts(threads, count)[-(-len(x) // (threads * count)), threads](x, y, 2.0)

    np.testing.assert_allclose(memory, expected, rtol=1e-6)


def test_a_thread_finds_what_it_stored_under_another_name() -> None:
    """x begins a block after y, so that a thread's second part of y is its first part of x."""
    memory = np.arange(1024, dtype=np.float32)
    x, y = memory[256:768], memory[:512]
    expected = memory.copy()
    for e in range(2):
        at = np.arange(256) + 256 * e
        expected[at] = 2 * expected[at + 256] + expected[at] + e

    parts(256, 2)[1, 256](x, y, 2.0)

    np.testing.assert_array_equal(memory, expected)
