"""Run compiled host code on NumPy arrays, without the runtime room."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stagekit.backends.host.compiler import HostCode, compile
from stagekit.backends.host.target import load
from stagekit.ir import Function
from stagekit.passes import PassContext
from stagekit.passes.pipeline import lower
from stagekit.runtime.safepoints import Safepoints

CPU = PassContext("cpu", 0, fastmath=False, debug=False)
ENTRY = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)
Triple = tuple[int, int, int]


def native_args(slots: Sequence[Any]) -> np.ndarray:
    """The 8-byte slots of the entry: an array's address, or a NumPy scalar's bytes."""
    words = np.zeros(max(len(slots), 1), np.uint64)
    for index, slot in enumerate(slots):
        if isinstance(slot, np.ndarray):
            words[index] = slot.ctypes.data
        else:
            raw = np.asarray(slot).tobytes()
            words[index] = int.from_bytes(raw, "little")
    return words


@dataclass
class Runner:
    """A compiled kernel; `close` frees it."""

    code: HostCode
    dynamic_bytes: int = 0

    def __post_init__(self) -> None:
        self._loaded = load(self.code.object_code, self.code.entry)
        self._entry = ENTRY(self._loaded.address)
        raw = np.full(self.code.scratch_bytes + self.dynamic_bytes + 64, 0xA5, np.uint8)  # nothing is zero by chance
        self._raw, self._scratch = raw, -(-raw.ctypes.data // 64) * 64

    def __call__(self, slots: Sequence[Any], grid: Triple, first: int = 0, last: int | None = None) -> int:
        words, sizes = native_args(slots), np.array(grid, np.int64)
        end = grid[0] * grid[1] * grid[2] if last is None else last
        safepoints = Safepoints(1)
        return self._entry(words.ctypes.data, sizes.ctypes.data, first, end, self._scratch, safepoints.add())

    def close(self) -> None:
        self._loaded.close()


def compiled(fn: Function, block: Triple, dynamic_bytes: int = 0) -> Runner:
    """Lower and compile `fn`."""
    return Runner(compile(lower(fn, CPU, ()), block), dynamic_bytes)


def run(fn: Function, slots: Sequence[Any], grid: Triple, block: Triple, dynamic_bytes: int = 0) -> int:
    """Compile, run once, free; gives the fault, 0 for none."""
    runner = compiled(fn, block, dynamic_bytes)
    try:
        return runner(slots, grid)
    finally:
        runner.close()
