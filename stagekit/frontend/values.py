"""What a variable can hold while tracing: any Python object (compile-time), or one of these stand-ins (run-time).

`Number` and `Address` wrap one IR value. `Array` is a compile-time description (shape, strides, dtype) around a run-time
address. `Poison` is a variable that has no single value here; using it raises the error it carries.
"""

from __future__ import annotations

import functools
import linecache
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from stagekit.diagnostics import Diagnostic, Loc, Note
from stagekit.dtypes import DType
from stagekit.frontend.errors import StagingError
from stagekit.frontend.source import FunctionNode, Names, Source
from stagekit.frontend.state import StandIn, stored
from stagekit.frozen import frozen, record
from stagekit.ir import Pointer, Value


class AskedTooEarly(TypeError):
    """Raised when CPython asks a stand-in for something that is known only at run time."""


class _RunTime(StandIn):
    """Refuses what CPython would compute from the object instead of the value it stands for: truth, equality and text."""

    __slots__ = ()

    def __bool__(self) -> bool:
        raise AskedTooEarly("the truth of a run-time value is not known at compile time")

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        raise AskedTooEarly("run-time values cannot be compared at compile time")

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"  # in Python's errors; `evaluation.failure` replaces it by the user's word

    def __format__(self, spec: str) -> str:
        raise AskedTooEarly("the digits of a run-time value are not known at compile time")


@dataclass(eq=False, slots=True, repr=False)  # never changed; a frozen one takes longer to make
class Number(_RunTime):
    """A run-time number, or a vector of numbers, which the library alone makes and takes apart.

    is_weak: it was made from literals only, so it takes the other operand's dtype. lanes: the numbers that a vector was made of.
    """

    value: Value
    is_weak: bool = False
    lanes: tuple[Number, ...] | None = None

    @property
    def dtype(self) -> DType:
        return self.value.type.dtype  # the type is a scalar or a vector


@frozen(eq=False, repr=False)
class Address(_RunTime):
    """A run-time pointer to elements of `dtype`. start: the argument that it was computed from, where that is known."""

    value: Value
    start: Value | None = None

    @property
    def type(self) -> Pointer:
        return self.value.type  # type: ignore[return-value]  # an address has no other type

    @property
    def dtype(self) -> DType:
        return self.type.dtype


Extent = int | Number


@frozen(eq=False, repr=False)
class Array(_RunTime):
    """A view of memory: `base` address, and per axis a size and a stride in elements. Immutable."""

    name: str
    base: Address
    shape: tuple[Extent, ...]
    strides: tuple[Extent, ...]
    is_contiguous: bool
    is_part: bool = False  # whether it may be less than the array that it is a view of

    @property
    def dtype(self) -> DType:
        return self.base.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)


@frozen(eq=False)
class Poison:
    """A variable without a single value: using it raises the error. `notes` quote the lines that disagree."""

    diagnostic: Diagnostic
    notes: tuple[Note, ...]

    def error(self, loc: Loc) -> StagingError:
        return StagingError(self.diagnostic, loc, self.notes)


@frozen(eq=False)
class Partial(Poison):
    """A variable that some path leaves without a value.

    value: what it holds where it has a value: where no exit was taken (if is_set), and where one of `exits` was, which are
    numbers in `Tracer.exits`.
    """

    value: Any
    is_set: bool
    exits: frozenset[int]


@frozen(eq=False)
class StagedRange(_RunTime):
    """`range(...)` with run-time bounds or an unroll factor; its loop is a run-time loop.

    forward: the range whose reverse this is, where the dtype may hold no number beyond the last, so that `stop` has no meaning.
    """

    start: Any
    stop: Any
    step: Any
    unroll: int | None
    forward: StagedRange | None = None


@frozen()
class StaticRange:
    """`static_range(...)`: its loop is unrolled."""

    values: range


@record()
class Generator:
    """An iterator of the traced program: a generator expression, or the result of `iter`, `zip`, `map` and their like.

    make: starts at the first item and returns an iterator of thunks, each of which makes one item. running: that iterator, None
    before the first item is taken.
    """

    make: Callable[[], Iterator[Callable[[], Any]]]
    running: Any = None


@frozen(eq=False)
class BoundMethod:
    """A method of a stand-in (`x.to`) or of a container (`xs.append`) that the tracer carries out itself."""

    owner: Any
    name: str
    run: Callable[..., Any]


@record()
class Scope:
    """A namespace of the program being traced: a call, or a comprehension inside one. `outer` is where free names continue."""

    names: Names
    variables: dict[str, Any]
    outer: Scope | None

    def owner_of(self, name: str) -> Scope | None:
        """Return the innermost traced scope that binds `name`."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names.local:
                return scope
            scope = scope.outer
        return None


@dataclass(frozen=True, eq=False)  # as the type checker takes a function in a field of `@frozen` for a method
class Closure:
    """A function defined inside the traced code, with the scope it was defined in.

    function: the Python function whose source contains it, for globals and cells. stub: a Python function with the same
    parameters and defaults that does nothing; arguments are bound to it.
    """

    source: Source
    function: types.FunctionType | None
    scope: Scope
    stub: types.FunctionType

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"`{self.name}` is defined in a kernel and runs only there")

    @property
    def node(self) -> FunctionNode:
        return self.source.node

    @property
    def name(self) -> str:
        return self.source.name


def escaped(text: str) -> str:
    """Return a text as part of a template, with its braces doubled."""
    return text.replace("{", "{{").replace("}", "}}")


@frozen(slots=False)
class Text:
    """An f-string with run-time values in it, usable in `print`, `assert` and `static_assert` only."""

    template: str
    operands: tuple[Number, ...]

    def __add__(self, other: str | Text) -> Text:
        if isinstance(other, str):
            return Text(self.template + escaped(other), self.operands)
        return Text(self.template + other.template, self.operands + other.operands)

    def __radd__(self, other: str) -> Text:
        return Text(escaped(other) + self.template, self.operands)

    def __str__(self) -> str:
        """Return the text as it is shown while specialising."""
        return self.template.format(*(_Unknown() for _ in self.operands))


class _Unknown:
    """A run-time number, in a text that is shown while specialising."""

    def __format__(self, spec: str) -> str:
        return "(run-time)"


STAND_INS = (Number, Address, Array, StagedRange)


def is_of_library(value: Any) -> bool:
    """Return whether this is an object of a class of the library, such as a tile."""
    return type(value).__module__.startswith("stagekit.lib.")


def hint_of(value: Any) -> str:
    """Return what an object of the library says where it is no operand: what it is for."""
    return getattr(type(value), "__stagekit_hint__", "") if is_of_library(value) else ""


def is_run_time(value: Any) -> bool:
    return isinstance(value, Number | Address)


def is_dataclass_with(value: Any, flag: str) -> bool:
    """Return whether `value` is an object of a dataclass declared with this flag: "eq", "order" or "frozen"."""
    return bool(getattr(getattr(type(value), "__dataclass_params__", None), flag, False))


_PLAIN = (str, int, float, bool, type(None), DType)
_CONTAINERS = (tuple, list, set, frozenset, deque)


def mapper_of(value: Any) -> Any:
    """Return the method by which a value (a tile) takes part in elementwise calls; None where its class has none."""
    found = getattr(type(value), "__stagekit_map__", None)
    return found if isinstance(found, types.FunctionType) else None  # a metaclass may answer to any name


def holds_run_time(value: Any, depth: int = 8) -> bool:
    """Return whether `value` contains anything that is known only at run time, up to `depth` containers deep."""
    if isinstance(value, STAND_INS):
        return True
    if depth == 0 or isinstance(value, _PLAIN):
        return False
    if isinstance(value, _CONTAINERS):
        return any(holds_run_time(v, depth - 1) for v in value)
    if isinstance(value, dict):
        return any(holds_run_time(v, depth - 1) for v in value.values())
    if isinstance(value, slice):
        return any(holds_run_time(v, 1) for v in (value.start, value.stop, value.step))
    return is_open(value) and any(holds_run_time(v, depth - 1) for v in stored(value).values())


def is_open(value: Any) -> bool:
    """Return whether `value` is an object of a user's class, or of the library's, that holds its state in attributes."""
    kind = type(value)
    if kind in _CLOSED or kind in _OF_LIBRARY:
        return kind in _OF_LIBRARY
    root, _, rest = kind.__module__.partition(".")
    if kind is types.SimpleNamespace:
        return True
    if isinstance(value, type) or is_native(kind.__module__) or (root == "stagekit" and not rest.startswith("lib")):
        return False
    found = hasattr(value, "__dict__") or any("__slots__" in cls.__dict__ for cls in kind.__mro__)
    if found and root == "stagekit":
        _OF_LIBRARY.add(kind)
    return found


_CLOSED = frozenset({*_PLAIN, *STAND_INS, tuple, list, dict, types.FunctionType})  # the commonest types that are not
_OF_LIBRARY: set[type] = set()  # those of the library that are, as far as one was asked about

_NATIVE_ROOTS = frozenset(sys.stdlib_module_names) | {"numpy", "ml_dtypes", "builtins"}


@functools.cache
def is_native(module: str | None) -> bool:
    """Return whether the functions of this module are run by CPython, never by the tracer."""
    return module is not None and module.partition(".")[0] in _NATIVE_ROOTS


def is_generated(fn: types.FunctionType) -> bool:
    """Return whether the source of `fn` was generated, as for methods of dataclasses; that of `<ipython-input-1>` was typed."""
    file = fn.__code__.co_filename
    return file.startswith("<") and not ("input" in file and linecache.getlines(file))


def is_fixed(module: Any) -> bool:
    """Return whether a module's code can change only with its version: Python's own, NumPy's and ours."""
    return isinstance(module, str) and (module.startswith("stagekit.") or module == "stagekit" or is_native(module))
