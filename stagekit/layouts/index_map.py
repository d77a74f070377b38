"""Functions from numbers to numbers, given by a shape and strides.

    IndexMap((4, 8), (8, 1))        4 rows of 8: number i has the digits i % 4 and i // 4, and is at i % 4 * 8 + i // 4

The first digit changes fastest, as in CuTe. A digit may itself consist of several, such as the 8 in `((2, 4), 3)`, which is one
place of a coordinate. Source: Shah et al., CuTe Layout Representation and Algebra, 2026; Cecka, "CuTe Layout Algebra", CUTLASS.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from stagekit.diagnostics import hide_frames, shown, wrong_arguments
from stagekit.forks import cached_property

Sizes = Any  # an int, or a tuple of ints and of tuples of them
MOST = 1 << 24  # numbers of a map of which a table is made


class Step(NamedTuple):
    """A digit of a number: it counts to `size`, each step of which is `stride` further."""

    size: int
    stride: int


@dataclass(frozen=True, init=False)
class IndexMap:
    """The map of this shape and these strides. shape: ints, of at least 1, or tuples of them; stride: ints in the same order.

    Without strides they are those of numbers that follow one another, so that the map is the identity. Called with a number, or
    with a coordinate for each place of the shape, it gives where that is; also in a kernel, of numbers known at run time.
    """

    modes: tuple[tuple[Step, ...], ...]

    @hide_frames
    def __init__(self, shape: Sizes, stride: Sizes = None) -> None:
        modes = shape if isinstance(shape, tuple) else (shape,)
        sizes = [_flat(mode) for mode in modes]
        strides = _packed(sizes) if stride is None else _flat(stride)
        numbers = [size for mode in sizes for size in mode]
        if not all(type(n) is int for n in (*numbers, *strides)) or len(numbers) != len(strides):
            problem = f"shape {shown(shape)} and stride {shown(stride)} are not ints, as many of one as of the other"
            raise wrong_arguments(IndexMap, problem)
        if any(size < 1 for size in numbers) or any(step < 0 for step in strides):
            problem = f"sizes of {shown(shape)} are at least 1, strides of {shown(stride)} at least 0"
            raise wrong_arguments(IndexMap, problem)
        steps = iter(strides)
        object.__setattr__(self, "modes", tuple([tuple([Step(n, next(steps)) for n in mode]) for mode in sizes]))

    # -- what it is -----------------------------------------------------------------------------------------------

    @property
    def digits(self) -> tuple[Step, ...]:
        """All digits, the fastest first."""
        return tuple([digit for mode in self.modes for digit in mode])

    @property
    def shape(self) -> Sizes:
        """The sizes, a tuple for a place of several digits."""
        return tuple([_alone([digit.size for digit in mode]) for mode in self.modes])

    @property
    def stride(self) -> Sizes:
        """The strides, in the form of the shape."""
        return tuple([_alone([digit.stride for digit in mode]) for mode in self.modes])

    @property
    def size(self) -> int:
        """How many numbers it takes."""
        return math.prod([digit.size for digit in self.digits])

    @property
    def extent(self) -> int:
        """One more than the largest number that it gives. CuTe calls this cosize."""
        return 1 + sum([(digit.size - 1) * digit.stride for digit in self.digits])

    def __str__(self) -> str:
        return f"{_text(self.shape)}:{_text(self.stride)}"

    def __call__(self, *place: Any) -> Any:
        """Return where a number is, or what has these coordinates, one for each place of the shape."""
        if len(place) == 1:
            return _dot(place[0], self.digits)
        if len(place) != len(self.modes):
            problem = f"{len(place)} coordinates of the {len(self.modes)} places of {self}"
            raise wrong_arguments(IndexMap.__call__, problem)
        return sum([_dot(number, mode) for number, mode in zip(place, self.modes)])

    @cached_property
    def table(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Where each coordinate is, along an axis for each place: the truth about a map. Numbers go in Fortran's order."""
        return self.numbers.reshape([math.prod([digit.size for digit in mode]) for mode in self.modes], order="F")

    @cached_property
    def numbers(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Where each number is."""
        if self.size > MOST:
            raise wrong_arguments(IndexMap, f"{self} takes {self.size} numbers, and a table has {MOST} at most")
        found = np.zeros(1, np.int64)
        for size, stride in self.digits:
            found = (np.arange(size)[:, None] * stride + found).reshape(-1)
        return found

    def is_same_function(self, other: IndexMap) -> bool:
        """Whether both give the same for each number, whatever their places."""
        return self.size == other.size and self.simplified().digits == other.simplified().digits

    # -- others ---------------------------------------------------------------------------------------------------

    def simplified(self) -> IndexMap:
        """Return the same function with the fewest digits. CuTe calls this coalesce."""
        return map_of([tuple(_merged(self.digits))])

    @hide_frames
    def after(self, inner: IndexMap) -> IndexMap:
        """Return the map from i to self(inner(i)), in the places of `inner`; refused where it has no shape and strides."""
        modes = []
        for mode in inner.modes:
            parts = [_strided(self, digit) for digit in mode]
            modes.append(tuple([digit for part in parts for digit in part or ()]) or (Step(1, 0),))
        found = map_of(modes)
        why = f"{self} after {inner}: "
        if inner.extent > self.size:
            raise wrong_arguments(IndexMap.after, f"{why}{inner} goes beyond the {self.size} numbers of {self}")
        # digits that were found one by one are right together where none carries into another
        if found.size != inner.size or not (found.numbers == self.numbers[inner.numbers]).all():
            raise wrong_arguments(IndexMap.after, f"{why}it is no map of shape and strides")
        return found

    @hide_frames
    def complement(self, extent: int | None = None) -> IndexMap:
        """Return the map to where the copies of this one begin that, with it, have each number below `extent` once.

        extent: that of this map if left out; a last copy may go beyond it.
        """
        whole = self.extent if extent is None else extent
        found, reach = list[Step](), 1
        for size, stride in sorted(_merged(self.digits), key=lambda digit: digit.stride):
            if size == 1:
                continue
            if stride == 0 or stride % reach:
                problem = f"copies of {self} overlap: it has a number twice, or gaps of no whole size"
                raise wrong_arguments(IndexMap.complement, problem)
            found.append(Step(stride // reach, reach))
            reach = size * stride
        return map_of([(*found, Step(max(-(-whole // reach), 1), reach))]).simplified()

    def divide(self, tile: IndexMap) -> IndexMap:
        """Return the map of two places: of a number within a tile, and of which tile. tile: which numbers make up the first."""
        return self.after(map_of([tile.digits, tile.complement(self.size).digits]))

    def repeat(self, other: IndexMap) -> IndexMap:
        """Return the map of two places, this one and copies of it that lie as `other` has them: CuTe's logical product."""
        copies = self.complement(self.size * other.extent).after(other)
        return map_of([self.digits, copies.digits])

    def inverse(self) -> IndexMap:
        """Return the map back, for as many numbers as this one gives without a gap, from 0 on: self(self.inverse()(i)) == i."""
        places, below = [], 1
        for digit in self.digits:
            places.append((digit.stride, digit.size, below))
            below *= digit.size
        found, reach = list[Step](), 1
        for stride, size, place in sorted(places):
            if size > 1 and stride == reach:
                found.append(Step(size, place))
                reach *= size
        return map_of([tuple(found) or (Step(1, 0),)]).simplified()


@dataclass(frozen=True)
class Swizzle:
    """The map that exclusive-ors bits of a number with others of it: `bits` bits from `base` on with those `shift` further up.

    It is its own inverse, and a number stays among its 2 ** (base + bits + shift) neighbours. Numbers may be arrays, or known at
    run time. Source: CuTe's `Swizzle<bits, base, shift>`.
    """

    bits: int
    base: int
    shift: int

    @hide_frames
    def __post_init__(self) -> None:
        given = self.bits, self.base, self.shift
        if any(type(each) is not int or each < 0 for each in given) or self.shift < self.bits:
            problem = f"bits, base and shift are {self.bits}, {self.base} and {self.shift}: ints from 0 on, shift at least bits"
            raise wrong_arguments(Swizzle, problem)

    def __call__(self, number: Any) -> Any:
        """Return where a number is."""
        return number ^ (number >> (self.base + self.shift) & (1 << self.bits) - 1) << self.base


def map_of(modes: Iterable[tuple[Step, ...]]) -> IndexMap:
    """Return the map with these digits, some for each place."""
    found = object.__new__(IndexMap)
    object.__setattr__(found, "modes", tuple(modes))
    return found


def _flat(sizes: Sizes) -> list[int]:
    return [each for size in sizes for each in _flat(size)] if isinstance(sizes, tuple) else [sizes]


def _packed(sizes: list[list[int]]) -> list[int]:
    """Return the strides of numbers that follow one another."""
    found = [1]
    for size in [size for mode in sizes for size in mode]:
        found.append(found[-1] * size)
    return found[:-1]


def _alone(numbers: list[int]) -> Sizes:
    return numbers[0] if len(numbers) == 1 else tuple(numbers)


def _text(sizes: Sizes) -> str:
    if not isinstance(sizes, tuple) or (len(sizes) == 1 and isinstance(sizes[0], int)):
        return str(sizes[0] if isinstance(sizes, tuple) else sizes)
    return f"({','.join(map(_text, sizes))})"


def _dot(number: Any, digits: Sequence[Step]) -> Any:
    """Return where a number is: the sum of its digits by their strides. What is left of it counts as its last digit."""
    place: Any = 0
    for size, stride in digits[:-1]:
        place, number = place + number % size * stride, number // size
    return place + number * digits[-1].stride


def _merged(digits: Sequence[Step]) -> Iterator[Step]:
    """Yield digits of which none goes on where the one before it ends; one of size 1 if there is no other."""
    held = Step(1, 0)
    for digit in digits:
        if held.size == 1:
            held = digit if digit.size > 1 else held
        elif digit.size > 1 and digit.stride == held.size * held.stride:
            held = Step(held.size * digit.size, held.stride)
        elif digit.size > 1:
            yield held
            held = digit
    yield held if held.size > 1 else Step(1, 0)


def _strided(outer: IndexMap, inner: Step) -> list[Step] | None:
    """Return the digits of outer(i * stride) for i below size, None where they are none of its own."""
    size, step, found = inner.size, inner.stride, list[Step]()
    if size == 1 or step == 0:
        return [Step(size, 0)]
    *digits, last = _merged(outer.digits)
    for radix, stride in digits:
        if step >= radix:
            if step % radix:
                return None
            step //= radix
            continue
        if radix % step:
            return None
        count = min(radix // step, size)
        if size % count:
            return None
        found.append(Step(count, step * stride))
        size, step = size // count, 1
        if size == 1:
            return found
    return [*found, Step(size, step * last.stride)]
