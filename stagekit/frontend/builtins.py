"""Python's own functions: what each means on run-time values; and callables that lead to another, such as `lru_cache`'s.

Each entry is keyed by the function itself, so shadowing and aliases follow Python's rules. What leads to another is called by
CPython with compile-time values; with run-time values, what it leads to is called.
"""

from __future__ import annotations

import functools
import itertools
import operator
import types
from typing import Any

from stagekit.frontend import objects
from stagekit.frontend.builtin_numbers import ON_NUMBERS
from stagekit.frontend.builtin_objects import ON_OBJECTS, stands_for
from stagekit.frontend.builtin_sequences import ON_SEQUENCES, chain_all
from stagekit.frontend.evaluation import Route, Site
from stagekit.frontend.python_calls import Builtin
from stagekit.frontend.values import holds_run_time

STAGED: dict[Any, Builtin] = {**ON_NUMBERS, **ON_SEQUENCES, **ON_OBJECTS}
_BY_ID = {id(fn): staged for fn, staged in STAGED.items()}


def find(fn: Any) -> Builtin | None:
    """The staged meaning of a Python builtin, or None. By identity: `fn` may be anything, even unhashable."""
    return _BY_ID.get(id(fn))


def all_staged() -> tuple[Any, ...]:
    """Every function of Python's that has a staged meaning."""
    return tuple(STAGED)


# -- callables of the standard library that lead to another ------------------------------------------------------------


def wrapper(fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Route | None:
    """How `fn(*args, **kwargs)` is done by what `fn` leads to; None where it leads to nothing, or CPython may call it."""
    if isinstance(fn, types.BuiltinMethodType) and fn.__self__ is itertools.chain:
        return _chain_from_iterable
    is_dispatch = (
        isinstance(fn, types.FunctionType) and fn.__globals__ is functools.__dict__ and hasattr(fn, "dispatch")
    )
    found = _singledispatch if is_dispatch else _WITH_RUN_TIME.get(type(fn))
    return found if found is not None and (holds_run_time(args) or holds_run_time(kwargs)) else None


def leads_to(attribute: str) -> Route:
    """The route of callables that stand for another."""
    return lambda site, fn, args, kwargs: site.invoke(getattr(fn, attribute), args, kwargs)


def _singledispatch(site: Site, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    chosen = fn.dispatch(type(stands_for(args[0]))) if args else fn.dispatch(object)
    return site.invoke(chosen, args, kwargs)


def _chain_from_iterable(site: Site, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return chain_all(site, *args, **kwargs)


def _itemgetter(site: Site, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    (owner,) = args
    found = tuple(objects.item(site, owner, index) for index in fn.__reduce__()[1])  # what it was made with
    return found[0] if len(found) == 1 else found


def _attrgetter(site: Site, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    (owner,) = args

    def dotted(path: str) -> Any:
        return functools.reduce(lambda o, name: objects.attribute(site, o, name), path.split("."), owner)

    found = tuple(dotted(path) for path in fn.__reduce__()[1])
    return found[0] if len(found) == 1 else found


_WITH_RUN_TIME: dict[type, Route] = {
    type(functools.cache(len)): leads_to("__wrapped__"),  # a run-time value is in no cache
    operator.itemgetter: _itemgetter,
    operator.attrgetter: _attrgetter,
}
