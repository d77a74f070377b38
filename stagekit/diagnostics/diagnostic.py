"""Where something is, and what an error is: a frozen record with values, a place, and notes; the words live in one catalogue.

A room raises `StagekitError` (or a subclass that says which kind of Python error it also is) around a `Diagnostic`.
The record holds *values*; `error.py` makes the text. Each diagnostic class has an id (`UnrollBudget` is
`UNROLL_BUDGET`), a page in `docs/errors.md` and a golden test.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from string import Formatter
from typing import Any, ClassVar


# never changed; frozen, it would take three times as long to make, for every op
@dataclass(unsafe_hash=True, slots=True)
class Loc:
    """A span in a file, in the function it belongs to.

    line, end_line: from 1. col, end_col: in characters from 0. call_site: the call that was expanded to get here, if any.
    iteration: what an unrolled loop was doing, innermost first, such as `("i = 2",)`.
    """

    file: str
    line: int
    col: int
    end_line: int
    end_col: int
    function: str
    call_site: Loc | None = None
    iteration: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.col + 1}"

    def chain(self) -> Iterator[Loc]:
        """This place, then the call it was expanded from, and so on outwards."""
        here: Loc | None = self
        while here is not None:
            yield here
            here = here.call_site


UNKNOWN = Loc("<none>", 0, 0, 0, 0, "<none>")  # for IR made by hand or parsed from text, never for a user's kernel
_REGISTRY: dict[str, type[Diagnostic]] = {}
_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")  # Not|A|Number


class Diagnostic:
    """Base of the catalogue: a frozen record. `title`, `label` and `help` are templates over the fields: `{name}`.

    title: what went wrong, no values. label: the same with values, shown under the caret. help: what to do.

    What the templates name are the fields of a class, in the order in which they first stand there; a class may annotate them
    instead, as in a dataclass, where code reads them. Nothing is generated per class: a catalogue of a hundred dataclasses would
    be a third of the time of `import stagekit`.
    """

    id: ClassVar[str]
    title: ClassVar[str]
    label: ClassVar[str]
    help: ClassVar[str] = ""
    FIELDS: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls.id = _WORD_STARTS.sub("_", cls.__name__).upper()
        annotated = [name for name, kind in inspect.get_annotations(cls).items() if "ClassVar" not in str(kind)]
        templates = "".join(getattr(cls, what, "") for what in ("title", "label", "help"))
        own = annotated or [name for _, name, _, _ in Formatter().parse(templates) if name and name not in cls.FIELDS]
        cls.FIELDS += tuple(dict.fromkeys(own))
        if cls.id in _REGISTRY:
            raise InternalError(f"two diagnostics have the id {cls.id}")
        _REGISTRY[cls.id] = cls

    def __init__(self, /, *args: Any, **kwargs: Any) -> None:
        given = {**dict(zip(self.FIELDS, args)), **kwargs}
        if len(args) + len(kwargs) != len(self.FIELDS) or given.keys() != set(self.FIELDS):
            raise InternalError(f"{type(self).__name__} takes {', '.join(self.FIELDS) or 'nothing'}")
        self.__dict__.update(given)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.__dict__.items())})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.values()))

    def label_text(self) -> str:
        return self._filled(self.label)

    def help_text(self) -> str:
        return self._filled(self.help)

    def _filled(self, template: str) -> str:
        """Integers longer than Python writes are told by their size."""
        fields = self.__dict__.items()
        return template.format(**{k: HUGE.format(int.bit_length(v)) if is_huge(v) else v for k, v in fields})


def is_huge(value: Any) -> bool:
    """Is this an integer that no text shows? Python itself refuses to write one of more than 4300 digits."""
    return issubclass(type(value), int) and int.bit_length(value) > _LONGEST_INT_BITS  # `__class__` may raise


_LONGEST_INT_BITS = 1024
HUGE = "<an integer of {} bits>"


def all_diagnostics() -> dict[str, type[Diagnostic]]:
    """Every diagnostic that the imported rooms define, by id."""
    return dict(_REGISTRY)


@dataclass(frozen=True)
class Note:
    """A second place that explains the first: 'assigned here as int32'."""

    text: str
    loc: Loc | None = None


class InternalError(Exception):
    """A fault of stagekit itself, never of the user's kernel."""
