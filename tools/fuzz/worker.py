"""A process that tries cases: machine code may end it, hang it, or fill its memory, and the run goes on without it.

Seeds come through a connection, one message for each goes back. None ends the process, and so does the end of its parent.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from stagekit import config
from tools.fuzz.harness import Failure, Fuzzer, Trial

_RARELY = 50_000, 20, 50  # collections: a case makes many small objects, and few circles


@dataclass(frozen=True)
class Message:
    """What became of a seed; without one, the process has started.

    is_last: nothing more comes for it; without it, a failure that is now being shrunk.
    """

    seed: int | None = None
    failure: Failure | None = None
    counts: Counter[str] = field(default_factory=Counter)
    memory_mb: int = 0
    is_last: bool = True


def work(make: Callable[[], Fuzzer], targets: Sequence[str], connection: Connection[Message, int | None]) -> None:
    """Try the seeds that come, until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which then says what there is
    faulthandler.enable()
    config.CACHE.put("0")  # no case comes twice
    config.THREADS.put("1")  # there is one worker for each core
    gc.freeze()  # what is imported stays
    gc.set_threshold(*_RARELY)
    trial = Trial(make(), targets, lambda found: connection.send(Message(found.seed, found, is_last=False)))
    with contextlib.suppress(EOFError, BrokenPipeError):
        connection.send(Message())
        while (seed := connection.recv()) is not None:
            failure = trial.of(seed)
            connection.send(Message(seed, failure, trial.taken_counts(), _memory_mb()))


def _memory_mb() -> int:
    """What this process holds in memory now; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20
