"""Cases about what a launch may cost. Counted, not timed: `benchmarks/launch.py` has the times."""

from __future__ import annotations

import ast
import contextlib
import inspect
from collections.abc import Iterator

import numpy as np
import pytest

import stagekit as sk
from stagekit.frontend import kernel as tracing


@sk.jit
def scaled(x, out, factor, *, BLOCK: sk.constexpr = 32):
    i = sk.arange(0, BLOCK)
    sk.store(out + i, sk.load(x + i) * factor)


def _refuse(*args: object, **kwargs: object) -> None:
    raise AssertionError("compile-time work in a launch")


@pytest.fixture
def arrays() -> tuple[np.ndarray, np.ndarray]:
    """Arrays, after every way of calling has been used."""
    x, out = np.arange(32.0), np.zeros(32)
    for _ in range(3):
        scaled[(1,)](x, out, 2.0)
        scaled[(1,)](x=x, out=out, factor=2.0)
        scaled.specialize(BLOCK=32)[(1,)](x, out, factor=2.0)
    return x, out


@contextlib.contextmanager
def only_launching(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compile-time machinery is out of bounds in here."""
    with monkeypatch.context() as patched:
        for place, name in ((inspect, "signature"), (inspect, "getsource"), (ast, "parse"), (tracing, "trace")):
            patched.setattr(place, name, _refuse)
        yield


def test_launches_by_position_and_keyword_do_no_compile_time_work(arrays, monkeypatch):  # P40, Q15
    x, out = arrays
    sums = []
    with only_launching(monkeypatch):
        scaled[(1,)](x, out, 3.0)
        sums.append(out.sum())
        scaled[(1,)](x, factor=4.0, out=out)
        sums.append(out.sum())
        scaled.specialize(BLOCK=32)[(1,)](x, out, factor=5.0)
        sums.append(out.sum())
    assert sums == [x.sum() * 3, x.sum() * 4, x.sum() * 5]


def test_a_prepared_launch_only_launches(arrays, monkeypatch):  # Q14
    x, out = arrays
    again = scaled.specialize(BLOCK=32).prepare[(1,)](x, out, 2.0)
    x += 1
    with only_launching(monkeypatch):
        again()
    np.testing.assert_array_equal(out, x * 2)


def test_brackets_kept_from_before_the_first_launch_become_native(monkeypatch):  # P40
    @sk.jit
    def kernel(x, n: sk.int64):
        i = sk.cuda.thread_idx("x")
        if i < n:
            x[i] += 1

    kept, x = kernel.specialize()[1, 32], np.zeros(32)
    for _ in range(4):
        kept(x, 32)
    monkeypatch.setattr(sk.Specialization, "_launch", _refuse)
    kept(x, 32)
    assert x.min() == x.max() == 5
