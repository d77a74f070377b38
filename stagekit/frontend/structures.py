"""Arguments that hold others: tuples, lists, NamedTuples and dataclasses, in each other.

Their structure is known at compile time, their leaves are arguments like others. A `Form` says how an object is taken apart, and
puts one like it together in the kernel, of what the leaves are there:

    class Pair(NamedTuple): x: Any; n: int

    form_of(Pair(array, 3))                          Form(Pair, ("x", "n"), 2)
    form_of(array)                                   None: a leaf
    held_by(Pair(array, 3), form)                    (array, 3)
    put_together(form, (Array(...), Number(...)))    Pair(Array(...), Number(...))
    place_in("p", form, 0)                           "p.x"
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from stagekit.diagnostics import counted
from stagekit.dtypes import DType, element_dtype, int64
from stagekit.frontend.complexes import ComplexLibrary, is_complex
from stagekit.frontend.markers import Pointer, Tensor
from stagekit.frontend.state import lookup, own_attributes, slot_names, stored
from stagekit.frozen import frozen


@frozen()
class Listed:
    """What all arrays of a list have in common. is_packed: they lie in C order without gaps. width: numbers in a row."""

    dtype: DType
    ndim: int
    is_packed: bool
    width: int


@frozen()
class Form:
    """How an object holds others. kind: its class. names: of its attributes, or of the items of a NamedTuple; None: it has
    items without names. count: of what it holds. axes: of a structured array, whose parts are its fields. packed: of these, by
    place, the dtypes of those that do not lie at whole elements, which are read byte by byte. listed: of a list of arrays, whose
    parts are its rows of numbers and an array.
    """

    kind: type
    names: tuple[str, ...] | None
    count: int
    axes: int | None = None
    packed: tuple[tuple[int, DType], ...] = ()
    listed: Listed | None = None

    @property
    def is_complex(self) -> bool:
        """Whether it is a complex number, or a real one that counts as such."""
        return issubclass(self.kind, (complex, np.complexfloating, *_REAL_NUMBERS))

    @property
    def has_items(self) -> bool:
        """Whether what it holds are items, and not attributes."""
        return issubclass(self.kind, tuple | list)

    def __str__(self) -> str:
        return f"a {self.kind.__name__} of {counted(self.count, 'part')}"


COMPLEX = Form(complex, ("real", "imag"), 2)  # a complex number holds two real ones
_REAL_NUMBERS = (int, float, np.integer, np.floating)  # each has these two, too


def form_of(value: Any, *, as_complex: bool = False) -> Form | None:
    """Return how an argument holds others; None where it is a leaf. as_complex: a real number counts as a complex one."""
    kind = type(value)
    if is_complex(value) or (as_complex and issubclass(kind, _REAL_NUMBERS)):
        return dataclasses.replace(COMPLEX, kind=kind)
    if kind is tuple or kind is list:
        return Form(kind, None, len(value))
    if issubclass(kind, tuple) and (is_named_tuple(kind) or is_native_tuple(kind)):
        names: tuple[str, ...] | None = getattr(kind, "_fields", None)
        count = tuple.__len__(value)
        is_odd = bool(own_attributes(value)) or count != len(names or (None,) * count)
        return None if is_odd else Form(kind, names, count)
    if kind is np.ndarray or hasattr(kind, "__stagekit_fields__"):
        names = value.dtype.names
        return None if names is None else Form(kind, names, len(names), value.ndim, tuple(_packed(value, names)))
    if hasattr(kind, "__stagekit_lists__"):
        listed = Listed(value.dtype, value.ndim, value.is_packed, value.width)
        return Form(kind, ("rows", "base"), 2, listed=listed)
    if not is_record(kind):
        return None
    names = tuple(stored(value))
    return None if any(is_computed(kind, name) for name in names) else Form(kind, names, len(names))


def _packed(value: Any, names: Sequence[str]) -> Iterator[tuple[int, DType]]:
    """Yield the place and the dtype of each field of a structured array whose elements lie at addresses of any kind."""
    for place, name in enumerate(names):
        part = value[name]
        dtype = None if part.dtype.names or _is_aligned(part) else element_dtype(part.dtype)
        if dtype is not None:
            yield place, dtype


def _is_aligned(part: Any) -> bool:
    if not isinstance(part, np.ndarray):
        return bool(part.is_aligned)
    # NumPy does not look at the address of an empty one, nor beyond the parts of complex numbers
    return part.flags.aligned and not any(place % part.itemsize for place in (part.ctypes.data, *part.strides))


def _as_bytes(part: Any) -> Any:
    """Return an array with an axis more, of the bytes of each element."""
    return part[..., None].view(np.uint8) if isinstance(part, np.ndarray) else part.as_bytes()


def is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and type(getattr(kind, "_fields", None)) is tuple


_MADE_BY_CLASS_STATEMENT = 1 << 9  # CPython's Py_TPFLAGS_HEAPTYPE


def is_native_tuple(kind: type) -> bool:
    """Return whether this is a tuple of a library in C, such as `torch.Size`; a kernel sees a plain one."""
    return issubclass(kind, tuple) and kind is not tuple and not kind.__flags__ & _MADE_BY_CLASS_STATEMENT


def is_record(kind: type) -> bool:
    """Return whether objects of this class are what their attributes are: those of a dataclass that derives from no built-in.

    One of this package's, such as an operation or a dtype, is a value.
    """
    is_ours = str(kind.__module__).partition(".")[0] == "stagekit"
    return dataclasses.is_dataclass(kind) and kind.__new__ is object.__new__ and not is_ours


def is_computed(kind: type, name: str) -> bool:
    """Return whether a class has code of its own where an object stores something by this name."""
    return name not in slot_names(kind) and hasattr(lookup(kind, name), "__set__")


def count_slots(form: Form) -> int:
    """Return how many of the attributes, the first ones, lie in slots."""
    if form.is_complex or form.listed is not None:
        return form.count
    is_of_items = form.has_items or form.axes is not None
    return 0 if is_of_items else sum(name in slot_names(form.kind) for name in form.names or ())


def held_by(value: Any, form: Form) -> tuple[Any, ...]:
    """Return what an object of this form holds, past the methods of its class."""
    if form.is_complex:
        return value.real, value.imag
    if form.listed is not None:
        return value.rows, value.base
    if form.axes is not None:
        packed = dict(form.packed)
        fields = [value[name] for name in form.names or ()]
        return tuple([_as_bytes(field) if place in packed else field for place, field in enumerate(fields)])
    if form.has_items:
        return tuple(tuple.__iter__(value) if isinstance(value, tuple) else list.__iter__(value))
    return tuple(stored(value).values())


def put_together(form: Form, parts: Sequence[Any]) -> Any:
    """Return an object of this form, without a call of its class."""
    if form.kind is list:
        return list(parts)
    if form.is_complex:
        return ComplexLibrary.number(*parts)
    if form.listed is not None:
        return _of_library["list of arrays"](*parts, form.listed.ndim, form.listed.is_packed)
    if form.axes is not None:
        fields = list(parts)
        for place, dtype in form.packed:
            fields[place] = _of_library["packed field"](fields[place], dtype)
        return _of_library["structured array"](dict(zip(form.names or (), fields)), form.axes)
    if form.has_items:
        return tuple.__new__(tuple if is_native_tuple(form.kind) else form.kind, parts)
    made: Any = object.__new__(form.kind)
    slots = slot_names(form.kind)
    for name, part in zip(form.names or (), parts):
        if name in slots:
            object.__setattr__(made, name, part)
        else:
            vars(made)[name] = part
    return made


_of_library: dict[str, Any] = {}


def structured_arrays(of_fields: Any, packed: Any) -> None:
    """Have kernels see structured arrays as objects of these classes of the library.

    of_fields: made of fields by name, and how many axes. packed: of a field that is no array, made of its bytes and its dtype.
    """
    _of_library.update({"structured array": of_fields, "packed field": packed})


def array_lists(listed: Any) -> None:
    """Have kernels see lists of arrays as objects of this class, made of rows of numbers, a pointer, and what they share."""
    _of_library["list of arrays"] = listed


def place_in(outer: str, form: Form, place: int) -> str:
    """Return how a person writes the part at this place of what is called `outer`."""
    return f"{outer}[{place}]" if form.names is None else f"{outer}.{form.names[place]}"


# -- what is said of the parts ------------------------------------------------------------------------------------------


@frozen()
class PartsMarker:
    """What an annotation or an example says of an argument that holds others. kind: its class.

    parts: what is said of each, by its name or its place. is_repeated: the first says what each is, however many there are.
    axes, packed, listed: as of a form.
    """

    kind: type
    parts: tuple[tuple[str | int, Any], ...]
    is_repeated: bool = False
    axes: int | None = None
    packed: tuple[tuple[int, DType], ...] = ()
    listed: Listed | None = None

    def fits(self, form: Form) -> bool:
        is_free = self.is_repeated or not issubclass(self.kind, tuple)
        if self.kind is complex:
            return form.is_complex
        is_alike = (form.axes, form.packed, form.listed) == (self.axes, self.packed, self.listed)
        return issubclass(form.kind, self.kind) and is_alike and (is_free or form.count == len(self.parts))

    def __str__(self) -> str:
        if self.is_repeated:
            return f"a {self.kind.__name__}"
        if self.kind is complex:
            return "a complex number"
        count = f" of {counted(len(self.parts), 'part')}" if issubclass(self.kind, tuple) else ""
        return f"a {self.kind.__name__}{count}"


@frozen()
class Example:
    """Says of an argument no more than what it may be: kernels are looked at for it before a call. type: as a call has it."""

    type: Any


def said_of_parts(form: Form, structure: PartsMarker | None, marked: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what is said of each part, None where nothing is. marked: what the class says of its attributes."""
    if structure is not None and structure.is_repeated:
        return (structure.parts[0][1],) * form.count
    if form.listed is not None:  # whose arrays are taken by their addresses alone
        return Tensor((None, form.listed.width), int64), Pointer(form.listed.dtype)
    said: dict[Any, Any] = {**marked, **dict(structure.parts if structure is not None else ())}
    names = form.names or (None,) * form.count
    return tuple([said.get(place, said.get(name)) for place, name in enumerate(names)])
