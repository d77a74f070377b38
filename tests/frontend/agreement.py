"""The meaning of a program may not depend on what is known when: CPython's answer, against the staged ones.

    agree(program, 3, 4)

runs `program(3, 4)` in CPython; then in a kernel with both numbers at run time (compiled, and on the interpreter), with both at
compile time, and with every mixture.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

import stagekit as sk

MOST_RESULTS = 32
_UNWRITTEN = -9999


@sk.jit
def _integers(
    out: sk.Tensor((None,), sk.int64),
    given: sk.Tensor((None,), sk.int64),
    program: sk.constexpr,
    stages: sk.constexpr,
    values: sk.constexpr,
):
    arguments = [given[i] if stage == "r" else values[i] for i, stage in enumerate(stages)]
    results = program(*arguments)
    for index, result in enumerate(results if isinstance(results, tuple) else (results,)):
        out[index] = result


@sk.jit
def _floats(
    out: sk.Tensor((None,), sk.float64),
    given: sk.Tensor((None,), sk.float64),
    program: sk.constexpr,
    stages: sk.constexpr,
    values: sk.constexpr,
):
    arguments = [given[i] if stage == "r" else values[i] for i, stage in enumerate(stages)]
    results = program(*arguments)
    for index, result in enumerate(results if isinstance(results, tuple) else (results,)):
        out[index] = result


def python_answer(program: Callable[..., Any], values: tuple[Any, ...]) -> list[Any]:
    """What CPython gives."""
    results = program(*values)
    return list(results) if isinstance(results, tuple) else [results]


def staged_answer(
    program: Callable[..., Any], values: tuple[Any, ...], stages: str, target: str, count: int
) -> list[Any]:
    """What the staged program gives; stages: per value, "r" for run time and "c" for compile time."""
    is_float = any(isinstance(v, float) for v in values)
    kernel, dtype = (_floats, np.float64) if is_float else (_integers, np.int64)
    out = np.full(MOST_RESULTS, _UNWRITTEN, dtype)
    made = kernel.specialize(program=program, stages=stages, values=tuple(values))
    sk.compile(made, target)[1, 1](out, np.array(values or [0], dtype))
    assert (out[count:] == _UNWRITTEN).all(), "more results than CPython gives"
    return out[:count].tolist()


def agree(program: Callable[..., Any], *values: Any) -> None:
    """CPython and every mixture of stages give the same."""
    wanted = python_answer(program, values)
    for stages in map("".join, itertools.product("rc", repeat=len(values))):
        for target in ("interp", "cpu") if "c" not in stages else ("interp",):
            found = staged_answer(program, values, stages, target, len(wanted))
            np.testing.assert_array_equal(found, wanted, err_msg=f"stages {stages!r} on {target}, values {values}")


def refuse(program: Callable[..., Any], *values: Any, stages: str | None = None) -> sk.StagekitError:
    """The error with which the program is refused."""
    stages = stages or "r" * len(values)
    try:
        staged_answer(program, values, stages, "interp", MOST_RESULTS)
    except sk.StagekitError as error:
        return error
    raise AssertionError(f"`{program.__name__}` was not refused")
