"""Memory as the interpreter sees it: allocations, and pointers that know which one they came from.

    a = Allocation.of_array("A", array)          # bytes of a NumPy array, at its real address
    p = Pointers(a, np.arange(32))                # one pointer per lane: elements 0..31 counted from the start of `a`
    elements = a.view(float32, 0).elements       # all of it as float32

A pointer comes from a parameter or an `alloc` and is only ever moved, so it always belongs to one allocation: an access
outside that one is a fault even where the address hits another array. An index counts elements of the pointer's dtype, so
that no address arithmetic overflows; the bytes that remain after a change of the element size are the `phase`.
Shared and local memory hold one copy per block or lane of the team that runs; copies lie `View.pitch` elements apart.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import byte_bounds

from stagekit.dtypes import DType, element_dtype
from stagekit.ir import Space

Array = np.ndarray[Any, np.dtype[Any]]

_PITCH_BYTES = 16  # copies start on multiples of this, so that every dtype can view them
_POISON = 0xFF  # fresh shared and local memory: -1 as an integer, NaN as a float
_BYTE = np.dtype(np.uint8)


class View(NamedTuple):
    """An allocation as elements of one dtype. limit: elements per copy. pitch: elements from one copy to the next."""

    elements: Array
    limit: int
    pitch: int
    is_aligned: bool


@dataclass(eq=False)
class Allocation:
    """A range of memory. `base`: its address; `size`: bytes per copy; `data`: all copies as bytes; `array`: the user's, if any.

    `claimed`: the bytes that an array says it has; more than `size` where the memory behind it ends earlier or is gone.
    `arena`: allocations that overlap share one; this one starts at its byte `arena_start`, and it ends at `arena_end`.
    `reach`: the elements of an array that does not fill its memory.
    """

    name: str
    space: Space
    dtype: DType
    data: Array
    base: int
    _: KW_ONLY
    size: int
    copies: int
    is_writable: bool
    array: Array | None = None
    views: dict[tuple[DType, int], View] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pitch_bytes = len(self.data) // self.copies
        self.claimed = self.size
        self.arena: Any = self
        self.arena_start, self.arena_end = 0, self.size
        self.reach = _reach_of(self.array)

    @classmethod
    def of_array(cls, name: str, array: Array) -> Allocation:
        """Return the memory of a NumPy array, holes of a strided view included. Raises TypeError for a dtype of no kernel."""
        dtype = element_dtype(array.dtype)
        if dtype is None:
            raise TypeError(f"array `{name}` has dtype {array.dtype}, which kernels do not know")
        if dtype.part is not None:
            dtype = dtype.part
            array = array[..., None].view(dtype.numpy)
        low, high = byte_bounds(array) if array.size else (array.ctypes.data, array.ctypes.data)
        data = _bytes_at(low, high - low, array)
        size, is_writable = high - low, array.flags.writeable
        memory = cls(name, Space.GLOBAL, dtype, data, low, size=size, copies=1, is_writable=is_writable, array=array)
        memory.size = _memory_behind(array, low, high)
        return memory

    @classmethod
    def fresh(cls, name: str, space: Space, dtype: DType, base: int, *, size: int, copies: int) -> Allocation:
        """Return new memory of the kernel's own, filled with a poison that stands for unspecified contents."""
        pitch = -(-size // _PITCH_BYTES) * _PITCH_BYTES
        data = np.full(pitch * copies, _POISON, np.uint8)
        return cls(name, space, dtype, data, base, size=size, copies=copies, is_writable=True)

    @classmethod
    def missing(cls, name: str, dtype: DType, address: int) -> Allocation:
        """Return the empty memory that an address in no known array points into."""
        memory = cls(name, Space.GLOBAL, dtype, np.zeros(0, np.uint8), address, size=0, copies=1, is_writable=False)
        memory.claimed = 1
        return memory

    @classmethod
    def table(cls, name: str, dtype: DType, data: bytes) -> Allocation:
        """Return numbers that are part of the code."""
        held = np.frombuffer(data, np.uint8)
        base = held.ctypes.data
        return cls(name, Space.CONSTANT, dtype, held, base, size=len(held), copies=1, is_writable=False)

    @property
    def align(self) -> int:
        """Bytes of which the start is surely a multiple. The kernel's own memory lies where it promises to, and no better."""
        return 1 << 16 if self.space in (Space.GLOBAL, Space.CONSTANT) else self.base & -self.base

    def free(self) -> None:
        """End the allocation: every access through it is a fault from now on."""
        self.size = 0
        self.views.clear()

    def is_gone_at(self, offset_bytes: int) -> bool:
        """Return whether the byte is claimed but not owned. An array that owns no memory is gone at every byte."""
        return self.size < self.claimed and (self.size == 0 or self.size <= offset_bytes < self.claimed)

    def view(self, dtype: DType, phase: int = 0) -> View:
        """Return all copies as elements of `dtype`, from byte `phase` on. A bool is viewed as the byte that holds it."""
        if (dtype, phase) in self.views:
            return self.views[dtype, phase]
        itemsize = dtype.itemsize
        stored = _BYTE if dtype.kind == "bool" else dtype.numpy
        usable = (len(self.data) - phase) // itemsize * itemsize
        elements = self.data[phase : phase + usable].view(stored)
        is_aligned = (self.base + phase) % itemsize == 0 and itemsize <= self.align
        view = View(elements, max(self.size - phase, 0) // itemsize, self.pitch_bytes // itemsize, is_aligned)
        self.views[dtype, phase] = view
        return view


def _memory_behind(array: Array, low: int, high: int) -> int:
    """Return how many of the bytes from `low` to `high` belong to the array that owns the memory.

    They are fewer than all where the owner has been resized since, or `as_strided` went too far.
    """
    owner: Any = array
    while owner is not None and not (isinstance(owner, np.ndarray) and owner.flags.owndata):
        owner = getattr(owner, "base", None)
    if owner is None:
        return high - low
    start = owner.ctypes.data
    return max(min(high, start + owner.nbytes) - low, 0) if start <= low else 0


def _bytes_at(address: int, size: int, owner: Array) -> Array:
    """Return the memory at an address as bytes; the result keeps `owner` alive."""
    if not size:
        return np.zeros(0, np.uint8)
    shape = (min(size, sys.maxsize),)  # strides can span more than there are addresses
    described = {"data": (address, not owner.flags.writeable), "shape": shape, "typestr": "|u1", "version": 3}
    return np.asarray(SimpleNamespace(__array_interface__=described, owner=owner))


# -- views ------------------------------------------------------------------------------------------------------------


class Reach(NamedTuple):
    """The elements of a view, which a pointer taken from it may reach.

    origin, start: its first element and its lowest, in bytes from the start of the allocation. run: bytes that lie together.
    axes: (bytes from one run to the next, runs) of each axis, the widest first. shape: of the view. Lanes may differ in all but
    the distances.
    """

    origin: Any
    start: Any
    run: Any
    axes: tuple[tuple[int, Any], ...]
    shape: tuple[Any, ...]

    @classmethod
    def of(cls, origin: Any, shape: Sequence[Any], strides: Sequence[Any], itemsize: int) -> Reach | None:
        """Return the reach of a view. strides: in bytes. None where elements of the view overlap, or strides differ by lane."""
        if any(isinstance(stride, np.ndarray) for stride in strides):
            return None
        start, run, span = origin, np.int64(itemsize), np.int64(itemsize)
        axes: list[tuple[int, Any]] = []
        for step, size in sorted(zip(map(int, strides), shape), key=lambda axis: abs(axis[0])):
            if step < 0:
                start = start + (size - 1) * step
            if step == 0 or (np.ndim(size) == 0 and size == 1):
                continue
            if np.any(span > abs(step)):
                return None
            if not axes and np.all(span == abs(step)):
                run = run * size
            else:
                axes.append((abs(step), size))
            span = span + (size - 1) * abs(step)
        return cls(origin, start, run, tuple(axes[::-1]), tuple(shape))

    def in_lane(self, lane: int) -> Reach:
        """Return the reach of one lane's view."""
        origin, start, run = (in_lane(np.asarray(each)[()], lane) for each in (self.origin, self.start, self.run))
        axes = tuple([(step, in_lane(np.asarray(size)[()], lane)) for step, size in self.axes])
        return Reach(origin, start, run, axes, self.shape)

    def misses(self, offset_bytes: Any, size: int) -> Any:
        """Return which lanes' `size` bytes, so far from the start of the allocation, are not in one run of the view."""
        rest = offset_bytes - self.start
        for stride, count in self.axes:
            place = np.clip(rest // stride, 0, np.maximum(count - 1, 0))
            rest = rest - place * stride
        return (rest < 0) | (rest + size > self.run)


def _reach_of(array: Array | None) -> Reach | None:
    """Return the reach of an array that leaves out some of the memory that it spans."""
    if array is None or array.size == 0:
        return None
    low, high = byte_bounds(array)
    if not array.nbytes < high - low <= sys.maxsize:  # strides can span more than there are addresses
        return None
    return Reach.of(np.int64(array.ctypes.data - low), array.shape, array.strides, array.itemsize)


def just_aligned(address: int, align: int) -> int:
    """Return the next odd multiple of `align`, so that no memory of the kernel's own is better aligned by luck."""
    steps = -(-address // align)
    return (steps | 1) * align


def join_arenas(allocations: Sequence[Allocation]) -> None:
    """Give allocations that overlap one arena, so that an access through one is seen through the other."""
    arena, end = None, 0
    for each in sorted(allocations, key=lambda a: (a.base, -a.size)):
        if arena is None or each.base >= end:
            arena, end = each, each.base
        each.arena, each.arena_start = arena, each.base - arena.base
        end = max(end, each.base + each.size)
        arena.arena_end = end - arena.base


def find(allocations: Sequence[Allocation], name: str, dtype: DType, address: int) -> Pointers:
    """Return the pointer with this address. Of the allocations that hold it, one called `name` is preferred."""
    for each in sorted(allocations, key=lambda a: a.name != name):
        if each.base <= address < each.base + each.size or address == each.base:
            return at_byte(each, np.int64(address - each.base), dtype, each.reach)
    return Pointers(Allocation.missing(name, dtype, address), np.int64(0))


# -- pointers ---------------------------------------------------------------------------------------------------------


class Pointers:
    """Pointers into one allocation: `index` elements and `phase` bytes from its start, each a scalar or one per lane.

    A phase is smaller than an element, and 0 unless the pointer points between the elements of its dtype. reach: the view that
    the pointer must stay in, which may be less than the allocation.
    """

    __slots__ = ("allocation", "index", "phase", "reach")

    def __init__(self, allocation: Allocation, index: Any, phase: Any = 0, reach: Reach | None = None) -> None:
        self.allocation, self.index, self.phase, self.reach = allocation, index, phase, reach

    def __add__(self, index: Any) -> AnyPointers:
        return Pointers(self.allocation, self.index + index, self.phase, self.reach)

    @property
    def reached(self) -> Sequence[Allocation]:
        """The memory in which it, moved, may lie."""
        return (self.allocation,)

    def within(self, dtype: DType, shape: Sequence[Any], strides: Sequence[Any]) -> Pointers:
        """Return the same pointer, which must stay in the view that begins here. strides: in elements of `dtype`."""
        steps = [stride * dtype.itemsize for stride in strides]
        reach = Reach.of(self.offset_bytes(dtype), shape, steps, dtype.itemsize)
        return Pointers(self.allocation, self.index, self.phase, reach)

    def offset_bytes(self, dtype: DType) -> Any:
        """Return the distance from the start of the allocation, for a pointer to elements of `dtype`."""
        return self.index * np.int64(dtype.itemsize) + self.phase

    def seen_as(self, source: DType, target: DType) -> Pointers:
        """Return a pointer to the same byte whose elements are of `target`."""
        if source.itemsize == target.itemsize:
            return self
        return at_byte(self.allocation, self.offset_bytes(source), target, self.reach)

    def number(self, dtype: DType) -> Any:
        """Return the address as an integer."""
        return np.int64(self.allocation.base) + self.offset_bytes(dtype)

    def parts(self, mask: Any) -> Iterable[tuple[Pointers, Any]]:
        """Return pointers with one allocation and one scalar phase each, and the lanes (of `mask`) that each holds for."""
        if not isinstance(self.phase, np.ndarray):
            return ((self, mask),)
        phases = ((phase, self.phase == phase) for phase in np.unique(self.phase).tolist())
        return (
            (Pointers(self.allocation, self.index, phase, self.reach), lanes if mask is None else lanes & mask)
            for phase, lanes in phases
        )


class Anywhere(Pointers):
    """A pointer from which others are reached: moved, it belongs to the allocation of `known` that is there, lane by lane."""

    __slots__ = ("dtype", "known")

    def __init__(self, name: str, dtype: DType, address: int, known: Sequence[Allocation]) -> None:
        super().__init__(Allocation.missing(name, dtype, address), np.int64(0))
        self.dtype, self.known = dtype, known

    @property
    def reached(self) -> Sequence[Allocation]:
        return self.known

    def __add__(self, index: Any) -> AnyPointers:
        base = self.allocation.base
        if not isinstance(index, np.ndarray):
            return self._at(base + int(index) * self.dtype.itemsize)
        found = [(index == each, self._at(base + each * self.dtype.itemsize)) for each in np.unique(index).tolist()]
        return found[0][1] if len(found) == 1 else MixedPointers(found)

    def _at(self, address: int) -> Pointers:
        """Return the pointer with this address: into the largest array that begins there, else into any that holds it."""
        begins = [each for each in self.known if each.array is not None and each.array.ctypes.data == address]
        order = sorted(begins, key=lambda each: -each.size)
        return find([*order, *self.known], order[0].name if order else self.allocation.name, self.dtype, address)


def at_byte(allocation: Allocation, offset_bytes: Any, dtype: DType, reach: Reach | None = None) -> Pointers:
    """Return a pointer to elements of `dtype`, so many bytes from the start of `allocation`."""
    index, phase = divmod(offset_bytes, np.int64(dtype.itemsize))
    return Pointers(allocation, index, phase if np.count_nonzero(phase) else 0, reach)


class MixedPointers:
    """Pointers whose lanes belong to different allocations or views. pieces: (lanes, address); no lane is in two of them."""

    __slots__ = ("pieces",)

    def __init__(self, pieces: Sequence[tuple[Array, Pointers]]) -> None:
        self.pieces = pieces

    def __add__(self, index: Any) -> MixedPointers:
        return MixedPointers([(lanes, each + index) for lanes, each in self.pieces])

    def within(self, dtype: DType, shape: Sequence[Any], strides: Sequence[Any]) -> MixedPointers:
        return MixedPointers([(lanes, each.within(dtype, shape, strides)) for lanes, each in self.pieces])

    def seen_as(self, source: DType, target: DType) -> MixedPointers:
        return MixedPointers([(lanes, each.seen_as(source, target)) for lanes, each in self.pieces])

    def number(self, dtype: DType) -> Any:
        return np.select([lanes for lanes, _ in self.pieces], [each.number(dtype) for _, each in self.pieces])

    def parts(self, mask: Any) -> Iterator[tuple[Pointers, Any]]:
        for lanes, each in self.pieces:
            yield from each.parts(lanes if mask is None else lanes & mask)


AnyPointers = Pointers | MixedPointers


def _merge_addresses(condition: Array, if_true: AnyPointers, if_false: AnyPointers) -> AnyPointers:
    """Return, lane by lane, one of the two pointers."""
    if isinstance(if_true, Pointers) and isinstance(if_false, Pointers) and _home(if_true) == _home(if_false):
        return _merge_within(condition, if_true, if_false)
    pieces: dict[Any, tuple[Array, Pointers]] = {}
    for each, lanes in (*if_true.parts(condition), *if_false.parts(~condition)):
        before = pieces.get(_home(each))
        if lanes.any():
            joined = (lanes, each) if before is None else (before[0] | lanes, _merge_within(lanes, each, before[1]))
            pieces[_home(each)] = joined
    return MixedPointers(list(pieces.values()))


def _home(pointers: Pointers) -> tuple[Allocation, int]:
    """Return what pointers must have in common to be one: the allocation, and the identity of the reach."""
    return pointers.allocation, id(pointers.reach)


def _merge_within(condition: Array, if_true: Pointers, if_false: Pointers) -> Pointers:
    is_same = if_true.phase is if_false.phase  # as a rule, 0
    phase = if_true.phase if is_same else np.where(condition, if_true.phase, if_false.phase)
    return Pointers(if_true.allocation, np.where(condition, if_true.index, if_false.index), phase, if_true.reach)


# -- lanes ------------------------------------------------------------------------------------------------------------


def choose(condition: Any, if_true: Any, if_false: Any) -> Any:
    """Return, lane by lane, one of two values or pointers."""
    if not isinstance(condition, np.ndarray):
        return if_true if condition else if_false
    if if_true is if_false:
        return if_true
    if isinstance(if_true, (np.ndarray, np.generic)):
        return np.where(condition, if_true, if_false)
    return _merge_addresses(condition, if_true, if_false)


def in_lane(value: Any, lane: int) -> Any:
    """Return the value of one lane, as a Python number or a pointer."""
    if isinstance(value, Pointers):
        return Pointers(value.allocation, in_lane(value.index, lane))
    return (value[lane] if isinstance(value, np.ndarray) else value).item()
