"""Blocks in threads of the machine: whoever waits for them returns when none of them runs any more, interrupted or not."""

from __future__ import annotations

import ctypes
import signal
import time

import pytest

from stagekit.runtime.whole_grid import run_at_once


@pytest.mark.parametrize("seconds", [0.0001, 0.001, 0.02])
@pytest.mark.parametrize("blocks", [1, 40])
def test_no_block_runs_when_an_interrupted_launch_returns(blocks: int, seconds: float) -> None:
    state = (ctypes.c_uint32 * 2)()
    running = set[int]()

    def run(block: int) -> int:
        running.add(block)
        while not state[1]:  # until the launch is given up
            time.sleep(0.001)
        time.sleep(0.01)
        running.discard(block)
        return 0

    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_at_once(run, blocks, ctypes.addressof(state))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert (running, [*state]) == (set(), [0, 0])


def test_a_fault_and_an_error_of_a_block_reach_the_caller() -> None:
    state = (ctypes.c_uint32 * 2)()

    assert run_at_once(lambda block: 7 * (block == 2), 4, ctypes.addressof(state)) == 7
    with pytest.raises(ZeroDivisionError):
        run_at_once(lambda block: 1 // block, 4, ctypes.addressof(state))
    assert [*state] == [0, 0]
