"""A barrier of the whole grid, of atomics with an order, in a launch of which all blocks run at the same time.

    for step in range(steps):
        ...                                    # every thread of the grid writes
        sk.grid_sync(state)                    # state: two uint32, 0 before the first launch

state[0] counts arrivals: block 0 adds what makes the sum of all carry into the highest bit, for which the others wait. So it is
ready for the next time at once. state[1] counts blocks that have ended: one that waits for a block that has ended would wait for
ever, and fails instead. The last block to end leaves zeros.

Source: CUDA C++ Programming Guide, Grid Synchronization; Xiao and Feng, Inter-Block GPU Communication via Fast Barrier
Synchronization, 2010.
"""

from __future__ import annotations

from typing import Any

import stagekit as sk

_FLAG = 0x80000000


@sk._kernel_only
@sk._among_threads
def grid_sync(state: Any) -> None:
    """Wait until every thread of the grid is here; what any of them wrote before is then visible to all of them.

    state: an array argument of the kernel, two uint32 that are 0 before the first launch and after each, and belong to one launch
    at a time. A grid of which not all blocks can run at the same time is refused at the launch; on the CPU each block takes a
    thread of the machine. A block that ends without coming here is reported as a failed assert.
    """
    sk._all_blocks_at_once("grid_sync", _ended, state)
    assert len(state) >= 2, "grid_sync: state has less than two elements"
    sk.syncthreads()
    if _is_first_thread():
        blocks = _blocks()
        is_first = (sk.cuda.block_idx("x") == 0) & (sk.cuda.block_idx("y") == 0) & (sk.cuda.block_idx("z") == 0)
        share = sk.where(is_first, sk.uint32(_FLAG) - (blocks - 1), sk.uint32(1))
        before = sk.atomic_add(state.ptr_to(0), share, order="acq_rel")
        ended = sk.uint32(0)
        while (sk.load(state.ptr_to(0), order="acquire") ^ before) & _FLAG == 0:
            if ended != 0:  # and the arrivals that came before its end do not suffice
                break
            ended = sk.load(state.ptr_to(1), order="acquire")
            if ended == 0:
                sk.nanosleep(32)
        is_complete = (sk.load(state.ptr_to(0), order="acquire") ^ before) & _FLAG != 0
        assert is_complete, f"grid_sync: {ended} of {blocks} blocks have ended and will not come"
    sk.syncthreads()


def _ended(state: Any) -> None:
    """Count this block among those that have ended; the last one leaves zeros."""
    if _is_first_thread():
        others = sk.atomic_add(state.ptr_to(1), sk.uint32(1), order="acq_rel")
        if others == _blocks() - 1:
            state[0] = 0
            state[1] = 0


def _is_first_thread() -> Any:
    return (sk.cuda.thread_idx("x") == 0) & (sk.cuda.thread_idx("y") == 0) & (sk.cuda.thread_idx("z") == 0)


def _blocks() -> Any:
    return sk.uint32(sk.cuda.grid_dim("x") * sk.cuda.grid_dim("y") * sk.cuda.grid_dim("z"))
