"""Python's own functions: those on objects (`isinstance`, `getattr`, `copy`, `print`), the table of all, and callables that
lead to another, such as `lru_cache`'s.

The table is keyed by the function itself, so shadowing and aliases follow Python's rules.
"""

from __future__ import annotations

import builtins
import copy
import dataclasses
import functools
import itertools
import operator
import types
import typing
from collections.abc import Callable
from typing import Any

from stagekit import dtypes
from stagekit.frontend import breakpoints, effects, objects
from stagekit.frontend.assignments import target_item
from stagekit.frontend.attributes import ATTRIBUTES
from stagekit.frontend.builtin_numbers import ON_NUMBERS
from stagekit.frontend.builtin_sequences import ON_SEQUENCES, chain_all
from stagekit.frontend.errors import BadCall
from stagekit.frontend.evaluation import Route, Site
from stagekit.frontend.parts import describe, parts_of, with_parts
from stagekit.frontend.python_calls import OMITTED, Builtin, run_native
from stagekit.frontend.texts import shown
from stagekit.frontend.values import STAND_INS, Array, Closure, Number, escaped, holds_run_time
from stagekit.ir import Value


def _python_sample(value: Any) -> Any:
    """Return a Python number of the type that a run-time number counts as; any other value as it is."""
    if isinstance(value, Number):
        return False if value.dtype is dtypes.bool_ else 0.0 if value.dtype.is_float else 0
    return value


def _isinstance(site: Site, obj: Any, class_or_tuple: Any, /) -> Any:
    if not site.tracer.is_settled(obj):
        site.tracer.captures.note_type(obj)
    return site.static(lambda: isinstance(_python_sample(obj), class_or_tuple))


def _type(site: Site, obj: Any, /, *parts: Any) -> Any:
    """Return the type of an object; with two more arguments a new type, which CPython makes."""
    return run_native(site, type, obj, *parts) if parts else type(_python_sample(obj))


def _getattr(site: Site, owner: Any, name: str, default: Any = OMITTED, /) -> Any:
    if not isinstance(name, str):
        raise site.error(BadCall(f"`getattr` of {describe(name)}", "give the name as a string"))
    if default is not OMITTED and not _hasattr(site, owner, name):
        return default
    return objects.attribute(site, owner, name)


def _hasattr(site: Site, owner: Any, name: str, /) -> bool:
    is_known = name in ATTRIBUTES.get(type(owner), ()) or objects.in_class(site.tracer, owner, name) is not None
    has_it = is_known or bool(site.static(lambda: hasattr(owner, name)))
    if not isinstance(owner, STAND_INS) and not site.tracer.is_settled(owner):
        site.tracer.captures.note_presence(owner, name)
    return has_it


def _super(site: Site, *args: Any) -> Any:
    function = site.frame.function
    if args or function is None or "__class__" not in function.__code__.co_freevars:
        return run_native(site, super, *args)
    code, cells = function.__code__, function.__closure__ or ()
    cls = cells[code.co_freevars.index("__class__")].cell_contents
    return super(cls, site.frame.scope.variables[code.co_varnames[0]])


def _replace(site: Site, owner: Any, /, **changes: Any) -> Any:
    """Carry out `dataclasses.replace`."""
    site.tracer.captures.note_given(owner, site.tracer.journal.is_born)
    fields = {f.name: getattr(owner, f.name) for f in dataclasses.fields(owner) if f.init}
    return site.invoke(type(owner), [], {**fields, **changes})


def _copy(site: Site, x: Any) -> Any:
    """Carry out `copy.copy`: make a new container or object with the same items."""
    site.tracer.captures.note_given(x, site.tracer.journal.is_born)
    parts = parts_of(x)
    if parts is None or isinstance(x, Array):
        return x if isinstance(x, Number) else run_native(site, copy.copy, x)
    return site.tracer.journal.born(with_parts(x, parts))


def _deepcopy(site: Site, x: Any) -> Any:
    copies: dict[int, Any] = {}  # by the id of the original: an object that is met twice is copied once

    def deep(value: Any) -> Any:
        if id(value) not in copies:
            parts = parts_of(value)
            if parts is None or isinstance(value, Array):
                copies[id(value)] = _copy(site, value)
            else:
                copies[id(value)] = site.tracer.journal.born(with_parts(value, [deep(part) for part in parts]))
        return copies[id(value)]

    return deep(x)


def _converter(make: Callable[[dict[str, Any]], Any]) -> Builtin:
    """Return `dataclasses.asdict` or its like: `make` gives what an object becomes, from its fields by name."""

    def is_object(value: Any) -> bool:
        return dataclasses.is_dataclass(value) and not isinstance(value, (type, *STAND_INS))

    def run(site: Site, obj: Any) -> Any:
        if not is_object(obj):
            raise site.error(BadCall(f"{describe(obj)} is not an object of a dataclass", "asdict(object)"))

        def convert(value: Any) -> Any:
            if is_object(value):
                names = [field.name for field in dataclasses.fields(value)]
                fields = {name: convert(objects.attribute(site, value, name)) for name in names}
                return site.tracer.journal.born(make(fields))
            if type(value) is dict or isinstance(value, tuple | list):
                return site.tracer.journal.born(with_parts(value, [convert(part) for part in parts_of(value) or []]))
            return value

        return convert(obj)

    return run


def _index(site: Site, a: Any, /) -> Any:
    """Carry out `operator.index`: an integer stays as it is."""
    return a if isinstance(a, Number) and a.dtype.is_integer else run_native(site, operator.index, a)


def _print(site: Site, *args: Any, sep: str | None = " ", end: str | None = "\n") -> None:
    """Emit the op that prints."""
    for name, text in (("sep", sep), ("end", end)):
        if not isinstance(text, str | None):
            raise site.error(BadCall(f"`{name}` of `print` is {describe(text)}", "give a string"))
    sep, end = " " if sep is None else sep, "\n" if end is None else end
    template, operands = "", list[Value]()
    for position, value in enumerate(args):
        text, values = shown(site, value, "what is printed")
        template += (escaped(sep) if position else "") + text
        operands += values
    site.at()
    effects.act(site, lambda: site.tracer.builder.print_(template + escaped(end), tuple(operands)))


STAGED: dict[Any, Builtin] = {
    **ON_NUMBERS,
    **ON_SEQUENCES,
    builtins.isinstance: _isinstance,
    builtins.type: _type,
    builtins.getattr: _getattr,
    builtins.setattr: objects.put,
    builtins.delattr: objects.delete,
    object.__setattr__: objects.put_plainly,
    dataclasses.replace: _replace,
    dataclasses.asdict: _converter(dict),
    dataclasses.astuple: _converter(lambda fields: tuple(fields.values())),
    functools.update_wrapper: lambda site, wrapper, wrapped, *_, **__: wrapper,
    typing.cast: lambda site, typ, val: val,
    operator.getitem: lambda site, a, b, /: site.read(objects.item(site, a, b)),
    operator.setitem: lambda site, a, b, c, /: target_item(site, a, b).put(c),
    operator.index: _index,
    copy.copy: _copy,
    copy.deepcopy: _deepcopy,
    builtins.hasattr: _hasattr,
    builtins.callable: lambda site, obj, /: callable(obj) or isinstance(obj, Closure),
    builtins.super: _super,
    builtins.print: _print,
    builtins.breakpoint: breakpoints.stop,
}
_BY_ID = {id(fn): staged for fn, staged in STAGED.items()}


def find(fn: Any) -> Builtin | None:
    """Return the staged meaning of a Python builtin, or None. It is found by identity: `fn` may be anything, even unhashable."""
    return _BY_ID.get(id(fn))


# -- callables of the standard library that lead to another ------------------------------------------------------------


def wrapper(fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Route | None:
    """Return how `fn(*args, **kwargs)` is done by what `fn` leads to; None where it leads to nothing, or CPython may call it."""
    if isinstance(fn, types.BuiltinMethodType) and fn.__self__ is itertools.chain:
        return lambda site, fn, args, kwargs: chain_all(site, *args, **kwargs)  # `chain.from_iterable`
    is_dispatch = (
        isinstance(fn, types.FunctionType) and fn.__globals__ is functools.__dict__ and hasattr(fn, "dispatch")
    )
    found = _singledispatch if is_dispatch else _WITH_RUN_TIME.get(type(fn))
    return found if found is not None and (holds_run_time(args) or holds_run_time(kwargs)) else None


def leads_to(attribute: str) -> Route:
    """Return the route of callables that stand for another, which they hold in `attribute`."""
    return lambda site, fn, args, kwargs: site.invoke(getattr(fn, attribute), args, kwargs)


def _singledispatch(site: Site, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    chosen = fn.dispatch(type(_python_sample(args[0]))) if args else fn.dispatch(object)
    return site.invoke(chosen, args, kwargs)


def _getter(read: Callable[[Site, Any, Any], Any]) -> Route:
    """Return the route of `operator.itemgetter` or `attrgetter`, which reads by each key that it was made with."""

    def run(site: Site, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        (owner,) = args
        found = tuple(read(site, owner, key) for key in fn.__reduce__()[1])
        return found[0] if len(found) == 1 else found

    return run


_WITH_RUN_TIME: dict[type, Route] = {
    type(functools.cache(len)): leads_to("__wrapped__"),  # a run-time value is in no cache
    operator.itemgetter: _getter(objects.item),
    operator.attrgetter: _getter(
        lambda site, owner, path: functools.reduce(functools.partial(objects.attribute, site), path.split("."), owner)
    ),
}
