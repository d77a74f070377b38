"""What the state of an object is: for a key in memory, and for the check at each call. docs/decisions/0016 has the rule.

    freeze(1.0)              the digest: equal for equal values of the same exact type, and for nothing else
    contents(value)          rows: what must stay as it is for `value` to mean what it means
    holds(row)               whether a row is as it was, by comparing pointers

A value of one of a closed set of exact types has a digest. Everything else counts by identity, and rows say what was read of it.
A row is (kind, holder, key, seen); `native_tables.GUARD_KINDS` lists the kinds, which native launchers compare too.
"""

from __future__ import annotations

import copyreg
import enum
import functools
import operator
import struct
import types
from array import array
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, ItemsView, Iterable, KeysView, Mapping, ValuesView
from dataclasses import dataclass, is_dataclass
from typing import Any

import numpy as np

from stagekit.dtypes import DType
from stagekit.frontend.errors import CaptureTooLarge
from stagekit.ir import Intrinsic
from stagekit.native_tables import ABSENT

Token = Any
Row = tuple[str, Any, Any, Any]
_POINTER_BYTES = struct.calcsize("P")

MOST_BYTES = 64 << 20  # of an array that a kernel captures: it is copied, and compared at each call


class TooLarge(Exception):
    """An array that nobody wants to see copied and compared at each call."""

    def __init__(self, value: Any, nbytes: int) -> None:
        self.diagnostic = CaptureTooLarge(f"the {type(value).__name__}", nbytes, MOST_BYTES)


def _refuse_large(value: Any, nbytes: int) -> None:
    if nbytes > MOST_BYTES:
        raise TooLarge(value, nbytes)


# -- digests --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class ById:
    """Equality by identity, keeping the object alive so that its id is not reused."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ById) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def freeze(value: Any) -> Token:
    """The digest of a value as a hashable token: 1, True, 1.0 and `np.int32(1)` are four tokens, 0.0 and -0.0 two."""
    try:
        return _freeze(value, ())
    except RecursionError:  # nested deeper than anybody writes
        return ById(value)


def _freeze(value: Any, around: tuple[Any, ...]) -> Token:
    """around: the containers that `value` is in, since a list may contain itself."""
    kind = type(value)
    if kind in _PLAIN:
        return (kind, value)
    if kind in _BY_BITS:
        return (kind, _BY_BITS[kind](value))
    parts = _parts(value)
    if parts is None:
        return ById(value)
    for depth, outer in enumerate(around):
        if outer is value:
            return (kind, depth)
    inside = (*around, value)
    return (kind, *(_freeze(part, inside) for part in parts))


_PLAIN = frozenset({int, bool, str, bytes, type(None)})
_BY_BITS: dict[type, Callable[[Any], bytes]] = {
    float: struct.Struct("<d").pack,
    complex: lambda value: struct.pack("<dd", value.real, value.imag),
}
_BY_PARTS: dict[type, Callable[[Any], Iterable[Any] | None]] = {
    range: lambda value: (value.start, value.stop, value.step),
    slice: lambda value: (value.start, value.stop, value.step),
    tuple: iter,
    list: iter,
    dict: lambda value: (part for item in value.items() for part in item),
    set: iter,  # in its order, which a kernel can see
    frozenset: iter,
    functools.partial: lambda value: None if vars(value) else (value.func, value.args, value.keywords),
    np.ndarray: lambda value: None if value.dtype.hasobject else _parts_of_array(value),
}


def _parts(value: Any) -> Iterable[Any] | None:
    """What makes up a value that has a digest; None for what counts by identity."""
    kind = type(value)
    if kind in _BY_PARTS:
        return _BY_PARTS[kind](value)
    if issubclass(kind, np.dtype):
        return _parts_of_dtype(value)
    if issubclass(kind, np.generic):
        return (value.dtype, value.tobytes()) if kind is value.dtype.type and not value.dtype.hasobject else None
    if issubclass(kind, enum.Enum):
        return None if set(vars(value)) - _OF_UNNAMED_MEMBERS else (value._value_,)
    if (key := key_of(value)) is not None:
        return (key(),)
    if not _is_plain_class(kind):
        return None
    base = next((base for base in _PLAIN_VALUES if issubclass(kind, base)), object)
    if _holds_more(kind, base) or (base is object and not _is_record(kind)):
        return None
    plain = () if base is object else (_PLAIN_VALUES[base](value),)
    return (*plain, *_flat(stored(value).items()))


_OF_UNNAMED_MEMBERS = frozenset({"_value_", "_name_", "_inverted_"})
"""What `Perm(4)` of a flag holds that names no 4. Members with a name are one object each."""


def _parts_of_array(value: Any) -> tuple[Any, ...]:
    _refuse_large(value, value.nbytes)
    return (value.dtype, value.shape, value.strides, value.flags.num, value.tobytes())


def _parts_of_dtype(value: Any) -> tuple[Any, ...] | None:
    has_more = value.fields is not None or value.subdtype is not None or value.metadata is not None
    return None if has_more or value.hasobject else (value.str, value.char, value.type)


_PLAIN_VALUES: dict[type, Callable[[Any], Any]] = {
    int: int.__int__, float: float.__float__, complex: complex.__complex__, str: str.__str__, bytes: bytes.__bytes__,
    tuple: lambda value: tuple(tuple.__iter__(value)),
}  # fmt: skip
"""What classes derive from to make values of their own, such as named tuples: these have digests, of all that they hold."""


def _is_record(cls: Any) -> bool:
    """A dataclass that does not say that equal fields make no equal objects."""
    params = getattr(cls, "__dataclass_params__", None)
    return params is not None and bool(params.eq)


def _is_plain_class(cls: type) -> bool:
    """Does an object answer for its attributes by what is stored alone, and not by code of its class?"""
    if type(cls) is not type:
        return False
    own = [vars(base) for base in cls.__mro__ if base not in (object, *_PLAIN_VALUES)]
    return not any(name in each for each in own for name in ("__getattr__", "__getattribute__"))


def _holds_more(cls: type, base: type) -> bool:
    """Is there room in an object for more than `base` has, slots, a `__dict__` and weak references? `pickle` asks so, too."""
    pointers = len(_slot_names(cls)) + (cls.__dictoffset__ != 0) + (cls.__weakrefoffset__ != 0)
    return cls.__itemsize__ != base.__itemsize__ or cls.__basicsize__ > base.__basicsize__ + pointers * _POINTER_BYTES


def _slot_names(cls: type) -> list[str]:
    found: list[str] = copyreg._slotnames(cls)  # type: ignore[attr-defined]  # private names as they are stored
    return found


def stored(value: Any) -> dict[str, Any]:
    """The attributes that an object itself holds, in slots or in its dict."""
    slots = ((name, _now_attribute(value, name)) for name in _slot_names(type(value)))
    return {**{name: held for name, held in slots if held is not ABSENT}, **own_attributes(value)}


def own_attributes(value: Any) -> Mapping[str, Any]:
    """The `__dict__` of an object, where it has a true one."""
    own = getattr(value, "__dict__", None)
    return own if isinstance(own, dict | types.MappingProxyType) else {}


ANOTHER_OBJECT = "make it once, or let its class say its state by `__stagekit_key__`"


def key_of(value: Any) -> Callable[[], Any] | None:
    """How an object's class says its state (`__stagekit_key__`), where it does."""
    method = getattr(type(value), "__stagekit_key__", None)
    return functools.partial(method, value) if isinstance(method, types.FunctionType) else None


# -- rows -----------------------------------------------------------------------------------------------------------------


def lookup(cls: type, name: str) -> Any:
    """What a class or its bases store under `name`, as it stands there; ABSENT where they store nothing."""
    return next((base.__dict__[name] for base in cls.__mro__ if name in base.__dict__), ABSENT)


def _now_attribute(owner: Any, name: str) -> Any:
    try:
        return getattr(owner, name)
    except Exception:  # what a user's property raises says that there is nothing to be had
        return ABSENT


def _flat(items: Iterable[tuple[Any, Any]]) -> tuple[Any, ...]:
    return tuple(part for item in items for part in item)


_NOW: dict[str, Callable[[Any, Any], Any]] = {
    "item": lambda holder, key: dict.get(holder, key, ABSENT),
    "cell": lambda holder, _: _now_attribute(holder, "cell_contents"),
    "member": lookup,
    "attribute": _now_attribute,
    "type": lambda holder, _: type(holder),
    "code": lambda holder, _: holder.__code__,
    "defaults": lambda holder, _: ABSENT if holder.__defaults__ is None else holder.__defaults__,
    "keywords": lambda holder, _: ABSENT if holder.__kwdefaults__ is None else holder.__kwdefaults__,
    "list": lambda holder, _: tuple(list.__iter__(holder)),
    "dict": lambda holder, _: _flat(dict.items(holder)),
    "items": lambda holder, _: tuple(holder),
    "array": lambda holder, _: holder.tobytes(),
    "ask": lambda holder, _: holder(),
}
_SEVERAL = frozenset({"list", "dict", "items"})  # kinds whose `seen` is a tuple of objects


def now(row: Row) -> Any:
    """What stands at a row's place."""
    return _NOW[row[0]](row[1], row[2])


def holds(row: Row) -> bool:
    """Does the very object that was seen stand there? What is only equal to it does not count."""
    kind, holder, key, seen = row
    found = now(row)
    if kind in _SEVERAL:
        return len(found) == len(seen) and all(map(operator.is_, found, seen))
    if kind == "array":
        return bool(key == _layout(holder) and found == seen)
    return found is seen


def is_equal(row: Row) -> bool:
    """Does what stands there have the digest of what was seen?"""
    if row[0] in ("ask", "array"):
        return holds(row)
    try:
        return bool(freeze(now(row)) == freeze(row[3]))
    except Exception:  # a `__stagekit_key__` may raise anything
        return False


def is_atomic(value: Any) -> bool:
    """Does the same object mean the same for ever, whatever is read of it?"""
    kind = type(value)
    return kind in ATOMIC_TYPES or isinstance(value, _ALWAYS_ATOMIC)


ATOMIC_TYPES = frozenset({*_PLAIN, *_BY_BITS, range, type(...), type(NotImplemented)})
_ALWAYS_ATOMIC = (np.generic, np.dtype, DType, Intrinsic, types.BuiltinFunctionType, types.MethodDescriptorType)


def contents(value: Any) -> list[Row]:
    """Rows for all that a container, an array or a dataclass holds, however deep; none for what counts by identity."""
    rows: list[Row] = []
    ahead, known = [value], {}
    while ahead:
        each = ahead.pop()
        if is_atomic(each) or isinstance(each, _NEVER_INSIDE) or id(each) in known:
            continue
        known[id(each)] = each
        ahead += _look_inside(each, rows)
    return rows


_NEVER_INSIDE = (type, types.FunctionType, types.ModuleType)


def _look_inside(value: Any, rows: list[Row]) -> Iterable[Any]:
    """Add the rows of one object; gives what it holds."""
    for base, look in _CONTENTS:
        if isinstance(value, base):
            held = look(value, rows)
            return held if type(value) in BUILT_IN_CONTAINERS else [*held, *state_rows(value, rows)]
    if key_of(value) is not None:
        rows.append(asking(lambda: freeze(value)))
        return ()
    is_record = not isinstance(value, type) and is_dataclass(value) and not isinstance(value, _ALWAYS_ATOMIC)
    return state_rows(value, rows) if is_record else ()


def state_rows(value: Any, rows: list[Row]) -> Iterable[Any]:
    """Add rows for the class and all attributes of an object; gives their values."""
    rows.append(("type", value, None, type(value)))
    own = getattr(value, "__dict__", None)
    found: list[Any] = []
    if type(own) is dict:
        rows += [("attribute", value, "__dict__", own), ("dict", own, None, _flat(own.items()))]
        found += own.values()
    for name in _slot_names(type(value)):
        held = _now_attribute(value, name)
        rows.append(("attribute", value, name, held))
        found.append(held)
    return found


def asking(look: Callable[[], Any]) -> Row:
    """A row for what pointers cannot say: Python is asked whether `look` still gives the same."""
    before = look()

    def is_same() -> bool:
        try:
            return bool(look() == before)
        except Exception:  # the user's code that is asked may raise anything
            return False

    return ("ask", is_same, None, True)


Look = Callable[[Any, list[Row]], Iterable[Any]]
"""Adds the rows of one object, and gives what it holds."""


def _list(value: Any, rows: list[Row]) -> Iterable[Any]:
    seen = tuple(list.__iter__(value))
    rows.append(("list", value, None, seen))
    return seen


def _dict(value: Any, rows: list[Row]) -> Iterable[Any]:
    seen = _flat(dict.items(value))
    rows.append(("dict", value, None, seen))
    if isinstance(value, OrderedDict):  # it keeps its order elsewhere
        rows.append(asking(lambda: [*map(ById, OrderedDict.keys(value))]))
    if isinstance(value, defaultdict):
        rows.append(("attribute", value, "default_factory", value.default_factory))
    return seen


def _items_of(base: Any) -> Look:
    """Of what gives its items by iterating alone."""

    def look(value: Any, rows: list[Row]) -> Iterable[Any]:
        seen = tuple(base.__iter__(value))
        is_native = type(value) is base  # else iterating may run code of its class
        rows.append(("items", value, None, seen) if is_native else asking(lambda: [*map(ById, base.__iter__(value))]))
        return seen

    return look


def _asked(items: Callable[[Any], Iterable[Any]]) -> Look:
    """Of what cannot be compared by addresses of its own: Python looks at its items."""

    def look(value: Any, rows: list[Row]) -> Iterable[Any]:
        rows.append(asking(lambda: [*map(ById, items(value))]))
        return list(items(value))

    return look


def _bytes(value: Any, rows: list[Row]) -> Iterable[Any]:
    def look() -> tuple[Any, ...]:
        try:
            view = memoryview(value)
        except ValueError:  # it was released
            return ()
        _refuse_large(value, view.nbytes)
        return (view.format, view.shape, view.strides, view.tobytes())

    rows.append(asking(look))
    return ()


def _array(value: Any, rows: list[Row]) -> Iterable[Any]:
    """Contents are compared by their bytes: natively where they lie in one piece, else in Python."""
    _refuse_large(value, value.nbytes)
    if value.dtype.hasobject:
        rows.append(asking(lambda: (_layout(value), [*map(ById, value.flat)])))
        return list(value.flat)
    is_native = type(value) is np.ndarray and value.flags.c_contiguous
    layout, content = _layout(value), value.tobytes()
    rows.append(("array", value, layout, content) if is_native else asking(lambda: (_layout(value), value.tobytes())))
    return ()


def _layout(value: Any) -> bytes:
    """The address of an array's dtype, its flags, its shape and its strides, as a native launcher finds them."""
    words = (id(value.dtype), value.flags.num, *value.shape, *value.strides)
    return struct.pack(f"<{len(words)}q", *words)


_CONTENTS: tuple[tuple[Any, Look], ...] = (
    (tuple, lambda value, _: tuple.__iter__(value)),
    (frozenset, lambda value, _: frozenset.__iter__(value)),
    (list, _list),
    (dict, _dict),
    (set, _items_of(set)),
    (deque, _items_of(deque)),
    (types.MappingProxyType, _asked(lambda value: _flat(value.items()))),
    (ItemsView, _asked(_flat)),
    ((KeysView, ValuesView), _asked(list)),
    (functools.partial, _asked(lambda value: (value.func, value.args, value.keywords))),
    ((bytearray, memoryview, array), _bytes),
    (np.ndarray, _array),
)
"""What holds other values, with those that derive from it: its items, whatever its class says of them."""
BUILT_IN_CONTAINERS = frozenset({
    tuple, frozenset, list, dict, set, deque, OrderedDict, defaultdict, types.MappingProxyType, bytearray, memoryview, array,
    np.ndarray, functools.partial, type({}.keys()), type({}.values()), type({}.items()),
})  # fmt: skip
