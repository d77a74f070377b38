"""Blocks in threads of the machine: whoever waits for them returns when none of them runs any more, interrupted or not."""

from __future__ import annotations

import ctypes
import signal
import threading
import time

import pytest

from stagekit.runtime.cpu import run_at_once


@pytest.mark.parametrize(("blocks", "interrupting"), [(1, 0), (40, 0), (40, 20), (40, 39)])
def test_no_block_runs_when_an_interrupted_launch_returns(blocks: int, interrupting: int) -> None:
    """A block sends the signal when all have begun, again if Python loses it; the first block, which is waited for, ends last."""
    state = (ctypes.c_uint32 * 2)()
    running = set[int]()

    def run(block: int) -> int:
        running.add(block)
        while not state[1]:  # until the launch is given up
            time.sleep(0.05)
            if block == interrupting:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)
        time.sleep(0.2 * (block == 0))
        running.discard(block)
        return 0

    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_at_once(run, blocks, ctypes.addressof(state))
    finally:
        signal.signal(signal.SIGALRM, before)

    assert (running, [*state]) == (set(), [0, 0])


def test_a_fault_and_an_error_of_a_block_reach_the_caller() -> None:
    state = (ctypes.c_uint32 * 2)()

    assert run_at_once(lambda block: 7 * (block == 2), 4, ctypes.addressof(state)) == 7
    with pytest.raises(ZeroDivisionError):
        run_at_once(lambda block: 1 // block, 4, ctypes.addressof(state))
    assert [*state] == [0, 0]
