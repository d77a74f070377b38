"""Native launchers in this process: the tables that they read, and the callables that are made of them.

    process().set_functions(addresses, code)           once per process: what all launchers call
    code = NativeCode(address, closer)                 one per launcher
    launch = make_callable(code, "add", ...)           a built-in function; one per kernel and brackets

`stagekit/native_tables.py` says where each word is. This relies on layouts of CPython and NumPy, which are probed first: if one
differs, `is_available` returns False, and all launches go the general way.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import struct
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from stagekit import config
from stagekit import native_tables as tables
from stagekit.dtypes import ELEMENT_DTYPES, EXTENSION, DType
from stagekit.frozen import frozen
from stagekit.native_tables import ABSENT, C_CONTIGUOUS, WRITEABLE
from stagekit.runtime import views
from stagekit.runtime.pool import Pool, keep_for_ever
from stagekit.signature import KernelEntry

_FASTCALL_KEYWORDS = 0x80 | 0x2
_EXCHANGE_NAME = b"dlpack_exchange_api"
_EXCHANGE_MAJOR = 1

_Array = np.ndarray[Any, Any]


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


# Layouts of CPython and NumPy ---------------------------------------------------------------------------------------


@functools.cache
def is_available() -> bool:
    """Return whether launchers can rely on this interpreter and this NumPy."""
    return (
        sys.implementation.name == "cpython"
        and sys.platform == "linux"
        and sys.byteorder == "little"
        and hasattr(ctypes.pythonapi, "_PyType_Lookup")
        and _has_plain_objects()
        and has_array_layout()
        and config.variables() is not None
    )


def _has_plain_objects() -> bool:
    """Return whether an object is a count and a type, of one word each, and lists and ctypes arrays hold their memory's address
    at the offset that launchers read. Free-threaded builds have more words.
    """
    if object.__basicsize__ != 2 * tables.WORD or list.__basicsize__ != 5 * tables.WORD:
        return False
    items, memory = [object()], (ctypes.c_uint64 * 100)()
    return (
        _word_in(items, tables.OBJECT["type"]) == id(list)
        and ctypes.c_size_t.from_address(_word_in(items, tables.OBJECT["list_items"])).value == id(items[0])
        and _word_in(memory, tables.ARRAY_MEMORY) == ctypes.addressof(memory)
    )


def _word_in(probe: Any, offset: int, kind: Any = ctypes.c_size_t) -> int:
    number: int = kind.from_address(id(probe) + offset).value
    return number


@functools.cache
def has_array_layout() -> bool:
    """Return whether NumPy's fields are where `native_tables.NDARRAY` says, judging by some arrays whose values are known.

    The layout is that of `PyArrayObject_fields` in NumPy's headers, whose macros every extension module compiles in, so it cannot
    change within an ABI.
    """
    base = np.arange(24.0).reshape(4, 6)
    frozen = base[1:]
    frozen.flags.writeable = False
    return all(map(_agrees, (base, base[::2, 1:], base.T, frozen, base[2, 3:3], np.array(1, "i1"))))


def _agrees(probe: _Array) -> bool:
    """Return whether fields equal attributes. The rank comes first: with another layout the addresses may be anything."""
    fields, axes = tables.NDARRAY, ctypes.c_ssize_t * probe.ndim
    bits = C_CONTIGUOUS * probe.flags.c_contiguous | WRITEABLE * probe.flags.writeable
    return (
        _word_in(probe, fields["rank"], ctypes.c_int) == probe.ndim
        and _word_in(probe, fields["data"]) == probe.ctypes.data
        and _word_in(probe, fields["flags"], ctypes.c_int) & (C_CONTIGUOUS | WRITEABLE) == bits
        and _word_in(probe, fields["dtype"]) == id(probe.dtype)
        and (not probe.ndim or tuple(axes.from_address(_word_in(probe, fields["shape"]))) == probe.shape)
        and (not probe.ndim or tuple(axes.from_address(_word_in(probe, fields["strides"]))) == probe.strides)
    )


_SWITCHES = {"target_switch": config.TARGET, "sanitize_switch": config.SANITIZE, "threads_switch": config.THREADS}


_RUN_BLOCKS = ctypes.PYFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 5, *[ctypes.c_int64] * 3)

# The process --------------------------------------------------------------------------------------------------------


class Process:
    """The PROCESS table of this process, and all that it points to.

    functions: addresses of the machine code that launchers call, once it is loaded; with them comes the pool. streams:
    `stream_of` by the id of each array type that has a row.
    """

    def __init__(self) -> None:
        self._memory = (ctypes.c_uint64 * len(tables.PROCESS))()
        self._rows = (ctypes.c_uint64 * (len(tables.EXCHANGE) * tables.EXCHANGES))()
        self._referents: dict[str, Any] = {}
        self.functions: Mapping[str, int] = {}
        self._has_all_dtypes = False
        self.streams: dict[int, int] = {}
        self.address = ctypes.addressof(self._memory)
        for name, value in _known_objects().items():
            self.point(name, value)
        self._point_dtypes(dtype for dtype in ELEMENT_DTYPES if dtype.is_in_numpy)
        self.set("exchanges", ctypes.addressof(self._rows))

    def set(self, name: str, word: int) -> None:
        self._memory[tables.PROCESS[name] // tables.WORD] = word

    def get(self, name: str) -> int:
        return self._memory[tables.PROCESS[name] // tables.WORD]

    def point(self, name: str, value: Any) -> None:
        """Store the address of a Python object, and keep the object alive."""
        self._referents[name] = value
        self.set(name, id(value))

    def note_dtypes(self) -> None:
        """Let launchers know the dtypes of ml_dtypes once it is imported: there are no arrays of them before."""
        if not self._has_all_dtypes and EXTENSION in sys.modules:
            self._point_dtypes(ELEMENT_DTYPES)
            self._has_all_dtypes = True

    def _point_dtypes(self, dtypes: Iterable[DType]) -> None:
        for dtype in dtypes:
            self.point(f"dtype_{dtype.name}", dtype.numpy)
            if dtype.part is None and _has_plain_scalars(dtype):
                self.point(f"scalar_{dtype.name}", dtype.numpy.type)

    def set_functions(self, addresses: Mapping[str, int], code: object) -> None:
        """Store the addresses of the functions that launchers call, make the pool, and keep their code alive."""
        self.pool = pool = Pool(self.set)
        keep_for_ever(code)

        def count_threads() -> None:
            """Count them, and note by which object in the environment."""
            pool.count_threads()
            seen = (config.variables() or {}).get(config.THREADS.name.encode())
            self._referents["threads_seen"] = seen
            self.set("threads_seen", 0 if seen is None else id(seen))

        self.point("count_threads", count_threads)
        self._run_blocks, self.functions = _RUN_BLOCKS(addresses["run_blocks"]), addresses
        for name in addresses.keys() & tables.PROCESS.keys():
            self.set(name, addresses[name])

    def run_blocks(self, *values: int) -> int:
        """Call the machine code of this name, which must be there, with all its parameters but the first; return 0 or a fault."""
        fault: int = self._run_blocks(self.address, *values)
        return fault

    def add_exchange(
        self, kind: type, *, read: int = 0, stream_of: int = 0, flags: int = 0, keywords: Sequence[Any] = (None, None)
    ) -> None:
        """Add a row for an array type that has none. The count is raised last, as launchers may be reading the table."""
        place = self.get("exchange_count")
        if place == tables.EXCHANGES or id(kind) in self.streams:
            return
        self.streams[id(kind)], self._referents[f"exchange {place}"] = stream_of, (kind, keywords)
        row: list[Any] = [id(kind), read, stream_of, flags, *(0 if k is None else id(k) for k in keywords)]
        self._rows[len(row) * place : len(row) * (place + 1)] = row
        self.set("exchange_count", place + 1)


def _known_objects() -> dict[str, Any]:
    return {
        "none": None,
        "true": True,
        "false": False,
        "int": int,
        "float": float,
        "ndarray": np.ndarray,
        "environment": config.variables(),
        **{name: switch.name.encode() for name, switch in _SWITCHES.items()},
        "modules": sys.modules,
        "torch_name": sys.intern("torch"),
        "is_neg_name": sys.intern("is_neg"),
        "is_conj_name": sys.intern("is_conj"),
        "dlpack_name": sys.intern("__dlpack__"),
        "dlpack_device_name": sys.intern("__dlpack_device__"),
        "dlpack_version": tables.DLPACK_VERSION,
    }


def _has_plain_scalars(dtype: DType) -> bool:
    """Return whether NumPy's scalars of this dtype keep their value where launchers read it."""
    probe = np.array(1.0, dtype.numpy)[()]
    size = tables.SCALAR_VALUE + dtype.itemsize
    return (
        type(probe).__basicsize__ >= size
        and ctypes.string_at(id(probe), size)[tables.SCALAR_VALUE :] == probe.tobytes()
    )


@functools.cache
def process() -> Process:
    """Return the table of this process, which is made with the first launcher."""
    return Process()


session: ContextVar[Any] = ContextVar("stagekit_session", default=None)
"""What launches go to instead of native code, if anything: a sanitizer that runs them, or a recorder that writes them down."""


def divert_launches() -> None:
    """From now on, launches go the general way where there is a session. Before, launchers do not look for one."""
    if is_available():
        process().point("session", session)


def has_functions() -> bool:
    """Return whether the machine code that launchers call is loaded."""
    return is_available() and bool(process().functions)


# Arrays of other libraries ------------------------------------------------------------------------------------------


def offer_exchange(kind: type, *, is_torch: bool) -> None:
    """Let launchers read arrays of a type through its C exchange API, if that has a version known here."""
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if not is_available() or capsule is None or not views.is_capsule(capsule, _EXCHANGE_NAME):
        return
    api = _ExchangeApi.from_address(views.capsule_pointer(capsule, _EXCHANGE_NAME))
    if api.major == _EXCHANGE_MAJOR and api.tensor_from_object and api.current_work_stream:
        flags = tables.NEVER_READ_ONLY | tables.MAY_BE_NEGATED if is_torch else 0
        process().add_exchange(kind, read=api.tensor_from_object, stream_of=api.current_work_stream, flags=flags)


_VERSION_KEYWORDS = sys.intern("max_version"), sys.intern("copy")
_STREAM_KEYWORD = (sys.intern("stream"),)
_KEYWORDS = {False: (None, _STREAM_KEYWORD), True: (_VERSION_KEYWORDS, _STREAM_KEYWORD + _VERSION_KEYWORDS)}


def offer_capsules(kind: type, stream_of: int, *, is_versioned: bool) -> None:
    """Let launchers read arrays of a type by its `__dlpack__`. is_versioned: it knows the protocol of 2023.12."""
    if is_available():
        process().add_exchange(kind, stream_of=stream_of, keywords=_KEYWORDS[is_versioned])


def stream_of(arguments: Sequence[Any]) -> int:
    """Return the function that gives the current stream of the first array that has one, or 0. Launchers ask the same one."""
    return next(filter(None, (process().streams.get(id(type(a))) for a in arguments)), 0)


def trust_torch_stream(tensor: type) -> None:
    """Make launches whose arrays are all stagekit's run on torch's current stream, as torch uses CUDA. tensor: `torch.Tensor`."""
    if is_available():
        process().set("torch_stream", process().streams.get(id(tensor), 0))


# Callables ----------------------------------------------------------------------------------------------------------


class NativeCode:
    """Machine code of a launcher. closer: frees it when nothing refers to this any more."""

    def __init__(self, address: int, closer: Callable[[], None]) -> None:
        self.address = address
        weakref.finalize(self, closer).atexit = False


Guard = tuple[str, Any, Any, Any]
"""What each call compares: (kind, holder, key, seen), as `native_tables.GUARD_KINDS` says. seen: ABSENT if there is nothing."""


@frozen()
class CaptureGuards:
    """The checks of a native launcher before each launch: every object that the tracer read outside the kernel is the same.

    rows: all must hold. ask: must return True, if there is one; it checks what pointers cannot say.
    """

    rows: tuple[Guard, ...] = ()
    ask: Callable[[], bool] | None = None


@frozen(slots=False)
class LaunchParameter:
    """One parameter of a call. default: `...` if it has none. argument: which leaf of the arguments it is; None for a constexpr,
    which must be `expected`. is_declared: its annotation fixes the dtype.

    parts: of one that holds others, whose class is `expected`. Of a dataclass each has the name of an attribute; the first
    `slots` of these lie in slots. axes: of a structured array.
    """

    name: str
    default: Any
    argument: int | None
    is_declared: bool = True
    expected: Any = None
    parts: tuple[LaunchParameter, ...] | None = None
    slots: int = 0
    axes: int | None = None

    def objects_of_parts(self) -> Iterator[Any]:
        """Yield the objects that native code compares parts with, in the order in which it reads them."""
        for part in self.parts or ():
            yield from (part.name, part.expected)
            yield from part.objects_of_parts()


@frozen(slots=False)
class CallShape:
    """How a kernel is called. keyword_only: how many of the last parameters. guards: what each call checks, if anything."""

    parameters: tuple[LaunchParameter, ...]
    keyword_only: int
    guards: CaptureGuards | None = None


@frozen()
class State:
    """Words of a STATE by name. objects: words that are addresses of objects. keep: what must live as long as the STATE."""

    words: Mapping[str, int]
    objects: Mapping[str, Any]
    keep: tuple[Any, ...]


PreparedLaunch = Callable[[], None]
"""A launch whose arguments are read and checked already."""

_ARGUMENTS = ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p  # a method, its `self`, its module
_new_function = views.python_api("PyCFunction_NewEx", ctypes.py_object, *_ARGUMENTS)


class Entries:
    """The entries of a kernel for its launcher, which may get one while others call it. Each is a STATE."""

    def __init__(self) -> None:
        self._words = (ctypes.c_uint64 * len(KernelEntry))()
        self._states: dict[KernelEntry, Any] = {}

    @property
    def address(self) -> int:
        return ctypes.addressof(self._words)

    def set(self, entry: KernelEntry, code: NativeCode, state: State, guards: CaptureGuards | None) -> None:
        """Have launchers launch an entry. code: what does it."""
        words, objects, keep = _with_guards(state, guards)
        table = _state("entry", {**words, "launch": code.address}, objects, ())
        table.keep = objects, keep, code, self._states.get(entry)  # the one before may be running
        self._states[entry] = table
        self._words[list(KernelEntry).index(entry)] = ctypes.addressof(table)


def make_callable(code: NativeCode, name: str, general: Callable[..., Any], state: State, shape: CallShape) -> Any:
    """Make a built-in function that launches. general: takes the calls that the machine code does not recognise; its signature
    and doc are those of the function.
    """
    parameters = shape.parameters
    words, objects, keep = _with_guards(state, shape.guards)
    names, expected = [p.name for p in parameters], [p.expected for p in parameters]
    inside = [each for p in parameters for each in p.objects_of_parts()]
    tail = [*names, *(ABSENT if p.default is ... else p.default for p in parameters), *expected, *inside]
    objects["general"] = general
    doc = _doc_with_signature(name, inspect.signature(general), general.__doc__ or "")
    return _function("stagekit launch", code.address, name, words, objects, tail, code, shape, keep, doc=doc)


def _with_guards(state: State, guards: CaptureGuards | None) -> tuple[dict[str, int], dict[str, Any], tuple[Any, ...]]:
    """Return the words of a STATE, its objects, and what must live as long, with what each launch checks."""
    guards = guards or CaptureGuards()
    rows, compared = _guards(guards.rows)
    words = {**state.words, "guards": ctypes.addressof(rows), "guard_count": len(guards.rows)}
    objects = {**state.objects, **({} if guards.ask is None else {"ask": guards.ask})}
    return words, objects, (state, guards, rows, compared)


def make_prepared(
    function: str, name: str, general: PreparedLaunch, state: State, words: Mapping[str, int], *keep: Any
) -> PreparedLaunch:
    """Make a built-in function for a prepared launch. function: its name. general: also refuses calls with arguments."""
    words, objects = {**state.words, **words}, {**state.objects, "general": general}
    return _function("stagekit prepared launch", process().functions[function], name, words, objects, (), state, keep)  # type: ignore[no-any-return]


def _guards(rows: Sequence[Guard]) -> tuple[Any, list[Any]]:
    """Return the rows as native launchers read them, and the memory that they refer to."""
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


def _address_of(memories: list[Any], *words: int) -> int:
    """Store words in new memory, which is added to `memories`; return its address."""
    memories.append((ctypes.c_int64 * len(words))(*words))
    return ctypes.addressof(memories[-1])


def _function(
    kind: str,
    address: int,
    name: str,
    words: Mapping[str, int],
    objects: Mapping[str, Any],
    tail: Sequence[Any],
    *keep: Any,
    doc: str = "",
) -> Any:
    """Make a built-in function whose `self` is a STATE, which keeps alive everything that it needs. kind: of launch."""
    state = _state(kind, words, objects, tail)
    method = _MethodDef(name.encode(), address, _FASTCALL_KEYWORDS, doc.encode() or None)
    state.keep = method, objects, tail, keep
    return _new_function(ctypes.addressof(method), state, None)


def _state(kind: str, words: Mapping[str, int], objects: Mapping[str, Any], tail: Sequence[Any]) -> Any:
    """Make a STATE."""
    state = _state_type(len(tables.STATE) + len(tail), kind)()
    addresses = {name: id(value) for name, value in objects.items()}
    for field, word in {**words, "process": process().address, **addresses}.items():
        state[tables.STATE[field] // tables.WORD] = word
    state[len(tables.STATE) :] = [0 if value is ABSENT else id(value) for value in tail]
    return state


def _doc_with_signature(name: str, signature: inspect.Signature, doc: str) -> str:
    """Return the doc of a built-in function as CPython takes it: it splits off the signature, whose defaults are literals."""
    shown = []
    for parameter in signature.parameters.values():
        is_literal = type(parameter.default) in _LITERALS or parameter.default is parameter.empty
        plain = parameter.replace(annotation=parameter.empty)
        shown.append(plain if is_literal else plain.replace(default=_DOTS))
    return f"{name.rpartition('.')[2]}{signature.replace(parameters=shown, return_annotation=signature.empty)}\n--\n\n{doc}"


_LITERALS = (int, bool, str, type(None))
_DOTS = type("_Dots", (), {"__repr__": lambda self: "..."})()


@functools.cache
def _state_type(words: int, name: str) -> Any:
    """Return the type of a STATE. Its name appears in the repr of the function."""
    return type(name, (ctypes.Array,), {"_type_": ctypes.c_uint64, "_length_": words})
