"""Whether what a kernel read outside is still as it was, in a form that a native launcher can check.

Most reads are of a module's global, a module's attribute, a closure cell or a field of an object: an item of a dict or the
content of a cell, which is the same object as long as nobody assigns. Those become rows; what is left is asked in Python.
"""

from __future__ import annotations

import builtins
import gc
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stagekit.frontend.captures import Captures, Read
from stagekit.frontend.journal import MISSING
from stagekit.frontend.values import is_fixed
from stagekit.runtime.native import ABSENT

Row = tuple[Any, Any, Any]
"""(dict, key, object), (dict, key, ABSENT), or (cell, None, object). The dict of a class is the one behind its proxy."""


@dataclass(frozen=True, slots=True)
class Guards:
    """rows: all must hold. ask: must be true as well, where there is one."""

    rows: tuple[Row, ...] = ()
    ask: Callable[[], bool] | None = None

    def hold(self) -> bool:
        """Is all as it was? What is only equal to what it was does not count."""
        if not all(_content(holder, key) is seen for holder, key, seen in self.rows):
            return False
        return self.ask is None or self.ask()

    @staticmethod
    def of(captures: Captures) -> Guards:
        rows: list[Row] = []
        others: list[Read] = []
        for name, read in captures.reads():
            if _is_ours(read.owner):
                continue
            found = _rows(name, read) if read.is_told_by_identity else None
            if found is None:
                others.append(read)
            else:
                rows += found
        return Guards(tuple(rows), _all_current(others) if others else None)


def _content(holder: Any, key: Any) -> Any:
    if key is not None:
        return holder.get(key, ABSENT)
    try:
        return holder.cell_contents
    except ValueError:
        return ABSENT


def _all_current(reads: list[Read]) -> Callable[[], bool]:
    return lambda: all(read.is_current() for read in reads)


def _is_ours(owner: Any) -> bool:
    """What functions of installed libraries read is as fixed as their code."""
    return isinstance(owner, types.FunctionType) and is_fixed(owner.__globals__.get("__name__"))


def _rows(name: str, read: Read) -> list[Row] | None:
    """The places that must be as they are for the very object to be found again; None where that cannot be said so."""
    if isinstance(read.owner, types.FunctionType):
        return _variable(read.owner, name, read.seen)
    fields = getattr(read.owner, "__dict__", None)
    attribute = name.removeprefix(".")
    if isinstance(read.owner, type):
        return _member(read.owner, attribute, read.seen)
    if type(fields) is dict and read.seen is MISSING:
        return [(fields, attribute, ABSENT)]
    if type(fields) is dict and fields.get(attribute, ABSENT) is read.seen:
        return [(fields, attribute, read.seen)]
    return None


def _member(cls: type, name: str, seen: Any) -> list[Row] | None:
    """As Python looks up what a class stores: no class before the one that has it may come to have it too."""
    rows: list[Row] = []
    for base in cls.__mro__:
        fields = next((part for part in gc.get_referents(base.__dict__) if type(part) is dict), None)
        if fields is None or is_fixed(base.__module__):
            return None
        found = fields.get(name, ABSENT)
        rows.append((fields, name, found))
        if found is not ABSENT:
            return rows if found is seen else None
    return None


def _variable(function: types.FunctionType, name: str, seen: Any) -> list[Row] | None:
    """As `frame.free_variable` finds it: a cell, a global, or what is built in and hidden by no global."""
    code, fixed = function.__code__, vars(builtins)
    if name in code.co_freevars and function.__closure__ is not None:
        return [(function.__closure__[code.co_freevars.index(name)], None, seen)]
    if function.__globals__.get(name, ABSENT) is seen:
        return [(function.__globals__, name, seen)]
    if name not in function.__globals__ and fixed.get(name, ABSENT) is seen:
        return [(function.__globals__, name, ABSENT), (fixed, name, seen)]
    return None
