"""The state of an object: for a key in memory, and for the check at each call. docs/decisions/0016 has the rule.

    freeze(1.0)              the digest: equal for equal values of the same exact type, and for nothing else
    contents(value)          rows: the places whose objects must stay the same for `value` to mean the same
    holds(row)               whether the object that was seen is still at its place, by comparing pointers

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
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from stagekit.dtypes import DType
from stagekit.frontend.errors import CaptureTooLarge
from stagekit.frozen import frozen
from stagekit.ir import Intrinsic
from stagekit.native_tables import ABSENT

Token = Any
Row = tuple[str, Any, Any, Any]
_POINTER_BYTES = struct.calcsize("P")

MOST_BYTES = 64 << 20  # the largest array that a kernel captures, since it is copied, and compared at each call


class StandIn:
    """Stands for a run-time value. The tracer makes it for one trace, so nobody outside changes it."""

    __slots__ = ()


class TooLarge(Exception):
    """Raised for an array that is too large to be copied, and compared at each call."""

    def __init__(self, value: Any, nbytes: int) -> None:
        self.diagnostic = CaptureTooLarge(f"the {type(value).__name__}", nbytes, MOST_BYTES)


def _refuse_large(value: Any, nbytes: int) -> None:
    if nbytes > MOST_BYTES:
        raise TooLarge(value, nbytes)


# -- digests --------------------------------------------------------------------------------------------------------------


@frozen(eq=False)
class ById:
    """The token of an object that counts by identity. It keeps the object alive, so that its id is not reused."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ById) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def freeze(value: Any) -> Token:
    """Return the digest of a value, a hashable token: 1, True, 1.0 and `np.int32(1)` are four tokens, 0.0 and -0.0 two."""
    try:
        return _freeze(value, ())
    except RecursionError:  # nested deeper than anybody writes
        return ById(value)


def _freeze(value: Any, containers: tuple[Any, ...]) -> Token:
    """As `freeze`. containers: those that `value` is in, since a list may contain itself."""
    kind = type(value)
    if kind in _PLAIN:
        return (kind, value)
    if kind in _BY_BITS:
        return (kind, _BY_BITS[kind](value))
    parts = _parts(value)
    if parts is None:
        return ById(value)
    for depth, outer in enumerate(containers):
        if outer is value:
            return (kind, depth)
    inside = (*containers, value)
    return (kind, *(_freeze(part, inside) for part in parts))


_PLAIN = frozenset({int, bool, str, bytes, type(None)})
_BY_BITS: dict[type, Callable[[Any], bytes]] = {
    float: struct.Struct("<d").pack,
    complex: lambda value: struct.pack("<dd", value.real, value.imag),
}
_BY_PARTS: dict[type, Callable[[Any], Iterable[Any] | None]] = {
    range: lambda value: (value.start, value.stop, value.step),
    slice: lambda value: (value.start, value.stop, value.step),
    **dict.fromkeys((tuple, list, set, frozenset), iter),  # sets in the order in which a kernel iterates over them
    dict: lambda value: _flat(value.items()),
    functools.partial: lambda value: None if vars(value) else (value.func, value.args, value.keywords),
}


def _parts(value: Any) -> Iterable[Any] | None:
    """Return the parts that make up a value with a digest; None for one that counts by identity."""
    kind = type(value)
    if kind in _BY_PARTS:
        return _BY_PARTS[kind](value)
    if kind is np.ndarray:
        _refuse_large(value, value.nbytes)
        layout = value.dtype, value.shape, value.strides, value.flags.num
        return None if value.dtype.hasobject else (*layout, value.tobytes())
    if issubclass(kind, np.dtype):
        has_more = value.fields is not None or value.subdtype is not None or value.metadata is not None
        return None if has_more or value.hasobject else (value.str, value.char, value.type)
    if issubclass(kind, np.generic):
        return (value.dtype, value.tobytes()) if kind is value.dtype.type and not value.dtype.hasobject else None
    if issubclass(kind, enum.Enum):
        # a named member is one object; a flag such as `Perm(4)` that names no 4 makes others, which hold these three
        return None if set(vars(value)) - {"_value_", "_name_", "_inverted_"} else (value._value_,)
    if (key := key_of(value)) is not None:
        return (key(),)
    if not _is_plain_class(kind):
        return None
    base = next((base for base in _PLAIN_VALUES if issubclass(kind, base)), object)
    record = getattr(kind, "__dataclass_params__", None)  # with `eq=False` objects of equal fields are not equal
    is_record = record is not None and bool(record.eq)
    if _holds_more(kind, base) or (base is object and not is_record):
        return None
    plain = () if base is object else (_PLAIN_VALUES[base](value),)
    return (*plain, *_flat(stored(value).items()))


_PLAIN_VALUES: dict[type, Callable[[Any], Any]] = {
    int: int.__int__, float: float.__float__, complex: complex.__complex__, str: str.__str__, bytes: bytes.__bytes__,
    tuple: lambda value: tuple(tuple.__iter__(value)),
}  # fmt: skip
"""The bases of classes whose objects are values, such as named tuples: their digests are of all that they hold."""


def _is_plain_class(cls: type) -> bool:
    """Return whether the attributes of an object are what it stores, and not given by code of its class."""
    if type(cls) is not type:
        return False
    own = [vars(base) for base in cls.__mro__ if base not in (object, *_PLAIN_VALUES)]
    return not any(name in each for each in own for name in ("__getattr__", "__getattribute__"))


def _holds_more(cls: type, base: type) -> bool:
    """Return whether an object has room for more than `base`, slots, a `__dict__` and weak references, as `pickle` asks."""
    pointers = len(slot_names(cls)) + (cls.__dictoffset__ != 0) + (cls.__weakrefoffset__ != 0)
    return cls.__itemsize__ != base.__itemsize__ or cls.__basicsize__ > base.__basicsize__ + pointers * _POINTER_BYTES


def slot_names(cls: type) -> list[str]:
    found: list[str] = copyreg._slotnames(cls)  # type: ignore[attr-defined]  # with private names mangled
    return found


def stored(value: Any) -> dict[str, Any]:
    """Return the attributes that an object itself holds, in slots or in its dict."""
    slots = ((name, _now_attribute(value, name)) for name in slot_names(type(value)))
    return {**{name: held for name, held in slots if held is not ABSENT}, **own_attributes(value)}


def own_attributes(value: Any) -> Mapping[str, Any]:
    """Return the `__dict__` of an object; an empty one where that is no dict."""
    own = getattr(value, "__dict__", None)
    return own if isinstance(own, dict | types.MappingProxyType) else {}


ANOTHER_OBJECT = "make it once, or let its class say its state by `__stagekit_key__`"


def key_of(value: Any) -> Callable[[], Any] | None:
    """Return the bound `__stagekit_key__`, by which an object's class gives its state; None where it has none."""
    method = getattr(type(value), "__stagekit_key__", None)
    return functools.partial(method, value) if isinstance(method, types.FunctionType) else None


# -- rows -----------------------------------------------------------------------------------------------------------------


def lookup(cls: type, name: str) -> Any:
    """Return what a class or its bases store under `name`, unbound; ABSENT where they store nothing."""
    return next((base.__dict__[name] for base in cls.__mro__ if name in base.__dict__), ABSENT)


def _now_attribute(owner: Any, name: str) -> Any:
    try:
        return getattr(owner, name)
    except Exception:  # a user's property may raise anything
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
    """Return what is at a row's place now."""
    return _NOW[row[0]](row[1], row[2])


def holds(row: Row) -> bool:
    """Return whether the object at a row's place is the one that was seen. An equal one is not enough."""
    kind, holder, key, seen = row
    found = now(row)
    if kind in _SEVERAL:
        return len(found) == len(seen) and all(map(operator.is_, found, seen))
    if kind == "array":
        return bool(key == _layout(holder) and found == seen)
    return found is seen


def is_equal(row: Row) -> bool:
    """Return whether the object at a row's place has the digest of the one that was seen."""
    if row[0] in ("ask", "array"):
        return holds(row)
    try:
        return bool(freeze(now(row)) == freeze(row[3]))
    except Exception:  # a `__stagekit_key__` may raise anything
        return False


def is_atomic(value: Any) -> bool:
    """Return whether an object means the same for ever, whatever is read of it."""
    kind = type(value)
    return kind in ATOMIC_TYPES or isinstance(value, _ALWAYS_ATOMIC)


ATOMIC_TYPES = frozenset({*_PLAIN, *_BY_BITS, range, type(...), type(NotImplemented)})
_ALWAYS_ATOMIC = (
    np.generic,
    np.dtype,
    DType,
    Intrinsic,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    StandIn,
)


def contents(value: Any) -> list[Row]:
    """Return rows for all that a container, an array or a dataclass holds, however deep; none for other objects."""
    rows: list[Row] = []
    pending, known = [value], {}
    while pending:
        each = pending.pop()
        if is_atomic(each) or isinstance(each, _NEVER_INSIDE) or id(each) in known:
            continue
        known[id(each)] = each
        pending += _look_inside(each, rows)
    return rows


_NEVER_INSIDE = (type, types.FunctionType, types.ModuleType)


def _look_inside(value: Any, rows: list[Row]) -> Iterable[Any]:
    """Add the rows of one object; return what it holds."""
    for base, items, rows_of in _CONTENTS:
        if isinstance(value, base):
            held = tuple(items(value))
            rows += rows_of(value, held)
            return held if type(value) in BUILT_IN_CONTAINERS else [*held, *state_rows(value, rows)]
    if key_of(value) is not None:
        rows.append(asking(lambda: freeze(value)))
        return ()
    is_record = not isinstance(value, type) and is_dataclass(value) and not isinstance(value, _ALWAYS_ATOMIC)
    return state_rows(value, rows) if is_record else ()


def held_by(value: Any) -> tuple[Any, ...]:
    """Return the items of a container, past the methods of its class; nothing for other objects."""
    return next((tuple(items(value)) for base, items, _ in _CONTENTS if isinstance(value, base)), ())


def state_rows(value: Any, rows: list[Row]) -> Iterable[Any]:
    """Add rows for the class and all attributes of an object; return their values."""
    rows.append(("type", value, None, type(value)))
    own = getattr(value, "__dict__", None)
    found: list[Any] = []
    if type(own) is dict:
        rows += [("attribute", value, "__dict__", own), ("dict", own, None, _flat(own.items()))]
        found += own.values()
    for name in slot_names(type(value)):
        held = _now_attribute(value, name)
        rows.append(("attribute", value, name, held))
        found.append(held)
    return found


def asking(look: Callable[[], Any]) -> Row:
    """Return a row for what pointers cannot tell: Python is asked whether `look` still returns an equal value."""
    before = look()

    def is_same() -> bool:
        try:
            return bool(look() == before)
        except Exception:  # the user's code that is asked may raise anything
            return False

    return ("ask", is_same, None, True)


Items = Callable[[Any], Iterable[Any]]
RowsOf = Callable[[Any, tuple[Any, ...]], list[Row]]
"""Returns the rows of a container, given its items."""


def _rows_of_dict(value: Any, held: tuple[Any, ...]) -> list[Row]:
    rows: list[Row] = [("dict", value, None, held)]
    if isinstance(value, OrderedDict):  # its order is not that of the dict
        rows.append(asking(lambda: [*map(ById, OrderedDict.keys(value))]))
    if isinstance(value, defaultdict):
        rows.append(("attribute", value, "default_factory", value.default_factory))
    return rows


def _iterated(base: Any) -> tuple[Any, Items, RowsOf]:
    """Return the row of `_CONTENTS` for containers whose items only iterating gives."""

    def rows_of(value: Any, held: tuple[Any, ...]) -> list[Row]:
        is_native = type(value) is base  # else iterating may run code of its class
        return [("items", value, None, held) if is_native else asking(lambda: [*map(ById, base.__iter__(value))])]

    return base, base.__iter__, rows_of


def _asked(bases: Any, items: Items) -> tuple[Any, Items, RowsOf]:
    """Return the row of `_CONTENTS` for containers that hold no pointers to compare: Python looks at their items."""
    return bases, items, lambda value, _: [asking(lambda: [*map(ById, items(value))])]


def _rows_of_bytes(value: Any, held: tuple[Any, ...]) -> list[Row]:
    def look() -> tuple[Any, ...]:
        try:
            view = memoryview(value)
        except ValueError:  # it was released
            return ()
        _refuse_large(value, view.nbytes)
        return (view.format, view.shape, view.strides, view.tobytes())

    return [asking(look)]


def _rows_of_array(value: Any, held: tuple[Any, ...]) -> list[Row]:
    """Return the row of an array, whose bytes are compared: natively where they are contiguous, else in Python."""
    _refuse_large(value, value.nbytes)
    if value.dtype.hasobject:
        return [asking(lambda: (_layout(value), [*map(ById, value.flat)]))]
    if type(value) is np.ndarray and value.flags.c_contiguous:
        return [("array", value, _layout(value), value.tobytes())]
    return [asking(lambda: (_layout(value), value.tobytes()))]


def _layout(value: Any) -> bytes:
    """Pack the address of an array's dtype, its flags, shape and strides, as a native launcher reads them."""
    words = (id(value.dtype), value.flags.num, *value.shape, *value.strides)
    return struct.pack(f"<{len(words)}q", *words)


_CONTENTS: tuple[tuple[Any, Items, RowsOf], ...] = (
    (tuple, tuple.__iter__, lambda value, held: []),
    (frozenset, frozenset.__iter__, lambda value, held: []),
    (list, list.__iter__, lambda value, held: [("list", value, None, held)]),
    (dict, lambda value: _flat(dict.items(value)), _rows_of_dict),
    _iterated(set),
    _iterated(deque),
    _asked(types.MappingProxyType, lambda value: _flat(value.items())),
    _asked(ItemsView, _flat),
    _asked((KeysView, ValuesView), iter),
    _asked(functools.partial, lambda value: (value.func, value.args, value.keywords)),
    ((bytearray, memoryview, array), lambda value: (), _rows_of_bytes),
    (np.ndarray, lambda value: value.flat if value.dtype.hasobject else (), _rows_of_array),
)
"""For containers and those that derive from them: how to get the items, past the methods of the class, and the rows."""
BUILT_IN_CONTAINERS = frozenset({
    tuple, frozenset, list, dict, set, deque, OrderedDict, defaultdict, types.MappingProxyType, bytearray, memoryview, array,
    np.ndarray, functools.partial, type({}.keys()), type({}.values()), type({}.items()),
})  # fmt: skip
