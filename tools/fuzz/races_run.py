"""Run random kernels under the sanitizer and the exact reference: they must name the same elements."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np

import stagekit as sk
from stagekit.backends.interp import engine
from stagekit.backends.interp.program import Program
from stagekit.backends.interp.races import Now, Races, Rivals
from stagekit.backends.interp.team import LaunchState
from tools.fuzz.harness import Problem
from tools.fuzz.program_module import module_of
from tools.fuzz.races import SIZE, Case, Drawing, kernel_text
from tools.fuzz.races_exact import ExactRaces, Place
from tools.fuzz.trees import Tree, without


class Compared(Races):
    """Races beside the reference. found: the units at which it reports one. made: the one of the last launch."""

    made: Compared | None = None

    def __init__(self, launch: LaunchState, program: Program) -> None:
        super().__init__(launch, program)
        self.exact = ExactRaces(launch, self.unit_bytes)
        self.found: set[Place] = set()
        self.constant_arenas = frozenset()
        launch.watchers.append(self.exact)
        Compared.made = self

    def _report(self, now: Now, rivals: Rivals) -> None:
        self.found |= {(now.touch.allocation.arena, unit) for unit in now.units[rivals.entries].tolist()}
        super()._report(now, rivals)


@contextlib.contextmanager
def compared() -> Iterator[None]:
    """Let launches inside be judged by both."""
    with mock.patch.object(engine, "Races", Compared):
        yield


class RaceFuzzer:
    """Random kernels whose threads meet: the sanitizer and the exact reference find races at the same elements."""

    name = "races"
    suffix = ".json"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def draw(self, seed: int) -> str:
        return Drawing(seed).case().text()

    def problems(self, case: str, targets: Sequence[str]) -> list[Problem]:
        parsed = Case.parse(case)
        with module_of(kernel_text(parsed)) as module, compared():
            _launch(parsed, module.kernel)
        both = Compared.made
        assert both is not None
        touched, racy = len(both.exact.accesses), both.exact.racy
        self.counts.update({"kernels": 1, "elements": touched, "elements that race": len(racy)})
        self.counts["kernels without a race"] += not racy
        return [
            Problem(
                kind, f"{kind} at {sorted((place[0].name, place[1]) for place in places)} of\n{kernel_text(parsed)}"
            )
            for kind, places in (("missed race", racy - both.found), ("false race", both.found - racy))
            if places
        ]

    def smaller(self, case: str) -> Iterator[str]:
        parsed = Case.parse(case)
        for body in _smaller_bodies(parsed.body):
            yield parsed.with_body(body).text()
        for threads in (2, 5, 32, 33):
            for blocks in range(1, parsed.blocks + 1):
                if (threads, blocks) < (parsed.threads, parsed.blocks):
                    yield Case(threads, blocks, parsed.order, parsed.body).text()


def _launch(case: Case, kernel: Any) -> None:
    others = ("axes", "uninitialised", "lanes", "overflow", "division", "shifts", "nan", "rounding")
    options: Any = {**dict.fromkeys(others, False), "order": case.order, "seed": 1}
    watch = sk.sanitize(kernel, collect=True, **options)
    out = np.zeros(case.threads * case.blocks, np.int32)
    watch[case.blocks, case.threads](np.zeros(SIZE, np.int32), out, case.threads)


def _smaller_bodies(body: list[Tree]) -> Iterator[list[Tree]]:
    """Statements left out, and blocks in place of the statement around them."""
    yield from without(body)
    for index, statement in enumerate(body):
        for position, part in enumerate(statement):
            if isinstance(part, list) and all(isinstance(each, list) for each in part):
                yield [*body[:index], *part, *body[index + 1 :]]
                for inner in _smaller_bodies(part):
                    changed = [*statement[:position], inner, *statement[position + 1 :]]
                    yield [*body[:index], changed, *body[index + 1 :]]
