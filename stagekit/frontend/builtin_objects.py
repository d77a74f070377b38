"""Python's functions on objects: `isinstance`, `getattr`, `copy`, `super`, and `print`."""

from __future__ import annotations

import builtins
import copy
import dataclasses
import functools
import operator
import typing
from collections.abc import Callable
from typing import Any

from stagekit import dtypes
from stagekit.frontend import arrays, objects
from stagekit.frontend.assignments import target_item
from stagekit.frontend.control import describe, parts_of, with_parts
from stagekit.frontend.errors import BadCall
from stagekit.frontend.evaluation import Site
from stagekit.frontend.python_calls import Builtin, run_native
from stagekit.frontend.texts import shown
from stagekit.frontend.values import STAND_INS, Array, Closure, Number, escaped
from stagekit.ir import Value

_NONE: Any = object()  # a parameter that was left out


def stands_for(value: Any) -> Any:
    """A run-time number counts as the Python number it stands for."""
    if isinstance(value, Number):
        return False if value.dtype is dtypes.bool_ else 0.0 if value.dtype.is_float else 0
    return value


def _isinstance(site: Site, obj: Any, class_or_tuple: Any, /) -> Any:
    if not site.tracer.journal.is_born(obj) and not isinstance(obj, STAND_INS):
        site.tracer.captures.note_type(obj)
    return site.static(lambda: isinstance(stands_for(obj), class_or_tuple))


def _type(site: Site, obj: Any, /, *parts: Any) -> type:
    """The type of an object; with two more arguments a new type, which CPython makes."""
    if parts:
        made: type = run_native(site, type, obj, *parts)
        return made
    return type(stands_for(obj))


def _getattr(site: Site, owner: Any, name: str, default: Any = _NONE, /) -> Any:
    if not isinstance(name, str):
        raise site.error(BadCall(f"`getattr` of {describe(name)}", "give the name as a string"))
    if default is not _NONE and not _hasattr(site, owner, name):
        return default
    return objects.attribute(site, owner, name)


def _attribute_names(owner: Any) -> tuple[str, ...]:
    return tuple(arrays._ATTRIBUTES_OF.get(type(owner), ()))


def _hasattr(site: Site, owner: Any, name: str, /) -> bool:
    is_known = name in _attribute_names(owner) or objects.in_class(site.tracer, owner, name) is not None
    has_it = is_known or bool(site.static(lambda: hasattr(owner, name)))
    if not isinstance(owner, STAND_INS) and not site.tracer.journal.is_born(owner):
        site.tracer.captures.note_presence(owner, name)
    return has_it


def _super(site: Site, *args: Any) -> Any:
    if args or site.frame.function is None or "__class__" not in site.frame.function.__code__.co_freevars:
        return run_native(site, super, *args)
    assert site.frame.function.__closure__ is not None
    cell = site.frame.function.__closure__[site.frame.function.__code__.co_freevars.index("__class__")]
    first = site.frame.function.__code__.co_varnames[0]
    return super(cell.cell_contents, site.frame.scope.variables[first])


def _replace(site: Site, owner: Any, /, **changes: Any) -> Any:
    """`dataclasses.replace`."""
    site.tracer.captures.note_given(owner, site.tracer.journal.is_born)
    fields = {f.name: getattr(owner, f.name) for f in dataclasses.fields(owner) if f.init}
    return site.invoke(type(owner), [], {**fields, **changes})


def _copy(site: Site, x: Any) -> Any:
    """`copy.copy`: a container or object of its own, with the same items."""
    site.tracer.captures.note_given(x, site.tracer.journal.is_born)
    parts = parts_of(x)
    if parts is None or isinstance(x, Array):
        return x if isinstance(x, Number) else run_native(site, copy.copy, x)
    return site.tracer.journal.born(with_parts(x, parts))


def _deepcopy(site: Site, x: Any) -> Any:
    known: dict[int, Any] = {}  # what is met twice is copied once

    def deep(each: Any) -> Any:
        if id(each) not in known:
            parts = parts_of(each)
            is_leaf = parts is None or isinstance(each, Array)
            known[id(each)] = _copy(site, each) if is_leaf else _deep(each, parts or [])
        return known[id(each)]

    def _deep(each: Any, parts: list[Any]) -> Any:
        return site.tracer.journal.born(with_parts(each, [deep(p) for p in parts]))

    return deep(x)


def _fields_of(value: Any) -> list[str] | None:
    is_one = dataclasses.is_dataclass(value) and not isinstance(value, (type, *STAND_INS))
    return [f.name for f in dataclasses.fields(value)] if is_one else None


def _asdict(site: Site, obj: Any) -> Any:
    """`dataclasses.asdict`."""
    return _taken_apart(site, obj, lambda names, parts: site.tracer.journal.born(dict(zip(names, parts))))


def _astuple(site: Site, obj: Any) -> Any:
    """`dataclasses.astuple`."""
    return _taken_apart(site, obj, lambda names, parts: tuple(parts))


def _taken_apart(site: Site, obj: Any, make: Callable[[list[str], list[Any]], Any]) -> Any:
    if _fields_of(obj) is None:
        raise site.error(BadCall(f"{describe(obj)} is not an object of a dataclass", "asdict(object)"))

    def apart(value: Any) -> Any:
        names = _fields_of(value)
        if names is not None:
            return make(names, [apart(objects.attribute(site, value, name)) for name in names])
        if type(value) is dict or isinstance(value, tuple | list):
            return site.tracer.journal.born(with_parts(value, [apart(part) for part in parts_of(value) or []]))
        return value

    return apart(obj)


def _getitem(site: Site, a: Any, b: Any, /) -> Any:
    return site.read(objects.item(site, a, b))


def _setitem(site: Site, a: Any, b: Any, c: Any, /) -> None:
    target_item(site, a, b).put(c)


def _index(site: Site, a: Any, /) -> Any:
    """`operator.index`: an integer as it is."""
    if isinstance(a, Number) and a.dtype.is_integer:
        return a
    return run_native(site, operator.index, a)


def _print(site: Site, *args: Any, sep: str | None = " ", end: str | None = "\n") -> None:
    """Run-time printing, once per thread that gets here."""
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
    site.tracer.builder.print_(template + escaped(end), tuple(operands))


ON_OBJECTS: dict[Any, Builtin] = {
    builtins.isinstance: _isinstance,
    builtins.type: _type,
    builtins.getattr: _getattr,
    builtins.setattr: objects.put,
    builtins.delattr: objects.delete,
    object.__setattr__: objects.put_plainly,
    dataclasses.replace: _replace,
    dataclasses.asdict: _asdict,
    dataclasses.astuple: _astuple,
    functools.update_wrapper: lambda site, wrapper, wrapped, *_, **__: wrapper,
    typing.cast: lambda site, typ, val: val,
    operator.getitem: _getitem,
    operator.setitem: _setitem,
    operator.index: _index,
    copy.copy: _copy,
    copy.deepcopy: _deepcopy,
    builtins.hasattr: _hasattr,
    builtins.callable: lambda site, obj, /: callable(obj) or isinstance(obj, Closure),
    builtins.super: _super,
    builtins.print: _print,
}
