"""Who holds a list, dict or object of the traced program: from what the journal saw being made.

Whatever the traced code makes and can change is born in the journal, the variables of calls too. So a walk over all that was born
finds each place that holds a container. Two containers that meet after a run-time `if` become one that may be changed, where no
other place holds either: nobody can tell that they were two.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from stagekit.dtypes import DType
from stagekit.frontend.journal import MISSING, Journal
from stagekit.frontend.state import stored
from stagekit.frontend.values import STAND_INS, BoundMethod, Closure, Partial, Poison, StaticRange, is_open

_HOLD_NOTHING = (
    *(*STAND_INS, StaticRange, Poison, DType, bool, int, float, complex, str, bytes, range, slice, type, np.generic),
    *(
        type(None),
        type(MISSING),
        np.ndarray,
        set,
        frozenset,
        types.ModuleType,
        types.FunctionType,
        types.BuiltinFunctionType,
    ),
)
UNKNOWN = -1  # counted where something holds others in a way that is not looked into


def holders(journal: Journal) -> Counter[int]:
    """By the id of each container: in how many places the traced program holds it."""
    found: Counter[int] = Counter()
    for made in journal.living():
        for held in _contents(made):
            _count(held, found)
    return found


def is_alone(journal: Journal, value: Any, counts: Counter[int]) -> bool:
    """Does one place hold this container, which the traced code has made, and one place each container in it?"""
    if is_changeable(value) and (not journal.is_born(value) or journal.is_sealed(value) or counts[id(value)] > 1):
        return False
    return not counts[UNKNOWN] and all(is_alone(journal, part, counts) for part in _contents(value) if may_merge(part))


def any_held(journal: Journal, copies: list[Any], may_be_temporary: Callable[[Any], bool]) -> bool:
    """Can the traced program, or a statement that is not done, still reach one of these?"""
    counts = holders(journal) if copies else Counter()
    return any(counts[id(each)] or counts[UNKNOWN] or may_be_temporary(each) for each in copies)


def is_changeable(value: Any) -> bool:
    """Is this a container that the program could change?"""
    if isinstance(value, list | dict):
        return True
    parameters = getattr(type(value), "__dataclass_params__", None)
    return is_open(value) and not isinstance(value, tuple) and not (parameters and parameters.frozen)


def may_merge(value: Any) -> bool:
    """Is this, or holds it, a container that the program could change?"""
    return is_changeable(value) or (isinstance(value, tuple) and any(map(may_merge, value)))


def _contents(made: Any) -> Iterable[Any]:
    if isinstance(made, dict):
        return list(made.values())
    if isinstance(made, list | tuple | set | frozenset):
        return list(made)
    return stored(made).values() if is_open(made) else ()  # an iterator matters where a variable or a `for` holds it


def _count(held: Any, found: Counter[int]) -> None:
    if isinstance(held, Partial):
        _count(held.value, found)
    elif isinstance(held, _HOLD_NOTHING):
        return
    elif isinstance(held, Closure):
        _count((*held.defaults, *held.kw_defaults.values()), found)
    elif isinstance(held, BoundMethod):
        _count(held.owner, found)
    elif is_changeable(held):
        found[id(held)] += 1
    elif isinstance(held, tuple):
        for each in held:
            _count(each, found)
    elif not is_open(held):
        found[UNKNOWN] += 1
