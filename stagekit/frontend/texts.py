"""Texts with run-time numbers in them: f-strings, and what `print` and `assert` show."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from stagekit import dtypes
from stagekit.frontend.errors import BadCall
from stagekit.frontend.evaluation import Site, evaluate
from stagekit.frontend.numbers import default_dtype
from stagekit.frontend.parts import describe
from stagekit.frontend.tracer import Frame
from stagekit.frontend.values import Number, Text, escaped, hint_of, holds_run_time
from stagekit.ir import Value


def trace_joined(frame: Frame, node: ast.JoinedStr) -> Any:
    """Trace an f-string: a `str` where all its values are known, else a `Text`."""
    text = Text("", ())
    for part in node.values:
        if isinstance(part, ast.Constant):
            text += str(part.value)
        else:
            assert isinstance(part, ast.FormattedValue)
            text += _formatted(frame, part)
    return text if text.operands else text.template.replace("{{", "{").replace("}}", "}")


def _formatted(frame: Frame, node: ast.FormattedValue) -> str | Text:
    """Return the text of one `{value!conversion:spec}`."""
    value = evaluate(frame, node.value)
    spec = evaluate(frame, node.format_spec) if node.format_spec else ""
    if isinstance(value, Number):
        _check_spec(Site(frame, node), value, spec)
        return Text(f"{{:{spec}}}" if spec else "{}", (value,))
    if isinstance(value, Text) and not spec:
        return value
    if holds_run_time(value) or isinstance(value, Text):
        message = f"a format of {describe(value)}"
        raise frame.error(BadCall(message, "show its run-time numbers one by one"), node)
    convert = _CONVERSIONS.get(node.conversion, _as_shown)
    found: str = Site(frame, node).static(lambda v: format(convert(v), bounded_format(spec)), value)
    return found


_MOST_CHARACTERS = 1 << 20


def bounded_format(spec: Any) -> Any:
    """Return a format unchanged, or raise ValueError where its width or precision would fill the memory."""
    if isinstance(spec, str) and any(int(number) > _MOST_CHARACTERS for number in re.findall("[0-9]{7,}", spec)):
        raise ValueError(f"a format of more than {_MOST_CHARACTERS} characters")
    return spec


_CONVERSIONS: dict[int, Callable[[Any], Any]] = {
    ord("r"): repr,
    ord("s"): lambda value: str(_as_shown(value)),
    ord("a"): ascii,
}


def _as_shown(value: Any) -> Any:
    """Return what is shown of a compile-time value: a typed float shows the digits that it would show at run time."""
    dtype = dtypes.dtype_from_numpy(value.dtype) if isinstance(value, np.generic) else None
    return value if dtype is None or not dtype.is_float else dtypes.shown(float(value), dtype)


def _check_spec(site: Site, value: Number, spec: Any) -> None:
    """Raise an error unless the format of a run-time number is known now and fits its kind of number."""
    if isinstance(spec, Text):
        raise site.needs_static("a format", spec.operands[0])
    dtype = default_dtype(value)
    sample = True if dtype is dtypes.bool_ else 1.5 if dtype.is_float else 1
    site.static(lambda: f"{{:{bounded_format(spec)}}}".format(sample))


def message(frame: Frame, node: ast.expr) -> tuple[str, tuple[Value, ...]]:
    """Return the message of an `assert` as a template and its run-time operands."""
    return shown(Site(frame, node), evaluate(frame, node), "the message")


def shown(site: Site, value: Any, what: str) -> tuple[str, tuple[Value, ...]]:
    """Return how `print` and `assert` show a value: a template and its run-time operands."""
    if isinstance(value, Text):
        return value.template, tuple(n.value for n in value.operands)
    if isinstance(value, Number):
        return "{}", (value.value,)
    if holds_run_time(value):
        raise site.error(BadCall(f"{what} is {describe(value)}", hint_of(value) or "show its elements one by one"))
    as_text = (lambda v: f"{_as_shown(v)}") if isinstance(value, np.generic) else str
    return escaped(site.static(as_text, value)), ()
