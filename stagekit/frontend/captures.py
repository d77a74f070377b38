"""What the tracer read from outside the kernel: the evidence on which a compiled kernel stays valid.

Every read of a global, a closure cell, a default or a captured object's attribute is noted with the value seen. Later,
`Captures.is_current()` says whether reading again would give the same; `changes()` says in words what differs.

`freeze` makes a hashable token of a value with exact types: 1, True, 1.0 and `np.int32(1)` are four tokens, 0.0 and -0.0 two.
"""

from __future__ import annotations

import enum
import functools
import types
from array import array
from collections import deque
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, ValuesView
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from stagekit.diagnostics import shown
from stagekit.dtypes import DType
from stagekit.frontend.values import state_of
from stagekit.ir import Intrinsic

Token = Any

_EXACT = (int, str, bool, bytes, type(None), complex)
_BY_IDENTITY = (types.ModuleType, types.BuiltinFunctionType, type, DType, Intrinsic, types.MethodDescriptorType)


def freeze(value: Any) -> Token:
    """A hashable token, equal for equal values of the same exact type. Containers and dataclasses by content; functions and
    objects of unknown classes by identity.
    """
    kind = type(value)
    if kind in _EXACT:
        return (kind, value)
    if kind is float:
        return (float, value.hex())
    if isinstance(value, np.generic):
        return (kind, value.dtype.str, value.tobytes())
    if kind is range:
        return (range, value.start, value.stop, value.step)
    for base, items in _CONTENTS:
        if isinstance(value, base):
            return (kind, *items(value), *_state(value))
    if isinstance(value, enum.Enum):
        return (kind, value.name)
    if isinstance(value, np.ndarray):
        return (np.ndarray, value.dtype.str, value.shape, value.tobytes())
    if is_dataclass(value) and not isinstance(value, type):
        return (kind, *((f.name, freeze(getattr(value, f.name, None))) for f in fields(value)))
    for base, plain in _NUMBERS_AND_TEXTS:
        if isinstance(value, base):
            return (kind, freeze(plain(value)), *_state(value))
    return (kind, _ById(value))


def _state(value: Any) -> Iterator[Token]:
    """What an object whose class derives from a built-in one holds besides."""
    attributes = getattr(value, "__dict__", None)
    if attributes:
        yield freeze(attributes)


# What holds other values, with those that derive from it (named tuples, counters): its items, whatever its class says of them
_CONTENTS: tuple[tuple[Any, Callable[[Any], Iterable[Token]]], ...] = (
    (tuple, lambda value: map(freeze, tuple.__iter__(value))),
    (list, lambda value: map(freeze, list.__iter__(value))),
    (dict, lambda value: ((freeze(k), freeze(v)) for k, v in dict.items(value))),
    (set, lambda value: (frozenset(map(freeze, set.__iter__(value))),)),
    (frozenset, lambda value: (frozenset(map(freeze, frozenset.__iter__(value))),)),
    (deque, lambda value: map(freeze, deque.__iter__(value))),
    (types.MappingProxyType, lambda value: ((freeze(k), freeze(v)) for k, v in value.items())),
    ((KeysView, ValuesView, ItemsView), lambda value: map(freeze, value)),
    (functools.partial, lambda value: (freeze(value.func), freeze(value.args), freeze(value.keywords))),
    ((bytearray, memoryview), lambda value: (bytes(value),)),
    (array, lambda value: (value.typecode, value.tobytes())),
)


# The same for what derives from a number or a text
_NUMBERS_AND_TEXTS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (int, int.__int__), (float, float.__float__), (str, str.__str__), (bytes, bytes.__bytes__),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class _ById:
    """Equality by identity, keeping the object alive so that its id is not reused."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


_IMMUTABLE = (*_EXACT, float, range, np.generic, enum.Enum, types.FunctionType, *_BY_IDENTITY)


def is_immutable(value: Any) -> bool:
    """Does the same object mean the same value for ever, as far as Python's own means go?"""
    if isinstance(value, tuple | frozenset):
        return not hasattr(value, "__dict__") and all(map(is_immutable, value))
    if is_dataclass(value) and not isinstance(value, type):
        is_frozen = value.__dataclass_params__.frozen  # type: ignore[attr-defined]  # every dataclass has it
        return is_frozen and all(is_immutable(getattr(value, f.name, None)) for f in fields(value))
    return isinstance(value, _IMMUTABLE)


def state(value: Any) -> Token:
    """All that an object holds and leads to by attributes, for what CPython reads of it without being seen."""
    found: dict[int, Any] = {}
    tokens: list[Token] = []
    ahead = [value]
    while ahead and len(found) < _MOST_OBJECTS:
        each = ahead.pop()
        if id(each) in found or isinstance(each, _IMMUTABLE) or is_fixed_object(each):
            continue
        found[id(each)] = each
        if isinstance(each, dict):
            ahead += dict.values(each)
        elif isinstance(each, list | tuple | set | frozenset | deque):
            ahead += each
        else:
            attributes = {name: _unless_large(content) for name, content in state_of(each).items()}
            tokens.append(freeze(attributes))
            ahead += attributes.values()
    return tuple(tokens)


_MOST_OBJECTS = 200
_MOST_BYTES = 1 << 12  # of an array; of a larger one, which one it is


def is_fixed_object(value: Any) -> bool:
    """Is this of a class of ours, such as a kernel? What changes in it means nothing to others."""
    return str(type(value).__module__).partition(".")[0] == "stagekit"


def _unless_large(value: Any) -> Any:
    return _ById(value) if isinstance(value, np.ndarray) and value.nbytes > _MOST_BYTES else value


@dataclass(frozen=True, eq=False, slots=True)
class Read:
    """One read: from which object, how to read again, the object seen; and where it can change inside, its token, and how it
    looked then.
    """

    owner: Any
    what: str
    again: Callable[[], Any]
    seen: Any
    token: Token | None
    looked: str = ""

    def is_current(self) -> bool:
        try:
            now = self.again()
        except Exception:  # what was there is gone; an attribute that is computed may raise anything
            return False
        if now is self.seen and self.token is None:
            return True
        return bool(freeze(now) == (freeze(self.seen) if self.token is None else self.token))

    @property
    def is_told_by_identity(self) -> bool:
        """Is the value as it was whenever the object is the same?"""
        return self.token is None or is_immutable(self.seen) or self.token == (type(self.seen), _ById(self.seen))

    def describe_change(self) -> str:
        before = self.looked or shown(self.seen)
        try:
            value = self.again()
        except Exception as error:
            return f"{self.what} changed {before} -> {type(error).__name__}: {error}"
        now = shown(value)
        if isinstance(value, types.FunctionType) or now == before:  # its text says nothing
            return f"{self.what} {'was redefined' if callable(value) else 'changed inside'}"
        return f"{self.what} changed {before} -> {now}"


_STATE = "<state>"


class Captures:
    """All reads of one trace, each place once."""

    def __init__(self) -> None:
        self._reads: dict[Any, Read] = {}
        self.is_repeatable = True  # would another process that reads the same get the same?

    def has(self, owner: Any, name: str) -> bool:
        return (id(owner), name) in self._reads

    def note(self, owner: Any, name: str, what: str, again: Callable[[], Any], value: Any) -> None:
        """Record that reading `name` in `owner` gave `value`. name: of a variable, or ".x" of an attribute."""
        if not self.has(owner, name):
            token = None if isinstance(value, _IMMUTABLE) else freeze(value)
            has_content = token is not None and token != (type(value), _ById(value))
            looked = shown(value) if has_content else ""
            self._reads[id(owner), name] = Read(owner, what, again, value, token, looked)

    def note_state(self, owner: Any) -> None:
        """Record what an object holds now, after CPython was given it."""
        token = state(owner)
        if token:
            what = f"the state of a {type(owner).__name__}"
            self._reads[id(owner), _STATE] = Read(owner, what, lambda: state(owner), token, freeze(token))

    def places(self) -> Iterator[tuple[Any, str]]:
        """What was read: an object, and a name in it."""
        return ((read.owner, name) for (_, name), read in self._reads.items())

    def reads(self) -> Iterator[tuple[str, Read]]:
        """Each read with the name of its place, as in `note`."""
        return ((name, read) for (_, name), read in self._reads.items())

    def described(self) -> list[str]:
        """The values that were read, for people; functions, classes and modules are left out."""
        reads = [r for r in self._reads.values() if not isinstance(r.seen, (types.FunctionType, *_BY_IDENTITY))]
        return [f"{read.what} = {shown(read.seen, most=60)}" for read in reads]

    def note_native(self, fn: Any) -> None:
        """Record that CPython ran `fn`, which may have looked anywhere."""
        self.is_repeatable = self.is_repeatable and _is_repeatable(fn)

    def is_current(self) -> bool:
        """Would reading everything again give the same values?"""
        return all(read.is_current() for read in self._reads.values())

    def changes(self) -> list[str]:
        return [read.describe_change() for read in self._reads.values() if not read.is_current()]


# Modules whose functions give the same for the same arguments, whenever they are called
_REPEATABLE_ROOTS = frozenset({
    "builtins", "math", "cmath", "operator", "_operator", "itertools", "functools", "_functools", "collections", "enum",
    "dataclasses", "copy", "fractions", "decimal", "_decimal", "statistics", "string", "re", "typing", "bisect", "_bisect",
    "numpy", "ml_dtypes", "stagekit",
})  # fmt: skip
_ELSEWHERE = frozenset({
    "open", "input", "id", "hash", "eval", "exec", "compile", "globals", "locals", "vars", "dir", "breakpoint", "__import__",
    "load", "loadtxt", "fromfile", "genfromtxt", "memmap",
})  # fmt: skip


def _is_repeatable(fn: Any) -> bool:
    if isinstance(fn, type):
        return _is_known(fn.__module__) or all(_only_assigns(getattr(fn, name)) for name in ("__new__", "__init__"))
    owner = getattr(fn, "__self__", None)
    if owner is None or isinstance(owner, types.ModuleType):
        module = getattr(fn, "__module__", None) or getattr(getattr(fn, "__objclass__", None), "__module__", None)
    else:
        module = (owner if isinstance(owner, type) else type(owner)).__module__
    return _is_known(module) and getattr(fn, "__name__", "") not in _ELSEWHERE


def _is_known(module: str | None) -> bool:
    words = str(module).split(".")
    return words[0] in _REPEATABLE_ROOTS and "random" not in words


def _only_assigns(method: Any) -> bool:
    """Is it Python's own, or generated for a dataclass or a named tuple?"""
    code = getattr(method, "__code__", None)
    return code is None or code.co_filename.startswith("<string>") or code.co_filename == enum.__file__
