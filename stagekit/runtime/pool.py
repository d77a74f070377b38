"""The pool that shares launches on the CPU, as Python sees it: how many threads it has, its memory, and what a fork leaves of it.

What it does is machine code (`backends/launcher/support/pool.py`), which runs without Python from a launch to its workers. They
live as long as the process: their memory is never given back, and they hold no Python object, so nothing has to be ended at exit.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path

from stagekit import config
from stagekit import native_tables as tables

LOOKING_NS = 100_000  # for how long a worker without work looks for some before it sleeps
PATIENCE_NS = 10_000_000_000  # for how long blocks that nobody but each other can end may all wait


def usable_cores() -> int:
    """Return how many cores this process may use: by its affinity, and by the quota of its control group."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(cores, _quota())))


def _quota(group: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> float:
    """Return how many cores' time the control groups around this process allow it, infinity where they set no limit.

    Source: Linux, Control Group v2, cpu.max; CFS Bandwidth Control for version 1.
    """
    try:
        lines = group.read_text(encoding="utf-8").splitlines()
    except OSError:
        return math.inf
    least = math.inf
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if kinds and "cpu" not in kinds.split(","):
            continue
        top = root / "cpu" if kinds else root
        here = top / path.lstrip("/")
        for folder in (here, *here.parents):
            least = min(least, _quota_of(folder))
            if folder == top:
                break
    return least


def _quota_of(folder: Path) -> float:
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota, period = " ".join((folder / name).read_text(encoding="utf-8") for name in names).split()
        except (OSError, ValueError):
            continue
        return math.inf if quota in ("max", "-1") else int(quota) / int(period)
    return math.inf


def thread_count() -> int:
    """Return how many threads share a launch: STAGEKIT_THREADS, or one per core that this process may use."""
    text = config.THREADS.get()
    return int(text) if text else usable_cores()


class Pool:
    """The memory of the pool: a POOL with its JOBS. note: stores a word of PROCESS."""

    def __init__(self, note: Callable[[str, int], None]) -> None:
        memory = mmap.mmap(-1, tables.POOL_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._note = note
        self._words = (ctypes.c_int64 * (tables.POOL_BYTES // tables.WORD)).from_buffer(memory)
        keep_for_ever(self._words)
        self.be_patient(PATIENCE_NS)
        note("pool", ctypes.addressof(self._words))
        os.register_at_fork(after_in_child=self._forget)

    def be_patient(self, patience_ns: int) -> None:
        """Let so much time pass before blocks that all wait are an error."""
        self._words[tables.POOL["patience_ns"] // tables.WORD] = patience_ns

    def count_threads(self) -> None:
        """Note how many threads share a launch. Workers look for work only where each may have a core."""
        count = thread_count()
        self._words[tables.POOL["looking_ns"] // tables.WORD] = LOOKING_NS * (count <= usable_cores())
        self._note("threads", count)

    def _forget(self) -> None:
        """In a forked child: there are no workers, and no launches but those whose signal handler has forked. Where others may
        have done a part of such a launch, it cannot end.
        """
        own = threading.get_ident()
        self._note("threads", 0)
        for name in ("sleepers", "started", "arrived"):
            self._words[tables.POOL[name] // tables.WORD] = 0
        for place in range(tables.JOBS):
            first = (tables.LINE + place * tables.JOB_BYTES) // tables.WORD
            at = {name: first + offset // tables.WORD for name, offset in tables.JOB.items()}
            self._words[at["state"]] = 0
            if self._words[at["owner"]] != own:
                self._words[at["is_taken"]] = 0
            elif self._words[at["threads"]] > 1:
                self._words[at["fault"]] = tables.FORKED


def keep_for_ever(thing: object) -> None:
    """Never free an object, not even while the interpreter ends: threads that know nothing of Python use its memory."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
