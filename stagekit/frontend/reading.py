"""All that tracing a kernel could read, as one digest that is the same in every process: by content, never by address.

    reading = Reading()
    reading.visit(kernel)          its text and code, and what its free names mean, and what those mean, ...
    reading.digest()               equal in another process when all of that is equal
    reading.captures               the same reads, to be checked again in this process without a walk

It looks at more than a trace would read (both sides of an `if`, every row of a table), never at less: `covers` says whether
what a trace has read was all seen. A value that has no content of its own to go by, such as an object of an extension module,
raises `Unstable`: a kernel that reads one is traced in every process.
"""

from __future__ import annotations

import copyreg
import dataclasses
import enum
import functools
import hashlib
import itertools
import struct
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from stagekit.dtypes import DType
from stagekit.frontend.calls import snapshot_of
from stagekit.frontend.captures import Captures
from stagekit.frontend.frame import default_of, name_of_free, read_free
from stagekit.frontend.markers import Dynamic, SizeOp
from stagekit.frontend.values import is_fixed
from stagekit.ir import Intrinsic

_MOST_VALUES = 4_000
_MOST_BYTES = 1 << 22  # of an array


class Unstable(Exception):
    """A value that cannot be recognised in another process."""


def _is_fixed_object(owner: Any) -> bool:
    """A function, class or module whose content follows from its version."""
    if isinstance(owner, types.FunctionType):
        return is_fixed(owner.__globals__.get("__name__"))
    return is_fixed(owner.__name__ if isinstance(owner, types.ModuleType) else getattr(owner, "__module__", None))


class Reading:
    """A walk over values. The order is that of the program, so equal programs give equal digests."""

    def __init__(self) -> None:
        self.captures = Captures()
        self.places: list[str] = []  # where each function stands, for code that shows it
        self._hash = hashlib.sha256()
        self._numbers: dict[int, int] = {}  # by id: what was visited is mentioned by its number, which also ends cycles
        self._alive: list[Any] = []  # else an id could be used again
        self._whole: set[int] = set()  # ids of what was taken in with all that can be read from it
        self._asked: set[tuple[int, str]] = set()

    def digest(self) -> str:
        return self._hash.hexdigest()

    def covers(self, captures: Captures) -> bool:
        """Was all that a trace has read seen here too?"""
        return captures.is_repeatable and all(
            self.captures.has(owner, name) or id(owner) in self._whole or _is_fixed_object(owner)
            for owner, name in captures.places()
        )

    def visit(self, value: Any) -> None:
        """Take in a value and all that it leads to."""
        if type(value) in _ATOMS:
            self.say(type(value).__name__, _ATOMS[type(value)](value))
            return
        number = self._numbers.get(id(value))
        if number is not None:
            self.say("seen", str(number))
            return
        self._numbers[id(value)] = len(self._numbers)
        self._alive.append(value)
        if len(self._numbers) > _MOST_VALUES:
            raise Unstable("it reads too much")
        self._rule(value)(self, value)
        if not isinstance(value, _KNOWN_IN_PART):
            self._whole.add(id(value))

    def say(self, *words: str) -> None:
        for word in words:
            content = word.encode("utf-8", "surrogatepass")
            self._hash.update(b"%d:" % len(content))
            self._hash.update(content)

    def say_bytes(self, kind: str, content: bytes) -> None:
        self.say(kind, str(len(content)))
        self._hash.update(content)

    def note(self, owner: Any, place: str, what: str, again: Callable[[], Any], value: Any) -> None:
        """A read: to be repeated in this process, and to be taken in."""
        self.captures.note(owner, place, what, again, value)
        self.say(place)
        self.visit(value)

    def module_attributes(self, module: types.ModuleType, names: Iterable[str]) -> None:
        """The attributes of a module that a function mentions, through further modules too."""
        public = getattr(module, "__all__", ())
        for name in names:
            if (name not in vars(module) and name not in public) or (id(module), name) in self._asked:
                continue
            self._asked.add((id(module), name))
            value = getattr(module, name)  # some modules, ours among them, make public names when they are asked for
            again = functools.partial(getattr, module, name)
            if is_fixed(module.__name__) and type(value) not in _ATOMS and not isinstance(value, types.ModuleType):
                self.captures.note(module, f".{name}", f"`{module.__name__}.{name}`", again, value)
                self.say(module.__name__, name)
                self._whole.add(id(value))
                self._alive.append(value)
                continue
            self.note(module, f".{name}", f"`{module.__name__}.{name}`", again, value)
            if isinstance(value, types.ModuleType):
                self.module_attributes(value, names)

    def _rule(self, value: Any) -> _Rule:
        for kind, rule in _RULES:
            if isinstance(value, kind):
                return rule
        return _fragment if _is_fragment(value) else _instance


_Rule = Callable[[Reading, Any], None]
_KNOWN_IN_PART = (types.FunctionType, types.ModuleType)  # by the names that functions mention

_ATOMS: dict[type, Callable[[Any], str]] = {
    bool: str,
    int: hex,
    float: float.hex,
    complex: repr,
    str: str,
    bytes: bytes.hex,
    type(None): str,
    type(...): str,
    type(NotImplemented): str,
}


# -- functions and modules ------------------------------------------------------------------------------------------------


def _function(reading: Reading, fn: types.FunctionType) -> None:
    module = fn.__globals__.get("__name__")
    if is_fixed(module):
        reading.say("function", str(module), fn.__qualname__)
        return
    snapshot = snapshot_of(fn)
    reading.places.append(f"{fn.__code__.co_filename}:{snapshot.first_line}")
    reading.say("function", fn.__name__, *(snapshot.lines or ("without text",)))
    names = tuple(_code(reading, fn.__code__))
    _defaults(reading, fn)
    for name in names:
        try:
            value = read_free(fn, name)
        except NameError:
            reading.say("no", name)
            continue
        except ValueError:
            reading.say("empty", name)
            continue
        reading.note(fn, name, name_of_free(fn, name), functools.partial(read_free, fn, name), value)
        if isinstance(value, types.ModuleType):
            reading.module_attributes(value, names)


def _defaults(reading: Reading, fn: types.FunctionType) -> None:
    code, given = fn.__code__, fn.__defaults__ or ()
    positional = code.co_varnames[: code.co_argcount]
    rows = [*zip(positional[len(positional) - len(given) :], given), *(fn.__kwdefaults__ or {}).items()]
    for name, value in rows:
        again = functools.partial(default_of, fn, name)
        reading.note(fn, f"default {name}", f"the default of `{name}`", again, value)


def _code(reading: Reading, code: types.CodeType) -> Iterator[str]:
    """Take in code without where it stands; gives the names in it that may be free, nested functions' too, each once."""
    found: dict[str, None] = dict.fromkeys((*code.co_freevars, *code.co_names))
    arguments = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    reading.say("code", repr((arguments, code.co_varnames, code.co_cellvars, tuple(found))))
    reading.say_bytes("bytecode", code.co_code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found.update(dict.fromkeys(_code(reading, constant)))
        elif isinstance(constant, frozenset):  # its order differs from process to process
            reading.say(*sorted(map(repr, constant)))
        else:
            reading.say(repr(constant))
    yield from found


def _module(reading: Reading, module: types.ModuleType) -> None:
    reading.say("module", module.__name__)


def _named(reading: Reading, value: Any) -> None:
    """Functions and descriptors of C code; a bound one belongs to its object."""
    owner = getattr(value, "__self__", None)
    name = getattr(value, "__qualname__", None) or value.__name__
    if owner is None or isinstance(owner, types.ModuleType):
        module = getattr(value, "__module__", None) or getattr(getattr(value, "__objclass__", None), "__module__", None)
        if not is_fixed(module):
            raise Unstable(f"`{name}` is not Python code")
        reading.say("native", str(module), name)
        return
    reading.say("native", name)
    reading.visit(owner)


def _slot(reading: Reading, value: Any) -> None:
    reading.say("slot", value.__name__)


def _parts(*names: str) -> _Rule:
    """Values that are what their parts are."""

    def rule(reading: Reading, value: Any) -> None:
        reading.say(type(value).__name__)
        for name in names:
            reading.visit(getattr(value, name))

    return rule


def _is_fragment(value: Any) -> bool:
    return hasattr(type(value), "__stagekit_fragment__") or "__stagekit_fragment__" in getattr(value, "__dict__", ())


def _fragment(reading: Reading, value: Any) -> None:
    reading.say(type(value).__name__)
    reading.visit(value.__stagekit_fragment__)
    reading.visit(dict(getattr(value, "__stagekit_fixed__", {})))


# -- data -----------------------------------------------------------------------------------------------------------------


def _sequence(reading: Reading, value: Any) -> None:
    _class_of(reading, value)
    reading.say(str(len(value)))
    for item in value:
        reading.visit(item)


def _dict(reading: Reading, value: dict[Any, Any]) -> None:
    _class_of(reading, value)
    reading.say(str(len(value)))
    for item in itertools.chain.from_iterable(value.items()):
        reading.visit(item)


def _set(reading: Reading, value: Any) -> None:
    if not all(type(v) in _ATOMS for v in value):
        raise Unstable("the order of a set of objects")
    reading.say(type(value).__name__, *sorted(f"{type(v).__name__} {_ATOMS[type(v)](v)}" for v in value))


def _array(reading: Reading, value: Any) -> None:
    if value.dtype.hasobject or value.nbytes > _MOST_BYTES:
        raise Unstable("an array of objects, or a large one")
    reading.say(type(value).__name__, value.dtype.str, str(value.dtype), str(value.shape))
    reading.say_bytes("items", value.tobytes())


def _enum(reading: Reading, value: enum.Enum) -> None:
    reading.visit(type(value))
    reading.say(value.name)
    reading.visit(value.value)


def _by_text(reading: Reading, value: Any) -> None:
    reading.say(type(value).__name__, str(value))


def _intrinsic(reading: Reading, value: Intrinsic) -> None:
    reading.say("intrinsic", value.name)


def _dynamic(reading: Reading, value: Dynamic) -> None:
    reading.say("dynamic", value.name)  # which of several of one name it is: by its number


def _class_of(reading: Reading, value: Any) -> None:
    reading.visit(type(value))


# -- classes and their objects --------------------------------------------------------------------------------------------

_MADE_BY_PYTHON = frozenset({
    "__dict__", "__weakref__", "__module__", "__doc__", "__annotations__", "__firstlineno__", "__static_attributes__",
    "__abstractmethods__", "_abc_impl", "__parameters__", "__orig_bases__", "__annotate__", "__annotate_func__",
    "__annotations_cache__", "__slots__", "__match_args__", "__hash__",
})  # fmt: skip


def _class(reading: Reading, cls: type) -> None:
    if is_fixed(cls.__module__):
        reading.say("class", cls.__module__, cls.__qualname__)
        return
    reading.say("class", cls.__qualname__)
    for part in (type(cls), *cls.__bases__):
        reading.visit(part)
    if dataclasses.is_dataclass(cls):
        for field in dataclasses.fields(cls):
            reading.say("field", field.name)
            reading.visit(None if field.default_factory is dataclasses.MISSING else field.default_factory)
    for name, member in list(vars(cls).items()):
        if name not in _MADE_BY_PYTHON and not _is_generated(cls, name, member):
            again = functools.partial(_member, cls, name)
            reading.note(cls, f".{name}", f"`{cls.__name__}.{name}`", again, member)


def _member(cls: type, name: str) -> Any:
    return vars(cls).get(name)


def _is_generated(cls: type, name: str, member: Any) -> bool:
    """What `dataclass`, `NamedTuple` and `Enum` write into a class follows from the fields."""
    if isinstance(member, types.FunctionType):
        return member.__code__.co_filename.startswith("<string>") and name.startswith("_")
    is_one = dataclasses.is_dataclass(cls) or issubclass(cls, tuple | enum.Enum)
    return is_one and (name.startswith("_") or type(member).__name__ == "_tuplegetter")


def _instance(reading: Reading, value: Any) -> None:
    """An object of a class: its class and its attributes."""
    cls = type(value)
    name = getattr(value, "__name__", None)
    if isinstance(name, str) and is_fixed(getattr(value, "__module__", None)):
        reading.say("named", value.__module__, name)
        return
    attributes = _attributes(value)
    if attributes is None:
        raise Unstable(f"an object of {cls.__module__}.{cls.__qualname__}")
    reading.say("object")
    reading.visit(cls)
    for name, content in attributes.items():
        reading.note(value, f".{name}", f"`.{name}`", functools.partial(getattr, value, name, None), content)


def _attributes(value: Any) -> dict[str, Any] | None:
    """All that an object holds, or None where it may hold more than Python shows."""
    cls = type(value)
    own = [vars(base) for base in cls.__mro__ if base is not object]
    answers = any("__getattr__" in each or isinstance(each.get("__getattribute__"), types.FunctionType) for each in own)
    if answers or _holds_more(cls):
        return None
    slots = {name: getattr(value, name) for name in _slot_names(cls) if hasattr(value, name)}
    return {**slots, **getattr(value, "__dict__", {})}


def _holds_more(cls: type) -> bool:
    """Is there room in an object for more than its slots, its `__dict__` and weak references? What `pickle` asks, too."""
    pointers = len(_slot_names(cls)) + (cls.__dictoffset__ > 0) + (cls.__weakrefoffset__ > 0)
    return cls.__itemsize__ != 0 or cls.__basicsize__ > object.__basicsize__ + pointers * _POINTER_BYTES


_POINTER_BYTES = struct.calcsize("P")


def _slot_names(cls: type) -> list[str]:
    found: list[str] = copyreg._slotnames(cls)  # type: ignore[attr-defined]  # private names as they are stored
    return found


_RULES: tuple[tuple[Any, _Rule], ...] = (
    (types.FunctionType, _function),
    (types.ModuleType, _module),
    (DType, _by_text),
    (Intrinsic, _intrinsic),
    (Dynamic, _dynamic),
    (SizeOp, _parts("kind", "args")),
    (enum.Enum, _enum),
    (type, _class),
    ((np.ndarray, np.generic), _array),
    ((np.dtype, np.ufunc), _by_text),
    ((tuple, list), _sequence),
    (dict, _dict),
    (types.MappingProxyType, _dict),
    ((set, frozenset), _set),
    (types.MethodType, _parts("__func__", "__self__")),
    ((staticmethod, classmethod), _parts("__func__")),
    (property, _parts("fget")),
    (functools.partial, _parts("func", "args", "keywords")),
    (functools.cached_property, _parts("func")),
    (
        (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
         types.ClassMethodDescriptorType),
        _named,
    ),
    ((types.MemberDescriptorType, types.GetSetDescriptorType), _slot),
)  # fmt: skip
