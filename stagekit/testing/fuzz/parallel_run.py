"""Run random parallel kernels on the targets, and ask the sanitizer about them, with all barriers and with one left out."""

from __future__ import annotations

import contextlib
import linecache
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import stagekit as sk
from stagekit.testing.fuzz.harness import NotACase, Problem
from stagekit.testing.fuzz.parallel import (
    OPERATIONS,
    TOTALS,
    Array,
    Case,
    draw,
    kernel_text,
    races,
    without_barrier,
)  # fmt: skip
from stagekit.testing.fuzz.staging_run import load
from stagekit.testing.fuzz.trees import Tree, without

_MUTANTS = 2  # of one case: barriers left out, one at a time


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
        with _kernel_of(parsed) as kernel:
            found = [*self._compared(parsed, kernel, targets), *_false_alarms(parsed, kernel)]
        return [*found, *self._mutants(parsed)]

    def _compared(self, case: Case, kernel: Any, targets: Sequence[str]) -> Iterator[Problem]:
        wanted = _run(case, kernel, "interp")
        for target in (t for t in targets if t != "interp"):
            self.counts[f"compared on {target}"] += 1
            yield from _compare(target, wanted, _run(case, kernel, target))

    def _mutants(self, case: Case) -> Iterator[Problem]:
        """Leave out a barrier: does the sanitizer say what the rule says?"""
        mutants = list(without_barrier(case))
        for mutant in mutants[:: max(len(mutants) // _MUTANTS, 1)]:
            is_race = races(mutant)
            if is_race is not None:
                self.counts["a barrier left out: " + ("races" if is_race else "still right")] += 1
                yield from _judged(mutant, is_race)

    def smaller(self, case: str) -> Iterator[str]:
        parsed = Case.parse(case)
        for body in _smaller_bodies(parsed.body):
            yield Case(parsed.threads, parsed.blocks, body).text()
        for threads, blocks in ((parsed.threads, 1), (64, parsed.blocks), (32, parsed.blocks)):
            if (threads, blocks) < (parsed.threads, parsed.blocks):
                yield Case(threads, blocks, parsed.body).text()


def _smaller_bodies(body: list[Tree]) -> Iterator[list[Tree]]:
    """Statements left out, and blocks in place of the statement around them."""
    yield from without(body)
    for index, statement in enumerate(body):
        for position, part in enumerate(statement):
            if isinstance(part, list):
                yield [*body[:index], *part, *body[index + 1 :]]
                for inner in _smaller_bodies(part):
                    yield [
                        *body[:index],
                        [*statement[:position], inner, *statement[position + 1 :]],
                        *body[index + 1 :],
                    ]


# -- running ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _kernel_of(case: Case) -> Iterator[Any]:
    module = load(kernel_text(case))
    try:
        yield module.kernel
    finally:
        linecache.cache.pop(str(module.__file__), None)


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
    sk.compile(kernel.specialize(), target)[case.blocks, case.threads](*given)
    return [a.to_host() for a in given] if target == "cuda" else arrays


def _findings(case: Case, kernel: Any) -> list[str]:
    watch = sk.sanitize(kernel, collect=True)
    watch[case.blocks, case.threads](*_arrays(case))
    return [str(f) for f in watch.report.findings]


def _false_alarms(case: Case, kernel: Any) -> Iterator[Problem]:
    for text in _findings(case, kernel):
        yield Problem("false alarm", f"the sanitizer finds what is not there: {text}")


def _judged(case: Case, is_race: bool) -> Iterator[Problem]:
    with _kernel_of(case) as kernel:
        found = [text for text in _findings(case, kernel) if "_RACE]" in text]
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
