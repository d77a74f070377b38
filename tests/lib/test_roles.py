"""`sk.warp_roles`: warpgroups of a block with different work."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import stagekit as sk
from tests import places

TILE = 128


@sk.jit
def roles(x, out, rounds, registers: sk.constexpr, left_over: sk.constexpr):
    """One warpgroup loads tiles, of which each of two others doubles a half; those left over do what comes behind."""
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=2, block=384 + 128 * left_over))
    size, base = TILE * x.dtype.itemsize, sk.cuda.block_idx("x") * rounds * TILE
    tiles, pipe = sk.alloc_shared((2, TILE), x.dtype, align=128), sk.pipeline(2, 8)

    def load(group):
        if sk.warp_id() == 0 and sk.cuda.elect_sync():
            state = pipe.producer_start()
            for k in range(rounds):
                full = pipe.producer_acquire(state, size)
                sk.cuda.cp_async_bulk_g2s(tiles.ptr_to(state.stage, 0), x + base + k * TILE, size, full)
                state = state.advance()

    def double(group):
        i, state = group * 64 + sk.cuda.thread_idx("x") % 64, pipe.consumer_start()
        for k in range(rounds):
            pipe.consumer_wait(state)
            out[base + k * TILE + i] = 2 * tiles[state.stage, i]
            pipe.warp_release(state)
            state = state.advance()

    few, many = registers or (None, None)
    sk.warp_roles(sk.Role(load, 1, few), sk.Role(double, 2, many))
    if sk.cuda.thread_idx("x") == 384:
        out[len(out) - 1 - sk.cuda.block_idx("x")] = 77


@pytest.mark.parametrize("place", ["sanitizer", "random", pytest.param("gpu", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(("registers", "left_over"), [(None, 1), ((40, 232), 0)])
def test_each_warpgroup_has_its_role(place, registers, left_over):
    rounds = 3
    x = np.arange(2 * rounds * TILE + 2, dtype=np.float32)
    checked = {"sanitizer": sk.sanitize(), "random": sk.sanitize(order="random", seed=1)}.get(place)

    with checked or contextlib.nullcontext():
        where = places.on_gpu if place == "gpu" else places.on_cpu
        _, out = places.run(where, roles, [x, np.zeros_like(x)], rounds, registers, left_over)

    np.testing.assert_array_equal(out[:-2], 2 * x[:-2])
    assert out[-2:].tolist() == [77 * left_over] * 2


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((), "each role has one warpgroup or more"),
        (((0, None),), "each role has one warpgroup or more"),
        (((1, 40), (2, None)), "1 of 2 roles name registers"),
        (((1, 41), (2, 232)), "registers are 24 to 256, a multiple of 8, got 41"),
        (((1, 40), (2, 240)), "66560 registers in all, and such a block begins with 64512"),
    ],
)
def test_what_no_block_can_have_is_refused_while_specialising(given, text):
    @sk.jit
    def kernel(x):
        sk.warp_roles(*[sk.Role(lambda group: None, *each) for each in given])

    with pytest.raises(sk.StagekitError, match=text):
        _ = kernel.specialize(x=sk.Tensor((None,), sk.float32)).ir
