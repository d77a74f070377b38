"""Which thread of a block holds which element of a tile, as maps, and how often lanes meet in one bank of shared memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stagekit.diagnostics import hide_frames, shown, wrong_arguments
from stagekit.layouts.index_map import IndexMap, Step, map_of
from stagekit.lib.layout import Digit, Layout, enumerated, layout_of

LANES, BANKS, BANK_BYTES = 32, 32, 4


def table_of(layout: Layout) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the element that each thread (row) holds in each register (column), by its number in C order; -1 for none."""
    return enumerated(layout).copy()


def index_map_of(layout: Layout) -> IndexMap:
    """Return the map of two places, thread and register, to the number of an element in C order; refused where some are none."""
    if not layout.is_whole:
        raise wrong_arguments(index_map_of, f"threads of {layout} have registers without an element: see `table_of`")
    steps = [math.prod(layout.shape[axis + 1 :]) for axis in range(len(layout.shape))]
    digits = [
        tuple([Step(radix, stride * steps[axis]) for radix, axis, stride in each]) or (Step(1, 0),)
        for each in (layout.lanes, layout.registers)
    ]
    return map_of(digits)


@hide_frames
def tile_layout(shape: int | tuple[int, ...], threads: IndexMap, registers: IndexMap) -> Layout:
    """Return the layout of a tile in which thread t has in register r the element threads(t) + registers(r), in C order.

    shape: of the tile. Each digit counts along an axis, or to its end and then along the one before. Threads of stride 0 hold
    copies. Registers that follow one another along an axis from a multiple of 8, 4 or 2 on make vectors.
    """
    sizes = shape if isinstance(shape, tuple) else (shape,)
    held_by = [_digits(sizes, each) for each in (registers, threads)]
    layout = layout_of(sizes, threads.size, held_by[0], held_by[1], _width(sizes, registers))
    held = enumerated(layout)
    if not np.array_equal(np.unique(held[held >= 0]), np.arange(math.prod(sizes))):
        count = f"all {math.prod(sizes)} elements of {shown(shape)}"
        raise wrong_arguments(tile_layout, f"threads {threads} and registers {registers} do not hold {count}")
    return layout


def _digits(shape: tuple[int, ...], given: IndexMap) -> list[Digit]:
    """Return the digits of a map along axes; one that goes on beyond the end of an axis is two."""
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    found = []
    for size, stride in given.digits:
        left, step = size, stride
        while left > 1 and stride:
            axis = next(axis for axis, each in enumerate(steps) if each <= step)
            far, room = step // steps[axis], max(shape[axis] * steps[axis] // step, 1) if axis else left
            if step % steps[axis] or (left > room and (shape[axis] % far or left % room)):
                problem = f"the digit {size}:{stride} of {given} is along no axis of {shown(shape)}"
                raise wrong_arguments(tile_layout, problem)
            found.append(Digit(min(left, room), axis, far))
            left, step = left // min(left, room), step * room
        found += [Digit(size, 0, 0)] if not stride else []
    return found


def _width(shape: tuple[int, ...], registers: IndexMap) -> int:
    size, stride = registers.digits[0]
    is_along = stride == 1 and shape[-1] > 1
    return math.gcd(size, 8) if is_along and shape[-1] % math.gcd(size, 8) == 0 else 1


@hide_frames
def bank_conflicts(places: IndexMap | Any, itemsize: int, width: int = 1) -> int:
    """Return in how many steps a warp accesses shared memory beyond those that its bytes take; 0 is free of conflicts.

    places: where the first element of each of 32 lanes is, a map from lanes or an array. itemsize: bytes of an element.
    width: elements that a lane accesses at once. A bank gives a word of 4 bytes in a step to all lanes that want it; of accesses
    of 8 bytes a half, of 16 a quarter of the warp takes part in a step.
    """
    starts = np.asarray(places.numbers if isinstance(places, IndexMap) else places, np.int64).reshape(-1) * itemsize
    if starts.size != LANES or width * itemsize not in (1, 2, 4, 8, 16):
        problem = f"{starts.size} places, and accesses of {width * itemsize} bytes: there are {LANES} lanes, and 1 to 16 bytes"
        raise wrong_arguments(bank_conflicts, problem)
    words = max(width * itemsize // BANK_BYTES, 1)
    wanted = (starts // BANK_BYTES)[:, None] + np.arange(words)
    turns = wanted.reshape(words, -1)
    return sum([int(np.bincount(np.unique(turn) % BANKS).max()) - 1 for turn in turns])
