"""Shared arrays that lie in one place stay apart in time: the layout of the compiled targets, run where races are found.

The interpreter keeps the arrays of a kernel apart. Here it runs kernels whose arrays are parts of one array, at the offsets that
they have on a GPU, so that two that overlap while both are in use are a race or change a result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagekit import dtypes
from stagekit.backends.interp import Checks, Options, run
from stagekit.backends.shared_memory import place_shared
from stagekit.ir import INDEX, Block, Builder, Function, Space, Value, ops
from stagekit.ir.rewriter import rewrite
from stagekit.jit import interpreting
from tests.backends.interp.kernels import Kernel, pointer
from tools.fuzz.blocks_run import BlocksFuzzer

THREADS = 64
DTYPES = (dtypes.int64, dtypes.int32, dtypes.int8, dtypes.int16)


def in_one_array(fn: Function, threads: int = THREADS) -> Function:
    """Return `fn` with all its shared arrays as parts of one, at the offsets of their layout."""
    offsets, size_bytes = place_shared(fn, (threads, 1, 1))
    b = Builder(fn.body.ops[-1].loc)
    whole = b.alloc(dtypes.uint8, Space.SHARED, size_bytes, 64, "whole")

    def part(op: ops.Alloc, b: Builder) -> tuple[Value, ...] | None:
        offset = offsets.get(op)
        return None if offset is None else (b.bitcast(b.offset(whole, b.index(offset)), op.result.type),)

    moved = rewrite(fn, {ops.Alloc: part})
    return dataclasses.replace(moved, body=Block(moved.params, (*b.current.ops, *moved.body.ops)))


# -- random programs over four arrays --------------------------------------------------------------------------------

_ACCESSES = st.sampled_from(["write", "read", "exchange", "exchange", "begin"])
_SIMPLE = st.tuples(_ACCESSES, st.integers(0, 3)) | st.just(("barrier", 0))
_PROGRAMS = st.recursive(
    st.lists(_SIMPLE, min_size=1, max_size=6),
    lambda inner: st.lists(_SIMPLE | st.tuples(st.sampled_from(["loop", "if", "half"]), inner), min_size=1, max_size=6),
    max_leaves=12,
)


class Program:
    """Makes a kernel: `write` stores to the thread's own element, `read` adds the next thread's to the result."""

    def __init__(self, statements: list[Any]) -> None:
        self.k = Kernel(out=pointer(dtypes.int64), n=INDEX)
        self.written = 0
        self.emit(statements, [self.array(number) for number in range(4)], is_uniform=True)

    def array(self, number: int) -> Value:
        return self.k.shared(DTYPES[number], THREADS)

    def emit(self, statements: list[Any], arrays: list[Value], *, is_uniform: bool) -> None:
        k = self.k
        arrays = list(arrays)  # what a body begins is gone behind it
        for kind, what in statements:
            if kind in ("write", "exchange"):
                self.write(arrays[what])
            if kind in ("barrier", "exchange") and is_uniform:
                k.barrier()
            if kind in ("read", "exchange"):
                self.read(arrays[what])
            elif kind == "begin":
                arrays[what] = self.array(what)
            elif kind == "loop":
                with k.repeat(k.n):
                    self.emit(what, arrays, is_uniform=is_uniform)
            elif kind in ("if", "half"):
                condition = k.gt(k.n, k.i64(1)) if kind == "if" else k.lt(k.tid(), k.i64(THREADS // 2))
                with k.when(condition):
                    self.emit(what, arrays, is_uniform=is_uniform and kind == "if")

    def write(self, array: Value) -> None:
        self.written += 1
        value = self.k.add(self.k.tid(), self.k.i64(self.written))
        self.k.store(array, self.k.tid(), self.k.cast(value, array.type.dtype))  # type: ignore[union-attr]

    def read(self, array: Value) -> None:
        k = self.k
        found = k.cast(k.load(array, k.mod(k.add(k.tid(), k.i64(1)), k.i64(THREADS))), dtypes.int64)
        k.store(k.out, k.tid(), k.add(k.mul(k.load(k.out, k.tid()), k.i64(31)), found))


def results(fn: Function, n: int, **checks: bool) -> tuple[Any, list[str]]:
    out = np.zeros(THREADS, np.int64)
    report = run(fn, [out, n], (1, 1, 1), (THREADS, 1, 1), options=Options(checks=Checks(**checks)))
    return out.tolist(), [finding.id for finding in report.findings]


@settings(max_examples=120, deadline=None)
@given(statements=_PROGRAMS, n=st.integers(1, 3))
def test_arrays_in_one_place_are_never_in_use_together(statements: list[Any], n: int) -> None:
    fn = Program(statements).k.done()
    apart, findings = results(fn, n, races=True, uninitialised=True)
    assume(not findings)

    assert results(in_one_array(fn), n, races=True) == (apart, [])


@pytest.fixture
def one_array(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    lower: Callable[..., Function] = interpreting.lower_for

    def lower_for(*given: Any) -> Function:
        fn = lower(*given)
        return in_one_array(fn, fn.attribute("block")[0])

    with monkeypatch.context() as patch:
        patch.setattr(interpreting, "lower_for", lower_for)
        yield


@pytest.mark.usefixtures("one_array")
@pytest.mark.parametrize("seed", range(40_000, 40_010))
def test_programs_of_tiles_mean_the_same_in_one_array(seed: int) -> None:
    fuzzer = BlocksFuzzer()

    assert fuzzer.problems(fuzzer.draw(seed), ("interp",)) == []
