"""Long runs: a worker that ends or hangs is a failure of its seed, the others go on, and there is always a report."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tools.fuzz.__main__ import main
from tools.fuzz.fleet import Fleet, Plan
from tools.fuzz.harness import Problem


class Faults:
    """A fuzzer whose cases are its seeds; a few of them are bad in a way of their own."""

    name = "faults"
    suffix = ".txt"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def draw(self, seed: int) -> str:
        return str(seed)

    def problems(self, case: str, targets: Sequence[str]) -> list[Problem]:
        self.counts["cases"] += 1
        return [Problem("bad", "seven")] if case == "7" else []

    def smaller(self, case: str) -> Iterator[str]:
        return iter(())


class Ending(Faults):
    def problems(self, case: str, targets: Sequence[str]) -> list[Problem]:
        if case == "5":
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().problems(case, targets)


class Hanging(Faults):
    def problems(self, case: str, targets: Sequence[str]) -> list[Problem]:
        if case == "5":
            time.sleep(3600)
        return super().problems(case, targets)


class Filling(Faults):
    """Keeps some memory for every case."""

    kept: list[Any] = []  # noqa: RUF012

    def problems(self, case: str, targets: Sequence[str]) -> list[Problem]:
        self.kept.append(bytearray(b"x") * 2**24)
        return super().problems(case, targets)


class Spoiling(Faults):
    """One case after which this process knows nothing but errors, as a GPU has it."""

    is_spoilt = False

    def problems(self, case: str, targets: Sequence[str]) -> list[Problem]:
        self.is_spoilt |= case == "5"
        if self.is_spoilt:
            raise RuntimeError("spoilt")
        return super().problems(case, targets)


class Slow(Faults):
    def problems(self, case: str, targets: Sequence[str]) -> list[Problem]:
        time.sleep(0.01)
        return super().problems(case, targets)


@pytest.mark.parametrize("jobs", [1, 3])
def test_every_seed_is_run_once(jobs: int) -> None:
    fleet = Fleet(Plan(Faults, ("interp",), range(30), jobs=jobs))

    outcome = fleet.run()

    assert (30, 30) == (outcome.cases, outcome.counts["cases"])
    assert [7] == [failure.seed for failure in outcome.failed]
    assert [] == fleet.unfinished


def test_a_worker_that_ends_is_a_failure_of_its_seed_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    outcome = Fleet(Plan(Ending, (), range(20), jobs=2, corpus=tmp_path)).run()

    assert {5: "the process was ended by signal 11", 7: "seven"} == {f.seed: f.problem.text for f in outcome.failed}
    assert (20, 19) == (outcome.cases, outcome.counts["cases"])
    assert "5" == (tmp_path / "faults" / "seed-5.txt").read_text()
    assert "Segmentation fault" in capfd.readouterr().err


def test_a_worker_that_hangs_is_a_failure_of_its_seed_alone() -> None:
    outcome = Fleet(Plan(Hanging, (), range(20), jobs=2, silence_s=1.0)).run()

    assert {5: "the process hung, and was killed", 7: "seven"} == {f.seed: f.problem.text for f in outcome.failed}
    assert (20, 19) == (outcome.cases, outcome.counts["cases"])


def test_a_worker_whose_gpu_failed_is_replaced() -> None:
    outcome = Fleet(Plan(Spoiling, ("cuda",), range(30), jobs=2)).run()

    assert {5: "crash RuntimeError", 7: "bad"} == {f.seed: f.problem.kind for f in outcome.failed}
    assert (30, 29) == (outcome.cases, outcome.counts["cases"])


def test_a_worker_with_too_much_memory_is_replaced() -> None:
    fleet = Fleet(Plan(Filling, (), range(24), memory_mb=200))

    outcome = fleet.run()

    assert 24 == outcome.counts["cases"]
    assert fleet.replaced > 0
    assert fleet.most_memory_mb < 300


def test_a_run_ends_when_its_time_is_over_or_enough_failed() -> None:
    timed = Fleet(Plan(Slow, (), range(10**9), seconds=1.0)).run()
    failed = Fleet(Plan(Slow, (), range(10**9), most_failures=1)).run()

    assert timed.cases == timed.counts["cases"] > 0
    assert [7] == [failure.seed for failure in failed.failed]


def test_a_signal_ends_the_run_and_not_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timer = threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()

    status = main(["staging", "--seconds", "600", "--targets", "interp", "--corpus", str(tmp_path)])

    assert 0 == status
    assert "staging: seeds 0 to" in capsys.readouterr().out
    assert signal.SIG_DFL == signal.getsignal(signal.SIGTERM)
