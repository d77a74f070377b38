"""Barriers of some warps: right protocols run in every order, and each planted fault is found under its name."""

from __future__ import annotations

import contextlib
import re

import numpy as np
import pytest

import stagekit as sk
from stagekit.backends import ptxas
from tests import places

each_place = pytest.mark.parametrize("place", ["sanitizer", "random", pytest.param("gpu", marks=pytest.mark.gpu)])
FREE, FILLED = 1, 8


def run(place, launch, arrays, *arguments):
    checked = {"sanitizer": sk.sanitize(), "random": sk.sanitize(order="random", seed=5)}.get(place)
    with checked or contextlib.nullcontext():
        return places.run(places.on_gpu if place == "gpu" else places.on_cpu, launch, arrays, *arguments)


@sk.jit
def handed_over(x, out, rounds, buffers: sk.constexpr, readers: sk.constexpr, fault: sk.constexpr):
    """The first warp fills buffers, which the others read; each buffer has a barrier for "free", and one for "filled"."""
    t, warp, count = sk.cuda.thread_idx("x"), sk.warp_id(), 32 * (readers + 1)
    tile = sk.alloc_shared((buffers, 32), x.dtype)
    row = sk.cuda.block_idx("x") * rounds
    if warp == 0:
        for k in range(rounds):
            buffer = k % buffers
            if fault != "writer does not wait":
                sk.cuda.barrier_sync(FREE + buffer, count)
            tile[buffer, t] = x[row + k, t]
            if fault == "half a warp" and t < 16:
                sk.cuda.barrier_arrive(FILLED + buffer, count)
            if fault not in ("half a warp", "nobody tells"):
                sk.cuda.barrier_arrive(FILLED + buffer + (16 if fault == "no such barrier" else 0) * rounds, count)
    else:
        for k in range(rounds):
            buffer = k % buffers
            if fault != "writer does not wait":
                sk.cuda.barrier_arrive(FREE + buffer, count + (32 if fault == "another number" else 0))
            if fault == "reader does not wait":
                sk.cuda.barrier_arrive(FILLED + buffer, count)
            else:
                sk.cuda.barrier_sync(FILLED + buffer, count)
            out[row + k, t - 32] = tile[buffer, 63 - t if readers == 1 else t % 32]


@each_place
@pytest.mark.parametrize(("buffers", "readers", "rounds"), [(1, 1, 3), (2, 1, 5), (3, 3, 4), (7, 2, 0)])
def test_warps_hand_buffers_over(place, buffers, readers, rounds):
    x = np.random.default_rng(rounds).standard_normal((2 * rounds, 32), np.float32)
    out = np.zeros((2 * rounds, 32 * readers), np.float32)

    _, out = run(place, handed_over[2, 32 * (readers + 1)], [x, out], rounds, buffers, readers, "")

    np.testing.assert_array_equal(out, x[:, ::-1] if readers == 1 else np.tile(x, readers))


FAULTS = {
    "writer does not wait": {"BLOCK_RACE", "NAMED_BARRIER_MISUSED"},
    "reader does not wait": {"BLOCK_RACE", "UNINITIALISED_READ", "NAMED_BARRIER_MISUSED"},
    "half a warp": {"NAMED_BARRIER_MISUSED"},
    "nobody tells": {"NAMED_BARRIER_STUCK"},
    "no such barrier": {"NAMED_BARRIER_MISUSED"},
    "another number": {"NAMED_BARRIER_MISUSED"},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_barriers_of_warps_is_found(fault):
    x = np.ones((4, 32), np.float32)
    for order in ("forward", "backward"):
        watch = sk.sanitize(handed_over, collect=True, order=order)

        watch[1, 64](x, np.zeros_like(x), 4, 1, 1, fault)

        assert watch.report.findings[0].id in FAULTS[fault]


@sk.jit
def called(x, call: sk.constexpr):
    call()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: sk.cuda.barrier_sync(0, 64), "`number` of `barrier_sync` is 0"),
        (lambda: sk.cuda.barrier_arrive(16, 64), "`number` of `barrier_arrive` is 16"),
        (lambda: sk.cuda.barrier_sync(1, 48), "it is 32 to 1024, a multiple of 32"),
    ],
)
def test_numbers_that_no_barrier_has_are_refused_while_specialising(call, text):
    with pytest.raises(sk.StagekitError, match=re.escape(text)):
        _ = called.specialize(x=sk.Tensor((None,), sk.float32), call=call).ir


def test_a_barrier_is_one_instruction_everywhere_and_the_cpu_refuses():
    array = sk.Tensor((None, 32), sk.float32)
    kernel = handed_over.specialize(x=array, out=array, rounds=sk.int32, buffers=1, readers=1, fault="")

    for capability in (75, 90):
        ptx = kernel.compile("cuda", capability=capability).stages["ptx"]
        assert ptx.count("bar.sync") == ptx.count("bar.arrive") == 2
        assert not ptxas.assemble(ptx).warnings
    with pytest.raises(sk.StagekitError, match="UNSUPPORTED_ON_TARGET"):
        kernel[1, 64](np.zeros((1, 32), np.float32), np.zeros((1, 32), np.float32), 1)


@sk.jit
def moved(x, out, fault: sk.constexpr):
    """The first warpgroup gives registers back, which the second and the third take."""
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=2, block=384))
    t, warp = sk.cuda.thread_idx("x"), sk.warp_id()
    if warp < 4:
        if fault == "three warps":
            if warp < 3:
                sk.cuda.setmaxnreg_dec(40)
        elif fault == "half a warp":
            if t % 32 < 16:
                sk.cuda.setmaxnreg_dec(40)
        elif fault == "two numbers":
            if warp < 2:
                sk.cuda.setmaxnreg_dec(40)
            else:
                sk.cuda.setmaxnreg_dec(48)
        elif fault == "more instead of fewer":
            sk.cuda.setmaxnreg_inc(40)
        elif fault != "nothing is given back":
            sk.cuda.setmaxnreg_dec(40)
    else:
        sk.cuda.setmaxnreg_inc(232)
        i = sk.cuda.block_idx("x") * 256 + t - 128
        out[i] = 2 * x[i]


@each_place
def test_registers_move_between_warpgroups(place):
    x = np.arange(512, dtype=np.float32)

    _, out = run(place, moved, [x, np.zeros_like(x)], "")

    np.testing.assert_array_equal(out, 2 * x)


@pytest.mark.parametrize(
    ("fault", "ids"),
    [
        ("three warps", {"REGISTERS_MISUSED"}),
        ("half a warp", {"REGISTERS_MISUSED"}),
        ("two numbers", {"REGISTERS_MISUSED"}),
        ("more instead of fewer", {"REGISTERS_MISUSED"}),
        ("nothing is given back", {"REGISTERS_STUCK"}),
    ],
)
def test_a_fault_in_moving_registers_is_found(fault, ids):
    x = np.ones(512, np.float32)
    with sk.sanitize(collect=True) as session:
        moved(x, np.zeros_like(x), fault)

    assert ids == {finding.id for report in session.reports for finding in report.findings}


def test_registers_are_moved_by_one_instruction_of_one_architecture():
    array = sk.Tensor((None,), sk.float32)
    kernel = moved.specialize(x=array, out=array, fault="")

    for capability in (90, 100, 120):
        ptx = kernel.compile("cuda", capability=capability).stages["ptx"]
        assert f".target sm_{capability}a" in ptx
        assert ptx.count("setmaxnreg.") == 2
        assert not ptxas.assemble(ptx).warnings
    with pytest.raises(sk.StagekitError, match=r"needs compute capability 9\.0, this kernel is for 8\.6"):
        kernel.compile("cuda", capability=86)
