"""The entry point: ranges of blocks, three axes, threads, scratch memory, and code that is given back."""

from __future__ import annotations

import gc
import itertools
import resource
import threading

import numpy as np
import pytest

from stagekit.backends.host.compiler import compile
from stagekit.diagnostics import InternalError
from stagekit.ir import BinaryKind, Builder, Function, Space, Value
from tests.backends.host.kernels import array, barrier, call, f32, i32, i64, kernel, loop, thread
from tests.backends.host.running import CPU, Runner, compiled, lower


def indices() -> Function:
    """Every index of a thread, as one number, at its place in a 3-d grid of 3-d blocks."""

    def body(b: Builder, out: Value) -> None:
        place, digits = b.index(0), b.index(0)
        for axis in "zyx":
            size, extent = (call(b, name, params=(axis,)) for name in ("block_dim", "grid_dim"))
            at = b.add(b.mul(call(b, "block_idx", params=(axis,)), size), thread(b, axis))
            place = b.add(b.mul(place, b.mul(size, extent)), at)
            digits = b.add(b.mul(digits, b.index(100)), at)
        b.store(b.offset(out, place), digits)

    return kernel(array(i64), body=body)


@pytest.mark.parametrize("block", [(1, 1, 1), (32, 1, 1), (3, 5, 2), (1, 1, 40), (8, 4, 2), (16, 16, 4), (5, 1, 7)])
def test_every_thread_of_a_grid_runs_once_with_its_indices(block: tuple[int, int, int]) -> None:
    grid = (3, 2, 4)
    runner = compiled(indices(), block)
    out = np.full([g * s for g, s in zip(grid[::-1], block[::-1], strict=True)], -1, np.int64)

    for first in range(0, 24, 5):  # in pieces, as workers take them
        runner([out], grid, first, min(first + 5, 24))

    z, y, x = np.indices(out.shape)
    np.testing.assert_array_equal(out, x + 100 * (y + 100 * z))
    runner.close()


def test_an_empty_range_of_blocks_does_nothing() -> None:
    runner = compiled(indices(), (32, 1, 1))
    assert runner([np.zeros(1, np.int64)], (0, 0, 0), 0, 0) == 0
    runner.close()


def test_blocks_are_counted_beyond_32_bits() -> None:
    """The last blocks of a grid of 4.9 thousand million."""

    def body(b: Builder, out: Value) -> None:
        x, y = (call(b, "block_idx", params=(axis,)) for axis in "xy")
        width = call(b, "grid_dim", params=("x",))
        number = b.add(b.mul(y, width), x)
        b.store(b.offset(out, b.sub(number, b.index(70_000 * 70_000 - 5))), number)

    runner = compiled(kernel(array(i64), body=body), (1, 1, 1))
    out = np.zeros(5, np.int64)

    assert runner([out], (70_000, 70_000, 1), 70_000 * 70_000 - 5, 70_000 * 70_000) == 0

    np.testing.assert_array_equal(out, np.arange(70_000 * 70_000 - 5, 70_000 * 70_000))
    runner.close()


def test_threads_may_be_in_the_entry_together_each_with_its_scratch() -> None:
    """Sums through shared memory in 4 threads at once: nothing is shared but the code."""

    def body(b: Builder, y: Value) -> None:
        t = thread(b)
        shared = b.alloc(i32, Space.SHARED, 128, 4)
        b.store(b.offset(shared, t), b.cast(call(b, "block_idx", params=("x",)), i32))
        barrier(b)
        one = lambda i, total: [b.add(total, b.load(b.offset(shared, i)))]  # noqa: E731
        (total,) = loop(b, (b.index(0), b.index(128), b.index(1)), [b.constant(0, i32)], one)
        b.store(b.offset(y, b.add(b.mul(call(b, "block_idx", params=("x",)), b.index(128)), t)), total)

    code = compile(lower(kernel(array(i32), body=body), CPU, ()), (128, 1, 1))
    runners = [Runner(code) for _ in range(4)]
    y = np.zeros(128 * 400, np.int32)
    jobs = [threading.Thread(target=r, args=([y], (400, 1, 1), 100 * n, 100 * n + 100)) for n, r in enumerate(runners)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()

    np.testing.assert_array_equal(y, np.repeat(np.arange(400, dtype=np.int32) * 128, 128))
    for runner in runners:
        runner.close()


def test_shared_arrays_lie_apart_and_aligned_in_the_scratch_memory() -> None:
    def body(b: Builder, y: Value) -> None:
        for place, (count, align) in enumerate(((10, 4), (3, 64), (5, 16))):
            address = b.bitcast(b.alloc(f32, Space.SHARED, count, align), b.index(0).type)
            b.store(b.offset(y, b.index(place)), address)

    runner, y = compiled(kernel(array(i64), body=body), (1, 1, 1)), np.zeros(3, np.int64)
    runner([y], (1, 1, 1))
    first, second, third = y.tolist()
    areas = sorted([(first, 40), (second, 12), (third, 20)])

    assert all(address + size <= behind for (address, size), (behind, _) in itertools.pairwise(areas))
    assert (first % 4, second % 64, third % 16) == (0, 0, 0)
    assert areas[-1][0] + areas[-1][1] - areas[0][0] <= runner.code.scratch_bytes
    assert runner.code.scratch_bytes % 64 == 0
    runner.close()


def test_code_is_freed_and_compiling_keeps_no_memory() -> None:
    def body(b: Builder, y: Value) -> None:
        t = thread(b)
        b.store(b.offset(y, t), b.binary(BinaryKind.MUL, b.cast(t, i32), b.constant(3, i32)))

    fn = kernel(array(i32), body=body)
    grown_kib = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(40):
            compiled(fn, (64, 1, 1)).close()
        gc.collect()
        grown_kib.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

    assert grown_kib[-1] < 40 * 50, "50 KiB per compile; a leaked pass manager is 180"


def test_compiling_from_several_threads_at_once() -> None:
    codes: dict[int, bytes] = {}

    def work(block: int) -> None:
        codes[block] = compile(lower(indices(), CPU, ()), (block, 1, 1)).object_code

    jobs = [threading.Thread(target=work, args=(block,)) for block in (1, 32, 33, 64, 100, 128, 256, 1024)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()

    assert len(codes) == 8


@pytest.mark.parametrize("block", [(0, 1, 1), (1025, 1, 1), (32, 33, 1), (-1, 1, 1)])
def test_a_block_that_no_device_runs_is_a_fault_of_ours(block: tuple[int, int, int]) -> None:
    with pytest.raises(InternalError):
        compile(indices(), block)
