"""Calls that CPython carries out at compile time: the arguments that it gets, and who owns the objects that it makes."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
import itertools
import json
import operator
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import BuiltinFunctionType, FunctionType, GeneratorType, ModuleType
from typing import Any

from stagekit.diagnostics import StagekitError
from stagekit.frontend.errors import BadCall
from stagekit.frontend.evaluation import Site
from stagekit.frontend.iteration import note_use, own_iterators, refuse_endless, values_of
from stagekit.frontend.parts import describe
from stagekit.frontend.values import Closure, Generator, Number, is_native, is_open

Builtin = Callable[..., Any]  # (site, *args, **kwargs): the staged meaning of a Python function
OMITTED: Any = object()  # the default of a parameter whose absence matters


def run_native(site: Site, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Return `fn(*args, **kwargs)` by CPython; run-time numbers are refused."""
    if any(isinstance(a, Number) for a in args):
        shown = ", ".join(map(describe, args))
        raise site.error(BadCall(f"`{fn.__name__}({shown})`", "it needs compile-time values"))
    return carry_out(site, fn, args, kwargs)


def carry_out(site: Site, fn: Any, args: Any, kwargs: Any) -> Any:
    """Return `fn(*args, **kwargs)` by CPython. A container that it makes belongs to the traced program, which may change it."""
    _use_up(site, getattr(fn, "__self__", None))
    if args and fn in _KEEP_ALL_ITEMS:
        refuse_endless(site, args[0])
    given = [native_argument(site, a) for a in args]
    named = {name: native_argument(site, a) for name, a in kwargs.items()}
    with _noting_changes(site, fn, (*args, *kwargs.values())):
        made = site.static(fn, *given, **named)
    is_new = _makes_new(fn, made) and not any(made is each for each in (*args, *kwargs.values()))
    if is_new and type(made) is tuple:
        return own_iterators(site.tracer, made)
    can_change = isinstance(made, list | dict | set | deque | bytearray | Iterator) or is_open(made)
    return site.tracer.journal.born(made) if is_new and can_change else made


@contextlib.contextmanager
def _noting_changes(site: Site, fn: Any, given: Sequence[Any]) -> Iterator[None]:
    """Note in the journal how CPython changes the containers that it gets, as `heapq.heappush(items, x)` does."""
    is_harmless = isinstance(fn, type) or (isinstance(fn, BuiltinFunctionType) and fn.__module__ == "builtins")
    before = [] if is_harmless else [(each, _items_of(each)) for each in given if isinstance(each, _CONTAINERS)]
    try:
        yield
    except BaseException:
        for container, items in before:
            _put_back(container, items)
        raise
    for container, items in before:
        now = _items_of(container)
        if len(now) == len(items) and all(map(operator.is_, now, items)):
            continue
        what = f"a change by `{getattr(fn, '__name__', 'a function')}`"
        try:
            site.tracer.check_mutable(container, what, site.loc)
        except StagekitError:
            _put_back(container, items)
            raise
        site.tracer.journal.restructure(container, what, functools.partial(_put_back, container, items))


_CONTAINERS = (list, dict, set, deque, bytearray)


def _items_of(container: Any) -> list[Any]:
    return [part for item in dict.items(container) for part in item] if isinstance(container, dict) else list(container)


def restorer(container: Any) -> Callable[[], None]:
    """Return a function that restores the present contents of a container."""
    return functools.partial(_put_back, container, _items_of(container))


def _put_back(container: Any, items: list[Any]) -> None:
    container.clear()
    if isinstance(container, dict):
        container.update(zip(items[::2], items[1::2]))
    elif isinstance(container, set):
        container.update(items)
    else:
        container.extend(items)


_KEEP_ALL_ITEMS = (set, frozenset, deque, dict.fromkeys)


def _makes_new(fn: Any, made: Any) -> bool:
    """Return whether `fn` makes a new object each time; `table.get("key")` returns one that the table holds too."""
    if isinstance(fn, type):
        return isinstance(made, fn) and not isinstance(fn.__new__, FunctionType)
    if isinstance(fn, FunctionType):
        is_pythons = isinstance(made, GeneratorType) and is_native(fn.__globals__.get("__name__"))
        return is_pythons or bool(fn.__code__.co_flags & inspect.CO_GENERATOR)
    owner = getattr(fn, "__self__", None)
    if owner is None or isinstance(owner, ModuleType):
        return any(fn is maker for maker in _MAKERS)
    kind = owner if isinstance(owner, type) else type(owner)
    return is_native(kind.__module__) and fn.__name__ in _MAKING_METHODS


_MAKERS = (
    sorted, copy.copy, copy.deepcopy, itertools.tee, dataclasses.asdict, dataclasses.astuple, operator.add, operator.concat,
    operator.mul, operator.or_, operator.and_, operator.sub, operator.xor, json.loads, re.findall, re.split,
)  # fmt: skip
# Methods of Python's and NumPy's own classes that make a new object.
_MAKING_METHODS = frozenset({
    "copy", "__copy__", "keys", "values", "items", "fromkeys", "most_common", "elements", "union", "intersection", "difference",
    "symmetric_difference", "split", "rsplit", "splitlines", "tolist", "findall", "_asdict", "__iter__", "__reversed__",
    "__add__", "__mul__", "__rmul__", "__or__", "__and__", "__sub__", "__xor__",
})  # fmt: skip


class HandedOut:
    """A function of the traced program as CPython gets it, which may call it or return it.

    Its own fields are slots, since `functools.wraps` copies one function's `__dict__` into another's.
    """

    __slots__ = ("__dict__", "closure", "run")

    def __init__(self, closure: Closure, run: Callable[..., Any]) -> None:
        self.closure = closure
        self.run = run

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.run(*args, **kwargs)


def native_argument(site: Site, value: Any) -> Any:
    """Return what CPython gets for `value`: an iterator for a generator, a callable for a function of the kernel."""
    if isinstance(value, Generator):
        return values_of(site, value)
    if isinstance(value, Closure):
        return HandedOut(value, lambda *args, **kwargs: site.invoke(value, list(args), kwargs))
    _use_up(site, value)
    return value


def _use_up(site: Site, value: Any) -> None:
    """Note that CPython may take items of an iterator (or a file), which must be the traced program's own."""
    if isinstance(value, Iterator):
        note_use(site, value, f"the items of {describe(value)}")
