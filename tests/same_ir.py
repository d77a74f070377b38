"""Whether two functions of the IR are the same program."""

from __future__ import annotations

from typing import Any

from stagekit.artifact import RecordSite
from stagekit.ir import Block, Function, Op, Value


def same_ir(a: Function, b: Function) -> bool:
    """Return whether `a` and `b` are the same program. Names of values and places do not count; floats do bit by bit."""
    return bool(_canonical(a, {}) == _canonical(b, {}))


def _canonical(part: Any, numbers: dict[Value, int]) -> Any:
    """Return a part of a function as nested tuples that are equal exactly for equal parts: 1, 1.0 and True differ.

    numbers: those of the values met so far, in the order in which they are met.
    """
    match part:
        case Value():
            return part.type, numbers.setdefault(part, len(numbers))
        case Function():
            return part.name, _canonical((part.attributes, part.body), numbers)
        case Block():
            return _canonical((part.params, part.ops), numbers)
        case Op():
            names = (*(name for name, _ in part.OPERAND_FIELDS), *part.ATTRIBUTE_FIELDS, *part.BODY_FIELDS, "results")
            return type(part), _canonical(tuple(getattr(part, name) for name in names), numbers)
        case tuple():
            return tuple(_canonical(each, numbers) for each in part)
        case float():
            return float, part.hex()  # 0.0 == -0.0, and nan != nan
        case RecordSite():
            return part.kind, part.format, part.dtypes
    return type(part), part
