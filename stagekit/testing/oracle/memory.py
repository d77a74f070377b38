"""Memory for a kernel that CPython runs: pointers and arrays over NumPy, whose accesses are held against the rules.

An access out of bounds, a store of two values to one address, a read of shared memory that nothing has written, and plain
accesses of two programs that meet raise `NoMeaning`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stagekit import dtypes
from stagekit.backends.interp.findings import GridRace, OutOfBounds, ReadOnlyWrite, UninitialisedRead
from stagekit.diagnostics import Diagnostic, counted
from stagekit.dtypes import INDEX, DType
from stagekit.frontend.errors import BadIndex, BadShape, NonContiguous
from stagekit.intrinsics import registry
from stagekit.ir import BinaryKind, Intrinsic, semantics
from stagekit.testing.oracle.values import (
    MAX_AXES,
    PLACE,
    Array,
    Extents,
    NoMeaning,
    OracleScalar,
    OracleTile,
    OracleValue,
    at_index,
    binary,
    check_extents,
    dtype_of,
    elements_in,
    is_numeric,
    refused,
    value_of,
)  # fmt: skip


class StoredTwice(Diagnostic):
    title = "Two elements of one store go to one address"
    label = "element {index} of `{array}` is written as {first} and as {second}"
    help = "elements of a tile are written in no order: give each an address of its own, or use an atomic"


class OldValueUnknown(Diagnostic):
    title = "The old value of an atomic whose elements meet"
    label = "elements of one tile meet at element {index} of `{array}`, in no order, and the result is used"
    help = "leave the result unused, or give each element of the tile an address of its own"


_NOBODY, _SEVERAL = -1, -2
_AGAINST = {"reads": ("writes", "updates"), "writes": ("reads", "writes", "updates"), "updates": ("reads", "writes")}


class Meetings:
    """Which program read, wrote and updated each byte of global memory, to find accesses of two programs that meet.

    program: the number of the one that runs.
    """

    def __init__(self, memories: Sequence[OracleMemory]) -> None:
        self.program = 0
        size = end = shift = 0
        for memory in sorted(memories, key=lambda each: each.address):
            memory_end = memory.address + memory.elements.nbytes
            if memory.address >= end:  # else they overlap, and share the bytes
                shift, end = size - memory.address, memory.address
            size, end = size + max(memory_end - end, 0), max(memory_end, end)
            memory.shift, memory.meetings = shift, self
        self._by = {verb: np.full(size, _NOBODY, np.int32) for verb in _AGAINST}

    def note(self, memory: OracleMemory, verb: str, places: Array) -> None:
        """Record an access. Raises NoMeaning where it meets one of another program, and not both are atomic."""
        itemsize = memory.dtype.itemsize
        first = memory.address + memory.shift + places.reshape(-1, 1) * itemsize
        touched = first + np.arange(itemsize)
        for other in _AGAINST[verb]:
            by = self._by[other][touched]
            meets = ((by != _NOBODY) & (by != self.program)).any(axis=1)
            if meets.any():
                index = int(places.reshape(-1)[meets][0])
                raise NoMeaning(GridRace(verb, index, memory.name, memory.space, "another program", other))
        mine = self._by[verb]
        mine[touched] = np.where(np.isin(mine[touched], (_NOBODY, self.program)), self.program, _SEVERAL)


class OracleMemory:
    """The elements of one array, by number. owned: which of them belong to it where it has gaps, else None.

    meetings: what other programs did to it; None where there are none.
    """

    shift = 0  # from an address to a place in `meetings`
    meetings: Meetings | None = None

    def __init__(
        self, name: str, elements: Array, dtype: DType, space: str = "global", owned: Array | None = None
    ) -> None:
        self.name, self.elements, self.dtype, self.space, self.owned = name, elements, dtype, space, owned
        self.address: int = elements.ctypes.data
        self.root = self  # of which it is a part
        self.written = np.zeros(len(elements), np.bool_) if space == "shared" else None

    def enter(self, verb: str, places: Array) -> None:
        """Raise NoMeaning where an access to these elements has none. verb: "reads", "writes" or "updates"."""
        inside = (places >= 0) & (places < len(self.elements))
        if inside.all() and self.owned is not None:
            inside = self.owned[places]
        if not inside.all():
            raise self.outside(verb, int(places[~inside][0]))
        if verb != "reads" and places.size and not self.elements.flags.writeable:
            raise NoMeaning(ReadOnlyWrite(verb, int(places.flat[0]), self.name))
        if self.written is not None:
            if verb != "writes" and not self.written[places].all():
                raise NoMeaning(UninitialisedRead(int(places[~self.written[places]][0]), self.name, self.space))
            self.written[places] = True
        elif self.meetings is not None:
            self.meetings.note(self, verb, places)

    def part(self, places: Array) -> OracleMemory:
        """Return the memory of these elements alone, which follow one another: a pointer into a view must stay there."""
        first = int(places.flat[0]) if places.size else 0
        own = slice(first, first + places.size)
        found = OracleMemory(self.name, self.elements[own], self.dtype, self.space)
        found.root, found.shift, found.meetings = self.root, self.shift, self.meetings
        found.written = None if self.written is None else self.written[own]
        return found

    def outside(self, verb: str, index: int, element: str = "") -> NoMeaning:
        element = element or f"element {index} of `{self.name}`"
        limit = f", which has {counted(len(self.elements), 'element')} of {self.dtype.name}"
        offset = index * self.dtype.itemsize
        return NoMeaning(OutOfBounds(verb, self.name, element, limit, self.space, index, len(self.elements), offset))


class OraclePointer:
    """A pointer, or a tile of pointers. places: the numbers of elements of `memory`, int64."""

    __array_ufunc__ = None

    def __init__(self, memory: OracleMemory, places: Any) -> None:
        self.memory, self.places, self.dtype = memory, places, memory.dtype

    @property
    def extents(self) -> Extents | None:
        return np.shape(self.places) if np.ndim(self.places) else None

    def __getitem__(self, index: Any) -> OraclePointer:
        if self.extents is None:
            raise PLACE.error(BadIndex("a pointer cannot be indexed", "use `load(pointer + i)`"))
        return OraclePointer(self.memory, at_index(self.places, index, MAX_AXES))

    def _moved(self, kind: BinaryKind, offset: Any) -> Any:
        if not is_numeric(offset):
            return NotImplemented
        check_extents("pointer arithmetic", self, offset)
        return OraclePointer(
            self.memory, semantics.binary(kind, INDEX, self.places, elements_in(_integer(offset), INDEX))
        )

    def __add__(self, offset: Any) -> Any:
        return self._moved(BinaryKind.ADD, offset)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if not isinstance(other, OraclePointer | OracleArray):
            return self._moved(BinaryKind.SUB, other)
        there = pointer_of(other)
        if there.memory.root is not self.memory.root:
            raise refused("-", "pointers into two arrays", "both must point to one array")
        starts = (self.memory.address - there.memory.address) // self.dtype.itemsize
        return value_of(semantics.binary(BinaryKind.SUB, INDEX, self.places, there.places) + np.int64(starts), INDEX)


def _integer(index: Any) -> Any:
    """Return an index or an offset, which must be an integer."""
    if not is_numeric(index) or not dtype_of(index).is_integer:
        what = dtype_of(index).name if is_numeric(index) else type(index).__name__
        raise PLACE.error(BadIndex(f"an index must be an integer, got {what}", "convert a number by `sk.int64(x)`"))
    return index


class OracleArray:
    """An array argument, a shared array, or a view of one. places: the number in `memory` of each of its elements.

    is_static: its extents are known at compile time; else they are numbers of int64.
    """

    __iter__ = None
    __array_ufunc__ = None

    def __init__(self, memory: OracleMemory, places: Array, *, is_static: bool) -> None:
        self.memory, self.places, self.dtype, self.is_static = memory, places, memory.dtype, is_static

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(size if self.is_static else value_of(size, INDEX) for size in self.places.shape)

    @property
    def ndim(self) -> int:
        return self.places.ndim

    @property
    def size(self) -> Any:
        return self.places.size if self.is_static else value_of(self.places.size, INDEX)

    @property
    def T(self) -> OracleArray:
        return OracleArray(self.memory, self.places.T, is_static=self.is_static)

    @property
    def ptr(self) -> OraclePointer:
        if self.places.size == len(self.memory.elements) or (np.diff(self.places.reshape(-1)) != 1).any():
            return OraclePointer(self.memory, np.int64(self.places.flat[0] if self.places.size else 0))
        return OraclePointer(self.memory.part(self.places), np.int64(0))

    def ptr_to(self, *index: Any) -> OraclePointer:
        """Return the pointer to one element."""
        return OraclePointer(self.memory, self._places_at(index))

    def _places_at(self, index: Any) -> Any:
        """Return the numbers of the elements that an index names."""
        given = index if isinstance(index, tuple) else (index,)
        plain = tuple(map(_plain_index, given))
        try:
            if any(isinstance(i, OracleScalar) and i.elements < 0 for i in given):
                raise IndexError  # only an index that is known counts from the end
            return self.places[plain]
        except IndexError:
            text = f"`{self.memory.name}[{', '.join(map(str, plain))}]` of shape {self.places.shape}"
            raise self.memory.outside("names", 0, text) from None

    def __getitem__(self, index: Any) -> Any:
        found = self._places_at(index)
        if isinstance(found, np.ndarray):
            return OracleArray(self.memory, found, is_static=self.is_static)
        return load(OraclePointer(self.memory, found))

    def __setitem__(self, index: Any, value: Any) -> None:
        found = self._places_at(index)
        if isinstance(found, np.ndarray) or not is_numeric(value) or isinstance(value, OracleTile):
            hint = "write a tile by `sk.store(p + i, v)`, or reduce it to a number: `sk.reduce_sum(v)`"
            raise refused("=", f"elements of `{self.memory.name}` and {type(value).__name__}", hint)
        store(OraclePointer(self.memory, found), value)

    def tile(self, offsets: Any, shape: Any) -> OraclePart:
        """Return the part of so many elements from an index on, of which the array may lack some."""
        starts, sizes = (tuple(each) if isinstance(each, tuple | list) else (each,) for each in (offsets, shape))
        if not len(starts) == len(sizes) == self.ndim <= MAX_AXES:
            raise PLACE.error(BadShape(f"a tile of shape {shape} of an array of {self.ndim} axes", ""))
        index = np.indices(sizes) + np.reshape([_plain_index(each) for each in starts], (-1, *[1] * self.ndim))
        inside = np.all([(i >= 0) & (i < n) for i, n in zip(index, self.places.shape)], axis=0)
        places = np.zeros(sizes, np.int64)
        places[inside] = self.places[tuple(index[:, inside])]
        return OraclePart(OraclePointer(self.memory, places), OracleTile(inside, dtypes.bool_))

    def __add__(self, offset: Any) -> Any:
        return pointer_of(self) + offset

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return pointer_of(self) - other


class OraclePart:
    """What `A.tile` gives: pointers, and of which of them the array has an element."""

    def __init__(self, pointers: OraclePointer, inside: OracleTile) -> None:
        self.pointers, self.inside, self.dtype = pointers, inside, pointers.dtype

    @property
    def shape(self) -> Extents:
        return self.inside.shape


def _within(pointer: Any, mask: Any) -> tuple[OraclePointer, Any]:
    """Return a pointer and a mask, also of a part of an array."""
    if not isinstance(pointer, OraclePart):
        return pointer_of(pointer), mask
    return pointer.pointers, pointer.inside if mask is None else binary("&", pointer.inside, mask)


def _plain_index(index: Any) -> Any:
    """Return an index as NumPy takes it."""
    if isinstance(index, slice):
        return slice(*(each if each is None else _plain_index(each) for each in (index.start, index.stop, index.step)))
    if index is Ellipsis:
        return index
    if isinstance(index, OracleTile):
        hint = "a tile goes with a pointer: read `sk.load(p + i)`, write `sk.store(p + i, value)`"
        raise PLACE.error(BadIndex("an index must be an integer, got a tile", hint))
    return index.number() if isinstance(_integer(index), OracleScalar) else int(index)


def pointer_of(value: Any) -> OraclePointer:
    """Return the pointer that pointer arithmetic starts from; an array with gaps has none."""
    if isinstance(value, OraclePointer):
        return value
    if not isinstance(value, OracleArray):
        raise refused(
            "load/store", type(value).__name__, "the first argument is a pointer: `A + i`, not the element `A[i]`"
        )
    if value.places.size and (np.diff(value.places.reshape(-1)) != 1).any():
        raise PLACE.error(NonContiguous(value.memory.name))
    return value.ptr


# -- accesses -----------------------------------------------------------------------------------------------------------


def _lanes(what: str, pointer: OraclePointer, mask: Any, *values: Any) -> tuple[Array, Array, Extents | None]:
    """Return the place of each element of an access, whether it is on, and the shape of the tile, None for a single element."""
    extent = check_extents(what, pointer, mask, *values)
    shape = (1,) if extent is None else extent
    is_on = True if mask is None else elements_in(mask, dtypes.bool_)
    return np.broadcast_to(pointer.places, shape), np.broadcast_to(is_on, shape), extent


def load(
    pointer: Any, mask: Any = None, other: Any = None, order: Any = None, scope: Any = None, **hints: str
) -> OracleValue:
    """Return what is at a pointer or a tile of pointers; where `mask` is off, `other` (default 0), and memory is not touched.

    Programs run one after another, so every access has the strongest order. hints: for caches, of which there are none.
    """
    at, mask = _within(pointer, mask)
    places, is_on, extent = _lanes("load", at, mask, other)
    found = np.array(np.broadcast_to(elements_in(0 if other is None else other, at.dtype), places.shape))
    at.memory.enter("reads", places[is_on])
    found[is_on] = at.memory.elements[places[is_on]]
    return value_of(found[0] if extent is None else found, at.dtype)


def store(pointer: Any, value: Any, mask: Any = None, order: Any = None, scope: Any = None, **hints: str) -> None:
    """Write a number or a tile, converted to the dtype of the elements, where `mask` is on."""
    at, mask = _within(pointer, mask)
    places, is_on, extent = _lanes("store", at, mask, value)
    if extent is not None and at.extents is None:
        raise refused("store", "a tile and one address", "add an arange to the pointer")
    if extent != at.extents:
        raise PLACE.error(BadShape(f"a store of shape {extent} to pointers of shape {at.extents}", ""))
    places, values = places[is_on], np.broadcast_to(elements_in(value, at.dtype), is_on.shape)[is_on]
    at.memory.enter("writes", places)
    _refuse_two(at.memory, places, values)
    at.memory.elements[places] = values


def _refuse_two(memory: OracleMemory, places: Array, values: Array, *, are_equal_fine: bool = False) -> None:
    """Raise NoMeaning where two values go to one element, whose order nothing says.

    Equal ones are refused as well: threads that access an element by the same address do not wait for each other.
    """
    order = np.argsort(places, kind="stable")
    bits = _bits(values)[order]
    meets = (np.diff(places[order]) == 0) & ((bits[1:] != bits[:-1]) | (not are_equal_fine))
    if meets.any():
        first, second = order[int(np.argmax(meets)) :][:2]
        raise NoMeaning(StoredTwice(int(places[first]), memory.name, values[first], values[second]))


class _OldValues(OracleTile):
    """What an atomic returns whose elements met: a tile that cannot be used."""

    def __init__(self, extents: Extents, dtype: DType, unknown: OldValueUnknown) -> None:
        self._extents, self.dtype, self.is_weak, self._unknown = extents, dtype, False, unknown

    @property
    def shape(self) -> Extents:
        return self._extents

    @property
    def elements(self) -> Any:
        raise NoMeaning(self._unknown)


_UPDATES: dict[Intrinsic, Callable[[Array, Array, Array], None]] = {
    registry.by_name(f"atomic_{name}"): ufunc.at
    for name, ufunc in {
        "add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum,
        "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    }.items()
}  # fmt: skip
_REPLACE = frozenset({registry.by_name("atomic_cas"), registry.by_name("atomic_exchange")})
ATOMICS = frozenset({*_UPDATES, *_REPLACE})


def atomic(spec: Intrinsic, pointer: Any, *values: Any, mask: Any = None) -> OracleValue:
    """Update an element, or one for each element of a tile; return the old values, 0 where `mask` is off."""
    at, mask = _within(pointer, mask)
    places, is_on, extent = _lanes(spec.name, at, mask, *values)
    places = places[is_on]
    given = [np.broadcast_to(elements_in(value, at.dtype), is_on.shape)[is_on] for value in values]
    at.memory.enter("updates", places)
    old = np.zeros(is_on.shape, at.dtype.numpy)
    old[is_on] = at.memory.elements[places]
    if spec in _REPLACE:
        for each in given:
            _refuse_two(at.memory, places, each, are_equal_fine=True)
        *expected, desired = given  # compared by their bits
        is_chosen = np.all([_bits(each) == _bits(old[is_on]) for each in expected], axis=0) | (not expected)
        at.memory.elements[places[is_chosen]] = desired[is_chosen]
    else:
        with np.errstate(all="ignore"):
            _UPDATES[spec](at.memory.elements, places, *given)
    ordered, counts = np.unique(places, return_counts=True)
    if extent is not None and (counts > 1).any():
        return _OldValues(extent, at.dtype, OldValueUnknown(int(ordered[counts > 1][0]), at.memory.name))
    return value_of(old[0] if extent is None else old, at.dtype)


def _bits(values: Array) -> Array:
    return values.view(f"u{values.itemsize}")
