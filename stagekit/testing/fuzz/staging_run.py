"""Run one random program in CPython and, staged in several ways, on the targets; compare.

A case is the text of the program, under a first line with its arguments: `# program(3, -1, 7)`.
"""

from __future__ import annotations

import ast
import importlib.util
import linecache
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import numpy as np

import stagekit as sk
from stagekit.testing.fuzz.harness import NotACase, Problem
from stagekit.testing.fuzz.python_text import smaller_programs
from stagekit.testing.fuzz.staging import HEADER, Program, draw

STAGES = ("rrr", "ccc", "rcr", "crc")  # of a, b, c: run time or compile time

_HARNESS = """

def store(out, values):
    for index, value in enumerate(values):
        out[index] = value


@sk.jit
def kernel_{stage}(out, args, a: sk.constexpr = 0, b: sk.constexpr = 0, c: sk.constexpr = 0):
    store(out, program({given}))
"""

_UNWRITTEN = -99
_MOST_LINES = 100_000  # that CPython runs of one program: a smaller program may have lost the step of its loop


@dataclass(frozen=True)
class Outcome:
    """What one stage on one target gave: numbers, or the id of the error that refused it."""

    stage: str
    target: str
    values: tuple[int, ...] | None
    refusal: str | None
    text: str = ""


def module_text(program: Program | str) -> str:
    """The program with one kernel per stage."""
    kernels = "".join(_HARNESS.format(stage=s, given=_given(s)) for s in STAGES)
    return HEADER + (program if isinstance(program, str) else program.function_text()) + kernels


def _given(stage: str) -> str:
    names = "abc"
    return ", ".join(f"args[{i}]" if kind == "r" else names[i] for i, kind in enumerate(stage))


def load(text: str) -> ModuleType:
    """Import `text` from a file of its own, so that its source can be read."""
    with tempfile.NamedTemporaryFile("w", suffix=".py", prefix="program", delete=False) as file:
        file.write(text)
    path = Path(file.name)
    try:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"cannot import {path}")
        module = importlib.util.module_from_spec(spec)
        linecache.getlines(str(path))
        _execute(spec.loader, module)
        linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))
        return module
    finally:
        path.unlink()


def _execute(loader: Any, module: ModuleType) -> None:
    try:
        loader.exec_module(module)
    except SyntaxError as error:
        raise NotACase(str(error)) from error


def expected(module: Any, values: Sequence[int]) -> tuple[int, ...]:
    """CPython's answer. `static_range` outside a kernel is `range`, and a fragment is the function it was made from.

    Raises NotACase where CPython has none.
    """
    saved, tracer = module.sk, sys.gettrace()
    module.sk = _PythonMeaning
    sys.settrace(_Patience())
    try:
        return tuple(int(v) for v in module.program(*values))
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


def run(program: Program | str, values: Sequence[int], targets: Sequence[str]) -> tuple[tuple[int, ...], list[Outcome]]:
    """CPython's answer, and one outcome per stage and target."""
    module = load(module_text(program))
    try:
        wanted = expected(module, values)
        return wanted, [_stage(module, stage, target, values, len(wanted)) for stage in STAGES for target in targets]
    finally:
        linecache.cache.pop(str(module.__file__), None)


def _stage(module: Any, stage: str, target: str, values: Sequence[int], results: int) -> Outcome:
    kernel = getattr(module, f"kernel_{stage}")
    fixed = {n: v for n, kind, v in zip("abc", stage, values) if kind == "c"}
    out, args = np.full(results, _UNWRITTEN, np.int64), np.array(values, np.int64)
    try:
        sk.compile(kernel.specialize(**fixed), target)[1, 1](out, args)
    except sk.StagekitError as error:
        return Outcome(stage, target, None, error.id, str(error))
    return Outcome(stage, target, tuple(int(v) for v in out), None)


class StagingFuzzer:
    """Random Python programs: what is known when they are specialised changes nothing."""

    name = "staging"
    suffix = ".py"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def draw(self, seed: int) -> str:
        numbers = random.Random(seed)
        values = [numbers.randint(-3, 9) for _ in range(3)]
        return f"# program({', '.join(map(str, values))})\n{draw(seed).function_text()}"

    def problems(self, case: str, targets: Sequence[str]) -> list[Problem]:
        head, _, text = case.partition("\n")
        values = ast.literal_eval(head.removeprefix("# program"))
        wanted, outcomes = run(text, values, targets)
        self.counts.update("refused " + o.refusal if o.refusal else "agreed" for o in outcomes)
        self.counts["programs"] += 1
        return [
            Problem(f"{o.stage} on {o.target} differs", f"{o.stage} on {o.target}: {o.values}, CPython: {wanted}")
            for o in outcomes
            if o.refusal is None and o.values != wanted
        ]

    def smaller(self, case: str) -> Iterator[str]:
        head, _, text = case.partition("\n")
        for each in smaller_programs(text):
            yield f"{head}\n{each}\n"


def failures(program: Program, values: Sequence[int], targets: Sequence[str]) -> list[str]:
    """What is wrong, in words; empty when all agree or are refused."""
    wanted, outcomes = run(program, values, targets)
    return [
        f"{o.stage} on {o.target}: {o.values}, CPython: {wanted}"
        for o in outcomes
        if o.refusal is None and o.values != wanted
    ]


__all__ = ["StagingFuzzer", "failures", "module_text", "run"]
