"""What the fuzzers share: draw a case from its seed, try it, shrink what fails, keep it in the corpus.

A fuzzer draws a *case* from a seed, says what is wrong with it, and proposes smaller cases. A case is text, so that it can be
read, kept and replayed without the generator that drew it.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

CORPUS = Path(__file__).parents[2] / "tests" / "testing" / "corpus"
SHRINK_SECONDS = 60.0
MOST_FAILURES = 20  # of one run: by then it is clear that something is wrong
_CRASH = "crash"
_MOST_SHRUNK = 1  # of one kind: they have one cause more often than not


@dataclass(frozen=True)
class Problem:
    """What is wrong with a case. kind: stays the same while the case shrinks."""

    kind: str
    text: str


@dataclass(frozen=True)
class Failure:
    """The case of a seed, shrunk if there was time, and what is wrong with it."""

    seed: int
    case: str
    problem: Problem


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
    """counts: what was run, in words. failed: in the order in which they were found."""

    cases: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    failed: list[Failure] = field(default_factory=list)


def run(
    fuzzer: Fuzzer, first: int, count: int, targets: Sequence[str], corpus: Path | None, most_seconds: float = math.inf
) -> Outcome:
    """Cases of `count` seeds from `first` on, in this process, until `most_seconds` of its time have passed.

    corpus: where failures go, None for nowhere.
    """
    began_s = time.process_time()
    outcome, start = Outcome(), time.perf_counter()
    trial = Trial(fuzzer, targets)
    for seed in range(first, first + count):
        failure = trial.of(seed)
        outcome.cases += 1
        if failure:
            outcome.failed.append(failure)
            keep(fuzzer, failure, corpus)
        if len(outcome.failed) >= MOST_FAILURES or time.process_time() - began_s > most_seconds:
            break
    outcome.counts = trial.taken_counts()
    outcome.seconds = time.perf_counter() - start
    return outcome


class Trial:
    """Tries cases, one after the other. on_found: told of a failure before it is shrunk, which may take long."""

    def __init__(
        self, fuzzer: Fuzzer, targets: Sequence[str], on_found: Callable[[Failure], None] = lambda found: None
    ) -> None:
        self.fuzzer, self.targets, self.on_found = fuzzer, targets, on_found
        self._shrunk: Counter[str] = Counter()

    def of(self, seed: int) -> Failure | None:
        """What is wrong with the case of this seed."""
        case = self.fuzzer.draw(seed)
        found = problems_of(self.fuzzer, case, self.targets)
        if not found:
            return None
        self.on_found(Failure(seed, case, found[0]))
        self._shrunk[found[0].kind] += 1
        if self._shrunk[found[0].kind] > _MOST_SHRUNK or spoils(found[0], self.targets):
            return Failure(seed, case, found[0])
        counted = self.taken_counts()
        small, problem = shrink(self.fuzzer, case, found[0], self.targets)
        self.taken_counts()  # what ran in order to shrink is no part of the run
        self.fuzzer.counts.update(counted)
        return Failure(seed, small, problem)

    def taken_counts(self) -> Counter[str]:
        """What was run since the last call."""
        counted = Counter(self.fuzzer.counts)
        self.fuzzer.counts.clear()
        return counted


def spoils(problem: Problem, targets: Sequence[str]) -> bool:
    """Is nothing that this process finds from now on worth anything? A GPU that failed refuses all that comes after."""
    return "cuda" in targets and problem.kind.startswith((_CRASH, "refused"))


def problems_of(fuzzer: Fuzzer, case: str, targets: Sequence[str]) -> list[Problem]:
    """What is wrong with a case; whatever is raised is a problem too."""
    try:
        return fuzzer.problems(case, targets)
    except NotACase:
        return []
    except Exception as error:  # a crash of ours is what a fuzzer is for
        return [Problem(f"{_CRASH} {type(error).__name__}", f"{type(error).__name__}: {error}")]


def shrink(fuzzer: Fuzzer, case: str, problem: Problem, targets: Sequence[str]) -> tuple[str, Problem]:
    """The smallest case with this kind of problem that is found by leaving things out, one after the other."""
    deadline = time.monotonic() + SHRINK_SECONDS
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


def keep(fuzzer: Fuzzer, failure: Failure, corpus: Path | None) -> None:
    """Write a case that failed into the corpus, from where every later run of the tests replays it."""
    if corpus is None:
        return
    path = corpus / fuzzer.name / f"seed-{failure.seed}{fuzzer.suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(failure.case, encoding="utf-8")


def kept(fuzzer: Fuzzer, corpus: Path) -> list[Path]:
    """The cases of the corpus, in order."""
    return sorted((corpus / fuzzer.name).glob(f"*{fuzzer.suffix}"))
