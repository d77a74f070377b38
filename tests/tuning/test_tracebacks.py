"""What a function of the user's raises comes through a call of ours without a frame of ours."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from stagekit.diagnostics import StagekitError

PACKAGE = str(Path(sk.__file__).parent)


class Mistake(Exception):
    pass


def fails(*_: Any, **__: Any) -> Any:
    raise Mistake


def fails_at(number: int) -> Callable[[], None]:
    """A function that raises when it is called so often."""
    calls = iter(range(number))

    def call() -> None:
        if next(calls, None) is None:
            fails()

    return call


def refused() -> None:
    double[1](np.ones(32, np.float32), "many")


@sk.jit
def double(x, n, BLOCK: sk.constexpr = 32):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    sk.store(x + i, sk.load(x + i, mask=i < n) * 2, mask=i < n)


def tuned(**options: Any) -> Any:
    return sk.autotune(double, {"BLOCK": (32, 64)}, **options)


X = np.ones(32, np.float32)
CALLS: dict[str, Callable[[], Any]] = {
    "bench, first call": lambda: sk.bench(fails, rounds=3),
    "bench, warming up": lambda: sk.bench(fails_at(2), rounds=3),
    "bench, choosing rounds": lambda: sk.bench(fails_at(5)),
    "bench, timed": lambda: sk.bench(fails_at(6), rounds=9),
    "bench, a launch": lambda: sk.bench(refused),
    "factory": lambda: sk.autotune(fails, {"BLOCK": (32,)})[1](X, 32),
    "where, at a call": lambda: tuned(where=fails)[1](X, 32),
    "where, in a search": lambda: tuned(where=fails).tune[1](X, 32),
    "key": lambda: tuned(key=fails).prepare[1](X, 32),
    "reference": lambda: tuned(reference=fails).tune[1](X, 32),
    "progress": lambda: tuned().tune.using(progress=fails)[1](X, 32),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_error_of_the_users_function_has_no_frame_of_ours(name: str) -> None:
    """From the line that called us it goes on in the function."""
    with pytest.raises((Mistake, StagekitError)) as raised:
        CALLS[name]()

    _, line, *inside = traceback.extract_tb(raised.value.__traceback__)
    assert line.name == "<lambda>"
    assert [frame.name for frame in inside] in (["fails"], ["call", "fails"], ["refused"])


@pytest.mark.parametrize("at", ["measuring.Measurement", "clocks.WallClock.ready"])
def test_a_fault_of_ours_keeps_its_frames(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them nobody could find it, also where a library raises that a function of ours has called for a marked one."""

    def ours(*_: Any) -> Any:
        return fails()

    code = ours.__code__.replace(co_filename=f"{PACKAGE}/tuning/clocks.py")  # `fails` stands for a library's function
    monkeypatch.setattr(f"stagekit.tuning.{at}", type(ours)(code, {"fails": fails}))

    with pytest.raises(Mistake) as raised:
        sk.bench(lambda: None, rounds=1)

    assert [f for f in traceback.extract_tb(raised.value.__traceback__) if f.filename.startswith(PACKAGE)]
