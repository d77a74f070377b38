"""`sk.bench`: what it returns, what it refuses, and that calls are timed in turns."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from stagekit.diagnostics import CallError
from stagekit.tuning import Measurement, roofline
from stagekit.tuning.clocks import EventClock, WallClock, largest_cache_bytes, time_in_turns
from stagekit.tuning.measuring import duration_text, prefixed
from tests.runtime.fake_driver import FakeDriver, installed


@sk.jit
def double(x, n, BLOCK: sk.constexpr):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    sk.store(x + i, sk.load(x + i, mask=i < n) * 2, mask=i < n)


def test_a_measurement_of_a_launch_has_rates_and_reads_as_one_line() -> None:
    x = np.ones(100, np.float32)

    found = sk.bench(lambda: double[2](x, 100, 64), bytes_moved=800, operations=100, rounds=7)

    assert len(found.times_s) == 7
    low, high = found.quartiles_s
    assert 0 < min(found.times_s) <= low <= found.median_s <= high
    assert found.bandwidth == pytest.approx(800 / found.median_s)
    assert found.operation_rate == pytest.approx(100 / found.median_s)
    assert re.fullmatch(r"\S+ \ws \(quartiles .+, 7 calls\), \S+ \w?B/s, \S+ \w?FLOP/s on cpu", str(found))


def test_without_bytes_and_operations_there_are_no_rates() -> None:
    found = sk.bench(lambda: None, rounds=1, clear_caches=False)

    assert (None, None) == (found.bandwidth, found.operation_rate)
    assert "/s" not in str(found)


def test_events_of_calls_that_raise_are_destroyed() -> None:
    """Those of the call itself, and those of the calls before it, whose times nobody asks for any more."""

    def raising() -> None:
        raise ValueError("of the user's")

    fake = FakeDriver()
    with installed(fake):
        clock = EventClock(0, 0)
        with pytest.raises(ValueError, match="of the user's"):
            time_in_turns({"well": lambda: None, "ill": raising}, clock, 3)
        gc.collect()
        mine = len(fake.named("cuEventCreate")) - 1  # the device has one of its own, by which it knows when to free

        assert len(fake.named("cuEventDestroy")) == mine == 4


@pytest.mark.gpu
def test_a_launch_on_a_gpu_is_timed_there() -> None:
    x = sk.cuda.to_device(np.ones(1 << 24, np.float32))

    found = sk.bench(lambda: double[1 << 14](x, 1 << 24, 1024), bytes_moved=2 * x.nbytes, rounds=20)

    assert found.where.startswith("cuda:")
    assert found.bandwidth is not None
    assert 1e11 < found.bandwidth < 2e13


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: sk.bench(3), "call"),
        (lambda: sk.bench(lambda: None, seconds=0), "seconds"),
        (lambda: sk.bench(lambda: None, seconds=float("inf")), "seconds"),
        (lambda: sk.bench(lambda: None, rounds=0), "rounds"),
        (lambda: sk.bench(lambda: None, rounds=True), "rounds"),
        (lambda: sk.bench(double), "needs arguments"),
        (lambda: sk.bench(double[2]), "needs arguments"),
        (lambda: sk.bench(lambda: None, clear_caches="no"), "clear_caches"),
        (lambda: sk.bench(lambda: None, target="interp"), "target"),
        (lambda: sk.bench(lambda: None, bytes_moved=-1), "bytes_moved"),
        (lambda: sk.bench(lambda: None, operations="many"), "operations"),
        (lambda: roofline({"a": Measurement((1.0,), "cpu")}, bandwidth=1, operation_rate=1), "'a'"),
    ],
)
def test_what_cannot_be_measured_is_refused(make: Callable[[], Any], word: str) -> None:
    with pytest.raises(CallError, match=word):
        make()


def test_calls_are_timed_in_turns_after_they_are_prepared() -> None:
    seen: list[str] = []
    calls = {name: (lambda name=name: seen.append(name)) for name in "abc"}

    times = time_in_turns(calls, WallClock(), 2, before=lambda name: seen.append(f"before {name}"))

    assert ["before a", "a", "before b", "b", "before c", "c", "before b", "b"] == seen[:8]
    assert {"a": 2, "b": 2, "c": 2} == {name: len(each) for name, each in times.items()}


@pytest.mark.parametrize("clears", [True, False])
def test_caches_are_overwritten_before_each_call_after_it_is_prepared(
    clears: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    clock = WallClock()
    overwritten = int(clock._cleared[-1])
    clear = clock.clear
    monkeypatch.setattr(clock, "clear", lambda: (seen.append("clear"), clear()))

    time_in_turns(
        {"a": lambda: seen.append("a")}, clock, 2, clears_caches=clears, before=lambda name: seen.append("before")
    )

    assert ["before", *["clear"] * clears, "a"] * 2 == seen
    assert overwritten + 2 * clears == int(clock._cleared[-1])
    assert min(2 * largest_cache_bytes(), 64 << 20) == clock._cleared.nbytes


@pytest.mark.parametrize(
    ("seconds", "text"), [(2, "2 s"), (0.0123, "12.3 ms"), (1.5e-6, "1.5 us"), (3e-8, "30 ns"), (0, "0 ns")]
)
def test_a_duration_has_a_fitting_unit(seconds: float, text: str) -> None:
    assert text == duration_text(seconds)
    assert ("1.5 T", "20 k", "7 ") == (prefixed(1.5e12), prefixed(2e4), prefixed(7))


def test_a_roofline_shows_each_measurement(tmp_path: Any) -> None:
    pytest.importorskip("matplotlib", reason="charts need matplotlib, the extra `bench`")
    found = {"double": Measurement((1e-3, 2e-3), "cpu", 1e6, 1e5)}

    figure = roofline(found, bandwidth=1e10, operation_rate=1e11, path=tmp_path / "roofline.svg")

    assert "double" in figure.axes[0].texts[0].get_text()
    assert (tmp_path / "roofline.svg").stat().st_size > 0
