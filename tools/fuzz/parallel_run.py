"""Run random parallel kernels on the targets, and ask the sanitizer about them, with all barriers and with one left out."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import stagekit as sk
from tools.fuzz.harness import NotACase, Problem
from tools.fuzz.parallel import (
    OPERATIONS,
    TOTALS,
    Array,
    Case,
    draw,
    kernel_text,
    races,
    without_barrier,
)  # fmt: skip
from tools.fuzz.program_module import module_of
from tools.fuzz.trees import smaller_bodies

_MUTANT_SHARE = 3  # one case in so many is run with a barrier left out


class ParallelFuzzer:
    """Random kernels with shared memory and barriers: all targets agree, and the sanitizer knows what races."""

    name = "parallel"
    suffix = ".json"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def draw(self, seed: int) -> str:
        return draw(seed).text()

    def problems(self, case: str, targets: Sequence[str]) -> list[Problem]:
        parsed = Case.parse(case)
        if races(parsed) is not False:
            raise NotACase("it races")
        self.counts["kernels"] += 1
        with module_of(kernel_text(parsed)) as module:
            wanted, alarms = _checked(parsed, module.kernel)
            found = [Problem("false alarm", f"the sanitizer finds what is not there: {text}") for text in alarms]
            for target in (t for t in targets if t != "interp"):
                self.counts[f"compared on {target}"] += 1
                found += _compare(target, wanted, _run(parsed, module.kernel, target))
        return [*found, *self._mutant(parsed)]

    def _mutant(self, case: Case) -> Iterator[Problem]:
        """Leave out one of the barriers: does the sanitizer say what the rule says?"""
        mutants = list(without_barrier(case))
        chosen = sum(map(ord, case.text())) % (len(mutants) * _MUTANT_SHARE) if mutants else 0
        if chosen >= len(mutants):
            return
        mutant = mutants[chosen]
        is_race = races(mutant)
        if is_race is not None:
            self.counts["a barrier left out: " + ("races" if is_race else "still right")] += 1
            yield from _judged(mutant, is_race)

    def smaller(self, case: str) -> Iterator[str]:
        parsed = Case.parse(case)
        for body in smaller_bodies(parsed.body):
            yield parsed.with_body(body).text()
        for threads, blocks, rows in itertools.product((32, 64, parsed.threads), (1, parsed.blocks), (1, parsed.rows)):
            smaller = Case(threads, blocks, parsed.body, rows)
            if smaller != parsed and threads <= parsed.threads:
                yield smaller.text()


# -- running ----------------------------------------------------------------------------------------------------------


def _arrays(case: Case) -> list[Array]:
    threads = case.threads * case.blocks
    return [
        (np.arange(threads) * 37) % 101,
        np.zeros(threads * 4, np.int64),
        np.zeros(len(OPERATIONS) * TOTALS, np.int32),
    ]


def _run(case: Case, kernel: Any, target: str) -> list[Array]:
    arrays = _arrays(case)
    given: list[Any] = [sk.cuda.to_device(a) for a in arrays] if target == "cuda" else arrays
    sk.compile(kernel.specialize(), target)[_size(case)](*given)
    return [a.to_host() for a in given] if target == "cuda" else arrays


def _size(case: Case) -> tuple[int, tuple[int, int]]:
    return case.blocks, (case.threads // case.rows, case.rows)


def _checked(case: Case, kernel: Any) -> tuple[list[Array], list[str]]:
    """What the interpreter gives, and what the sanitizer finds."""
    arrays, watch = _arrays(case), sk.sanitize(kernel, collect=True)
    watch[_size(case)](*arrays)
    return arrays, [str(f) for f in watch.report.findings]


def _judged(case: Case, is_race: bool) -> Iterator[Problem]:
    with module_of(kernel_text(case)) as module:
        found = [text for text in _checked(case, module.kernel)[1] if "_RACE]" in text]
    if is_race and not found:
        yield Problem("missed race", f"the sanitizer misses a race in\n{kernel_text(case)}")
    elif found and not is_race:
        yield Problem("false race", f"the sanitizer finds a race that is none: {found[0]}")


def _compare(target: str, wanted: list[Array], actual: list[Array]) -> Iterator[Problem]:
    for name, w, a in zip(("A", "OUT", "TOTALS"), wanted, actual, strict=True):
        differs = np.flatnonzero(w != a)
        if len(differs):
            first = int(differs[0])
            yield Problem(
                f"{target} differs",
                f"{target}: {name}[{first}] is {a[first]}, interp: {w[first]}; {len(differs)} of {len(w)} differ",
            )


__all__ = ["ParallelFuzzer"]
