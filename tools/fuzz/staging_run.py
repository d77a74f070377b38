"""Run one random program in CPython and, staged in several ways, on the targets; compare.

A case is the text of the program under a first line that says how to run it:

    # program(3, uint8(1), int16([7, 2])), program(0, uint8(2), int16([5, -5])) as rcr on interp, cpu

Each call is one thread of the kernel, all in one warp. CPython gets plain numbers, and arrays of them. In a stage, `r` marks an
argument that is known at run time, and `c` one that is known when the kernel is specialised, where the first call has the value
for all; `t` is an array whose parameter says its shape. Without `as`, the program runs in all stages; without `on`, or where none
of these targets is asked for, on all targets. What is printed is compared where there is one call, and so is a failed `assert`.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import numpy as np

import stagekit as sk
from tools.fuzz.harness import NotACase, Problem
from tools.fuzz.program_module import module_of
from tools.fuzz.python_text import smaller_programs
from tools.fuzz.staging import HEADER, Parameter, draw
from tools.fuzz.staging_types import NAMES, Number

_COMPILED_SHARE = 0.06  # of the cases: machine code costs more time than all the rest
_MANY_STAGES_SHARE = 0.02
_MANY = 4
_REFUSALS = {
    "JOIN_MISMATCH",
    "MAYBE_UNDEFINED",
    "STRUCTURE_CHANGE",
    "LOOP_TYPE_CHANGE",
    "RUN_TIME_VALUE",
    "UNROLL_BUDGET",
    "SEALED_MUTATION",
    "UNBOUND_LOCAL",
}
_FAILED = "ASSERTION_FAILED"
_STAGE = """
@sk.jit
def kernel_{stage}({parameters}):
    row = sk.cuda.thread_idx("x")
    store(out, row, program({given}))
"""

_UNWRITTEN = -99
_MOST_RESULTS = 100  # of a program whose CPython's answer is a failed `assert`
_MOST_LINES = 20_000  # that CPython runs of one program: a smaller program may have lost the step of its loop
_TYPES = {"bool": np.bool_, **{name: getattr(np, name) for name in NAMES[3:]}}
_AT_RUN_TIME = {int: np.int32, float: np.float32, bool: np.bool_}  # what becomes of Python's own numbers

Arguments = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """calls: the arguments of each, as text. stages, targets: where to run, None for everywhere."""

    text: str
    calls: tuple[str, ...]
    stages: tuple[str, ...] | None = None
    targets: tuple[str, ...] | None = None

    @classmethod
    def parse(cls, case: str) -> Case:
        head, _, text = case.partition("\n")
        found = _HEAD.fullmatch(head)
        if not found:
            raise NotACase(f"not understood: {head}")
        calls = tuple(call for call in re.split(r"(?:^|, )program", found["calls"]) if call)
        return cls(text, calls, _words(found["stages"]), _words(found["targets"]))

    def head(self) -> str:
        calls = ", ".join(f"program{call}" for call in self.calls)
        stages = f" as {', '.join(self.stages)}" if self.stages else ""
        targets = f" on {', '.join(self.targets)}" if self.targets else ""
        return f"# {calls}{stages}{targets}\n"

    def arguments(self) -> list[Arguments]:
        """The numbers and arrays of each call; a call of one argument is a tuple too."""
        return [eval(f"({call[1:-1]},)", dict(_TYPES)) for call in self.calls]


_HEAD = re.compile(r"# (?P<calls>program\(.*?\))(?: as (?P<stages>[rct, ]+))?(?: on (?P<targets>[\w, ]+))?")


def _words(text: str | None) -> tuple[str, ...] | None:
    return tuple(text.split(", ")) if text else None


def stages_of(call: Arguments) -> tuple[str, ...]:
    """Every number at run time and at compile time."""
    kinds = ["r" if isinstance(value, np.ndarray) else "rc" for value in call]
    return tuple(map("".join, itertools.product(*kinds)))


@dataclass(frozen=True)
class Outcome:
    """What one stage on one target gave: a row of numbers for each call and what was printed, or the error that came instead."""

    rows: tuple[tuple[float, ...], ...] | None
    printed: str = ""
    refusal: str | None = None
    text: str = ""


def module_text(program: str, names: Sequence[str], stages: Sequence[str], calls: Sequence[Arguments]) -> str:
    """The program with one kernel per stage."""
    return HEADER + program + "".join(_stage_text(stage, names, calls) for stage in stages)


def names_of(program: str, count: int) -> list[str]:
    """What its parameters are called."""
    found = re.search(r"^def program\(([\w, ]*)\)", program, re.MULTILINE)
    names = found[1].split(", ") if found else []
    if len(names) != count:
        raise NotACase(f"`program` does not take {count} arguments")
    return names


def _stage_text(stage: str, names: Sequence[str], calls: Sequence[Arguments]) -> str:
    """Numbers are arguments themselves where there is one call, else elements of arrays."""
    parameters, given = ["out"], []
    for name, kind, value in zip(names, stage, calls[0], strict=True):
        is_array = isinstance(value, np.ndarray)
        shaped = f": sk.Tensor((None, {', '.join(map(str, value.shape))}), sk.{value.dtype})" if kind == "t" else ""
        parameters.append(f"{name}: sk.constexpr" if kind == "c" else f"{name}{shaped}")
        given.append(f"{name}[row]" if is_array or (kind == "r" and len(calls) > 1) else name)
    return _STAGE.format(stage=stage, parameters=", ".join(parameters), given=", ".join(given))


def _calls_of(calls: Sequence[Arguments], stage: str) -> list[Arguments]:
    """The calls that a stage makes: what is known at compile time is the same in all."""
    made = [tuple(first if kind == "c" else x for kind, x, first in zip(stage, call, calls[0])) for call in calls]
    return list({repr(call): call for call in made}.values())


# -- CPython ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """What CPython gives: numbers, what it printed, and the message of an `assert` that failed, in place of numbers."""

    row: tuple[float, ...]
    printed: str = ""
    failed: str | None = None


class Reference:
    """CPython's answers. `static_range` outside a kernel is `range`; a fragment is the function it was made from."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._known: dict[str, Answer | None] = {}

    def of(self, call: Arguments) -> Answer | None:
        """None where CPython has no answer."""
        key = repr(call)
        if key not in self._known:
            try:
                self._known[key] = expected(self._module, call)
            except NotACase:
                self._known[key] = None
        return self._known[key]


def expected(module: Any, call: Arguments) -> Answer:
    """CPython's answer. Raises NotACase where there is none."""
    tracer, printed = sys.gettrace(), io.StringIO()
    captured = {name: value for name, value in vars(module).items() if isinstance(value, np.generic)}
    saved = {"sk": module.sk, **captured}
    vars(module).update({name: _plain(value) for name, value in captured.items()}, sk=_PythonMeaning)
    sys.settrace(_Patience())
    try:
        with contextlib.redirect_stdout(printed):
            return Answer(tuple(map(float, module.program(*map(_plain, call)))), printed.getvalue())
    except AssertionError as error:
        return Answer((), printed.getvalue(), str(error))
    except Exception as error:
        raise NotACase(f"{type(error).__name__}: {error}") from error
    finally:
        sys.settrace(tracer)
        vars(module).update(saved)


def _plain(value: Any) -> Any:
    """A number without a width; an array of such numbers, whose slices are views."""
    if isinstance(value, np.ndarray):
        return np.array(value.tolist() or 0, dtype=object).reshape(value.shape)
    return value.item() if isinstance(value, np.generic) else value


class _PythonMeaning:
    static_range = range


for _name in NAMES[3:]:
    setattr(_PythonMeaning, _name, float if "float" in _name else int)


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


def _stage(
    kernel: Any, target: str, fixed: dict[str, Any], arguments: Sequence[Any], calls: int, results: int
) -> Outcome:
    """Run all calls as the threads of one warp."""
    given, printed = [np.full(calls * results, _UNWRITTEN, np.float64), *arguments], io.StringIO()
    if target == "cuda":
        given = [sk.cuda.to_device(a) if isinstance(a, np.ndarray) else a for a in given]
    try:
        with contextlib.redirect_stdout(printed):
            sk.compile(kernel.specialize(**fixed), target)[1, calls](*given)
    except sk.StagekitError as error:
        return Outcome(None, printed.getvalue(), error.id, str(error))
    out = given[0].to_host() if target == "cuda" else given[0]
    return Outcome(tuple(tuple(map(float, row)) for row in out.reshape(calls, results)), printed.getvalue())


def _argument(values: list[Any], *, is_single: bool) -> Any:
    """One argument of the kernel, from that of each call."""
    first = values[0]
    if isinstance(first, np.ndarray):
        return np.stack(values)
    return first if is_single else np.array(values, _AT_RUN_TIME.get(type(first), type(first)))


class StagingFuzzer:
    """Random Python programs: what is known when they are specialised changes nothing."""

    name = "staging"
    suffix = ".py"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def draw(self, seed: int) -> str:
        """Most cases run in one stage on the interpreter: there, programs are many."""
        numbers, program = random.Random(-seed - 1), draw(seed)
        text = program.function_text()
        count = 1 if "print(" in text or "assert " in text else numbers.choice((1, 1, 2, 4, 8))
        calls = [", ".join(_drawn(numbers, p) for p in program.parameters) for _ in range(count)]
        kinds = [("r", "t") if p.shape else ("r", "c") for p in program.parameters]
        count = _MANY if numbers.random() < _MANY_STAGES_SHARE else 1
        stages = tuple({"".join(map(numbers.choice, kinds)): None for _ in range(count)})
        targets = None if numbers.random() < _COMPILED_SHARE else ("interp",)
        return Case(text, tuple(f"({call})" for call in calls), stages, targets).head() + text

    def problems(self, case: str, targets: Sequence[str]) -> list[Problem]:
        parsed = Case.parse(case)
        chosen = [t for t in targets if parsed.targets is None or t in parsed.targets] or targets
        calls = parsed.arguments()
        stages = parsed.stages or stages_of(calls[0])
        names = names_of(parsed.text, len(calls[0]))
        with module_of(module_text(parsed.text, names, stages, calls)) as module:
            reference = Reference(module)
            if reference.of(calls[0]) is None:
                raise NotACase("CPython has no answer")
            self.counts["programs"] += 1
            return [p for stage in stages for p in self._staged(module, stage, names, chosen, calls, reference)]

    def _staged(
        self, module: Any, stage: str, names: Sequence[str], targets: Sequence[str], calls: Sequence[Arguments],
        reference: Reference,
    ) -> Iterator[Problem]:  # fmt: skip
        answers = [(c, reference.of(c)) for c in _calls_of(calls, stage)]
        answered = [(c, a) for c, a in answers if a and (a.failed is None or len(calls) == 1)]
        if not answered:
            return
        made = [c for c, _ in answered]
        fixed = {name: value for name, kind, value in zip(names, stage, made[0], strict=True) if kind == "c"}
        columns = [[call[i] for call in made] for i, kind in enumerate(stage) if kind != "c"]
        for target in targets:
            if target == "cuda" and answered[0][1].printed:
                continue  # the driver prints past Python
            arguments = [_argument(column, is_single=len(calls) == 1) for column in columns]
            kernel = getattr(module, f"kernel_{stage}")
            outcome = _stage(kernel, target, fixed, arguments, len(made), len(answered[0][1].row) or _MOST_RESULTS)
            self.counts[f"stagings on {target}"] += 1
            self.counts[f"results on {target}"] += len(outcome.rows or ())
            if outcome.refusal:
                self.counts["asserts that failed" if outcome.refusal == _FAILED else f"refused: {outcome.refusal}"] += 1
            for problem in _judged(outcome, answered, target):
                yield replace(problem, text=f"{stage} on {target}{problem.text}")

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
            yield replace(case, calls=(*case.calls[:index], *case.calls[index + 1 :]))
    if case.stages is None:
        yield from (replace(case, stages=(stage,)) for stage in stages_of(case.arguments()[0]))
    if case.targets is None:
        yield from (replace(case, targets=(target,)) for target in ("interp", "cpu", "cuda"))


def _judged(outcome: Outcome, answered: Sequence[tuple[Arguments, Answer]], target: str) -> Iterator[Problem]:
    first = answered[0][1]
    if len(answered) == 1 and target != "cuda" and outcome.refusal not in _REFUSALS:
        yield from _judged_texts(outcome, first, target)
    if first.failed is not None and (target == "cuda" or outcome.refusal == _FAILED):
        return
    if outcome.rows is None:
        if outcome.refusal not in _REFUSALS:
            yield Problem(f"refused {outcome.refusal}", f": {outcome.text}")
        return
    for (call, answer), actual in zip(answered, outcome.rows, strict=True):
        if actual != answer.row:
            yield Problem(f"{target} differs", f", program{call}: {actual}, CPython: {answer.failed or answer.row}")


def _judged_texts(outcome: Outcome, answer: Answer, target: str) -> Iterator[Problem]:
    """What was printed, and said by an `assert`. A kernel goes on after one that fails."""
    printed = outcome.printed if answer.failed is None else outcome.printed[: len(answer.printed)]
    if printed != answer.printed:
        yield Problem(f"{target} prints", f" prints {printed!r}, CPython: {answer.printed!r}")
    if answer.failed is not None and outcome.refusal == _FAILED and answer.failed not in outcome.text:
        yield Problem(f"{target} asserts", f": {outcome.text}, CPython: {answer.failed}")


def _drawn(numbers: random.Random, parameter: Parameter) -> str:
    """An argument, as text."""
    number, shape = parameter.number, parameter.shape
    if not shape:
        value = _value(numbers, number, parameter.type)
        return repr(value) if parameter.type in NAMES[:3] else f"{parameter.type}({value!r})"
    flat = [_value(numbers, number, parameter.type) for _ in range(math.prod(shape))]
    rows = flat if len(shape) == 1 else [flat[i : i + shape[1]] for i in range(0, len(flat), shape[1])]
    return f"{parameter.type}({rows!r})"


def _value(numbers: random.Random, number: Number, name: str) -> Any:
    value = numbers.randint(int(number.low / number.step), int(number.high / number.step)) * number.step
    return value if "float" in name else bool(value) if name == "bool" else int(value)
