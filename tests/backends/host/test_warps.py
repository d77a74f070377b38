"""Shuffles, votes and matches against a plain evaluation over 32 lanes: any argument, any lanes on, any mask."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit import dtypes
from stagekit.dtypes import DType
from stagekit.ir import INDEX, Builder, CompareKind, Function, Value
from tests.backends.host.kernels import array, call, i32, kernel, number, thread, u32
from tests.backends.host.running import run

FULL = 0xFFFFFFFF
SOURCES = {
    "shfl_sync": lambda lane, argument: argument % 32,
    "shfl_up_sync": lambda lane, argument: lane - argument,
    "shfl_down_sync": lambda lane, argument: lane + argument,
    "shfl_xor_sync": lambda lane, argument: lane ^ argument,
}
ARGUMENTS = st.integers(0, 31)
MASKS = st.sampled_from([FULL, 0x55555555, 0xFFFF, 0x80000001, 1]) | st.integers(1, FULL)


def shuffle(name: str, dtype: DType, argument: int | None) -> Function:
    """In a branch that the lanes below `n` take. argument: known now, or None: per lane from an array."""

    def body(b: Builder, x: Value, places: Value, y: Value, mask: Value, n: Value) -> None:
        t = thread(b)
        place = b.constant(argument, i32) if argument is not None else b.load(b.offset(places, t))
        value = b.load(b.offset(x, t))
        with b.block() as then:
            b.yield_(call(b, name, mask, value, place))
        with b.block() as other:
            b.yield_(value)
        (result,) = b.if_(b.compare(CompareKind.LT, call(b, "lane_id"), n), then.done(), other.done())
        b.store(b.offset(y, t), result)

    return kernel(array(dtype), array(i32), array(dtype), number(u32), INDEX, body=body)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(SOURCES)),
    dtype=st.sampled_from([dtypes.float32, dtypes.int64, dtypes.bool_, dtypes.float16]),
    argument=ARGUMENTS | st.none(),
    uniform=st.booleans(),
    mask=MASKS,
    n=st.integers(1, 32),
    block=st.sampled_from([32, 64, 45, 7]),
    seed=st.integers(0, 99),
)
def test_a_shuffle_reads_lanes_that_take_part_and_keeps_its_own_else(
    name: str, dtype: DType, argument: int | None, uniform: bool, mask: int, n: int, block: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2 if dtype is dtypes.bool_ else 100, block).astype(dtype.numpy)
    places = np.full(block, rng.integers(32), np.int32) if uniform else rng.integers(0, 32, block).astype(np.int32)
    y = np.zeros(block, dtype.numpy)

    run(shuffle(name, dtype, argument), [x, places, y, np.uint32(mask), np.int64(n)], (1, 1, 1), (block, 1, 1))

    for t in range(block):
        warp, lane = t // 32 * 32, t % 32
        if lane >= n or not mask >> lane & 1:
            continue  # takes no part: unspecified
        source = SOURCES[name](lane, int(places[t]) if argument is None else argument)
        takes_part = 0 <= source < 32 and source < n and warp + source < block and mask >> source & 1
        assert y[t] == x[warp + source if takes_part else t], (t, source)


@settings(max_examples=40, deadline=None)
@given(mask=MASKS, n=st.integers(1, 32), block=st.sampled_from([32, 64, 45, 7]), seed=st.integers(0, 99))
def test_votes_count_the_lanes_that_are_on_and_named(mask: int, n: int, block: int, seed: int) -> None:
    def body(b: Builder, x: Value, y: Value, named: Value, limit: Value) -> None:
        t = thread(b)
        flag = b.load(b.offset(x, t))
        zero = b.constant(0, u32)
        with b.block() as then:
            votes = [call(b, f"{each}_sync", named, flag) for each in ("any", "all")]
            ballot, active = call(b, "ballot_sync", named, flag), call(b, "activemask")
            b.yield_(ballot, active, *(b.cast(vote, u32) for vote in votes))
        with b.block() as other:
            b.yield_(*[zero] * 4)
        results = b.if_(b.compare(CompareKind.LT, call(b, "lane_id"), limit), then.done(), other.done())
        for index, result in enumerate(results):
            b.store(b.offset(y, b.add(b.mul(t, b.index(4)), b.index(index))), result)

    rng = np.random.default_rng(seed)
    x, y = rng.random(block) < 0.6, np.zeros((block, 4), np.uint32)
    fn = kernel(array(dtypes.bool_), array(u32), number(u32), INDEX, body=body)
    run(fn, [x, y, np.uint32(mask), np.int64(n)], (1, 1, 1), (block, 1, 1))

    for t in range(block):
        lanes = list(range(t // 32 * 32, min(t // 32 * 32 + n, block)))
        if t not in lanes:
            assert y[t].tolist() == [0] * 4
            continue
        named = [w for w in lanes if mask >> w % 32 & 1]
        ballot = sum(1 << w % 32 for w in named if x[w])
        active = sum(1 << w % 32 for w in lanes)
        assert y[t].tolist() == [ballot, active, any(x[w] for w in named), all(x[w] for w in named)]


@pytest.mark.parametrize("block", [32, 45, 96, 3])
@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.float64], ids=lambda d: d.name)
def test_match_finds_equal_lanes(block: int, dtype: DType) -> None:
    def body(b: Builder, x: Value, y: Value) -> None:
        t = thread(b)
        found = call(b, "match_any_sync", b.constant(FULL, u32), b.load(b.offset(x, t)))
        b.store(b.offset(y, t), found)

    x = np.random.default_rng(3).integers(0, 4, block).astype(dtype.numpy)
    y = np.zeros(block, np.uint32)
    run(kernel(array(dtype), array(u32), body=body), [x, y], (1, 1, 1), (block, 1, 1))

    for t in range(block):
        lanes = range(t // 32 * 32, min(t // 32 * 32 + 32, block))
        assert y[t] == sum(1 << w % 32 for w in lanes if x[w] == x[t])
