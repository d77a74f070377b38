"""`check`: does a kernel compute what NumPy does, on every target, for every launch that a strategy draws?

    check(scale, reference, launches(..., src=..., dst=..., n=...))

Hypothesis draws launches and, once one fails, looks for the smallest that does. The error shows it as code to paste.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import hypothesis
import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

from stagekit import cuda, testing
from stagekit.diagnostics import StagekitError, conceal, shown
from stagekit.frontend.errors import BadOption, SpecializeError
from stagekit.frontend.tracer import suggest
from stagekit.jit.sanitizing import CHECKS, Sanitizer
from stagekit.jit.sanitizing import sanitize as make_sanitizer
from stagekit.testing.launching import Array, Launch
from stagekit.testing.oracle import run_in_python
from stagekit.testing.tolerances import Tolerance, difference

TARGETS = ("interp", "cpu", "cuda")  # the first catches what would write over our memory on the second
_DEFINED = (
    "division",
    "shifts",
    "nan",
)  # checks of operations with one result on every target: the reference judges them


class CheckFailed(AssertionError):
    """A kernel that does not do what its reference does. launch, target: the smallest case found, and where it failed."""

    def __init__(self, text: str, launch: Launch, target: str) -> None:
        super().__init__(text)
        self.launch = launch
        self.target = target


def check(
    kernel: Any,
    reference: Callable[..., Any],
    launches: SearchStrategy[Launch],
    *,
    targets: str | Sequence[str] | None = None,
    tolerance: Tolerance | None = None,
    examples: int = 50,
    seed: int | None = None,
    sanitize: bool = True,
    ignore: Collection[str] = (),
) -> None:
    """Compare `kernel` with `reference` on launches that are drawn; raise `CheckFailed` for the smallest that differs.

    reference: takes parameters of the kernel by name, arrays as NumPy arrays of its own, and either writes the expected contents
    into them or gives a mapping from name to array; or it is `run_in_python`, by which a block-level kernel is its own reference.
    Every array must end as it says, and those that it does not take unchanged;
    ignore: names of arrays that may hold anything. tolerance: None for the one of each dtype. targets: one or some of "cpu",
    "interp" and "cuda"; None for all that there are. sanitize: look for faults too, on the interpreter. examples: how many
    launches to try.
    """
    __tracebackhide__ = True
    try:
        present = TARGETS if cuda.is_available() else TARGETS[:2]
        chosen = (testing.chosen_targets or present) if targets is None else _targets(targets)
    except StagekitError as error:
        conceal(error)
        raise
    checks: dict[str, Any] = {**dict.fromkeys(CHECKS, sanitize), **dict.fromkeys(_DEFINED, False)}
    watch: Sanitizer = make_sanitizer(**checks)

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
    )
    @given(launches)
    def holds(launch: Launch) -> None:
        __tracebackhide__ = True
        expected = _in_python(kernel, launch) if reference is run_in_python else _expected(reference, launch)
        for target in chosen:
            _compare(kernel, launch.of(kernel), target, expected, tolerance, ignore, watch)

    try:
        (holds if seed is None else hypothesis.seed(seed)(holds))()
    except CheckFailed as failure:
        raise CheckFailed(str(failure), failure.launch, failure.target) from failure.__cause__


def _targets(given: Any) -> tuple[str, ...]:
    """Return the names of targets that `check` was given, one or several. Raises SpecializeError for an unknown one."""
    names = given if isinstance(given, Collection) and not isinstance(given, str) else (given,)
    for name in names:
        if name not in TARGETS:
            hint = f"{suggest(str(name), TARGETS)}targets are {', '.join(map(repr, TARGETS))}"
            raise SpecializeError(BadOption("check", f"`targets` holds {shown(name)}", hint))
    return tuple(names)


def _in_python(kernel: Any, launch: Launch) -> dict[str, Array]:
    """Return what every array holds after the kernel's own function ran in CPython."""
    __tracebackhide__ = True
    fresh = launch.fresh()
    try:
        run_in_python(kernel, launch.brackets, **fresh.of(kernel).arguments)
    except StagekitError as error:
        raise _failure(kernel, launch, "Python", str(error)) from error
    return fresh.arrays


def _expected(reference: Callable[..., Any], launch: Launch) -> dict[str, Array]:
    """Return what every array must hold afterwards."""
    __tracebackhide__ = True
    fresh = launch.fresh()
    expected, arguments = fresh.arrays, fresh.arguments
    parameters = inspect.signature(reference).parameters.values()
    for p in parameters:
        if p.name not in arguments and p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            hint = suggest(p.name, tuple(arguments)).rstrip("; ")
            known = ", ".join(arguments)
            raise TypeError(f"the reference takes `{p.name}`, the launches have {known}{'; ' if hint else ''}{hint}")
    with np.errstate(all="ignore"):
        given = reference(**{p.name: arguments[p.name] for p in parameters if p.name in arguments})
    if given is None:
        return expected
    if not isinstance(given, Mapping) or not given.keys() <= expected.keys():
        raise TypeError(
            f"the reference gives arrays by the names of the kernel's, {list(expected)}, or writes into them; got {given!r}"
        )
    for name, value in given.items():
        found, shape = np.asarray(value), expected[name].shape
        try:
            expected[name] = np.broadcast_to(found, shape)
        except ValueError:
            raise TypeError(f"the reference gives `{name}` in shape {found.shape}, the launch has {shape}") from None
    return expected


def _compare(
    kernel: Any,
    launch: Launch,
    target: str,
    expected: Mapping[str, Array],
    tolerance: Tolerance | None,
    ignore: Collection[str],
    watch: Sanitizer,
) -> None:
    __tracebackhide__ = True
    fresh = launch.fresh()
    try:
        with watch if target == "interp" else contextlib.nullcontext():
            (fresh.run_on_gpu if target == "cuda" else fresh.run)(kernel)
    except StagekitError as error:
        raise _failure(kernel, launch, target, str(error)) from error
    for name, actual in fresh.arrays.items():
        found = None if name in ignore else difference(actual, expected[name].astype(actual.dtype), tolerance)
        if found is not None:
            raise _failure(kernel, launch, target, f"`{name}`: {found}")


def _failure(kernel: Any, launch: Launch, target: str, what: str) -> CheckFailed:
    name = getattr(kernel, "__name__", "kernel")
    code = "\n".join(f"    {line}" for line in launch.code(name).splitlines())
    return CheckFailed(f"`{name}` on {target}: {what}\n\nthe smallest launch that fails:\n\n{code}\n", launch, target)
