"""Texts with run-time numbers in them: f-strings, and what `print` and `assert` show."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from stagekit import dtypes
from stagekit.frontend.control import describe
from stagekit.frontend.errors import BadCall
from stagekit.frontend.evaluation import evaluate, needs_static, static
from stagekit.frontend.frame import Frame
from stagekit.frontend.numbers import default_dtype
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import Number, holds_run_time
from stagekit.ir import Value


def escaped(text: str) -> str:
    """A text as part of a template, where braces are doubled."""
    return text.replace("{", "{{").replace("}", "}}")


@dataclass(frozen=True)
class Text:
    """An f-string with run-time values in it, for `print`, `assert` and `static_assert` only."""

    template: str
    operands: tuple[Number, ...]

    def __str__(self) -> str:
        return self.template.format(*(_Unknown() for _ in self.operands))


class _Unknown:
    """A run-time number in a text that is shown while specialising."""

    def __format__(self, spec: str) -> str:
        return "(run-time)"


def trace_joined(tracer: Tracer, frame: Frame, node: ast.JoinedStr) -> Any:
    template, operands = "", []
    for part in node.values:
        if isinstance(part, ast.Constant):
            template += escaped(str(part.value))
            continue
        assert isinstance(part, ast.FormattedValue)
        value = evaluate(tracer, frame, part.value)
        spec = evaluate(tracer, frame, part.format_spec) if part.format_spec else ""
        if isinstance(value, Number):
            _check_spec(tracer, frame, part, value, spec)
            template += f"{{:{spec}}}" if spec else "{}"
            operands.append(value)
        else:
            shown = repr(value) if part.conversion == 114 else value
            text = static(tracer, frame, part, lambda v=shown, s=spec: format(v, s))  # type: ignore[misc]
            template += escaped(text)
    if not operands:
        return template.replace("{{", "{").replace("}}", "}")
    return Text(template, tuple(operands))


def _check_spec(tracer: Tracer, frame: Frame, node: ast.AST, value: Number, spec: Any) -> None:
    """The format of a run-time number: known now, and one that its kind of number has."""
    if isinstance(spec, Text):
        raise needs_static(tracer, frame, node, "a format", spec.operands[0])
    dtype = default_dtype(value)
    sample = True if dtype is dtypes.bool_ else 1.5 if dtype.is_float else 1
    static(tracer, frame, node, lambda: f"{{:{spec}}}".format(sample))


def message(tracer: Tracer, frame: Frame, node: ast.expr) -> tuple[str, tuple[Value, ...]]:
    """The message of an `assert` as a template and its run-time operands."""
    return shown(tracer, frame, node, evaluate(tracer, frame, node), "the message")


def shown(tracer: Tracer, frame: Frame, node: ast.AST, value: Any, what: str) -> tuple[str, tuple[Value, ...]]:
    """How `print` and `assert` show any value: a template and its run-time operands."""
    if isinstance(value, Text):
        return value.template, tuple(n.value for n in value.operands)
    if isinstance(value, Number):
        return "{}", (value.value,)
    if holds_run_time(value):
        raise tracer.error(BadCall(f"{what} is {describe(value)}", "show its elements one by one"), frame, node)
    return escaped(str(value)), ()
