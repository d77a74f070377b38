"""Every block runs exactly once, whoever runs it."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit.diagnostics import StagekitError
from stagekit.runtime import pool
from stagekit.runtime.pool import BlockCost, run_blocks
from tests.runtime.handmade import OUT, VISIT, MakeKernel


@pytest.fixture(autouse=True)
def four_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGEKIT_THREADS", "4")


@given(st.integers(1, 3000), st.sampled_from([0.0, 1.0, 1e3, 1e9]))
@settings(max_examples=60, deadline=None)
def test_ranges_cover_the_grid_once(total: int, block_ns: float) -> None:
    cost, ranges = BlockCost(), list[tuple[int, int]]()
    cost.ns = block_ns

    run_blocks(lambda first, last: ranges.append((first, last)), total, cost)

    assert all(first < last for first, last in ranges)
    assert sorted(b for first, last in ranges for b in range(first, last)) == list(range(total))


def test_a_short_launch_stays_in_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own clock: on a busy machine any call can take long."""
    monkeypatch.setattr("stagekit.runtime.pool.perf_counter_ns", itertools.count().__next__)
    used = set()

    run_blocks(lambda first, last: used.add(threading.get_ident()), 64, BlockCost())

    assert used == {threading.get_ident()}


def test_a_long_launch_is_shared() -> None:
    used: Counter[int] = Counter()

    def call(first: int, last: int) -> None:
        used[threading.get_ident()] += last - first
        time.sleep(0.001 * (last - first))

    run_blocks(call, 100, BlockCost())

    assert len(used) == 4
    assert sum(used.values()) == 100
    assert max(used.values()) < 50


def test_what_was_long_is_shared_from_its_first_block_next_time() -> None:
    cost, ranges = BlockCost(), list[tuple[int, int]]()

    def call(first: int, last: int) -> None:
        ranges.append((first, last))
        time.sleep(0.0005)

    run_blocks(call, 640, cost)
    assert min(ranges) == (0, 10), "a probe"
    ranges.clear()
    run_blocks(call, 640, cost)
    assert min(ranges) == (0, 20)


@pytest.mark.parametrize("threads", ["1", "4"])
def test_a_launch_that_was_slow_once_is_measured_again(threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The native launcher leaves to Python what was long last time."""
    monkeypatch.setenv("STAGEKIT_THREADS", threads)
    cost = BlockCost()
    cost.ns = 1e9

    run_blocks(lambda first, last: None, 64, cost)

    assert cost.ns < 1e8


def test_what_goes_wrong_in_a_worker_is_raised_by_the_launch() -> None:
    caller = threading.get_ident()

    def call(first: int, last: int) -> None:
        time.sleep(0.001)
        if threading.get_ident() != caller:
            raise MemoryError("no scratch")

    for _ in range(2):  # the workers live on
        with pytest.raises(MemoryError, match="no scratch"):
            run_blocks(call, 100, BlockCost())


def test_a_launch_works_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(pool, "_workers", pool._Workers())
    done: list[int] = []

    run_blocks(lambda first, last: (time.sleep(0.001), done.extend(range(first, last))), 100, BlockCost())

    assert sorted(done) == list(range(100))


def test_threads_may_launch_at_the_same_time(make_kernel: MakeKernel) -> None:
    kernel = make_kernel("visit", VISIT)
    outs = [np.zeros(500, np.int64) for _ in range(8)]

    def work(out: np.ndarray) -> None:
        for _ in range(5):
            kernel.launch((out, 1000), kernel.request(500))

    threads = [threading.Thread(target=work, args=(out,)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for out in outs:
        np.testing.assert_array_equal(out, 5)


def test_a_launch_in_a_forked_child_has_workers_again(make_kernel: MakeKernel) -> None:
    """The child has the parent's queue but none of its threads."""
    kernel = make_kernel("visit", VISIT)
    kernel.launch((np.zeros(500, np.int64), 5000), kernel.request(500))
    out = np.zeros(500, np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
        child = os.fork()
    if child == 0:
        signal.alarm(20)
        kernel.launch((out, 5000), kernel.request(500))
        is_alive = any(t.name == "stagekit-worker" for t in threading.enumerate())
        os._exit(0 if is_alive and (out == 1).all() else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_launch_in_a_child_that_a_thread_forked_has_workers_again(make_kernel: MakeKernel) -> None:
    kernel = make_kernel("visit", VISIT)
    kernel.launch((np.zeros(500, np.int64), 5000), kernel.request(500))
    statuses = list[int]()

    def fork() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            signal.alarm(20)
            out = np.zeros(500, np.int64)
            kernel.launch((out, 5000), kernel.request(500))
            os._exit(0 if (out == 1).all() else 1)
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()

    assert statuses == [0]


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_any_number_of_threads_runs_every_block_once(
    threads: int, monkeypatch: pytest.MonkeyPatch, make_kernel: MakeKernel
) -> None:
    monkeypatch.setenv("STAGEKIT_THREADS", str(threads))
    kernel = make_kernel("visit", VISIT)
    out = np.zeros(1001, np.int64)

    for _ in range(3):
        kernel.launch((out, 2000), kernel.request(1001))

    np.testing.assert_array_equal(out, 3)


def test_a_launch_may_begin_while_another_one_starts_workers(
    monkeypatch: pytest.MonkeyPatch, make_kernel: MakeKernel
) -> None:
    """As from a signal handler or a finaliser, which run between any two steps of the thread that launches."""
    monkeypatch.setattr(pool, "_workers", pool._Workers())
    kernel = make_kernel("visit", VISIT)
    kernel._cost.ns = 1e6  # shared from the start
    outer, inner = np.zeros(200, np.int64), np.zeros(200, np.int64)
    start = threading.Thread.start
    pending = [lambda: kernel.launch((inner, 1000), kernel.request(200))]

    def interrupted_start(thread: threading.Thread) -> None:
        while pending:
            pending.pop()()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted_start)

    kernel.launch((outer, 1000), kernel.request(200))

    assert (outer == 1).all()
    assert (inner == 1).all()


def test_a_process_ends_while_its_workers_wait() -> None:
    source = """
        import threading, time
        from stagekit.runtime.pool import BlockCost, run_blocks
        run_blocks(lambda first, last: time.sleep(0.001), 100, BlockCost())
        assert any(t.name == "stagekit-worker" for t in threading.enumerate())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(source)], capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_stops_a_launch_and_leaves_nobody_running(make_kernel: MakeKernel) -> None:
    kernel = make_kernel("visit", VISIT)
    out = np.zeros(10_000, np.int64)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            kernel.launch((out, 1_000_000), kernel.request(10_000))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)  # without its handler it would end the process
        signal.signal(signal.SIGALRM, before)
    seen = out.copy()
    time.sleep(0.05)

    np.testing.assert_array_equal(out, seen)
    assert 0 < seen.sum() < 10_000
    kernel.launch((out[:10], 1), kernel.request(10))


def test_each_worker_has_its_own_aligned_scratch(make_kernel: MakeKernel) -> None:
    kernel = make_kernel("scribble", OUT, scratch_bytes=512)
    out = np.full(5000, -1, np.int64)
    kernel._cost.ns = 1e9  # shared from the start

    kernel.launch((out,), kernel.request(5000))

    np.testing.assert_array_equal(out, 0)


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5"])
def test_a_bad_thread_count_is_told(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGEKIT_THREADS", value)

    with pytest.raises(StagekitError, match=f"BAD_SWITCH.*\n.*STAGEKIT_THREADS='{value}'"):
        pool.thread_count()


def test_without_the_switch_there_is_a_thread_per_usable_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STAGEKIT_THREADS")

    assert 1 <= pool.thread_count() <= (os.cpu_count() or 1)
