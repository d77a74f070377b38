"""Elements that go from one layout to another: within each thread where that is enough, else through shared memory.

Which it is, the enumerated layouts say. In shared memory the rows of a tile have a gap between them, that for which both layouts
meet the fewest bank conflicts, by count. Where no gap avoids them all, as for a transposition of which one side has vectors, the
chunks of a row lie in another order instead, if that has fewer (`shared`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import stagekit as sk
from stagekit.lib.layout import WARP, Layout, Shape, enumerated, mask_of, recorded
from stagekit.lib.shared import CHUNK_BYTES, Matrix, new_matrix, pitch_of, turns

_ADD, _MULTIPLY, _SUBTRACT, _EQUAL = map(sk._operation, ("+", "*", "-", "=="))

_Numbers = np.ndarray[Any, Any]

_BANK_BYTES, _BANKS = 4, 32
_MOST_PADDING = 16  # bytes between two rows


def wait(threads: int) -> None:
    """Let the threads of the block wait for each other. threads: how many there are; one warp needs its own barrier only."""
    if threads > WARP:
        sk.syncthreads()
    else:
        sk.syncwarp((1 << threads) - 1)


@functools.cache
def registers_for(source: Layout, target: Layout) -> list[int] | None:
    """Return for each register of `target` the one of `source` that has its element in the same thread; None if some has none.

    The layouts may have different shapes: elements count by their index in C order.
    """
    return matching(enumerated(source), enumerated(target))


def matching(held: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> list[int] | None:
    """Return for each register of what is wanted the one in which every thread holds it; None if some has none."""
    found = []
    for column in np.moveaxis(wanted[:, :, None], 1, 0):
        matches = ((held == column) | (column < 0)).all(axis=0)
        if not matches.any():
            return None
        found.append(int(matches.argmax()))
    return found


def is_pointer(element: Any) -> bool:
    """Return whether an element of a tile is an address, for which there is no memory."""
    return bool((sk._linear(element) or (0, False))[1])


@sk._direct
def moved(elements: list[Any], source: Layout, target: Layout) -> list[Any]:
    """Return a thread's elements as `target` has them, of those that it holds by `source`. Layouts of one number of elements."""
    found = registers_for(source, target)
    if found is not None:
        return [elements[register] for register in found]
    if is_pointer(elements[0]):
        return by_steps(elements, source, lambda steps: moved(steps, source, target))
    return _through_memory(elements, source, target)


@recorded
@sk._direct
def _through_memory(elements: list[Any], source: Layout, target: Layout) -> list[Any]:
    memory = _memory_for(source, target, sk._dtype_of(elements[0]))
    memory.store(elements, source)
    wait(source.threads)
    result = memory.elements(target)
    wait(source.threads)  # in a loop, the next round writes to the same memory
    return result


def _memory_for(source: Layout, target: Layout, dtype: sk.DType) -> Scratch | Matrix:
    """Return memory in which both layouts meet the fewest bank conflicts."""
    if source.shape != target.shape:
        return Scratch(source.shape, 0, dtype)
    gap = best_gap((source, target), dtype.itemsize)
    if len(source.shape) == 2 and dtype is not sk.bool_:
        (rows, columns), shift = source.shape, best_shift((source, target), gap, dtype)
        if shift is not None:
            return new_matrix(rows, columns, dtype, shift=shift)
    return Scratch(source.shape, gap, dtype)


def by_steps(pointers: list[Any], layout: Layout, carry: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """Return what `carry` makes of pointers, which is given how far they are from the argument that they were computed from."""
    if (start := sk._start_of(pointers)) is None:
        hint = "reshape, repeat and add indices first, then the pointer: `x + (rows[:, None] * n + columns[None, :])`"
        sk._refuse_shape(f"a tile of pointers, of shape {layout.shape}, would have to move to other threads", hint)
    return [_ADD(start, step) for step in carry([_SUBTRACT(pointer, start) for pointer in pointers])]


def element_at(elements: list[Any], layout: Layout, index: list[Any]) -> Any:
    """Return, in every thread, the element of a tile at an index, a number for each axis."""
    if is_pointer(elements[0]):
        return by_steps(elements, layout, lambda steps: [element_at(steps, layout, index)])[0]
    if all(isinstance(each, int) for each in index):
        return _from_its_thread(elements, layout, int(np.ravel_multi_index(index, layout.shape)))
    scratch = Scratch(layout.shape, 0, sk._dtype_of(elements[0]))
    scratch.store(elements, layout)
    wait(layout.threads)
    steps = [_MULTIPLY(i, stride) for i, stride in zip(index, strides_of(layout.shape, scratch.gap))]
    found = sk.load(functools.reduce(_ADD, steps, scratch.array))
    wait(layout.threads)
    return found


def _from_its_thread(elements: list[Any], layout: Layout, index: int) -> Any:
    """Return, in every thread, the element at an index in C order that is known, by way of one element of shared memory."""
    thread, register = _place_of(layout, index)
    array = sk.alloc_shared((1,), sk._dtype_of(elements[0]))
    sk.store(array, elements[register], mask=_EQUAL(sk.cuda.thread_idx("x"), thread))
    wait(layout.threads)
    found = sk.load(array)
    wait(layout.threads)  # in a loop, the next round writes to it
    return found


@functools.cache
def _place_of(layout: Layout, index: int) -> tuple[int, int]:
    """Return a thread that holds an element, and the register in which it does."""
    thread, register = np.argwhere(enumerated(layout) == index)[0]
    return int(thread), int(register)


class Scratch:
    """A tile in shared memory. gap: elements between its rows."""

    def __init__(self, shape: Shape, gap: int, dtype: Any) -> None:
        *others, last = shape
        self.gap = gap
        self.itemsize: int = dtype.itemsize
        self.array = sk.alloc_shared((math.prod(others) * (last + self.gap),), dtype, align=16)

    def store(self, elements: list[Any], layout: Layout) -> None:
        masks = layout.owned()
        for at, width, place in self._places(layout):
            if width > 1 and all(mask is masks[at] for mask in masks[at : at + width]):
                (vector,) = sk._in_vectors(elements[at : at + width], [width])
                sk._store_vector(place, vector, self._align(layout), mask=mask_of(masks[at]))
                continue
            for neighbour in range(width):
                sk.store(_ADD(place, neighbour), elements[at + neighbour], mask=mask_of(masks[at + neighbour]))

    def elements(self, layout: Layout) -> list[Any]:
        """Return this thread's elements, by loads."""
        masks, found = layout.valid(), []
        for at, width, place in self._places(layout):
            if width > 1 and all(mask is masks[at] for mask in masks[at : at + width]):
                vector = sk._load_vector(place, width, self._align(layout), mask=mask_of(masks[at]))
                found += sk._lanes(vector)
                continue
            for neighbour in range(width):
                found.append(sk.load(_ADD(place, neighbour), mask=mask_of(masks[at + neighbour])))
        return found

    def _places(self, layout: Layout) -> list[tuple[int, int, Any]]:
        """Return for each access the number of its first register, how many it has, and a pointer."""
        strides = strides_of(layout.shape, self.gap)
        start, width = self.array, access_width(layout, self.gap, self.itemsize)
        for index, stride in zip(layout.first(), strides):
            start = start if type(index) is int else _ADD(start, index if stride == 1 else _MULTIPLY(index, stride))
        offsets = [sum(o * s for o, s in zip(each, strides)) for each in layout.offsets[::width]]
        return [(number * width, width, _ADD(start, offset)) for number, offset in enumerate(offsets)]

    def _align(self, layout: Layout) -> int:
        return min(access_width(layout, self.gap, self.itemsize) * self.itemsize, 16)


def strides_of(shape: Shape, gap: int) -> list[int]:
    """Return how far apart in memory two neighbours along each axis are, where rows of the last one have gaps between them."""
    strides: list[int] = [1]
    for extent in shape[:0:-1]:
        strides.append(strides[-1] * extent + (gap if len(strides) == 1 else 0))
    return strides[::-1]


def access_width(layout: Layout, gap: int, itemsize: int) -> int:
    """Return how many registers one access of shared memory has: a vector, where each begins at a multiple of its size."""
    width = layout.width
    if width == 1 or strides_of(layout.shape, gap)[layout.vector_axis] != 1:
        return 1
    while width > 1 and (layout.shape[-1] % width or gap % width or width * itemsize > 16):
        width //= 2
    return int(width)


# -- bank conflicts ---------------------------------------------------------------------------------------------------------


@functools.cache
def best_gap(layouts: tuple[Layout, ...], itemsize: int, multiple: int = 1) -> int:
    """Return the gap between rows, a multiple of a number, with which layouts of one shape access memory in the fewest steps."""
    if len(layouts[0].shape) == 1:
        return 0
    gaps = range(0, max(_MOST_PADDING // itemsize, multiple) + 1, multiple)
    return min(gaps, key=lambda gap: (sum(steps(layout, gap, itemsize) for layout in layouts), gap))


@functools.cache
def best_shift(layouts: tuple[Layout, ...], gap: int, dtype: sk.DType) -> int | None:
    """Return how chunks of a `Matrix` change their order so that fewer steps are taken than with a gap; None where none does."""
    rows, columns = layouts[0].shape
    chunks = pitch_of(columns, dtype) * dtype.itemsize // CHUNK_BYTES
    fewest = sum(steps(layout, gap, dtype.itemsize) for layout in layouts)
    if not turns(chunks) or not all(each.is_whole for each in layouts):
        return None
    found = [sum(steps_turned(layout, shift, dtype) for layout in layouts) for shift in range(rows.bit_length() - 1)]
    return found.index(min(found)) if min(found, default=fewest) < fewest else None


@functools.cache
def steps(layout: Layout, gap: int, itemsize: int) -> int:
    """Return in how many steps the block accesses a tile in shared memory, whose rows have a gap between them.

    In a step each bank gives a word of 4 bytes to as many lanes as want it. The lanes of a warp take turns where they want more
    than 128 bytes together.
    """
    strides, width = np.array(strides_of(layout.shape, gap)), access_width(layout, gap, itemsize)
    return _steps(layout, lambda *index: np.stack(index, axis=-1) @ strides, width, itemsize)


def steps_turned(layout: Layout, shift: int, dtype: sk.DType) -> int:
    """Return the same for a `Matrix` whose rows lie along the last of two axes."""
    count, pitch = CHUNK_BYTES // dtype.itemsize, pitch_of(layout.shape[1], dtype)
    ((_, mask, _),) = turns(pitch // count, shift)

    def place(row: _Numbers, column: _Numbers) -> _Numbers:
        turned = (column // count) ^ (row >> shift & mask)
        found: _Numbers = row * pitch + turned * count + column % count
        return found

    width = count if layout.width > 1 and layout.vector_axis == 1 else 1
    return _steps(layout, place, math.gcd(width, layout.width), dtype.itemsize)


def _steps(layout: Layout, place: Callable[..., _Numbers], width: int, itemsize: int) -> int:
    """Return in how many steps accesses of `width` elements are made. place: of elements, by their indices along each axis."""
    element = enumerated(layout)[:, ::width]
    index = np.unravel_index(np.maximum(element, 0), layout.shape)
    word = np.where(element < 0, -1, place(*index) * itemsize // _BANK_BYTES)
    words = max(width * itemsize // _BANK_BYTES, 1)  # of one access
    lanes = WARP // max(words * WARP // _BANKS, 1)  # that take part in a step
    everyone = np.full((-(-layout.threads // lanes) * lanes, word.shape[1]), -1)
    everyone[: layout.threads] = word
    wanted = everyone.reshape(-1, lanes, word.shape[1], 1) + np.where(everyone < 0, 0, 1).reshape(
        -1, lanes, word.shape[1], 1
    ) * np.arange(words)
    in_step = np.sort(np.moveaxis(wanted, 1, 2).reshape(-1, lanes * words), axis=1)
    is_new = (np.diff(in_step, axis=1, prepend=-1) != 0) & (in_step >= 0)
    by_bank = np.zeros((len(in_step), _BANKS), np.int64)
    np.add.at(by_bank, (np.arange(len(in_step))[:, None], in_step % _BANKS), is_new)
    return int(by_bank.max(axis=1).sum())
