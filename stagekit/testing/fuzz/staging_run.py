"""Run one random program in CPython and, staged in several ways, on the targets; compare."""

from __future__ import annotations

import importlib.util
import linecache
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import stagekit as sk
from stagekit.testing.fuzz.staging import HEADER, Program

STAGES = ("rrr", "ccc", "rcr", "crc")  # of a, b, c: run time or compile time

_HARNESS = """

def store(out, values):
    for index, value in enumerate(values):
        out[index] = value


@sk.jit
def kernel_{stage}(out, args, a: sk.constexpr = 0, b: sk.constexpr = 0, c: sk.constexpr = 0):
    store(out, program({given}))
"""

RESULTS = 10


@dataclass(frozen=True)
class Outcome:
    """What one stage on one target gave: numbers, or the id of the error that refused it."""

    stage: str
    target: str
    values: tuple[int, ...] | None
    refusal: str | None
    text: str = ""


def module_text(program: Program) -> str:
    """The program with one kernel per stage."""
    kernels = "".join(_HARNESS.format(stage=s, given=_given(s)) for s in STAGES)
    return HEADER + program.function_text() + kernels


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
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        linecache.getlines(str(path))
        spec.loader.exec_module(module)
        linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))
        return module
    finally:
        path.unlink()


def expected(module: Any, values: Sequence[int]) -> tuple[int, ...]:
    """CPython's answer. `static_range` outside a kernel is `range`, and a fragment is the function it was made from."""
    saved = module.sk
    module.sk = _PythonMeaning
    try:
        return tuple(int(v) for v in module.program(*values))
    finally:
        module.sk = saved


class _PythonMeaning:
    static_range = range


def run(program: Program, values: Sequence[int], targets: Sequence[str]) -> tuple[tuple[int, ...], list[Outcome]]:
    """CPython's answer, and one outcome per stage and target."""
    module = load(module_text(program))
    wanted = expected(module, values)
    outcomes = [_stage(module, stage, target, values) for stage in STAGES for target in targets]
    linecache.cache.pop(str(module.__file__), None)
    return wanted, outcomes


def _stage(module: Any, stage: str, target: str, values: Sequence[int]) -> Outcome:
    kernel = getattr(module, f"kernel_{stage}")
    fixed = {n: v for n, kind, v in zip("abc", stage, values) if kind == "c"}
    out, args = np.full(RESULTS, -99, np.int64), np.array(values, np.int64)
    try:
        sk.compile(kernel.specialize(**fixed), target)[1, 1](out, args)
    except sk.StagekitError as error:
        return Outcome(stage, target, None, error.id, str(error))
    return Outcome(stage, target, tuple(int(v) for v in out), None)


def failures(program: Program, values: Sequence[int], targets: Sequence[str]) -> list[str]:
    """What is wrong, in words; empty when all agree or are refused."""
    wanted, outcomes = run(program, values, targets)
    return [
        f"{o.stage} on {o.target}: {o.values}, CPython: {wanted}"
        for o in outcomes
        if o.refusal is None and o.values != wanted
    ]


__all__ = ["failures", "module_text", "run", "sys"]
