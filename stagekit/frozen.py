"""Records without source of their own: `@frozen` stands for `@dataclass(frozen=True)`, `@record` for a dataclass that changes.

A dataclass writes the source of up to eight methods and compiles it: for a hundred of them that took a third of
`import stagekit`, and each object of a frozen one three times as long to make. Here all classes share the methods that need no
source, `__init__` is written when a first object is made, and, but for what users' programs hold, it is the type checker that
refuses an assignment to a field.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

C = TypeVar("C", bound=type)
_UNWRITTEN = "unwritten init"  # the name of an `__init__` whose source waits for a first object


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(
    *, eq: bool = True, slots: bool = True, repr: bool = True, held: bool = False, kw_only: bool = False
) -> Callable[[C], C]:
    """Make a class a dataclass. eq: its objects are equal, and hash alike, where their fields are. repr: they show their fields.

    slots: it has no `__dict__`. held: users' programs hold its objects, so that an assignment is refused when it happens too.
    """

    def make(cls: C) -> C:
        made: Any = _dataclass_without_source(cls, slots=slots, repr=repr, kw_only=kw_only)
        if eq:
            _compare_by_fields(made)
        if held:
            made.__dataclass_params__.frozen = True
            made.__setattr__ = made.__delattr__ = _refuse_change
        return made  # type: ignore[no-any-return]

    return make


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def record(*, slots: bool = False, repr: bool = True) -> Callable[[C], C]:
    """Make a class a dataclass whose objects change: each is equal to itself alone."""
    return lambda cls: _dataclass_without_source(cls, slots=slots, repr=repr, kw_only=False)


def write_init(init: Any) -> None:
    """Write the `__init__` of a class of this module now, if this is what stands for it until its first object."""
    if getattr(init, "__name__", None) == _UNWRITTEN:
        init(None)


def _dataclass_without_source(cls: Any, *, slots: bool, repr: bool, kw_only: bool) -> Any:
    if not cls.__doc__:  # else a signature is made for it
        cls.__doc__ = cls.__name__
    made: Any = dataclass(eq=False, repr=False, init=False, slots=slots, kw_only=kw_only)(cls)
    if "__init__" not in vars(made):
        made.__init__ = _unwritten_init(made)
    if repr and "__repr__" not in vars(made):
        made.__repr__ = _shown
    return made


def _unwritten_init(cls: Any) -> Callable[..., None]:
    """Return an `__init__` that puts the one of a dataclass of the same fields in its place when it is called first."""

    def init(record: Any, *args: Any, **kwargs: Any) -> None:
        heir: Any = type(
            cls.__name__, (cls,), {"__annotations__": {}, "__qualname__": cls.__qualname__, "__slots__": ()}
        )
        cls.__init__ = dataclass(eq=False, repr=False, frozen=cls.__dataclass_params__.frozen)(heir).__init__
        if record is not None:
            cls.__init__(record, *args, **kwargs)

    init.__name__ = _UNWRITTEN
    return init


def _compare_by_fields(cls: Any) -> None:
    names = [each.name for each in fields(cls) if each.compare]
    values: Callable[[Any], Any] = operator.attrgetter(*names) if names else (lambda record: ())

    def equal(record: Any, other: object) -> bool:
        return values(record) == values(other) if type(other) is type(record) else NotImplemented

    cls.__eq__, cls.__hash__ = equal, lambda record: hash(values(record))
    cls.__dataclass_params__.eq = True  # for whoever asks whether objects of equal fields are equal


def _shown(record: Any) -> str:
    shown = [f"{each.name}={getattr(record, each.name)!r}" for each in fields(record) if each.repr]
    return f"{type(record).__qualname__}({', '.join(shown)})"


def _refuse_change(record: Any, name: str, value: object = None) -> None:
    raise FrozenInstanceError(f"cannot change field {name!r}")
