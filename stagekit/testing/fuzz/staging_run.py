"""Run one random program in CPython and, staged in several ways, on the targets; compare.

A case is the text of the program under a first line that says how to run it:

    # program(3, -1, 7), program(0, 2, 5) as rcr on interp, cpu

Each call is one thread of the kernel, all in one warp. In a stage, `r` marks an argument that is known at run time, and `c` one
that is known when the kernel is specialised, where the first call has the value for all. Without `as`, the program runs in all
stages; without `on`, or where none of these targets is asked for, on all targets.
"""

from __future__ import annotations

import itertools
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np

import stagekit as sk
from stagekit.testing.fuzz.harness import NotACase, Problem
from stagekit.testing.fuzz.program_module import module_of
from stagekit.testing.fuzz.python_text import smaller_programs
from stagekit.testing.fuzz.staging import HEADER, draw

STAGES = tuple(map("".join, itertools.product("rc", repeat=3)))  # of a, b, c: run time or compile time
_COMPILED_SHARE = 0.06  # of the cases: machine code costs more time than all the rest
_ALL_STAGES_SHARE = 0.02
_REFUSALS = {
    "JOIN_MISMATCH",
    "MAYBE_UNDEFINED",
    "STRUCTURE_CHANGE",
    "LOOP_TYPE_CHANGE",
    "RUN_TIME_VALUE",
    "UNROLL_BUDGET",
}

_STAGE = """
@sk.jit
def kernel_{stage}(out, args, a: sk.constexpr = 0, b: sk.constexpr = 0, c: sk.constexpr = 0):
    row = sk.cuda.thread_idx("x")
    store(out, row, program({given}))
"""

_UNWRITTEN = -99
_MOST_LINES = 20_000  # that CPython runs of one program: a smaller program may have lost the step of its loop

Arguments = tuple[int, int, int]


@dataclass(frozen=True)
class Case:
    """calls: the arguments of each. stages, targets: where to run, None for everywhere."""

    text: str
    calls: tuple[Arguments, ...]
    stages: tuple[str, ...] | None = None
    targets: tuple[str, ...] | None = None

    @classmethod
    def parse(cls, case: str) -> Case:
        head, _, text = case.partition("\n")
        found = _HEAD.fullmatch(head)
        if not found:
            raise NotACase(f"not understood: {head}")
        calls = tuple(_arguments(call) for call in re.findall(r"\((.*?)\)", found["calls"]))
        return cls(text, calls, _words(found["stages"]), _words(found["targets"]))

    def head(self) -> str:
        calls = ", ".join(f"program({a}, {b}, {c})" for a, b, c in self.calls)
        stages = f" as {', '.join(self.stages)}" if self.stages else ""
        targets = f" on {', '.join(self.targets)}" if self.targets else ""
        return f"# {calls}{stages}{targets}\n"


_HEAD = re.compile(r"# (?P<calls>program\(.*?\))(?: as (?P<stages>[rc, ]+))?(?: on (?P<targets>[\w, ]+))?")


def _arguments(text: str) -> Arguments:
    a, b, c = map(int, text.split(","))
    return a, b, c


def _words(text: str | None) -> tuple[str, ...] | None:
    return tuple(text.split(", ")) if text else None


@dataclass(frozen=True)
class Outcome:
    """What one stage on one target gave: a row of numbers for each call, or the id of the error that refused it."""

    stage: str
    target: str
    rows: tuple[tuple[int, ...], ...] | None
    refusal: str | None = None
    text: str = ""


def module_text(program: str, stages: Sequence[str] = STAGES) -> str:
    """The program with one kernel per stage."""
    return HEADER + program + "".join(_STAGE.format(stage=s, given=_given(s)) for s in stages)


def _given(stage: str) -> str:
    return ", ".join(f"args[row * 3 + {i}]" if kind == "r" else "abc"[i] for i, kind in enumerate(stage))


def _calls_of(calls: Sequence[Arguments], stage: str) -> list[Arguments]:
    """The calls that a stage makes: what is known at compile time is the same in all."""
    made = [tuple(x if kind == "r" else first for kind, x, first in zip(stage, call, calls[0])) for call in calls]
    return list(dict.fromkeys(made))  # type: ignore[arg-type]


# -- CPython ----------------------------------------------------------------------------------------------------------


class Reference:
    """CPython's answers. `static_range` outside a kernel is `range`; a fragment is the function it was made from."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._known: dict[Arguments, tuple[int, ...] | None] = {}

    def of(self, call: Arguments) -> tuple[int, ...] | None:
        """None where CPython has no answer."""
        if call not in self._known:
            try:
                self._known[call] = expected(self._module, call)
            except NotACase:
                self._known[call] = None
        return self._known[call]


def expected(module: Any, call: Arguments) -> tuple[int, ...]:
    """CPython's answer. Raises NotACase where there is none."""
    saved, tracer = module.sk, sys.gettrace()
    module.sk = _PythonMeaning
    sys.settrace(_Patience())
    try:
        return tuple(int(v) for v in module.program(*call))
    except Exception as error:
        raise NotACase(f"{type(error).__name__}: {error}") from error
    finally:
        sys.settrace(tracer)
        module.sk = saved


class _PythonMeaning:
    static_range = range


class _Patience:
    """Ends a program that runs too many lines."""

    def __init__(self) -> None:
        self.lines = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.lines += 1
        if self.lines > _MOST_LINES:
            raise NotACase("too many lines")
        return self


# -- stages -----------------------------------------------------------------------------------------------------------


def _stage(module: Any, stage: str, target: str, calls: Sequence[Arguments], results: int) -> Outcome:
    """Run all calls as the threads of one warp."""
    fixed = {n: v for n, kind, v in zip("abc", stage, calls[0]) if kind == "c"}
    arrays: list[Any] = [np.full((len(calls) * results), _UNWRITTEN, np.int64), np.array(calls, np.int64).ravel()]
    if target == "cuda":
        arrays = [sk.cuda.to_device(array) for array in arrays]
    kernel = getattr(module, f"kernel_{stage}")
    try:
        sk.compile(kernel.specialize(**fixed), target)[1, len(calls)](*arrays)
    except sk.StagekitError as error:
        return Outcome(stage, target, None, error.id, str(error))
    out = arrays[0].to_host() if target == "cuda" else arrays[0]
    return Outcome(stage, target, tuple(tuple(map(int, row)) for row in out.reshape(len(calls), results)))


class StagingFuzzer:
    """Random Python programs: what is known when they are specialised changes nothing."""

    name = "staging"
    suffix = ".py"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def draw(self, seed: int) -> str:
        """Most cases run in one stage on the interpreter: there, programs are many."""
        numbers = random.Random(-seed - 1)
        calls = [tuple(numbers.randint(-3, 9) for _ in range(3)) for _ in range(numbers.choice((1, 2, 4, 8)))]
        stages = None if numbers.random() < _ALL_STAGES_SHARE else (numbers.choice(STAGES),)
        targets = None if numbers.random() < _COMPILED_SHARE else ("interp",)
        text = draw(seed).function_text()
        return Case(text, tuple(calls), stages, targets).head() + text  # type: ignore[arg-type]

    def problems(self, case: str, targets: Sequence[str]) -> list[Problem]:
        parsed = Case.parse(case)
        chosen = [t for t in targets if parsed.targets is None or t in parsed.targets] or targets
        stages = parsed.stages or STAGES
        with module_of(module_text(parsed.text, stages)) as module:
            reference = Reference(module)
            if reference.of(parsed.calls[0]) is None:
                raise NotACase("CPython has no answer")
            self.counts["programs"] += 1
            return [p for stage in stages for p in self._staged(module, stage, chosen, parsed.calls, reference)]

    def _staged(
        self, module: Any, stage: str, targets: Sequence[str], calls: Sequence[Arguments], reference: Reference
    ) -> Iterator[Problem]:
        answered = [c for c in _calls_of(calls, stage) if reference.of(c) is not None]
        wanted = tuple(reference.of(c) or () for c in answered)
        for target in targets:
            outcome = _stage(module, stage, target, answered, len(wanted[0]))
            self.counts[f"stagings on {target}"] += 1
            self.counts[f"refused {outcome.refusal}" if outcome.refusal else f"results on {target}"] += len(answered)
            yield from _judged(outcome, answered, wanted)

    def smaller(self, case: str) -> Iterator[str]:
        parsed = Case.parse(case)
        for simpler in _simpler_runs(parsed):
            yield simpler.head() + parsed.text
        for each in smaller_programs(parsed.text):
            yield f"{parsed.head()}{each}\n"


def _simpler_runs(case: Case) -> Iterator[Case]:
    """Fewer calls, one stage, one target."""
    for index in range(len(case.calls)):
        if len(case.calls) > 1:
            yield Case(case.text, (*case.calls[:index], *case.calls[index + 1 :]), case.stages, case.targets)
    if case.stages is None:
        yield from (Case(case.text, case.calls, (stage,), case.targets) for stage in STAGES)
    if case.targets is None:
        yield from (Case(case.text, case.calls, case.stages, (target,)) for target in ("interp", "cpu", "cuda"))


def _judged(outcome: Outcome, calls: Sequence[Arguments], wanted: tuple[tuple[int, ...], ...]) -> Iterator[Problem]:
    where = f"{outcome.stage} on {outcome.target}"
    if outcome.rows is None:
        if outcome.refusal not in _REFUSALS:
            yield Problem(f"refused {outcome.refusal}", f"{where}: {outcome.text}")
        return
    for call, actual, right in zip(calls, outcome.rows, wanted):
        if actual != right:
            yield Problem(f"{outcome.target} differs", f"{where}, program{call}: {actual}, CPython: {right}")


__all__ = ["StagingFuzzer", "module_text"]
