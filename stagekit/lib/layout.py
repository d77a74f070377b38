"""Placement: which thread holds which element of a tile, and in which vector.

A layout is a pair of numbers of mixed radix: that of a register, and that of a thread. Each digit counts along one axis of the
tile, by a stride. What the digits of both numbers give along an axis, added up, is the index of an element:

    blocked((4096,), threads=128, width=8)     registers: 8 along axis 0 by 1, 4 along axis 0 by 1024
                                               threads: 128 along axis 0 by 8
    blocked((64, 32), threads=128, width=4)    registers: 4 along axis 1 by 1, 4 along axis 0 by 16
                                               threads: 8 along axis 1 by 4, 16 along axis 0 by 1

Where an index is not below the extent there is no such element. Digits of stride 0 count copies: threads that hold the same.
`enumerated` lists what every thread holds. That table is the truth about a layout: all else is derived from it, or tested by it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

import stagekit as sk

WARP = 32  # lanes of a full warp
MAX_THREADS = 1024  # of a block
REGISTERS = 1 << 16  # of a block
_FEW_ELEMENTS = 128  # a tile of so many has a thread for each
_FEWEST_THREADS = 64  # of a longer one
_PER_THREAD = 16  # elements of a long tile, or
_VECTORS_PER_THREAD = 4  # so many vectors of them, where these are more elements
_FEWEST_IN_VECTORS = 4  # elements of a thread; with fewer, taking vectors apart for memory costs as much as they save

_ADD, _MULTIPLY, _LESS, _AND, _EQUAL = map(sk._operation, ("+", "*", "<", "&", "=="))
_DIVIDE, _REMAINDER, _RIGHT = map(sk._operation, ("//", "%", ">>"))

Shape = tuple[int, ...]


F = TypeVar("F", bound=Callable[..., Any])


def computed_once(function: F) -> F:
    """Let a function that only computes do so once in a block of code for the same arguments. Nobody changes its result."""
    return functools.wraps(function)(lambda *args: sk._once(function, *args))  # type: ignore[return-value]


def recorded(function: F) -> F:
    """Let a function be carried out once for the arguments that are alike but for run-time numbers, in all kernels of a process.

    It must read nothing but its arguments, and what is the same for all programs of a kernel, such as its threads.
    """
    return functools.wraps(function)(lambda *args: sk._recorded(function, *args))  # type: ignore[return-value]


class Digit(NamedTuple):
    """A digit that counts to `radix` along an axis, from index to index by `stride`; by 0 it counts copies."""

    radix: int
    axis: int
    stride: int


_LAYOUTS: dict[tuple[Any, ...], Any] = {}


@sk._frozen(eq=False, held=True)
class Layout:
    """Spreads the elements of a tile of `shape` over `threads` threads. Equal ones are one object.

    registers, lanes: the digits of the number of a register, and of a thread, of which the first changes fastest. width: how
    many registers from a multiple of it on are neighbours that make a vector, a power of two up to 8.
    """

    shape: Shape
    threads: int
    registers: tuple[Digit, ...]
    lanes: tuple[Digit, ...]
    width: int = 1

    def __new__(
        cls, shape: Shape, threads: int, registers: tuple[Digit, ...], lanes: tuple[Digit, ...], width: int = 1
    ) -> Self:
        found: Self = _LAYOUTS.setdefault((shape, threads, registers, lanes, width), object.__new__(cls))
        return found

    def __str__(self) -> str:
        return f"{self.shape} in {self.threads} threads: registers {_text(self.registers)}; threads {_text(self.lanes)}"

    @property
    @functools.cache  # noqa: B019  # layouts live for ever; `cached_property` has a lock for which a child would wait
    def extent(self) -> int:
        """The number of elements of the tile."""
        return math.prod(self.shape)

    @property
    @functools.cache  # noqa: B019  # layouts live for ever; `cached_property` has a lock for which a child would wait
    def count(self) -> int:
        """How many elements each thread holds, those that do not exist included."""
        return math.prod([digit.radix for digit in self.registers])

    @property
    @functools.cache  # noqa: B019  # layouts live for ever; `cached_property` has a lock for which a child would wait
    def widths(self) -> list[int]:
        """The widths of the vectors that hold a thread's elements, in order. A vector of width 1 is a scalar."""
        count = self.count
        if self.width > 1:
            return [self.width] * (count // self.width)
        if count < _FEWEST_IN_VECTORS:
            return [1] * count
        return [8] * (count // 8) + [width for width in (4, 2, 1) if count % 8 & width]

    @property
    def vector_axis(self) -> int:
        """The axis along which the elements of a vector are neighbours."""
        return self.registers[0].axis if self.width > 1 else len(self.shape) - 1

    @property
    def fastest_axis(self) -> int:
        """The axis along which a thread, or else the next one, has the neighbour of an element."""
        return self.vector_axis if self.width > 1 or not self.lanes else self.lanes[0].axis

    @property
    @functools.cache  # noqa: B019  # layouts live for ever; `cached_property` has a lock for which a child would wait
    def offsets(self) -> list[Shape]:
        """For each register the index of its element in thread 0. In another thread it is further on by `first`."""
        found = [(0,) * len(self.shape)]
        for radix, axis, stride in self.registers:
            steps = [value * stride for value in range(radix)]
            found = [(*at[:axis], at[axis] + step, *at[axis + 1 :]) for step in steps for at in found]
        return found

    @property
    @functools.cache  # noqa: B019  # layouts live for ever; `cached_property` has a lock for which a child would wait
    def last(self) -> list[int]:
        """How far the elements of the last thread are from those of thread 0, along each axis."""
        reach = [(digit.axis, (digit.radix - 1) * digit.stride) for digit in self.lanes]
        return [sum(far for each, far in reach if each == axis) for axis in range(len(self.shape))]

    @property
    @functools.cache  # noqa: B019  # layouts live for ever; `cached_property` has a lock for which a child would wait
    def is_whole(self) -> bool:
        """Whether every thread has all its elements."""
        return all(max(o) + last < n for o, last, n in zip(zip(*self.offsets), self.last, self.shape))

    # -- in a kernel ----------------------------------------------------------------------------------------------

    @sk._direct
    @computed_once
    def first(self, axes: Sequence[int] | None = None) -> list[Any]:
        """Return the index of this thread's first element, for each axis a number known at run time, or 0; of some axes alone."""
        found: list[Any] = [0] * len(self.shape)
        wanted = range(len(self.shape)) if axes is None else axes
        for digit, value in self._digits_of_thread(lambda digit: digit.stride > 0 and digit.axis in wanted):
            step = value if digit.stride == 1 else _MULTIPLY(value, digit.stride)
            found[digit.axis] = step if type(found[digit.axis]) is int else _ADD(found[digit.axis], step)
        return found

    def _digits_of_thread(self, is_wanted: Callable[[Digit], bool]) -> list[tuple[Digit, Any]]:
        """Return some digits of this thread's number, each with its value."""
        below, found, thread = 1, [], sk.cuda.thread_idx("x")
        for digit in self.lanes:
            above, rest = below, below * digit.radix
            if is_wanted(digit):
                value = thread if above == 1 else quotient_of(thread, above)
                found.append((digit, value if rest == self.threads else rest_of(value, digit.radix)))
            below = rest
        return found

    @sk._direct
    @computed_once
    def valid(self) -> list[Any]:
        """Return for each element whether it exists: True itself, not a run-time value, where it does in every thread."""
        offsets, last = self.offsets, self.last
        if self.is_whole:
            return [True] * len(offsets)
        first, known = self.first(), dict[tuple[int, int], Any]()

        def is_inside(axis: int, offset: int) -> Any:
            if offset + last[axis] < self.shape[axis]:
                return True
            if (axis, offset) not in known:
                known[axis, offset] = _LESS(_ADD(first[axis], offset), self.shape[axis])
            return known[axis, offset]

        return [functools.reduce(both, [is_inside(axis, o) for axis, o in enumerate(each)], True) for each in offsets]

    @sk._direct
    def owned(self) -> list[Any]:
        """Return for each element whether it exists and this thread has the first of its copies."""
        if not self.has_copies:
            return self.valid()
        copies = self._digits_of_thread(lambda digit: digit.stride == 0)
        is_first = functools.reduce(both, [_EQUAL(value, 0) for _, value in copies], True)
        return [both(is_first, exists) for exists in self.valid()]

    @property
    @functools.cache  # noqa: B019  # layouts live for ever; `cached_property` has a lock for which a child would wait
    def has_copies(self) -> bool:
        return any(digit.stride == 0 for digit in self.lanes)

    # -- other layouts --------------------------------------------------------------------------------------------

    def restricted(self, axes: Sequence[int]) -> Layout:
        """Return the layout of what the elements along some axes have in common: threads that had others of them have copies."""
        shape = tuple([1 if axis in axes else extent for axis, extent in enumerate(self.shape)])
        registers = tuple([digit for digit in self.registers if digit.axis not in axes])
        lanes = tuple([Digit(digit.radix, 0, 0) if digit.axis in axes else digit for digit in self.lanes])
        return replace(self, shape=shape, registers=registers, lanes=lanes, width=self._width_along(axes))

    def _width_along(self, gone: Sequence[int]) -> int:
        return 1 if self.width > 1 and self.registers[0].axis in gone else self.width

    def squeezed(self, axis: int) -> Layout:
        """Return the layout of the tile without an axis of extent 1."""
        return self._moved(self.shape[:axis] + self.shape[axis + 1 :], lambda a: a - (a > axis))

    def expanded(self, axis: int) -> Layout:
        """Return the layout of the tile with another axis, of extent 1."""
        return self._moved((*self.shape[:axis], 1, *self.shape[axis:]), lambda a: a + (a >= axis))

    def transposed(self, order: Sequence[int]) -> Layout:
        """Return the layout of the tile whose axis i is axis order[i] of this one."""
        return self._moved(tuple(self.shape[axis] for axis in order), order.index)

    def cut(self, count: int) -> Layout | None:
        """Return the layout of one of so many parts side by side along the last axis; None where threads have more of one.

        Which registers are those of a part says `offsets`.
        """
        place, columns = self._last_of_registers(), self.shape[-1] // count
        if place is None or self.registers[place].radix % count:
            return None
        digits = list(self.registers)
        digits[place] = digits[place]._replace(radix=digits[place].radix // count)
        return layout_of((*self.shape[:-1], columns), self.threads, digits, self.lanes, self.width)

    def _last_of_registers(self) -> int | None:
        """Return the digit of registers that says how far an element is along the last axis, more than all others together."""
        last = len(self.shape) - 1
        ends = [digit.axis == last and digit.radix * digit.stride == self.shape[last] for digit in self.registers]
        return ends.index(True) if True in ends[1:] else None  # the first digit is that of vectors

    def _moved(self, shape: Shape, place: Callable[[int], int]) -> Layout:
        def moved(digits: tuple[Digit, ...]) -> tuple[Digit, ...]:
            return tuple(digit._replace(axis=place(digit.axis)) if digit.stride else digit for digit in digits)

        return replace(self, shape=shape, registers=moved(self.registers), lanes=moved(self.lanes))


def _text(digits: tuple[Digit, ...]) -> str:
    return ", ".join([f"{n} along axis {axis} by {by}" if by else f"{n} copies" for n, axis, by in digits]) or "1"


def layout_of(shape: Shape, threads: int, registers: Sequence[Digit], lanes: Sequence[Digit], width: int) -> Layout:
    """Return the layout with these digits, of which those of one value say nothing."""
    kept = [tuple([digit for digit in digits if digit.radix > 1]) for digits in (registers, lanes)]
    return Layout(shape, threads, kept[0], kept[1], width)


def in_vectors(elements: list[Any], layout: Layout) -> list[Any]:
    """Return a thread's elements, or a value for each vector, in the vectors that a layout says."""
    found: list[Any] = sk._in_vectors(elements, layout.widths) if layout.widths[0] > 1 else elements
    return found


def mask_of(exists: Any) -> Any:
    """Return the mask for what exists under a condition: none where it is certain."""
    return None if exists is True else exists


def both(one: Any, other: Any) -> Any:
    """Return whether both hold, of which True itself costs nothing."""
    if one is True or other is True:
        return other if one is True else one
    return _AND(one, other)


def quotient_of(number: Any, divisor: int) -> Any:
    """Return number // divisor of a run-time number that is not negative."""
    if divisor & (divisor - 1) == 0:
        return _RIGHT(number, divisor.bit_length() - 1)
    return _DIVIDE(number, divisor)


def rest_of(number: Any, divisor: int) -> Any:
    """Return number % divisor of one."""
    return _AND(number, divisor - 1) if divisor & (divisor - 1) == 0 else _REMAINDER(number, divisor)


@functools.cache
def enumerated(layout: Layout) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the element, by its index in C order, that each thread (row) holds in each register (column); -1 for none."""
    threads = np.arange(layout.threads)
    first = np.zeros((layout.threads, len(layout.shape)), np.int64)
    for radix, axis, stride in layout.lanes:
        first[:, axis] += threads % radix * stride
        threads = threads // radix
    index = first[:, None] + np.array(layout.offsets, np.int64).reshape(1, -1, len(layout.shape))
    exists = (index < np.array(layout.shape)).all(axis=2)
    strides = [math.prod(layout.shape[axis + 1 :]) for axis in range(len(layout.shape))]
    return np.where(exists, index @ np.array(strides, np.int64), -1)


# -- as memory has it -------------------------------------------------------------------------------------------------------


@functools.cache
def blocked(shape: Shape, threads: int, width: int = 1, fastest: int | None = None) -> Layout:
    """Return the layout in which threads that follow one another hold vectors that do so, along an axis and then the others.

    fastest: that axis; the last one if left out. width: as `width_for` says, or less.
    """
    axes = [*range(len(shape))][::-1]
    axes.sort(key=lambda axis: axis != fastest)  # else the last one comes first
    registers = [Digit(width, axes[0], 1)]
    lanes, left = list[Digit](), threads
    for axis in axes:
        step = width if axis == axes[0] else 1
        wanted = -(-shape[axis] // step)
        radix = _radix(left, wanted, [shape[other] for other in axes[axes.index(axis) + 1 :]])
        lanes.append(Digit(radix, axis, step))
        registers.append(Digit(-(-wanted // radix), axis, step * radix))
        left //= radix
    return layout_of(shape, threads, registers, lanes, width)


def _radix(threads: int, extent: int, others: Sequence[int]) -> int:
    """Return how many of `threads` share an axis of this extent, so that with the other axes each holds few elements.

    A power of two, if no other number is better: warps are shared evenly then.
    """
    if not others:
        return threads
    even = math.gcd(threads, 1 << (extent - 1).bit_length())
    held = lambda radix: -(-extent // radix) * -(-math.prod(others) // (threads // radix))  # noqa: E731
    return min([even, *[radix for radix in range(threads, 0, -1) if threads % radix == 0]], key=held)


def width_for(shape: Shape, threads: int, most: int, axis: int = -1) -> int:
    """Return how many neighbours a vector holds: at most `most`, if each thread has so many and none is short."""
    while most > 1 and (shape[axis] % most or math.prod(shape) < most * threads):
        most //= 2
    return most


def default_threads(extent: int, width: int) -> int:
    """Return how many threads a tile gets where nothing else decides: one for each element up to 128, then 64, then whole warps.

    From 1,024 elements on a thread has 16, or 32 where a vector has 8, and more than that where 1024 threads are not enough.
    width: the elements of a vector of memory, at most. Measured on an H200: rows of 1,024 elements went fastest with 32 or 64
    threads, of 4,096 and 8,192 with 128 to 512, of 8,190 float32, one element at a time, with 512, of 32,768 with 1,024.
    """
    if extent <= _FEW_ELEMENTS:
        return extent
    per_thread = max(_PER_THREAD, _VECTORS_PER_THREAD * width, -(-extent // MAX_THREADS))
    return max(_FEWEST_THREADS, _whole_warps(extent, per_thread))


def cpu_threads(extent: int) -> int:
    """Return the same for the CPU: one for each element up to 128, then whole warps with 4 elements in a thread, or more.

    There the lanes of a warp are one vector. Of 4 none waits for another, and a reduction meets a quarter of the warps; more only
    make longer code.
    """
    if extent <= _FEW_ELEMENTS:
        return extent
    return _whole_warps(extent, max(_FEWEST_IN_VECTORS, -(-extent // MAX_THREADS)))


def _whole_warps(extent: int, per_thread: int) -> int:
    return WARP * -(-extent // (WARP * per_thread))
