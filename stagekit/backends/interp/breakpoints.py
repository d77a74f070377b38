"""The threads of a block that stop together at a `breakpoint()`, and their values as NumPy arrays.

for stopped in stopped_blocks(team, values, types):
    stopped.of_threads(0)                    # array([0, 1, 2, ...]), one element per thread that is here
    stopped.array(1, rank=2)                 # the memory itself: of an argument, or of the kernel's own
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from stagekit.backends.interp.memory import Allocation, Array, Pointers
from stagekit.backends.interp.team import Team
from stagekit.dtypes import DType
from stagekit.ir import Space, Type


class Index(NamedTuple):
    """A place in a grid or a block."""

    x: Any
    y: Any
    z: Any


class StoppedBlock:
    """The active threads of one block of a team. lanes: which of the team's lanes these are. values: the operands of the op."""

    def __init__(self, team: Team, lanes: Array, values: Sequence[Any], types: Sequence[Type]) -> None:
        self.team, self.lanes, self.values, self.types = team, lanes, values, types

    @property
    def block_idx(self) -> Index:
        """The block's index, three numbers."""
        return Index(*(int(_pick(axis, self.lanes[0])) for axis in self.team.block_idx))

    @property
    def thread_idx(self) -> Index:
        """The threads' indices, three arrays with an element for each."""
        return Index(*(np.broadcast_to(_pick(axis, self.lanes), self.lanes.shape) for axis in self.team.thread_idx))

    def of_threads(self, operand: int) -> Any:
        value = self.values[operand]
        if isinstance(value, np.ndarray | np.generic):
            return _pick(value, self.lanes)
        return _pick(value.number(self.types[operand].dtype), self.lanes)

    def of_program(self, operand: int) -> Any:
        return _pick(self.of_threads(operand), 0)

    def tile(self, shape: tuple[int, ...], indices: Sequence[int], elements: Sequence[int]) -> Array:
        """Return a tile of which other warps may hold elements, that run on their own: these are masked."""
        found, is_here = np.zeros(shape, np.result_type(self.of_threads(elements[0]))), np.zeros(shape, np.bool_)
        flat = found.reshape(-1)
        for index, element in zip(indices, elements, strict=True):
            places = np.broadcast_to(self.of_threads(index), self.lanes.shape)
            is_there = places < flat.size
            flat[places[is_there]] = np.broadcast_to(self.of_threads(element), self.lanes.shape)[is_there]
            is_here.reshape(-1)[places[is_there]] = True
        return found if is_here.all() else np.ma.masked_array(found, ~is_here)

    def array(self, address: int, rank: int) -> Any:
        """Return the array at an address, of each thread if the memory is its own; addresses where threads differ in it."""
        pointer, dtype = self.values[address], self.types[address].dtype
        extents = [_common(self.of_threads(address + 1 + axis)) for axis in range(2 * rank)]
        start = _common(_pick(pointer.offset_bytes(dtype), self.lanes)) if isinstance(pointer, Pointers) else None
        known = [each for each in extents if each is not None]
        if start is None or len(known) < len(extents):
            return self.of_threads(address)
        steps = [stride * dtype.itemsize for stride in known[rank:]]
        return self._memory(pointer.allocation, dtype, start, known[:rank], steps)

    def _memory(self, memory: Allocation, dtype: DType, start: int, shape: list[int], steps: list[int]) -> Array:
        """Return elements of an allocation. start, steps: in bytes."""
        copies = self.team.copy_of(memory.space)
        starts = start + memory.pitch_bytes * (np.zeros(1, np.int64) if copies is None else copies[self.lanes])
        is_own = memory.space is Space.LOCAL
        views = [
            np.ndarray(shape, dtype.numpy, memory.data, offset, steps)
            for offset in (starts if is_own else starts[:1]).tolist()
        ]
        return np.stack(views) if is_own else views[0]


def stopped_blocks(team: Team, values: Sequence[Any], types: Sequence[Type]) -> Iterator[StoppedBlock]:
    """Return the blocks of a team that have active threads, in their order."""
    active = team.lane_numbers if team.mask is None else np.flatnonzero(team.mask)
    for row in range(len(team.blocks)):
        lanes = active[team.row[active] == row]
        if len(lanes):
            yield StoppedBlock(team, lanes, values, types)


def _pick(value: Any, lanes: Any) -> Any:
    """Return the elements that `lanes` have; a scalar is the same in all lanes."""
    return value[lanes] if isinstance(value, np.ndarray) else value


def _common(value: Any) -> int | None:
    """Return the integer that all threads have; None where they differ."""
    return int(np.min(value)) if np.min(value) == np.max(value) else None
