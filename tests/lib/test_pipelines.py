"""`sk.pipeline`: rings of stages, filled by one lane of the first warp and read by warps behind it."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import stagekit as sk
from stagekit.backends import ptxas
from tests import places

TILE = 32


@sk.jit
def tripled(x, out, rounds, stages: sk.constexpr, warps: sk.constexpr, fault: sk.constexpr):
    t, size = sk.cuda.thread_idx("x"), TILE * x.dtype.itemsize
    base = sk.cuda.block_idx("x") * rounds * TILE
    tiles = sk.alloc_shared((stages * TILE,), x.dtype, align=128)
    pipe = sk.pipeline(stages, warps)
    if t < 32:
        if sk.cuda.elect_sync():
            state = pipe.producer_start()
            for k in range(rounds):
                full = pipe.producer_acquire(state, size)
                sk.cuda.cp_async_bulk_g2s(tiles + state.stage * TILE, x + base + k * TILE, size, full)
                state = state.advance()
    else:
        state = pipe.consumer_start()
        for k in range(rounds):
            if fault != "no wait":
                pipe.consumer_wait(state)
            for i in range(t - 32, TILE, 32 * warps):
                out[base + k * TILE + i] = tiles[state.stage * TILE + i] * 3
            if fault != "no barrier of the warp":
                sk.syncwarp()
            if fault != "no release" and sk.lane_id() == 0:
                pipe.consumer_release(state)
            if fault != "state stays":
                state = state.advance()


@pytest.mark.parametrize("place", ["sanitizer", "random", pytest.param("gpu", marks=pytest.mark.gpu)])
def test_rings_of_every_length_bring_all_tiles(place):
    for stages, warps, blocks, rounds in ((1, 1, 1, 3), (2, 1, 3, 5), (3, 3, 1, 7), (4, 2, 2, 3), (5, 1, 2, 0)):
        x = np.arange(blocks * rounds * TILE, dtype=np.float32)
        checked = {"sanitizer": sk.sanitize(), "random": sk.sanitize(order="random", seed=stages)}.get(place)

        with checked or contextlib.nullcontext():
            where = places.on_gpu if place == "gpu" else places.on_cpu
            launch = tripled[blocks, 32 * (warps + 1)]
            _, out = places.run(where, launch, [x, np.zeros_like(x)], rounds, stages, warps, "")

        np.testing.assert_array_equal(out, 3 * x)


@pytest.mark.parametrize(
    ("fault", "ids"),
    [
        ("no wait", {"COPY_UNDER_WAY", "UNINITIALISED_READ"}),
        ("no release", {"MBARRIER_STUCK"}),
        ("no barrier of the warp", {"BLOCK_RACE"}),
        ("state stays", {"COPY_UNDER_WAY", "BLOCK_RACE", "MBARRIER_STUCK", "MBARRIER_OVERRUN"}),
    ],
)
def test_a_fault_in_the_use_of_a_ring_is_found(fault, ids):
    x = np.ones(6 * TILE, np.float32)
    watch = sk.sanitize(tripled, collect=True)

    watch[1, 64](x, np.zeros_like(x), 6, 2, 1, fault)

    assert watch.report.findings[0].id in ids


def test_stages_are_known_while_specialising():
    x = np.ones(TILE, np.float32)
    for stages in (0, 65, True):
        with pytest.raises(sk.StagekitError, match="pipeline has 1 to 64 stages, a compile-time int"):
            sk.sanitize(tripled)[1, 64](x, np.zeros_like(x), 1, stages, 1, "")


def test_a_state_is_two_registers_of_a_loop():
    array = sk.Tensor((None,), sk.float16)
    kernel = tripled.specialize(x=array, out=array, rounds=sk.int32, stages=4, warps=2, fault="")

    found = ptxas.assemble(kernel.compile("cuda", capability=90).stages["ptx"])

    assert not found.warnings
    assert found.resources.stack_bytes == 0
    assert found.resources.registers <= 32
