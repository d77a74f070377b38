"""What a kernel was traced, compiled and loaded for, and why: what `kernel.explain()` tells.

    history.note("compiled", "cpu", "BLOCK 64 -> 128", elapsed_s=0.012)
    history.text()      "compiled for cpu: BLOCK 64 -> 128 (12.0 ms)"

`counts()` adds up what all kernels of this process did, by kind.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import Literal

from stagekit.forks import new_lock

Kind = Literal["traced", "compiled", "read"]
"""read: machine code from the disk cache."""

_KEPT = 64  # events per kernel

_lock = new_lock()
_counts: Counter[str] = Counter()


def counts() -> dict[str, int]:
    """How often kernels of this process were traced, compiled and read."""
    with _lock:
        return dict(_counts)


@dataclass(frozen=True, slots=True)
class Event:
    """One step. what: the target it was for, empty where it serves all."""

    kind: Kind
    what: str
    why: str
    elapsed_s: float

    def __str__(self) -> str:
        where = f" for {self.what}" if self.what else ""
        return f"{_WORDS[self.kind]}{where}: {self.why} ({1e3 * self.elapsed_s:.1f} ms)"


_WORDS: dict[Kind, str] = {
    "traced": "traced",
    "compiled": "compiled",
    "read": "machine code taken from the disk cache",
}


class History:
    """The last events of one kernel."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=_KEPT)

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(self._events)

    def note(self, kind: Kind, what: str, why: str, elapsed_s: float) -> None:
        self._events.append(Event(kind, what, why, elapsed_s))
        with _lock:
            _counts[kind] += 1

    def text(self) -> str:
        """What the last call that was not served from memory had to do, and why: one line per step."""
        last: list[Event] = []
        for event in reversed(self._events):
            if last and event.why != last[-1].why:
                break
            last.append(event)
        return "\n".join(map(str, reversed(last))) or "nothing was compiled yet"


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    @property
    def elapsed_s(self) -> float:
        return time.perf_counter() - self._start
