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
from stagekit.ir import Intrinsic, Value


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


def taken_apart(given: Iterable[Any], forms: dict[int, TakenApart], objects: list[Any], values: list[Value]) -> Any:
    """Return what values are but for the numbers and pointers in them, which it appends; None where none can say that.

    forms: those of objects that do not change, by their ids.
    """
    found = []
    for value in given:
        kind = type(value)
        token: Any
        if kind is Number:
            objects.append(value)
            values.append(value.value)
            token = value.value.type, value.is_weak
            if value.lanes is not None:
                token = (*token, taken_apart(value.lanes, forms, objects, values))
        elif kind in BY_VALUE:
            token = kind, value
        elif known := forms.get(id(value)):
            token = known.token
            objects += known.objects
            values += known.values
        else:
            token = _token_of(value, kind, forms, objects, values)
            if token is None:
                return None
        found.append(token)
    return tuple(found)


BY_VALUE = frozenset({int, bool, str, type(None), type(...)})


def _token_of(value: Any, kind: type, forms: dict[int, TakenApart], objects: list[Any], values: list[Value]) -> Any:
    """Return the token of a value of one of the rarer types."""
    if kind is Address:
        objects.append(value)
        values += [value.value] if value.start is None else [value.value, value.start]
        return kind, value.value.type, value.start is None
    if kind is float:
        return kind, repr(value)
    if isinstance(value, np.generic):
        return value.dtype, value.tobytes()
    if isinstance(value, DType | Intrinsic | Staged) or is_one_of_a_kind(value):
        return value
    if isinstance(value, Keyed):
        return value.key
    if kind is tuple or kind is list:
        inner = taken_apart(value, forms, objects, values)
        return inner and (kind, inner) if value else (kind,)
    if kind is slice:
        inner = taken_apart((value.start, value.stop, value.step), forms, objects, values)
        return inner and (kind, inner)
    if kind is dict:
        inner = taken_apart(value.values(), forms, objects, values)
        return None if inner is None else (kind, *value, inner)
    parts = parts_of(value)
    if parts is None:
        return None
    own = TakenApart(value, None, [], [])
    inner = taken_apart(parts, forms, own.objects, own.values)
    if inner is None:
        return None
    if len(_TOKENS) >= _MOST_TOKENS:
        _TOKENS.clear()
    token = _TOKENS.setdefault((kind, inner), object())
    own.objects.append(value)
    objects += own.objects
    values += own.values
    if kind is Array or mapper_of(value) is not None:
        forms[id(value)] = own._replace(token=token)
    return token


def is_one_of_a_kind(value: Any) -> bool:
    """Return whether this is an object of the library that is equal to no other: a layout, or a function without variables."""
    if isinstance(value, types.FunctionType):
        return value.__closure__ is None and value.__code__.co_filename.startswith(LIBRARY)
    said = getattr(type(value), "__dataclass_params__", None)
    return said is not None and not said.eq and is_of_library(value)


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
    objects, values = list[Any](), list[Value]()
    token, builder = taken_apart(args, tracer.forms, objects, values), tracer.builder
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
