"""The barrier of the whole grid: memory is ordered across it, it may be used again, and whoever waits in vain says so."""

from __future__ import annotations

import signal
import threading

import numpy as np
import pytest

import stagekit as sk
from tests.places import each_place, on_cpu, run


@sk.jit
def smooth(a, b, state, rounds):
    """Neighbours are summed, round after round; with the whole grid as stride, cells change their block's owner never."""
    n, stride = len(a), sk.cuda.grid_dim("x") * sk.cuda.block_dim("x")
    first = sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")
    for _ in range(rounds):
        for i in range(first, n, stride):
            b[i] = a[(i + n - 1) % n] + a[(i + 1) % n]
        sk.grid_sync(state)
        for i in range(first, n, stride):
            a[i] = b[i]
        sk.grid_sync(state)


@each_place
@pytest.mark.parametrize("way", ["cpu", "interp", "sanitized"])
@pytest.mark.parametrize(("grid", "block"), [(1, 1), (1, 32), (3, 64), (7, 40)])
def test_what_was_written_before_is_seen_after(place, way, grid, block, monkeypatch):
    if place is on_cpu and way != "sanitized":
        monkeypatch.setenv("STAGEKIT_TARGET", way)
    a = np.arange(90)
    arrays = [a, np.zeros_like(a), np.zeros(2, np.uint32)]
    with sk.sanitize() if way == "sanitized" and place is on_cpu else np.errstate():
        found, _, state = run(place, smooth[grid, block], arrays, 4)

    for _ in range(4):
        a = np.roll(a, 1) + np.roll(a, -1)
    np.testing.assert_array_equal(found, a)
    assert state.tolist() == [0, 0]


@pytest.mark.gpu
def test_as_many_blocks_as_fit_run_and_more_are_refused():
    a, b, state = (sk.cuda.to_device(np.zeros(n, t)) for n, t in ((1000, np.int64), (1000, np.int64), (2, np.uint32)))
    smooth[100, 256](a, b, state, 50)
    sk.cuda.synchronize()

    with pytest.raises(sk.LaunchError, match="GRID_TOO_LARGE"):
        smooth[100_000, 256](a, b, state, 1)
    assert state.to_host().tolist() == [0, 0]


@sk.jit
def some_stay_away(state, out):
    if sk.cuda.block_idx("x") != 1:
        sk.grid_sync(state)
    out[sk.cuda.block_idx("x")] = 1


@sk.jit
def some_miss_a_barrier(state, out):
    if sk.cuda.block_idx("x") == 1 and sk.cuda.thread_idx("x") < 40:
        sk.syncthreads()
    sk.grid_sync(state)


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_a_block_that_never_comes_is_reported(target):
    state, out = np.zeros(2, np.uint32), np.zeros(3, np.int32)

    with pytest.raises(sk.KernelAssertionError, match="of 3 blocks have ended and will not come"):
        sk.compile(some_stay_away, target)[3, 32](state, out)
    assert out.tolist() == [1, 1, 1]
    assert state.tolist() == [0, 0]  # ready for the next launch


@pytest.mark.stagekit_unchecked(reason="it is about the threads of the CPU target")
def test_a_block_that_ends_by_a_fault_lets_nobody_wait():
    state = np.zeros(2, np.uint32)

    with pytest.raises(sk.BarrierError):
        some_miss_a_barrier[3, 64](state, np.zeros(1, np.int32))
    assert state.tolist() == [0, 0]


def test_a_launch_that_is_interrupted_ends_and_harms_no_later_one():
    arrays = [np.arange(90), np.zeros(90, np.int64), np.zeros(2, np.uint32)]
    smooth[3, 64](*arrays, 1)  # compiles
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        with pytest.raises(KeyboardInterrupt):
            smooth[3, 64](*arrays, 20_000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert arrays[2].tolist() == [0, 0]
    a = arrays[0].copy()
    smooth[3, 64](*arrays, 1)  # no record of the other launch is reported
    np.testing.assert_array_equal(arrays[0], np.roll(a, 1) + np.roll(a, -1))


@pytest.mark.stagekit_unchecked(reason="it is about the threads of the CPU target")
def test_without_threads_enough_nobody_waits(monkeypatch):
    start, started = threading.Thread.start, []

    def start_two(thread):
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_two)
    state = np.zeros(2, np.uint32)

    with pytest.raises(RuntimeError, match="new thread"):
        smooth[3, 64](np.arange(90), np.zeros(90, np.int64), state, 3)
    assert state.tolist() == [0, 0]


def test_memory_that_is_too_small_is_reported():
    with pytest.raises((sk.KernelAssertionError, sk.StagekitError), match=r"grid_sync|OUT_OF_BOUNDS"):
        sk.compile(smooth, "interp")[1, 32](np.zeros(4), np.zeros(4), np.zeros(1, np.uint32), 1)


@sk.jit
def misused(out, state, mistake: sk.constexpr):
    mistake(out, state)


MISTAKES = {
    "takes an argument of the kernel, got a part": lambda out, state: sk.grid_sync(state[1:]),
    "got an array of int32": lambda out, state: sk.grid_sync(out),
    "got an int": lambda out, state: sk.grid_sync(3),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_what_cannot_hold_the_state_is_refused(text):
    arrays = {"out": sk.Tensor((None,), sk.int32), "state": sk.Tensor((None,), sk.uint32)}
    with pytest.raises(sk.StagingError, match=text.removesuffix(" a part").removesuffix(" an int")):
        _ = misused.specialize(**arrays, mistake=MISTAKES[text]).ir


def test_a_cooperative_launch_is_ptx_that_assembles():
    from stagekit.backends import ptxas

    arrays = dict.fromkeys(("a", "b"), sk.Tensor((None,), sk.int64))
    kernel = smooth.specialize(**arrays, state=sk.Tensor((None,), sk.uint32), rounds=sk.int32)
    artifact = kernel.compile("cuda", capability=90)

    ptxas.assemble(artifact.stages["ptx"])
    assert artifact.grid_state
    assert "nanosleep.u32" in artifact.stages["ptx"]
