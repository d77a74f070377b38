"""Records without source of their own: `@frozen` stands for `@dataclass(frozen=True)`, `@record` for a dataclass that changes.

A dataclass compiles up to eight methods: for a hundred that took a third of `import stagekit`, and each object of a frozen one
three times as long to make. Here all share what needs no source, `__init__` is written with a first object, and, but for what
users' programs hold, the type checker refuses an assignment to a field.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

C = TypeVar("C", bound=type)
_UNWRITTEN = "unwritten init"  # the name of an `__init__` whose source waits for a first object


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(*, eq: bool = True, held: bool = False, **options: bool) -> Callable[[C], C]:
    """Make a class a dataclass. eq: its objects are equal, and hash alike, where their fields are. held: users' programs hold
    them, so that an assignment is refused when it happens too; without slots, to which `pickle` would assign. options: `slots`,
    `repr` and `kw_only`, as of a dataclass.
    """

    def make(cls: C) -> C:
        made: Any = _dataclass_without_source(cls, **{"slots": not held, **options})
        if eq:
            _compare_by_fields(made)
        if held:
            made.__dataclass_params__.frozen = True
            made.__setattr__ = made.__delattr__ = _refuse_change
        return made  # type: ignore[no-any-return]

    return make


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def record(*, slots: bool = False) -> Callable[[C], C]:
    """Make a class a dataclass whose objects change: each is equal to itself alone."""
    return lambda cls: _dataclass_without_source(cls, slots=slots)


def write_init(init: Any) -> None:
    """Write the `__init__` of a class of this module now, if this is what stands for it until its first object."""
    if getattr(init, "__name__", None) == _UNWRITTEN:
        init(None)


def _dataclass_without_source(cls: Any, *, slots: bool = True, repr: bool = True, kw_only: bool = False) -> Any:
    if not cls.__doc__:  # else it is the signature
        cls.__doc__ = cls.__name__
    made: Any = dataclass(eq=False, repr=False, init=False, slots=slots, kw_only=kw_only)(cls)
    if "__init__" not in vars(made):
        made.__init__ = _unwritten_init(made)
    if repr and "__repr__" not in vars(made):
        made.__repr__ = _shown
    return made


def _unwritten_init(cls: Any) -> Callable[..., None]:
    """Return an `__init__` that puts the written one in its place when it is called first."""

    def init(record: Any, *args: Any, **kwargs: Any) -> None:
        cls.__init__ = _written_init(cls)
        if record is not None:
            cls.__init__(record, *args, **kwargs)

    init.__name__ = _UNWRITTEN
    return init


def _written_init(cls: Any) -> Any:
    """Return the `__init__` that a dataclass has. Its source is one function, of which `dataclass` compiles several."""
    names: dict[str, Any] = {"put": object.__setattr__, "MISSING": MISSING}
    heads, keywords, lines = ["self"], list[str](), list[str]()
    for each in fields(cls):
        name, head, value = each.name, each.name, each.name
        if each.default_factory is not MISSING:
            names[f"make_{name}"] = each.default_factory
            head, value = f"{name}=MISSING", f"make_{name}()" + f" if {name} is MISSING else {name}" * each.init
        elif each.default is not MISSING:
            names[f"default_{name}"] = each.default
            head = f"{name}=default_{name}"
        (keywords if each.kw_only else heads).extend([head] * each.init)
        lines.append(f" put(self, '{name}', {value})" if cls.__dataclass_params__.frozen else f" self.{name} = {value}")
    heads += ["*", *keywords] if keywords else []
    lines += [" self.__post_init__()"] if hasattr(cls, "__post_init__") else [" return None"]
    exec("\n".join([f"def __init__({', '.join(heads)}):", *lines]), names)
    names["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    return names["__init__"]


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
