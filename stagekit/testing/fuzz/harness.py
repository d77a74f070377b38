"""What the fuzzers share: run cases by seed, shrink what fails, keep it in the corpus.

A fuzzer draws a *case* from a seed, says what is wrong with it, and proposes smaller cases. A case is text, so that it can be
read, kept and replayed without the generator that drew it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

CORPUS = Path(__file__).parents[3] / "tests" / "testing" / "corpus"
_SHRINK_SECONDS = 120.0
_MOST_FAILURES = 20  # of one run: by then it is clear that something is wrong


@dataclass(frozen=True)
class Problem:
    """What is wrong with a case. kind: stays the same while the case shrinks."""

    kind: str
    text: str


class NotACase(Exception):
    """A candidate that no longer is a program at all."""


class Fuzzer(Protocol):
    """One way of making cases. suffix: of files in the corpus. counts: what has been run, in words, over all calls."""

    name: str
    suffix: str
    counts: Counter[str]

    def draw(self, seed: int) -> str:
        """The case with this seed."""

    def problems(self, case: str, targets: Sequence[str]) -> list[Problem]:
        """What is wrong with it, nothing if all is well. Raises NotACase."""

    def smaller(self, case: str) -> Iterator[str]:
        """Cases to try instead, those with most left out first."""


@dataclass
class Outcome:
    """failed: seeds with their shrunk cases and problems."""

    cases: int = 0
    seconds: float = 0.0
    failed: list[tuple[int, str, Problem]] = field(default_factory=list)


def run(fuzzer: Fuzzer, first: int, count: int, targets: Sequence[str], corpus: Path | None) -> Outcome:
    """Cases of `count` seeds from `first` on. corpus: where failures go, None for nowhere."""
    outcome, start = Outcome(), time.perf_counter()
    for seed in range(first, first + count):
        case = fuzzer.draw(seed)
        found = _survived(fuzzer, case, targets, corpus)
        outcome.cases += 1
        if found:
            small, problem = shrink(fuzzer, case, found[0], targets)
            outcome.failed.append((seed, small, problem))
            if corpus is not None:
                keep(fuzzer, small, corpus, f"seed-{seed}")
        if len(outcome.failed) >= _MOST_FAILURES:
            break
    outcome.seconds = time.perf_counter() - start
    return outcome


def _survived(fuzzer: Fuzzer, case: str, targets: Sequence[str], corpus: Path | None) -> list[Problem]:
    """`problems_of`, with the case in the corpus as long as it runs: machine code may end the process."""
    if corpus is None:
        return problems_of(fuzzer, case, targets)
    running = keep(fuzzer, case, corpus, "ended-the-process")
    found = problems_of(fuzzer, case, targets)
    running.unlink()
    return found


def problems_of(fuzzer: Fuzzer, case: str, targets: Sequence[str]) -> list[Problem]:
    """What is wrong with a case; whatever is raised is a problem too."""
    try:
        return fuzzer.problems(case, targets)
    except NotACase:
        return []
    except Exception as error:  # a crash of ours is what a fuzzer is for
        return [Problem(f"crash {type(error).__name__}", f"{type(error).__name__}: {error}")]


def shrink(fuzzer: Fuzzer, case: str, problem: Problem, targets: Sequence[str]) -> tuple[str, Problem]:
    """The smallest case with this kind of problem that is found by leaving things out, one after the other."""
    deadline = time.monotonic() + _SHRINK_SECONDS
    candidates = fuzzer.smaller(case)
    while time.monotonic() < deadline:
        candidate = next(candidates, None)
        if candidate is None:
            break
        same = [p for p in problems_of(fuzzer, candidate, targets) if p.kind == problem.kind]
        if same:
            case, problem = candidate, same[0]
            candidates = fuzzer.smaller(case)
    return case, problem


def keep(fuzzer: Fuzzer, case: str, corpus: Path, name: str) -> Path:
    """Write a case that failed into the corpus, from where every later run of the tests replays it."""
    path = corpus / fuzzer.name / f"{name}{fuzzer.suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(case, encoding="utf-8")
    return path


def kept(fuzzer: Fuzzer, corpus: Path) -> list[Path]:
    """The cases of the corpus, in order."""
    return sorted((corpus / fuzzer.name).glob(f"*{fuzzer.suffix}"))
