"""Clocks for calls, and calls timed in turns: CUDA events on a GPU, the clock on the wall on the CPU.

    clock = clock_for("cuda")
    time_in_turns({"ours": launch, "theirs": other}, clock, rounds=25)      by name, the seconds of each round

In turns, since the speed of a machine changes while it is measured: each round meets all calls alike. Before each call the caches
are overwritten, so that none finds its arrays there because it was called a moment ago. On a GPU that also keeps the device busy
while the host enqueues the call, so that the host's own time is not measured.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from stagekit.diagnostics import calls_user
from stagekit.runtime import driver
from stagekit.runtime.args import cupy_stream
from stagekit.runtime.device_array import DeviceArray

Call = Callable[[], Any]
Name = TypeVar("Name", bound=Hashable)

_MOST_CLEARED_BYTES = {"cpu": 64 << 20, "cuda": 512 << 20}
_UNKNOWN_CACHE_BYTES = 32 << 20


class CallClock(ABC):
    """Times calls. where: the device, in words."""

    where: str

    @abstractmethod
    def ready(self) -> AbstractContextManager[None]:
        """Make the device current. All of the rest is called inside."""

    @abstractmethod
    def clear(self) -> None:
        """Overwrite the caches, or enqueue that."""

    @abstractmethod
    def time(self, call: Call) -> Callable[[], float]:
        """Call it, or enqueue what it enqueues. Return what gives the seconds that it took, after `wait`."""

    @abstractmethod
    def wait(self) -> None:
        """Wait for what was enqueued."""


class WallClock(CallClock):
    """Times calls that are over when they return."""

    def __init__(self) -> None:
        self.where = "cpu"
        self._cleared = np.zeros(min(2 * largest_cache_bytes(), _MOST_CLEARED_BYTES["cpu"]) // 8, np.uint64)

    def ready(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def clear(self) -> None:
        self._cleared += 1

    @calls_user
    def time(self, call: Call) -> Callable[[], float]:
        begin_ns = time.perf_counter_ns()
        call()
        elapsed_ns = time.perf_counter_ns() - begin_ns
        return lambda: elapsed_ns / 1e9

    def wait(self) -> None:
        """Nothing is enqueued."""


class EventClock(CallClock):
    """Times calls that enqueue work on a stream of a GPU. stream: a handle of the driver."""

    def __init__(self, device: int, stream: int) -> None:
        self.where = driver.device_name(device)
        self.device = device
        self.stream = stream
        cache_bytes = driver.attribute("CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE", device)
        self._cleared = DeviceArray(min(4 * cache_bytes, _MOST_CLEARED_BYTES["cuda"]), np.uint8, device)

    def ready(self) -> AbstractContextManager[None]:
        return driver.on_device(self.device)

    def clear(self) -> None:
        driver.call("cuMemsetD8Async", self._cleared._address, 0, self._cleared.nbytes, self.stream)

    @calls_user
    def time(self, call: Call) -> Callable[[], float]:
        begin, end = _ClockEvent(self.device), _ClockEvent(self.device)
        begin.record(self.stream)
        call()
        end.record(self.stream)
        return functools.partial(_seconds_between, begin, end)

    def wait(self) -> None:
        driver.wait(self.device)


class _ClockEvent:
    """An event of the current device that knows its time, and that is freed with this object: a call that is timed may raise."""

    def __init__(self, device: int) -> None:
        self.handle = driver.call("cuEventCreate", driver.api().CUevent_flags.CU_EVENT_DEFAULT)
        weakref.finalize(self, driver.free_later, device, "cuEventDestroy", self.handle).atexit = False

    def record(self, stream: int) -> None:
        driver.call("cuEventRecord", self.handle, stream)


def _seconds_between(begin: _ClockEvent, end: _ClockEvent) -> float:
    """Return the seconds between two events that have happened."""
    return float(driver.call("cuEventElapsedTime", begin.handle, end.handle)) / 1e3


def clock_for(target: str, device: int | None = None, stream: int | None = None) -> CallClock:
    """Return the clock of a target. device, stream: of a GPU; left out, those that are current."""
    if target != "cuda":
        return WallClock()
    place = driver.current_device() if device is None else device
    return EventClock(place, current_stream(place) if stream is None else stream)


def current_stream(device: int) -> int:
    """Return the stream on which launches without one in their brackets run: torch's, else CuPy's, else the default stream."""
    return driver.current_stream(device) or (cupy_stream(device) if "cupy" in sys.modules else 0)


def time_in_turns(
    calls: Mapping[Name, Call],
    clock: CallClock,
    rounds: int,
    *,
    clears_caches: bool = True,
    before: Callable[[Name], None] | None = None,
) -> dict[Name, list[float]]:
    """Return the seconds of each call in each round. before: called with its name, untimed, before the caches are cleared."""
    names, found = list(calls), dict[Name, list[float]]()
    with clock.ready():
        for number in range(rounds):
            shift = number % len(names)
            marks: dict[Name, Callable[[], float]] = {}
            for name in (*names[shift:], *names[:shift]):
                if before is not None:
                    before(name)
                if clears_caches:
                    clock.clear()
                marks[name] = clock.time(calls[name])
            clock.wait()
            for name in names:
                found.setdefault(name, []).append(marks[name]())
    return found


@functools.cache
def largest_cache_bytes() -> int:
    """Return the size of the largest cache of the first core, as Linux says it, or a common one where nobody does."""
    sizes = [_size_bytes(path) for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max(sizes, default=0) or _UNKNOWN_CACHE_BYTES


def _size_bytes(path: Path) -> int:
    """Return a size such as `32768K` in bytes; 0 for what cannot be read."""
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return 0
    number, unit = text.rstrip("KMG"), text[-1:]
    return int(number) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(unit, 1) if number.isdigit() else 0
