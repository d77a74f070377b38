"""Native launchers in this process: the tables they read, and the callables made of them.

    set_functions(addresses)                           once per process: what all launchers call
    code = NativeCode(address, closer)                 one per launcher
    launch = make_callable(code, "add", words, ...)    a built-in function; one per kernel and brackets

`stagekit/native_tables.py` says where each word is. Everything here rests on layouts of CPython and NumPy that are tried
first: where one differs, `is_available` says no, and all launches go the general way.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from stagekit import config
from stagekit import native_tables as tables
from stagekit.dtypes import ALL_DTYPES, DType
from stagekit.native_tables import ABSENT
from stagekit.runtime import dlpack, numpy_fields

_FASTCALL_KEYWORDS = 0x80 | 0x2
_EXCHANGE_NAME = b"dlpack_exchange_api"
_EXCHANGE_MAJOR = 1


class _MethodDef(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


class _ExchangeApi(ctypes.Structure):
    """DLPackExchangeAPI. Source: `dlpack.h` 1.3."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("managed_from_object", ctypes.c_void_p),
        ("managed_to_object", ctypes.c_void_p),
        ("tensor_from_object", ctypes.c_void_p),
        ("current_work_stream", ctypes.c_void_p),
    )


# Is all as expected? ------------------------------------------------------------------------------------------------


@functools.cache
def is_available() -> bool:
    """Can launchers rely on this interpreter and this NumPy?"""
    return (
        sys.implementation.name == "cpython"
        and sys.platform == "linux"
        and sys.byteorder == "little"
        and hasattr(ctypes.pythonapi, "_PyType_Lookup")
        and _has_plain_objects()
        and numpy_fields.has_layout()
        and _environment() is not None
    )


def _has_plain_objects() -> bool:
    """Is an object a count and a type, of one word each? Free-threaded builds have more."""
    probe = (1, 2)
    type_word = ctypes.c_size_t.from_address(id(probe) + tables.OBJECT["type"]).value
    return (
        object.__basicsize__ == 2 * tables.WORD
        and type_word == id(tuple)
        and _has_plain_lists()
        and _has_plain_arrays()
    )


def _has_plain_lists() -> bool:
    probe = [object()]
    items = ctypes.c_size_t.from_address(id(probe) + tables.OBJECT["list_items"]).value
    return list.__basicsize__ == 5 * tables.WORD and ctypes.c_size_t.from_address(items).value == id(probe[0])


def _has_plain_arrays() -> bool:
    probe = (ctypes.c_uint64 * 100)()
    return ctypes.c_size_t.from_address(id(probe) + tables.ARRAY_MEMORY).value == ctypes.addressof(probe)


def _environment() -> dict[bytes, bytes] | None:
    """What `os.environ` keeps its variables in, or None where that is not a plain dict of bytes."""
    kept = getattr(os.environ, "_data", None)
    if type(kept) is not dict or len(kept) != len(os.environ):
        return None
    return kept if all(type(k) is bytes and k.decode(errors="surrogateescape") in os.environ for k in kept) else None


# The process --------------------------------------------------------------------------------------------------------


class Process:
    """The PROCESS table of this process. What it points to is kept here."""

    def __init__(self) -> None:
        self._memory = (ctypes.c_uint64 * len(tables.PROCESS))()
        self._rows = (ctypes.c_uint64 * (len(tables.EXCHANGE) * tables.EXCHANGES))()
        self._kept: dict[str, Any] = {}
        self.address = ctypes.addressof(self._memory)
        self.is_complete = False
        for name, value in _known_objects().items():
            self.point(name, value)
        self.set("exchanges", ctypes.addressof(self._rows))

    def set(self, name: str, word: int) -> None:
        self._memory[tables.PROCESS[name] // tables.WORD] = word

    def get(self, name: str) -> int:
        return self._memory[tables.PROCESS[name] // tables.WORD]

    def point(self, name: str, value: Any) -> None:
        """Put the address of a Python object, and keep the object."""
        self._kept[name] = value
        self.set(name, id(value))

    def set_functions(self, addresses: Mapping[str, int], keep: object) -> None:
        """The functions of machine code that launchers call."""
        self._kept["functions"] = addresses, keep
        for name, address in addresses.items():
            if name in tables.PROCESS:
                self.set(name, address)
        self.is_complete = True

    @property
    def functions(self) -> Mapping[str, int]:
        found: Mapping[str, int] = self._kept["functions"][0]
        return found

    def stream_function(self, kind: type) -> int:
        """The exchange API's `current_work_stream` of an array type, 0 for others."""
        width = len(tables.EXCHANGE)
        rows = (self._rows[width * i : width * (i + 1)] for i in range(self.get("exchange_count")))
        place = tables.EXCHANGE["stream_of"] // tables.WORD
        return next((row[place] for row in rows if row[0] == id(kind)), 0)

    def add_exchange(
        self, kind: type, *, read: int = 0, stream_of: int = 0, flags: int = 0, keywords: Sequence[Any] = (None, None)
    ) -> None:
        """A row for an array type that has none; the table's length is raised last, as launchers may be reading it."""
        place, name = self.get("exchange_count"), f"exchange {id(kind)}"
        if place == tables.EXCHANGES or name in self._kept:
            return
        row: list[Any] = [id(kind), read, stream_of, flags, *(0 if k is None else id(k) for k in keywords)]
        self._rows[len(row) * place : len(row) * (place + 1)] = row
        self._kept[name] = kind, keywords
        self.set("exchange_count", place + 1)


def _known_objects() -> dict[str, Any]:
    switches = {"target_switch": config.TARGET, "sanitize_switch": config.SANITIZE}
    return {
        "none": None,
        "true": True,
        "false": False,
        "int": int,
        "float": float,
        "ndarray": np.ndarray,
        "environment": _environment(),
        **{name: switch.name.encode() for name, switch in switches.items()},
        "modules": sys.modules,
        "torch_name": sys.intern("torch"),
        "is_neg_name": sys.intern("is_neg"),
        "dlpack_name": sys.intern("__dlpack__"),
        "dlpack_device_name": sys.intern("__dlpack_device__"),
        "dlpack_version": tables.DLPACK_VERSION,
        **{f"dtype_{dtype.name}": dtype.numpy for dtype in ALL_DTYPES},
        **{f"scalar_{dtype.name}": dtype.numpy.type for dtype in ALL_DTYPES if _has_plain_scalars(dtype)},
    }


def _has_plain_scalars(dtype: DType) -> bool:
    """Do NumPy's scalars of this dtype keep their value where launchers look for it?"""
    probe = np.array(1.0, dtype.numpy)[()]
    size = tables.SCALAR_VALUE + dtype.itemsize
    return (
        type(probe).__basicsize__ >= size
        and ctypes.string_at(id(probe), size)[tables.SCALAR_VALUE :] == probe.tobytes()
    )


@functools.cache
def process() -> Process:
    """The table; made when the first launcher is."""
    return Process()


def divert_launches(variable: ContextVar[Any]) -> None:
    """From now on launches made where a context variable is set go the general way. Until then, none looks at it."""
    if is_available():
        process().point("sanitizer", variable)


def has_functions() -> bool:
    """Is the machine code there that launchers call?"""
    return is_available() and process().is_complete


# Arrays of other libraries ------------------------------------------------------------------------------------------


def offer_exchange(kind: type, *, is_torch: bool) -> bool:
    """Let launchers read arrays of a type through its C exchange API, if it has one of a version known here."""
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if not is_available() or capsule is None or not dlpack.is_capsule(capsule, _EXCHANGE_NAME):
        return False
    api = _ExchangeApi.from_address(dlpack.capsule_pointer(capsule, _EXCHANGE_NAME))
    if api.major != _EXCHANGE_MAJOR or not api.tensor_from_object or not api.current_work_stream:
        return False
    flags = tables.NEVER_READ_ONLY | tables.MAY_BE_NEGATED if is_torch else 0
    process().add_exchange(kind, read=api.tensor_from_object, stream_of=api.current_work_stream, flags=flags)
    if is_torch:
        _torch_stream.append(api.current_work_stream)
    return True


_VERSION_KEYWORDS = sys.intern("max_version"), sys.intern("copy")
_STREAM_KEYWORD = (sys.intern("stream"),)
_KEYWORDS = {False: (None, _STREAM_KEYWORD), True: (_VERSION_KEYWORDS, _STREAM_KEYWORD + _VERSION_KEYWORDS)}


def offer_capsules(kind: type, stream_of: int, *, is_versioned: bool) -> None:
    """Let launchers read arrays of a type by its `__dlpack__`. is_versioned: it knows the protocol of 2023.12, `max_version`."""
    if is_available():
        process().add_exchange(kind, stream_of=stream_of, keywords=_KEYWORDS[is_versioned])


def stream_of(arguments: Sequence[Any]) -> int:
    """Whom a launch with these arguments asks for the current stream: a function of the first array that has one, else 0."""
    return next(filter(None, (process().stream_function(type(a)) for a in arguments)), 0)


_ASK_STREAM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_size_t))


def ask_stream(function: int, device: int) -> int:
    """The stream that an exchange API's `current_work_stream` names on a GPU."""
    found = ctypes.c_size_t()
    if _ASK_STREAM(function)(2, device, found):
        raise BufferError("the owner of an array cannot tell its current stream")
    return found.value


_torch_stream: list[int] = []


def trust_torch_stream() -> None:
    """torch uses CUDA: launches whose arrays are all ours are to run on its current stream."""
    if _torch_stream:
        process().set("torch_stream", _torch_stream[0])


# Callables ----------------------------------------------------------------------------------------------------------


class NativeCode:
    """Machine code of a launcher, until nothing refers to it. closer: frees it."""

    def __init__(self, address: int, closer: Callable[[], None]) -> None:
        self.address = address
        weakref.finalize(self, closer).atexit = False


Guard = tuple[str, Any, Any, Any]


@dataclass(frozen=True, slots=True)
class Calling:
    """How the parameters of a callable are given. defaults: `...` where there is none. expected: of constexprs.

    guards: what must be so at each call: (kind, holder, key, seen), see `native_tables.GUARD_KINDS`; ABSENT where nothing
    is to be there. ask: must then be true as well.
    """

    names: Sequence[str] = ()
    defaults: Sequence[Any] = ()
    expected: Sequence[Any] = ()
    guards: Sequence[Guard] = ()
    ask: Callable[[], bool] | None = None


@dataclass(frozen=True, slots=True)
class State:
    """Words of a STATE by name, and what must live as long as it. objects: words that are addresses of objects."""

    words: Mapping[str, int]
    objects: Mapping[str, Any]
    keep: tuple[Any, ...]

    def adding(self, words: Mapping[str, int], *keep: Any) -> State:
        """The same with more."""
        return State({**self.words, **words}, self.objects, (*self.keep, *keep))


_new_function = dlpack.python_api(
    "PyCFunction_NewEx", ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
)


def make_callable(code: NativeCode, name: str, general: Callable[..., Any], state: State, calling: Calling) -> Any:
    """A built-in function that launches. general: what does a whole call that the code does not recognise."""
    guards, compared = _guards(calling.guards)
    words = {**state.words, "guards": ctypes.addressof(guards), "guard_count": len(calling.guards)}
    objects = {**state.objects, "general": general, **({} if calling.ask is None else {"ask": calling.ask})}
    tail = [*calling.names, *(ABSENT if d is ... else d for d in calling.defaults), *calling.expected]
    return _function(code.address, name, words, objects, tail, code, state, guards, compared, calling)


def make_prepared(function: str, name: str, general: Callable[[], Any], state: State) -> Callable[[], None]:
    """A built-in function that launches what `state` holds. general: also refuses a call with arguments. function: one of the
    process's.
    """
    objects = {**state.objects, "general": general}
    return _function(process().functions[function], name, state.words, objects, (), state)  # type: ignore[no-any-return]


def _guards(rows: Sequence[Guard]) -> tuple[Any, list[Any]]:
    """The rows as native launchers read them, and memory that they refer to."""
    words: list[int] = []
    compared: list[Any] = []
    for kind, holder, key, seen in rows:
        words += (tables.GUARD_KINDS.index(kind), id(holder))
        if kind in ("list", "dict", "items"):
            words += (0, _address_of(compared, len(seen), *map(id, seen)))
        elif kind == "array":
            layout = struct.unpack(f"<{len(key) // tables.WORD}q", key)
            contents = ctypes.create_string_buffer(seen, len(seen) or 1)
            compared.append(contents)
            words += (_address_of(compared, len(layout) // 2 - 1, len(seen), *layout), ctypes.addressof(contents))
        else:
            words += (0 if key is None else id(key), 0 if seen is ABSENT else id(seen))
    return (ctypes.c_uint64 * max(len(words), 1))(*words), compared


def _address_of(kept: list[Any], *words: int) -> int:
    memory = (ctypes.c_int64 * len(words))(*words)
    kept.append(memory)
    return ctypes.addressof(memory)


def _function(
    address: int, name: str, words: Mapping[str, int], objects: Mapping[str, Any], tail: Sequence[Any], *keep: Any
) -> Any:
    """A built-in function whose `self` is a STATE, and keeps everything that it needs."""
    state = _state_type(len(tables.STATE) + len(tail))()
    for field, word in {
        **words,
        "process": process().address,
        **{n: id(value) for n, value in objects.items()},
    }.items():
        state[tables.STATE[field] // tables.WORD] = word
    state[len(tables.STATE) :] = [0 if value is ABSENT else id(value) for value in tail]
    method = _MethodDef(name.encode(), address, _FASTCALL_KEYWORDS, None)
    state.keep = method, objects, tail, keep
    return _new_function(ctypes.addressof(method), state, None)


@functools.cache
def _state_type(words: int) -> Any:
    """The type of a STATE. Its name stands in the repr of the function."""
    return type("launch", (ctypes.Array,), {"_type_": ctypes.c_uint64, "_length_": words})
