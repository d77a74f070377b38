"""Callables of the standard library that lead to another: `operator.itemgetter`, `functools.lru_cache`, `staticmethod`, ...

With compile-time values CPython calls them. With run-time values, what they lead to is called.
"""

from __future__ import annotations

import functools
import itertools
import operator
import types
import typing
from collections.abc import Callable
from typing import Any

from stagekit.frontend import objects
from stagekit.frontend.builtin_objects import stands_for
from stagekit.frontend.builtin_sequences import chain_all
from stagekit.frontend.evaluation import Site
from stagekit.frontend.items import item
from stagekit.frontend.python_calls import HandedOut
from stagekit.frontend.values import holds_run_time

Call = Callable[[Site, Any, list[Any], dict[str, Any]], Any]


def find(fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Call | None:
    """How `fn(*args, **kwargs)` is done by what `fn` leads to; None where it leads to nothing, or CPython may call it."""
    always = _ALWAYS.get(type(fn))
    if always is not None:
        return always
    if isinstance(fn, types.BuiltinMethodType) and fn.__self__ is itertools.chain:
        return _chain_from_iterable
    found = _singledispatch if _is_singledispatch(fn) else _WITH_RUN_TIME.get(type(fn))
    return found if found is not None and (holds_run_time(args) or holds_run_time(kwargs)) else None


def _is_singledispatch(fn: Any) -> bool:
    return isinstance(fn, types.FunctionType) and fn.__globals__ is functools.__dict__ and hasattr(fn, "dispatch")


def _handed_out(site: Site, fn: HandedOut, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return site.invoke(fn.closure, args, kwargs)


def _staticmethod(site: Site, fn: staticmethod[Any, Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    return site.invoke(fn.__func__, args, kwargs)


def _cached(site: Site, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`functools.cache`: a run-time value is in no cache."""
    return site.invoke(fn.__wrapped__, args, kwargs)


def _singledispatch(site: Site, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    chosen = fn.dispatch(type(stands_for(args[0]))) if args else fn.dispatch(object)
    return site.invoke(chosen, args, kwargs)


def _chain_from_iterable(site: Site, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return chain_all(site, *args, **kwargs)


def _parameters(fn: Any) -> tuple[Any, ...]:
    """What an `itemgetter` or its like was made with."""
    parameters: tuple[Any, ...] = fn.__reduce__()[1]
    return parameters


def _itemgetter(site: Site, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    (owner,) = args
    found = tuple(item(site, owner, index) for index in _parameters(fn))
    return found[0] if len(found) == 1 else found


def _attrgetter(site: Site, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    (owner,) = args

    def dotted(path: str) -> Any:
        return functools.reduce(lambda o, name: objects.attribute(site, o, name), path.split("."), owner)

    found = tuple(dotted(path) for path in _parameters(fn))
    return found[0] if len(found) == 1 else found


def _alias(site: Site, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`Class[int](...)`: what stands in the brackets is for readers."""
    return site.invoke(fn.__origin__, args, kwargs)


_ALWAYS: dict[type, Call] = {
    HandedOut: _handed_out,
    staticmethod: _staticmethod,
    types.GenericAlias: _alias,
    type(typing.Iterable[int]): _alias,
}
_WITH_RUN_TIME: dict[type, Call] = {
    type(functools.cache(len)): _cached,
    operator.itemgetter: _itemgetter,
    operator.attrgetter: _attrgetter,
}
