"""`bench`: how long one call takes, in numbers that can be compared.

found = sk.bench(lambda: add[grid](x, y, out), bytes_moved=3 * x.nbytes, operations=x.size)
print(found)                  12.3 us (12.2 to 12.5, 200 calls), 4.10 TB/s, 341 GFLOP/s on cuda:0 (NVIDIA H200)
found.median_s, found.bandwidth
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, SupportsFloat

import numpy as np

from stagekit.diagnostics import calls_user, check_argument, hide_frames, wrong_arguments
from stagekit.display import ShownAsText
from stagekit.jit.options import is_int, is_number
from stagekit.runtime import driver
from stagekit.runtime.args import describe
from stagekit.runtime.launch_config import stream_handle
from stagekit.tuning.clocks import Call, CallClock, clock_for, time_in_turns

_WARM_UP_CALLS = 3
_FEWEST_ROUNDS, _MOST_ROUNDS = 5, 10_000
_PREFIXES = ((12, "T"), (9, "G"), (6, "M"), (3, "k"), (0, ""), (-3, "m"), (-6, "u"), (-9, "n"))


@dataclass(frozen=True, repr=False)
class Measurement(ShownAsText):
    """The times of a call that was repeated. bytes_moved, operations: of one call, where they were given."""

    times_s: tuple[float, ...]
    where: str
    bytes_moved: float | None = None
    operations: float | None = None

    @property
    def median_s(self) -> float:
        return float(np.median(self.times_s))

    @property
    def quartiles_s(self) -> tuple[float, float]:
        """A quarter of the calls was quicker than the first, and a quarter slower than the second."""
        low, high = np.percentile(self.times_s, (25, 75))
        return float(low), float(high)

    @property
    def spread(self) -> float:
        """The distance of the quartiles, as a part of the median."""
        low, high = self.quartiles_s
        return (high - low) / self.median_s if self.median_s else 0.0

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second at the median, or None where nobody said how many are moved."""
        return _rate(self.bytes_moved, self.median_s)

    @property
    def operation_rate(self) -> float | None:
        """Operations per second at the median, such as FLOP/s, or None where nobody said how many there are."""
        return _rate(self.operations, self.median_s)

    def __str__(self) -> str:
        low, high = self.quartiles_s
        rates = ((self.bandwidth, "B/s"), (self.operation_rate, "FLOP/s"))
        speeds = "".join(f", {prefixed(rate)}{unit}" for rate, unit in rates if rate is not None)
        spread = f"quartiles {duration_text(low)} to {duration_text(high)}, {len(self.times_s)} calls"
        return f"{duration_text(self.median_s)} ({spread}){speeds} on {self.where}"

    def __repr__(self) -> str:
        return f"<stagekit measurement: {self}>"


def _rate(count: float | None, seconds: float) -> float | None:
    return None if count is None else count / max(seconds, 1e-12)


def duration_text(seconds: float) -> str:
    """Return a time with three digits and a unit: `12.3 us`."""
    return f"{prefixed(seconds)}s"


def prefixed(value: float) -> str:
    """Return a number with three digits and the prefix of its unit: `4.1 T`."""
    power, prefix = next((each for each in _PREFIXES if value >= 10.0 ** each[0]), _PREFIXES[-1])
    return f"{value / 10.0**power:.3g} {prefix}"


@hide_frames
def bench(
    call: Callable[[], Any],
    *,
    bytes_moved: float | None = None,
    operations: float | None = None,
    seconds: float = 0.5,
    rounds: int | None = None,
    target: Literal["cpu", "cuda"] | None = None,
    stream: Any = None,
    clear_caches: bool = True,
) -> Measurement:
    """Time a call, such as one launch of a kernel: its median, quartiles, and rates by what one call moves and computes.

    call: a function without parameters. It is called some times before it is timed, so that it is compiled. seconds: how long to
    measure in all, or rounds: how often. target: "cuda" measures between CUDA events, "cpu" by the clock on the wall; left out,
    the former if the call launches a kernel on a GPU, or torch or CuPy use one. stream: the one that the call enqueues on; left
    out, the one that is current. clear_caches: overwrite the caches before each call: the second cache of a GPU, those that the
    cores of a CPU share. bytes_moved, operations: of one call.
    """
    _check(call, seconds, rounds, target, clear_caches, bytes_moved=bytes_moved, operations=operations)
    launched_on = _launched_on(call) if target is None else None
    found = target or ("cpu" if launched_on is None else "cuda")
    handle = None if stream is None else stream_handle(stream)
    clock = clock_for(found, launched_on, handle)
    _warm_up(call, clock)
    count = rounds or _rounds_for(call, clock, seconds, clear_caches)
    times = time_in_turns({0: call}, clock, count, clears_caches=clear_caches)[0]
    return Measurement(tuple(times), clock.where, bytes_moved, operations)


def _check(call: Any, seconds: Any, rounds: Any, target: Any, clear_caches: Any, **counts: Any) -> None:
    """Refuse what `bench` cannot work with."""
    check = functools.partial(check_argument, bench)
    if not callable(call):
        raise wrong_arguments(bench, f"`call` is {describe(call)}, not a function: give `lambda: kernel[grid](x)`")
    check("clear_caches", clear_caches, type(clear_caches) is bool, "True or False")
    if not _takes_none(call):
        problem = f"`call` is {describe(call)}, which needs arguments: give `lambda: kernel[grid](x)`"
        raise wrong_arguments(bench, problem)
    check("seconds", seconds, is_number(seconds) and 0 < seconds < math.inf, "a number above 0")
    check("rounds", rounds, rounds is None or is_int(rounds, 1), "a number of calls")
    for name, count in counts.items():
        is_count = count is None or (isinstance(count, SupportsFloat) and float(count) >= 0)
        check(name, count, is_count, "a number from 0 on")
    check("target", target, target in (None, "cpu", "cuda"), "'cpu' or 'cuda'")


def _takes_none(call: Callable[..., Any]) -> bool:
    """Return whether a function can be called without arguments, as far as it says what it takes."""
    try:
        inspect.signature(call).bind()
    except TypeError:
        return False
    except ValueError:  # a built-in one need not say
        pass
    return True


@calls_user
def _warm_up(call: Call, clock: CallClock) -> None:
    with clock.ready():
        for _ in range(_WARM_UP_CALLS):
            call()
        clock.wait()


@calls_user
def _launched_on(call: Call) -> int | None:
    """Call it, and return the GPU on which it launched a kernel of ours, or which torch or CuPy use; None where it used none."""
    if not driver.is_available():
        call()
        return None
    before = list(driver.last_launches)
    driver.last_launches[:] = [0] * len(before)
    try:
        call()
    finally:
        after = list(driver.last_launches)
        driver.last_launches[:] = [now or then for now, then in zip(after, before)]
    used = [device for device, kernel in enumerate(after) if kernel]
    return used[0] if used else driver.current_device() if _others_use_a_gpu() else None


def _others_use_a_gpu() -> bool:
    torch = sys.modules.get("torch")
    return "cupy" in sys.modules or (torch is not None and torch.cuda.is_initialized())


def _rounds_for(call: Call, clock: CallClock, seconds: float, clear_caches: bool) -> int:
    """Return how many rounds fit into the time."""
    begin = time.perf_counter()
    tried = 2
    time_in_turns({0: call}, clock, tried, clears_caches=clear_caches)
    each = (time.perf_counter() - begin) / tried
    return int(min(max(seconds / max(each, 1e-9), _FEWEST_ROUNDS), _MOST_ROUNDS))
