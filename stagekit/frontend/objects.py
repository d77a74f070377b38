"""Attributes of any value: reading, assigning and deleting them, by Python's protocol; and reading items.

What a user's class defines in Python (properties, descriptors, `__getattr__`, `__setattr__`) is staged like any other function.
A value that the class merely stores is read, and noted as a capture where the object was made outside the kernel.
"""

from __future__ import annotations

import ast
import functools
import operator
import types
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from stagekit.frontend import arrays, attributes, containers, rangeloop
from stagekit.frontend.errors import BadIndex, NoAttribute, NotCallable, StaticFailure
from stagekit.frontend.evaluation import UNROLL, Site, user_method
from stagekit.frontend.familiar import name_here
from stagekit.frontend.journal import MISSING
from stagekit.frontend.numbers import is_numeric
from stagekit.frontend.parts import describe
from stagekit.frontend.source import remembered
from stagekit.frontend.state import lookup, own_attributes
from stagekit.frontend.tables import table_of
from stagekit.frontend.tracer import CLOSE, Tracer, suggest
from stagekit.frontend.values import (
    STAND_INS,
    Address,
    Array,
    Closure,
    StagedRange,
    hint_of,
    holds_run_time,
    is_dataclass_with,
    is_fixed,
    is_generated,
    is_native,
)
from stagekit.ir import Intrinsic
from stagekit.native_tables import ABSENT


def attribute(site: Site, owner: Any, name: str) -> Any:
    """Return `owner.name`."""
    if type(owner) is types.ModuleType and site.tracer.captures.has(owner, f".{name}"):
        return getattr(owner, name)  # as `_stored` found it before
    if isinstance(owner, STAND_INS) or (isinstance(owner, np.generic) and name in ("to", "view", "dtype")):
        return attributes.attribute(site, owner, name)
    if containers.changes(owner, name):
        return containers.container_method(site, owner, name)
    if isinstance(owner, Closure):
        if name not in _CLOSURE:
            raise site.error(NoAttribute(describe(owner), name, f"it has: {', '.join(_CLOSURE)}"))
        return _CLOSURE[name](owner)
    getter = _getter(site, owner, name)
    return getter() if getter is not None else _stored(site, owner, name)


# The attributes of a function that is defined in a kernel.
_CLOSURE: dict[str, Callable[[Closure], Any]] = {
    "__name__": lambda fn: fn.name,
    "__qualname__": lambda fn: fn.name,
    "__doc__": lambda fn: None if isinstance(fn.node, ast.Lambda) else ast.get_docstring(fn.node),
    "__defaults__": lambda fn: fn.stub.__defaults__,
    "__kwdefaults__": lambda fn: fn.stub.__kwdefaults__,
    "__call__": lambda fn: fn,
}


def _stored(site: Site, owner: Any, name: str) -> Any:
    """Return what Python's own lookup finds, and note it as read."""
    try:
        value = getattr(owner, name)
    except AttributeError:
        alike = [each for each in dir(owner) if _digits(each) == _digits(name)]  # `float4` is no misspelt `float64`
        hint = name_here(owner, name) or suggest(name, alike, CLOSE)
        raise site.error(NoAttribute(_describe_owner(owner), name, hint)) from None
    if not (site.tracer.is_settled(owner) or _is_read_by_ours(site, owner)):
        if not isinstance(value, types.MethodType | types.BuiltinMethodType):
            site.tracer.captures.note_attribute(owner, name, f"`{_place_text(site.node, name)}`")
        elif isinstance(value, types.MethodType) and name not in own_attributes(owner):
            site.tracer.captures.note_own(owner, name)
    elif name not in own_attributes(owner):
        site.tracer.captures.note_member(type(owner), name)
    return value


def _is_read_by_ours(site: Site, owner: Any) -> bool:
    """Return whether code of ours reads a module of ours or of Python's. A user may set what code of his reads of it, as
    `sys.argv` is, and a module of his may have the name of one of Python's.
    """
    function = site.frame.function
    is_module = type(owner) is types.ModuleType and is_fixed(vars(owner).get("__name__"))
    return is_module and function is not None and is_fixed(function.__globals__.get("__name__"))


def _digits(name: str) -> str:
    return "".join(filter(str.isdigit, name))


def _describe_owner(owner: Any) -> str:
    if isinstance(owner, types.ModuleType):
        return f"the module `{owner.__name__}`"
    if isinstance(owner, Intrinsic):
        return f"the function `{owner.name}`"
    return describe(owner)


def put(site: Site, owner: Any, name: str, value: Any, /) -> None:
    """Carry out `owner.name = value`."""
    if isinstance(owner, STAND_INS):
        raise site.error(NoAttribute(describe(owner), name, "it cannot be assigned"))
    if isinstance(owner, Closure):
        hint = "a function defined in a kernel keeps no attributes: use a variable"
        raise site.error(NoAttribute(describe(owner), name, hint))
    site.tracer.check_mutable(owner, f"`{_place_text(site.node, name)} = ...`", site.loc)
    setter = interpreted_method(site.tracer, owner, "__setattr__")
    if setter is not None:
        site.invoke(setter, [owner, name, value])
        return
    if is_dataclass_with(owner, "frozen"):
        message = f"cannot assign to field {name!r} of a frozen dataclass"
        raise site.error(StaticFailure("FrozenInstanceError", message))
    put_plainly(site, owner, name, value)


def put_plainly(site: Site, owner: Any, name: str, value: Any, /) -> None:
    """Carry out `object.__setattr__(owner, name, value)`: by a property or descriptor of the class, else assign plainly."""
    site.tracer.check_mutable(owner, f"`{_place_text(site.node, name)} = ...`", site.loc)
    found = in_class(site.tracer, owner, name)
    descriptor = interpreted_method(site.tracer, found, "__set__")
    if isinstance(found, property):
        if found.fset is None:
            message = f"property {name!r} of {type(owner).__name__!r} object has no setter"
            raise site.error(StaticFailure("AttributeError", message))
        site.invoke(found.fset, [owner, value])
    elif descriptor is not None:
        site.invoke(descriptor, [found, owner, value])
    else:
        site.tracer.assign(owner, name, value, is_attribute=True)


def delete(site: Site, owner: Any, name: str, /) -> None:
    """Carry out `del owner.name`."""
    site.tracer.check_mutable(owner, f"`del {_place_text(site.node, name)}`", site.loc)
    deleter = interpreted_method(site.tracer, owner, "__delattr__")
    if deleter is not None:
        site.invoke(deleter, [owner, name])
        return
    if isinstance(owner, STAND_INS) or name not in own_attributes(owner):
        raise site.error(NoAttribute(describe(owner), name, "it cannot be deleted"))
    site.tracer.assign(owner, name, MISSING, is_attribute=True)


def _place_text(node: ast.AST, name: str) -> str:
    """Return the text of `node` where it is an attribute."""
    return _text_of(node) if isinstance(node, ast.Attribute) else f".{name}"


_text_of = remembered(ast.unparse)


# -- attributes that the class defines ------------------------------------------------------------------------------------


def in_class(tracer: Tracer, owner: Any, name: str) -> Any:
    """Return what the classes of `owner` store under `name`, None where they store nothing; note either as read."""
    if isinstance(owner, super):
        return _in_bases(tracer, owner, name)
    tracer.note_lookup(owner, name)
    found = lookup(type(owner), name)
    return None if found is ABSENT else found


def _in_bases(tracer: Tracer, owner: Any, name: str) -> Any:
    """Return what the classes store that come after the one in which `super()` was called; None where they store nothing."""
    cls = owner.__self_class__
    order = cls.__mro__ if cls is not None else ()
    tracer.captures.note_attribute(cls, "__mro__", "the order of its bases")
    for base in order[order.index(owner.__thisclass__) + 1 :] if owner.__thisclass__ in order else ():
        tracer.captures.note_member(base, name)
        if name in vars(base):
            return vars(base)[name]
    return None


def _getter(site: Site, owner: Any, name: str) -> Callable[[], Any] | None:
    """Return the function that computes the attribute as a class written in Python says; None where it is only stored."""
    if isinstance(owner, type | types.ModuleType):
        return None
    instance = getattr(owner, "__self__", None) if isinstance(owner, super) else owner
    found = in_class(site.tracer, owner, name)
    if isinstance(found, property) and isinstance(found.fget, types.FunctionType):
        return lambda: site.invoke(found.fget, [instance])
    getter = _computed(site, owner, instance, name, found)
    if getter is None or (name in own_attributes(instance) and not _is_data(site.tracer, found)):
        return None
    if not site.tracer.journal.is_born(instance):
        site.tracer.captures.note_own(instance, name)
    return getter


def _computed(site: Site, owner: Any, instance: Any, name: str, found: Any) -> Callable[[], Any] | None:
    """Return what computes an attribute that the object itself does not hold, where its class does so in Python.

    found: what the class stores under the name, None for nothing.
    """
    if found is None:
        fallback = interpreted_method(site.tracer, owner, "__getattr__")
        return fallback and (lambda: site.invoke(fallback, [instance, name]))
    if isinstance(found, functools.cached_property):
        return lambda: _cached(site, instance, name, found)
    descriptor = interpreted_method(site.tracer, found, "__get__")
    if descriptor is None or hasattr(found, "__stagekit_fragment__"):
        return None
    return lambda: site.invoke(descriptor, [found, instance, type(instance)])


def _is_data(tracer: Tracer, descriptor: Any) -> bool:
    """Return whether a descriptor takes precedence over what the object itself holds."""
    return any(in_class(tracer, descriptor, name) is not None for name in ("__set__", "__delete__"))


def _cached(site: Site, owner: Any, name: str, found: Any) -> Any:
    """Compute a `cached_property`. An object made in the kernel stores it; one from outside is left as it is."""
    value = site.invoke(found.func, [owner])
    if site.tracer.journal.is_born(owner):
        site.tracer.assign(owner, name, value, is_attribute=True)
    return value


def interpreted_method(tracer: Tracer, owner: Any, name: str) -> types.FunctionType | None:
    """Return a method that a user's class defines in Python; None for a generated one (of a dataclass), which has no source."""
    found = in_class(tracer, owner, name)
    if not isinstance(found, types.FunctionType) or is_generated(found):
        return None
    return None if is_native(found.__module__) else found


# -- items ---------------------------------------------------------------------------------------------------------------


def item(site: Site, owner: Any, index: Any, /) -> Any:
    """Return `owner[index]`."""
    if type(owner) in (tuple, list) and type(index) is int:
        return site.by_python(operator.getitem, (owner, index), {})
    if isinstance(owner, Array):
        return arrays.load_item(site, owner, index)
    refuse_index(site, owner, index)
    if lookup(type(owner), "__stagekit_fixed__") is not ABSENT:
        hint = "a kernel cannot launch another; called without brackets, the other's body becomes part of this one"
        raise site.error(NotCallable(f"`{owner.name}[...]` is a launch", hint))
    method = user_method(site.tracer, owner, "__getitem__")
    if method is not None:
        return site.invoke(method, [owner, index])
    if isinstance(owner, StagedRange):
        return rangeloop.item(site.tracer, owner, index, site.loc)
    if holds_run_time(index):
        if isinstance(owner, np.ndarray):
            return item(site, table_of(site, owner), index)
        raise site.needs_static("the index of a Python container", index, UNROLL)
    if isinstance(owner, STAND_INS):
        raise site.error(BadIndex(f"{describe(owner)} cannot be indexed", ""))
    if isinstance(owner, defaultdict) and owner.default_factory is not None and site.static(lambda: index not in owner):
        value = site.invoke(owner.default_factory, [])
        containers.put_key(site, owner, index, value)
        return value
    found = site.static(operator.getitem, owner, index)
    return site.tracer.journal.born(found) if isinstance(index, slice) and isinstance(found, list) else found


def refuse_index(site: Site, owner: Any, index: Any) -> None:
    """Raise an error where `owner` has no items."""
    if isinstance(owner, Address):
        hint = "use `load(pointer + i)`, or take the parameter as a Tensor"
        raise site.error(BadIndex("a pointer cannot be indexed", hint))
    if is_numeric(owner) or owner is None:
        raise site.error(BadIndex(f"{describe(owner)} cannot be indexed", "index an array or a container"))
    if (hint := hint_of(owner)) and not hasattr(type(owner), "__getitem__"):
        raise site.error(BadIndex(f"{describe(owner)} cannot be indexed", hint))
