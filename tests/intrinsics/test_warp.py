"""Shuffles, votes, matches and warp reductions: every dtype, whole and partial warps."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import stagekit as sk
from tests.places import each_place, on_cpu, run

DTYPES = [
    np.dtype(t) for t in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", ml_dtypes.bfloat16)
]
LANES = np.arange(32)
FULL = 0xFFFFFFFF


@sk.jit
def shuffle(src, dst, how: sk.constexpr, amounts: sk.constexpr):
    t = sk.cuda.thread_idx("x")
    for k, amount in enumerate(amounts):
        dst[k, t] = how(FULL, src[t], amount)


SHUFFLES = {
    "shfl_sync": lambda amount: np.full(32, amount % 32),
    "shfl_up_sync": lambda amount: np.where(amount <= LANES, LANES - amount, LANES),
    "shfl_down_sync": lambda amount: np.where(LANES + amount < 32, LANES + amount, LANES),
    "shfl_xor_sync": lambda amount: LANES ^ amount,
}


def numbers(dtype, count):
    rng = np.random.default_rng(0)
    if dtype.kind == "b":
        return rng.integers(0, 2, count).astype(dtype)
    return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype)


def bits(array):
    return array.view(f"u{array.dtype.itemsize}")


@each_place
@pytest.mark.parametrize("name", SHUFFLES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_shuffles_move_every_bit_of_every_dtype(place, name, dtype):
    src, amounts = numbers(dtype, 96), (0, 1, 5, 16, 31)
    _, dst = run(place, shuffle[1, 96], [src, np.zeros((len(amounts), 96), dtype)], getattr(sk, name), amounts)

    for amount, moved in zip(amounts, dst):
        source = np.concatenate([SHUFFLES[name](amount) + 32 * warp for warp in range(3)])
        np.testing.assert_array_equal(bits(moved), bits(src[source]))


@sk.jit
def shuffle_in_parts(src, dst, width: sk.constexpr, amounts: sk.constexpr, run_time: sk.constexpr):
    t = sk.cuda.thread_idx("x")
    for k, amount in enumerate(amounts):
        if run_time:
            amount += sk.int32(t) & 0
        dst[0, k, t] = sk.shfl_sync(FULL, src[t], amount, width)
        dst[1, k, t] = sk.shfl_up_sync(FULL, src[t], amount, width=width)
        dst[2, k, t] = sk.shfl_down_sync(FULL, src[t], amount, width=width)
        dst[3, k, t] = sk.shfl_xor_sync(FULL, src[t], amount % width, width=width)


@each_place
@pytest.mark.parametrize("target", ["cpu", "interp"])
@pytest.mark.parametrize("width", [1, 2, 4, 8, 16, 32])
def test_a_width_keeps_shuffles_within_neighbours(place, target, width, monkeypatch):
    if place is on_cpu:
        monkeypatch.setenv("STAGEKIT_TARGET", target)
    src, amounts, t = numbers(np.dtype("i8"), 64), (0, 1, 3, 8, 31), np.arange(64)
    first = t // width * width
    for run_time in (False, True):
        launch = shuffle_in_parts[1, 64]
        _, dst = run(place, launch, [src, np.zeros((4, len(amounts), 64), "i8")], width, amounts, run_time)

        for k, amount in enumerate(amounts):
            sources = (
                first + amount % width,
                np.where(t - amount >= first, t - amount, t),
                np.where(t + amount < first + width, t + amount, t),
                t ^ amount % width,
            )
            np.testing.assert_array_equal(dst[:, k], src[np.array(sources)])


def test_a_width_that_is_none_is_refused():
    with pytest.raises(sk.StagingError, match="width"):
        shuffle_in_parts.specialize(
            src=sk.Tensor((None,), sk.int32),
            dst=sk.Tensor((4, 1, 64), sk.int32),
            width=12,
            amounts=(1,),
            run_time=False,
        ).ir


@sk.jit
def rotate(src, dst):
    """The source lane is a run-time int64, as indices are."""
    t = sk.cuda.thread_idx("x")
    dst[t] = sk.shfl_sync(FULL, src[t], (sk.lane_id() + 3) % 32)


@each_place
def test_the_source_lane_may_be_an_index(place):
    src = np.arange(64, dtype=np.float64)

    _, dst = run(place, rotate[1, 64], [src, np.zeros(64)])

    np.testing.assert_array_equal(dst, np.concatenate([np.roll(src[:32], -3), np.roll(src[32:], -3)]))


@sk.jit
def votes(src, ballots, anys, alls, masks: sk.constexpr):
    t = sk.cuda.thread_idx("x")
    for k, mask in enumerate(masks):
        if (mask >> sk.lane_id()) & 1 == 1:
            ballots[k, t] = sk.ballot_sync(mask, src[t])
            anys[k, t] = sk.any_sync(mask, src[t])
            alls[k, t] = sk.all_sync(mask, src[t])


@each_place
@pytest.mark.parametrize("share", [0.0, 0.1, 0.9, 1.0])
def test_votes_count_the_lanes_of_the_mask(place, share):
    masks = (FULL, 0xFFFF, 0x80000001, 0x00F0F000)
    src = np.random.default_rng(0).random(64) < share
    outs = [np.zeros((4, 64), np.uint32), np.zeros((4, 64), np.bool_), np.zeros((4, 64), np.bool_)]

    _, ballots, anys, alls = run(place, votes[1, 64], [src, *outs], masks)

    for k, mask in enumerate(masks):
        for t in range(64):
            if mask >> (t % 32) & 1:
                warp = src[t // 32 * 32 :][:32]
                holding = sum(1 << i for i in range(32) if warp[i] and mask >> i & 1)
                assert ballots[k, t] == holding
                assert anys[k, t] == (holding != 0)
                assert alls[k, t] == (holding == mask)


@sk.jit
def matches(src, dst):
    t = sk.cuda.thread_idx("x")
    dst[t] = sk.match_any_sync(FULL, src[t])


@each_place
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_match_any_compares_every_bit(place, dtype):
    src = np.random.default_rng(0).choice(numbers(dtype, 5), 64)

    _, dst = run(place, matches[1, 64], [src, np.zeros(64, np.uint32)])

    for t in range(64):
        warp = bits(src)[t // 32 * 32 :][:32]
        assert dst[t] == sum(1 << i for i in range(32) if warp[i] == bits(src)[t])


@sk.jit
def redux(src, dst, reduce: sk.constexpr, mask: sk.constexpr):
    t = sk.cuda.thread_idx("x")
    if (mask >> sk.lane_id()) & 1 == 1:
        dst[t] = reduce(mask, src[t])


@each_place
@pytest.mark.parametrize("mask", [FULL, 0x0000FF01, 0x80000000])
@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
@pytest.mark.parametrize(
    ("name", "ufunc"),
    [
        ("redux_sync_add", np.add),
        ("redux_sync_min", np.minimum),
        ("redux_sync_max", np.maximum),
        ("redux_sync_and", np.bitwise_and),
        ("redux_sync_or", np.bitwise_or),
        ("redux_sync_xor", np.bitwise_xor),
    ],
)
def test_redux_reduces_the_lanes_of_the_mask(place, name, ufunc, dtype, mask):
    src = numbers(np.dtype(dtype), 64)

    _, dst = run(place, redux[1, 64], [src, np.zeros(64, dtype)], getattr(sk, name), mask)

    chosen = np.array([i for i in range(32) if mask >> i & 1])
    for warp in (0, 32):
        assert set(dst[warp + chosen].tolist()) == {int(ufunc.reduce(src[warp + chosen], dtype=dtype))}


def test_redux_is_one_instruction_and_needs_compute_capability_80():
    kernel = redux.specialize(
        src=sk.Tensor((None,), sk.int32), dst=sk.Tensor((None,), sk.int32), reduce=sk.redux_sync_max, mask=FULL
    )

    assert "redux.sync.max.s32" in kernel.compile("cuda", capability=80).stages["ptx"]
    with pytest.raises(sk.StagekitError, match=r"8\.0"):
        kernel.compile("cuda", capability=75)


@sk.jit
def active(dst):
    t = sk.cuda.thread_idx("x")
    if t % 3 == 0:
        dst[t] = sk.activemask()


@each_place
def test_activemask_contains_this_lane(place):
    (dst,) = run(place, active[1, 64], [np.zeros(64, np.uint32)])

    for t in range(0, 64, 3):
        assert dst[t] >> (t % 32) & 1
