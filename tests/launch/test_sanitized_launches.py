"""Which launches a sanitizer sees: each way of launching, inside a session, by the wrapper, and by the switch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stagekit as sk

pytestmark = pytest.mark.stagekit_unchecked(reason="it counts what its own sessions see")


@sk.jit
def mark(out, value):
    out[sk.cuda.thread_idx("x")] = value


n = sk.dynamic("n")


@sk.function
def mark_all(out: sk.Tensor((n,), sk.float32), value: sk.float32):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=n))
    out[sk.cuda.thread_idx("x")] = value


specialised = mark.specialize()

WAYS: dict[str, Callable[[Any], None]] = {
    "brackets": lambda out: mark[1, 4](out, 1.0),
    "keywords": lambda out: mark[1, 4](value=1.0, out=out),
    "specialised": lambda out: specialised[1, 4](out, 1.0),
    "compiled": lambda out: sk.compile(specialised, "cpu")[1, 4](out, 1.0),
    "prepared": lambda out: mark.prepare[1, 4](out, 1.0)(),
    "prepared, its own grid": lambda out: mark_all.prepare(out, 1.0)(),
    "its own grid": lambda out: mark_all(out, 1.0),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_each_way_of_launching_is_seen(way: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        way(np.zeros(4, np.float32))  # until there is a native launcher

    out = np.zeros(4, np.float32)
    with sk.sanitize() as watch:
        way(out)
        assert 1 == len(watch.reports)
    way(np.zeros(4, np.float32))

    assert 1 == len(watch.reports)
    assert [1.0] * 4 == out.tolist()


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_each_way_of_launching_raises_what_is_found(
    way: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAGEKIT_SANITIZE", "nan=yes,outputs=out")
    longer = np.zeros(5, np.float32)

    if way in (WAYS["its own grid"], WAYS["prepared, its own grid"]):
        way(longer)
    else:
        with pytest.raises(sk.StagekitError, match="1 of the 5 elements of `out` were never written"):
            way(longer)


def test_preparing_in_a_session_refuses_what_a_launch_would() -> None:
    with sk.sanitize() as watch:
        with pytest.raises(sk.ArgumentError, match="`out`"):
            mark.prepare[1, 4]({}, 1.0)
        with pytest.raises(sk.LaunchError):
            mark.prepare(np.zeros(4, np.float32), 1.0)

    assert [] == watch.reports
