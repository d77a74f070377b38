"""What values are but for the run-time numbers and pointers in them, and what is computed once in a block of code."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from stagekit.diagnostics import LIBRARY
from stagekit.dtypes import DType
from stagekit.frontend.language import Staged
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import Address, Array, Number, is_of_library, mapper_of
from stagekit.ir import Intrinsic, Value, ops


class TakenApart(NamedTuple):
    """What a value is but for its numbers, and what is in it: numbers, pointers and objects of the library; and their values."""

    owner: Any
    token: Any
    objects: list[Any]
    values: list[Value]


class Keyed:
    """A function of the language that has a key, equal for functions that compute the same."""

    key: Any


_TOKENS: dict[Any, object] = {}
_MOST_TOKENS = 1 << 16


class ValueParts(NamedTuple):
    """What was found in values: numbers, pointers and objects of the library, and the values of the IR in them.

    forms: what objects are that do not change, by their ids. seen: the numbers of those that were met.
    """

    forms: dict[int, TakenApart]
    objects: list[Any]
    values: list[Value]
    seen: dict[int, int]


def taken_apart(given: Iterable[Any], parts: ValueParts) -> Any:
    """Return what values are but for the numbers and pointers in them, which it adds to the parts; None where none can say that.

    An object that does not change is taken apart once, and counts by its number where it stands again.
    """
    forms, objects, values, seen = parts
    found = []
    for value in given:
        kind = type(value)
        token: Any
        if kind is Number:
            objects.append(value)
            values.append(value.value)
            token = value.value.type, value.is_weak
            if value.lanes is not None:
                token = (*token, taken_apart(value.lanes, parts))
        elif kind in BY_VALUE:
            token = kind, value
        elif kind in _THEMSELVES:
            token = value
        elif kind in _CONTAINERS:
            token = taken_apart(value if kind is not dict else value.values(), parts)
            if token is None:
                return None
            token = (kind, token) if kind is not dict else (kind, *value, token)
        elif known := forms.get(id(value)):
            count = len(seen)
            token = seen.setdefault(id(value), count)
            if token == count:
                token = known.token
                if token is None:
                    return None
                objects += known.objects
                values += known.values
        else:
            token = _token_of(value, kind, parts)
            if token is None:
                return None
        found.append(token)
    return tuple(found)


_THEMSELVES = frozenset({DType, Intrinsic, Staged})
_CONTAINERS = frozenset({tuple, list, dict})
BY_VALUE = frozenset({int, bool, str, type(None), type(...)})


def _token_of(value: Any, kind: type, parts: ValueParts) -> Any:
    """Return the token of a value of one of the rarer types."""
    if kind is Address:
        return kind, value.value.type, _add_address(value, parts)
    if kind is float:
        return kind, ops.exactly(value)
    if isinstance(value, np.generic):
        return value.dtype, value.tobytes()
    if is_one_of_a_kind(value):
        return value
    if isinstance(value, Keyed):
        return value.key
    if kind is slice:
        inner = taken_apart((value.start, value.stop, value.step), parts)
        return inner and (kind, inner)
    stored = parts_of(value)
    if stored is None:
        return None
    own = ValueParts(parts.forms, [], [], {})
    inner = taken_apart(stored, own)
    if inner is None:
        return None
    if len(_TOKENS) >= _MOST_TOKENS:
        _TOKENS.clear()
    token = _TOKENS.setdefault((kind, inner), object())
    own.objects.append(value)
    parts.objects.extend(own.objects)
    parts.values.extend(own.values)
    if kind is Array or mapper_of(value) is not None:
        parts.forms[id(value)] = TakenApart(value, token, own.objects, own.values)
        parts.seen[id(value)] = len(parts.seen)
    return token


def _add_address(address: Address, parts: ValueParts) -> Any:
    """Add a pointer, and the argument that it was computed from, once; return the place of that, None where there is none."""
    _, objects, values, _ = parts
    objects.append(address)
    values.append(address.value)
    if address.start is not None and address.start not in values:
        values.append(address.start)
    return address.start and values.index(address.start)


def make_room(table: dict[Any, Any], most: int) -> None:
    """Forget what a table has had for longest, where it is full. Other threads may be tracing, and use it."""
    while len(table) >= most:
        table.pop(next(iter(list(table))), None)


def is_one_of_a_kind(value: Any) -> bool:
    """Return whether this is an object of the library that is equal to no other: a layout, or a function without variables."""
    if isinstance(value, types.FunctionType):
        return value.__closure__ is None and value.__code__.co_filename.startswith(LIBRARY)
    said = getattr(type(value), "__dataclass_params__", None)
    return said is not None and not said.eq and is_of_library(value)


def form_of(tracer: Tracer, value: Any) -> TakenApart:
    """Return what something is that does not change. token: None where none can say that."""
    if id(value) not in tracer.forms:
        parts = ValueParts(tracer.forms, [], [], {})
        token = taken_apart((value,), parts) or (None,)
        tracer.forms[id(value)] = TakenApart(value, token[0], parts.objects, parts.values)
    return tracer.forms[id(value)]  # type: ignore[no-any-return]


def parts_of(value: Any) -> Any:
    """Return the attributes of an array or an object of the library; None for anything else."""
    if type(value) is Array:
        return [getattr(value, each.name) for each in dataclasses.fields(value)]
    if isinstance(value, tuple) and is_of_library(value):
        return value
    stored = getattr(value, "__dict__", None) if is_of_library(value) else None
    return stored and stored.values()


# -- once in a block -------------------------------------------------------------------------------------------------------


class OnceAsked(NamedTuple):
    """`once` was called for these values. was_known: whether the block had computed it."""

    block: Any
    key: Any
    values: list[Value]
    found: Any
    was_known: bool


def once(tracer: Tracer, function: Any, args: tuple[Any, ...]) -> Any:
    """Return `function(*args)`, or what it returned for the same arguments in this block of code."""
    parts, builder = ValueParts(tracer.forms, [], [], {}), tracer.builder
    token, values = taken_apart(args, parts), parts.values
    if token is None:
        builder.spoil_log()
        return function(*args)
    block, key = builder.current, (function, token, *values)
    was_known = key in block.known
    if not was_known:
        block.known[key] = function(*args)
    found = block.known[key]
    if builder.log is not None:
        builder.log.append(OnceAsked(block, (function, token), values, found, was_known))
    return found
