"""Where shared arrays lie in the globals of a module: any sizes, any alignments, shared in time or not."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit import dtypes
from stagekit.backends.llvm.writer import Abilities, Module
from stagekit.backends.nvptx.shared import STATIC_LIMIT_BYTES, plan_shared
from stagekit.backends.shared_memory import BumpAllocator, alignment, size_of
from stagekit.intrinsics import registry
from stagekit.ir import Builder, Function, Space, ops, walk
from tests.backends.nvptx.kernels import kernel

_DTYPES = st.sampled_from([dtypes.bool_, dtypes.uint8, dtypes.float16, dtypes.float32, dtypes.int64])
_ARRAYS = st.tuples(_DTYPES, st.integers(1, 300) | st.just(12_000), st.sampled_from([1, 1, 1, 16, 128]))
_STEPS = st.lists(st.tuples(_ARRAYS, st.booleans(), st.booleans()), min_size=3, max_size=8)
_GLOBAL = re.compile(r"@(stagekit_\w+) = .*\[(\d+) x i8\].* align (\d+)")


def of_arrays(steps: list[tuple[Any, bool, bool]]) -> Function:
    """Return a kernel that stores to each array, at its end again if it is kept. Behind a barrier others may lie in its place.

    steps: (dtype, count, align) of an array, whether it is kept, whether a barrier follows.
    """

    def build(b: Builder) -> None:
        kept = []
        for (dtype, count, align), is_kept, has_barrier in steps:
            array, one = b.alloc(dtype, Space.SHARED, count, align), b.constant(1, dtype)
            b.store(array, one)
            kept += [(array, one)] * is_kept
            if has_barrier:
                b.call(registry.by_name("syncthreads"), ())
        for array, one in kept:
            b.store(array, one)

    return kernel({}, build, block=(64, 1, 1))


@settings(max_examples=200, deadline=None)
@given(steps=_STEPS)
def test_each_array_is_aligned_and_whole_in_its_global_and_all_fit_in_what_is_reserved(
    steps: list[tuple[Any, bool, bool]],
) -> None:
    fn, module = of_arrays(steps), Module(Abilities())
    plan = plan_shared(fn, module)
    reserved = {name: (int(size), int(align)) for name, size, align in _GLOBAL.findall(module.text())}

    for op in (op for op in walk(fn.body) if isinstance(op, ops.Alloc)):
        name, offset = re.fullmatch(r".*@(\w+)(?:, i64 (\d+)\))?", plan.operands[op]).groups()  # type: ignore[union-attr]
        size, align = reserved[name]
        assert align % alignment(op) == 0 == int(offset or 0) % alignment(op)
        assert int(offset or 0) + size_of(op) <= (size or plan.dynamic_bytes)

    placed = BumpAllocator()
    for size, align in reserved.values():
        placed.take(size, align)
    assert placed.size_bytes <= plan.static_bytes <= STATIC_LIMIT_BYTES
