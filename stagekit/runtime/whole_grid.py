"""Run each block of a launch in a thread of the machine: for kernels whose blocks wait for each other (`lib/grids.py`).

    fault = run_at_once(lambda block: entry(slots, grid, block, block + 1, scratch), blocks, state_address)

A block that will never arrive must not be waited for: one that ended by a fault, one for which there was no thread or no memory,
and those of a launch that is interrupted. Then the count of blocks that have ended gets a bit that no count of blocks has, so
that no block takes itself for the last, and all that wait leave. A block itself is never interrupted.
"""

from __future__ import annotations

import ctypes
import queue
import threading
from collections.abc import Callable

MOST_AT_ONCE = 1024  # threads of the machine for one launch
_ABANDONED = 1 << 30


def run_at_once(run: Callable[[int], int], blocks: int, state_address: int) -> int:
    """Run all blocks and return the fault of one of them, or 0. state_address: of the two uint32 that `grid_sync` counts in.

    Raises what a block, the start of its thread, or a handler of a signal raised, once no block runs any more. `Thread.join` does
    not tell that: until Python 3.13 a thread whose join was interrupted counts as ended.
    """
    state = (ctypes.c_uint32 * 2).from_address(state_address)
    faults, errors = [0] * blocks, list[BaseException]()
    runs = dict[int, bool]()  # by block, decided once: by its thread, or False by the caller, who gives up before
    over, ended = set[int](), queue.SimpleQueue[int]()

    def give_up(error: BaseException | None) -> None:
        errors.extend([error] if error else [])
        state[1] |= _ABANDONED

    def run_one(block: int) -> None:
        if not runs.setdefault(block, True):
            return
        try:
            faults[block] = run(block)
        except BaseException as error:
            give_up(error)
        if faults[block]:
            give_up(None)
        over.add(block)
        ended.put(block)

    def wait_for(block: int) -> None:
        if errors:
            runs.setdefault(block, False)
        while block not in over and runs.get(block, True):
            ended.get()

    not_started = iter(range(blocks))
    while True:
        try:
            for block in not_started:
                threading.Thread(target=run_one, args=(block,)).start()
            for block in range(blocks):
                wait_for(block)
            break
        except BaseException as error:
            give_up(error)
            not_started = iter(())
    if any(faults) or errors:
        state[:] = [0, 0]
    if errors:
        raise errors[0]
    return max(faults)
