"""Records that are never changed: `@frozen` stands for `@dataclass(frozen=True)` where no user's program holds the object.

A frozen dataclass writes the source of eight methods and compiles it: for a hundred of them that took a third of
`import stagekit`, and each of their objects three times as long to make. Here all classes share the methods that need no source,
and it is the type checker that refuses an assignment to a field.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

C = TypeVar("C", bound=type)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(*, eq: bool = True, slots: bool = True, repr: bool = True) -> Callable[[C], C]:
    """Make a class a dataclass. eq: its objects are equal, and hash alike, where their fields are. repr: they show their fields.

    slots: it has no `__dict__`.
    """

    def make(cls: C) -> C:
        made: Any = dataclass(eq=False, repr=False, slots=slots)(cls)
        if repr:
            made.__repr__ = _shown
        if eq:
            made.__dataclass_params__.eq = True  # for whoever asks whether objects of equal fields are equal
            _compare_by_fields(made)
        return made  # type: ignore[no-any-return]

    return make


def _compare_by_fields(cls: Any) -> None:
    names = [each.name for each in fields(cls) if each.compare]
    values: Callable[[Any], Any] = operator.attrgetter(*names) if names else (lambda record: ())

    def equal(record: Any, other: object) -> bool:
        return values(record) == values(other) if type(other) is type(record) else NotImplemented

    cls.__eq__, cls.__hash__ = equal, lambda record: hash(values(record))


def _shown(record: Any) -> str:
    shown = [f"{each.name}={getattr(record, each.name)!r}" for each in fields(record) if each.repr]
    return f"{type(record).__qualname__}({', '.join(shown)})"
