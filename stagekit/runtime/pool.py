"""Run the blocks of a grid on several cores: persistent worker threads, and none for a launch that is too small.

    run_blocks(call, total, cost)     call(first, last) runs blocks first..last and releases the GIL

Handing over costs 4 to 7 µs in launches that follow each other and 15 to 40 µs after a pause (2 cores). Threads outside Python
would need 1 µs and 2 to 7: too little gain for a second kind of thread, with its own rules for forks and for the end of the
process.

A launch is shared when it lasts longer than that. Nobody knows beforehand, so it starts alone, on a sixty-fourth of its blocks,
and looks at the clock. A kernel that was worth sharing last time starts shared at once, and its cost is measured again each time,
so that one slow launch on a busy machine has no lasting effect. Workers take chunks from a common counter, about eight each, to
even out uneven blocks. The calling thread works too and returns when the last helper has left; helpers that come late find
nothing to do, so threads may launch at the same time and share the workers.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import queue
import threading
from collections.abc import Callable
from time import perf_counter_ns

from stagekit import config
from stagekit.native_tables import WORTH_SHARING_NS

RunBlocks = Callable[[int, int], None]

_MIN_CHUNK_NS = 20_000
_CHUNKS_PER_THREAD = 8
_PROBE_SHARE = 64


class BlockCost(ctypes.Structure):
    """What a block of a kernel cost at its last launch, in ns; 0 before the first. It is a hint. Native launchers use it too."""

    _fields_ = (("ns", ctypes.c_double),)


def run_blocks(call: RunBlocks, total: int, cost: BlockCost) -> None:
    """Run blocks 0..total, alone or with the workers; return when all have ended."""
    if not cost.ns:
        thread_count()  # a bad switch raises before anything has run
    first = 0
    if cost.ns * total < WORTH_SHARING_NS:
        first = total // _PROBE_SHARE or 1
        start = perf_counter_ns()
        call(0, first)
        cost.ns = (perf_counter_ns() - start) / first
        if cost.ns * (total - first) < WORTH_SHARING_NS:
            if first < total:
                call(first, total)
            return
    share_blocks(call, first, total, cost)


def share_blocks(call: RunBlocks, first: int, total: int, cost: BlockCost) -> None:
    """Run blocks first..total with the workers."""
    threads, blocks, start = thread_count(), total - first, perf_counter_ns()
    if threads == 1:
        call(first, total)
    else:
        chunk = max(-(-blocks // (_CHUNKS_PER_THREAD * threads)), int(_MIN_CHUNK_NS / max(cost.ns, 1.0)), 1)
        job = _Job(call, first, total, chunk)
        _workers.offer(job, min(threads, -(-blocks // chunk)) - 1)
        try:
            job.work()
        finally:
            job.close()
    cost.ns = (perf_counter_ns() - start) * min(threads, blocks) / blocks


def thread_count() -> int:
    """Return how many threads share a launch: STAGEKIT_THREADS, or one per core that this process may use."""
    text = config.THREADS.get()
    if not text:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(text)


class _Job:
    """One shared launch. Helpers join until it is closed; closing waits for those that joined."""

    def __init__(self, call: RunBlocks, first: int, last: int, chunk: int) -> None:
        self._call = call
        self._last = last
        self._chunk = chunk
        self._starts = itertools.count(first, chunk)  # its `next` is atomic
        self._lock = threading.Lock()
        self._is_closed = False
        self._helpers = 0
        self._all_left = threading.Event()
        self._error: Exception | None = None

    def work(self) -> None:
        """Run chunks until none is left."""
        while not self._is_closed and (start := next(self._starts)) < self._last:
            self._call(start, min(start + self._chunk, self._last))

    def help(self) -> None:
        """Work on the job, unless it is closed. Workers call this."""
        with self._lock:
            if self._is_closed:
                return
            self._helpers += 1
        try:
            self.work()
        except Exception as error:  # such as no memory for scratch: raised where the launch was made
            self._error = error
        with self._lock:
            self._helpers -= 1
            if self._is_closed and not self._helpers:
                self._all_left.set()

    def close(self) -> None:
        """Admit no more helpers and wait for those at work. A Ctrl-C meanwhile waits too: they run on the caller's memory."""
        with self._lock:
            self._is_closed = True
            must_wait = self._helpers > 0
        interrupt = None
        while must_wait and not self._all_left.is_set():
            try:
                self._all_left.wait()
            except KeyboardInterrupt as error:
                interrupt = error
        failure = interrupt or self._error
        if failure is not None:
            raise failure


class _Workers:
    """Daemon threads that wait for jobs: as many as were ever asked for at once."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start with no threads, as after a fork, which copies the queue but no thread."""
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._lock = threading.RLock()  # a signal handler or a finaliser may launch while this thread holds it
        self._count = 0

    def offer(self, job: _Job, helpers: int) -> None:
        """Ask that many workers to help, or fewer if the system gives no more threads."""
        with self._lock, contextlib.suppress(RuntimeError):
            while self._count < helpers:
                threading.Thread(target=_serve, args=(self._jobs,), name="stagekit-worker", daemon=True).start()
                self._count += 1
        for _ in range(min(helpers, self._count)):
            self._jobs.put(job)


def _serve(jobs: queue.SimpleQueue[_Job]) -> None:
    while True:
        jobs.get().help()


_workers = _Workers()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_workers.forget)
