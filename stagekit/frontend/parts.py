"""What a compile-time value is to the front end: how error texts name it, what its parts are, and whether two correspond.

A container joins with another part by part where paths meet (`control.py`), and a loop carries its parts (`loops.py`).
"""

from __future__ import annotations

import math
import operator
import types
from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

from stagekit.diagnostics import Loc, shown
from stagekit.dtypes import DType
from stagekit.frontend.complexes import in_parts, is_complex
from stagekit.frontend.numbers import describe_type, is_numeric
from stagekit.frontend.state import stored
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import Address, Array, Closure, Generator, Number, StagedRange, Text, is_fixed, is_open


def same_static(a: Any, b: Any) -> bool:
    """Return whether two values are the same compile-time value of the same type."""
    if a is b:
        return True
    if type(a) is not type(b) or isinstance(a, Number | Address):
        return False
    if isinstance(a, float):
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)
    if isinstance(a, np.generic):
        return bool(a.dtype == b.dtype and a.tobytes() == b.tobytes())
    if isinstance(a, complex):
        return same_static(a.real, b.real) and same_static(a.imag, b.imag)
    return isinstance(a, int | str | bytes | type(None) | range) and bool(a == b)


def describe(value: Any) -> str:
    """Return how error texts name what a variable holds."""
    kind = type(value)  # of an odd object's own methods none is called
    if is_numeric(value):
        return describe_type(value)
    if kind is Address:
        return f"a pointer to {value.dtype.name}"
    if kind is Array:
        return f"an array of {value.dtype.name}"
    if kind is Closure or kind is types.FunctionType:
        return f"the function `{value.name if kind is Closure else value.__name__}`"
    if issubclass(kind, dict):
        keys = shown(list(dict.keys(value)), most=60)
        return f"a {kind.__name__} of length {dict.__len__(value)} with the keys {keys}"
    if issubclass(kind, list | tuple):
        length = list.__len__(value) if issubclass(kind, list) else tuple.__len__(value)
        return f"a {kind.__name__} of length {length}"
    if value is None or issubclass(kind, str | DType):
        return shown(value)
    write = _writer_of(kind)
    if write is not None:
        return str(write(value))
    return _KINDS.get(kind) or f"a {kind.__name__}"


def _writer_of(kind: type) -> Any:
    """Return the method by which a class of the library describes its objects: two that read differently never meet."""
    return kind.__dict__.get("__stagekit_describe__") if kind.__module__.startswith("stagekit.lib.") else None


_KINDS: dict[type, str] = {
    np.ndarray: "a NumPy array",
    StagedRange: "a range with run-time bounds",
    Generator: "an iterator",
    Text: "a text with run-time numbers in it",
}


# -- taking values apart and putting them together ------------------------------------------------------------------------


def parts_of(value: Any) -> list[Any] | None:
    """Return the items of a value that joins item by item; None for a value that is a leaf."""
    if type(value) in (tuple, list) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return list(value)
    if type(value) is dict:
        return list(value.values())
    if isinstance(value, Array):
        return [value.base, *value.shape, *value.strides]
    if _is_plain_object(value):
        return [getattr(value, name) for name in stored(value)]
    return None


def leaves_of(value: Any) -> list[Any]:
    """Return the numbers and addresses in a value, in order."""
    parts = parts_of(value)
    if parts is not None:
        return [leaf for part in parts for leaf in leaves_of(part)]
    return [value] if is_numeric(value) or isinstance(value, Address) else []


def _is_plain_object(value: Any) -> bool:
    """Return whether an object is its attributes and no more, as one that derives from a list or an int is not."""
    new: Any = type(value).__new__
    return is_open(value) and not isinstance(value, Enum) and new in (object.__new__, types.SimpleNamespace.__new__)


def note_parts(tracer: Tracer, *values: Any) -> None:
    """Record that the parts of these objects are read, for those that were made outside the kernel."""
    for value in values:
        is_from_outside = not tracer.journal.is_born(value) and not is_fixed(type(value).__module__)
        if is_from_outside and _is_plain_object(value):
            tracer.captures.note_state(value)


def same_shape(a: Any, b: Any) -> bool:
    """Return whether `parts_of` takes two values apart into corresponding parts."""
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple | list):
        return bool(len(a) == len(b))
    if isinstance(a, dict):
        return bool(list(a) == list(b))
    if isinstance(a, Array):
        return bool(a.ndim == b.ndim and a.is_contiguous == b.is_contiguous)
    write = _writer_of(type(a))
    return list(stored(a)) == list(stored(b)) and (write is None or write(a) == write(b))


def settled(tracer: Tracer, value: Any, other: Any, loc: Loc) -> Any:
    """Return `value` as it meets `other` where paths join.

    A class of the library whose objects may say the same in several ways has a method `__stagekit_settle__`: it returns the
    object itself where it corresponds to another one part by part, else one that corresponds to every other settled one. Items
    of tuples meet one by one. A complex number that is known meets others by its parts.
    """
    if is_complex(value):
        return in_parts(value)
    if isinstance(value, tuple) and parts_of(value) is not None and same_shape(value, other):
        parts = [settled(tracer, each, met, loc) for each, met in zip(value, other)]
        return value if all(map(operator.is_, value, parts)) else with_parts(value, parts)
    settle = getattr(type(value), "__stagekit_settle__", None)
    if type(value) is not type(other) or not isinstance(settle, types.FunctionType):
        return value
    return tracer.run_direct(loc, settle, value, other)


def rebuild(tracer: Tracer, origins: Sequence[Any], parts: list[Any], *, is_free: bool) -> Any:
    """Make of `parts` what stands for one of `origins`. One that can change is sealed, unless these are held nowhere else."""
    joined = with_parts(origins[0], parts)
    if isinstance(joined, Array | tuple):
        return joined
    return tracer.journal.born(joined) if is_free else tracer.journal.seal(joined, origins)


def with_parts(like: Any, parts: list[Any]) -> Any:
    """Return a value like `like` that has these parts instead."""
    if isinstance(like, Array):
        n = like.ndim
        return Array(like.name, parts[0], tuple(parts[1 : 1 + n]), tuple(parts[1 + n :]), like.is_contiguous, True)
    if isinstance(like, tuple):
        return type(like)(*parts) if hasattr(like, "_fields") else tuple(parts)
    if type(like) is list:
        return parts
    if type(like) is dict:
        return dict(zip(like, parts))
    kind: Any = type(like)
    copy = kind.__new__(kind)
    for name, part in zip(stored(like), parts):
        object.__setattr__(copy, name, part)
    return copy
