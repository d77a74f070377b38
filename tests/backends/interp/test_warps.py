"""Collectives, barriers and atomics, against plain Python over the threads of a warp or block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit import dtypes
from stagekit.backends.interp import CHECKED, UNCHECKED, Options, Schedule, run
from stagekit.dtypes import DType
from stagekit.ir import INDEX, Function, Space
from stagekit.ir.semantics import round_to
from tests.backends.interp.kernels import FULL, Kernel, pointer

ONE = (1, 1, 1)
WARP = 32
ORDERS = [None, Schedule("backward"), Schedule("random", 3)]
each_order = pytest.mark.parametrize("schedule", ORDERS, ids=["vector", "backward", "random"])


def warp_of(values: list[Any], lane: int) -> list[Any]:
    return values[lane // WARP * WARP : lane // WARP * WARP + WARP]


def run_on(fn: Function, slots: list[Any], threads: int, schedule: Schedule | None) -> None:
    run(fn, slots, ONE, (threads, 1, 1), options=Options(schedule=schedule))


# -- shuffles ---------------------------------------------------------------------------------------------------------

_SOURCES = {
    "shuffle_idx": lambda lane, n: n,
    "shuffle_up": lambda lane, n: lane - n if lane >= n else lane,
    "shuffle_down": lambda lane, n: lane + n if lane + n < WARP else lane,
    "shuffle_xor": lambda lane, n: lane ^ n,
}


@each_order
@pytest.mark.parametrize("threads", [1, 20, 32, 64, 100])
@pytest.mark.parametrize("name", list(_SOURCES))
def test_shuffle(name: str, threads: int, schedule: Schedule | None) -> None:
    """Each lane asks for another distance; one that is not there gives the lane its own value back."""
    k = Kernel(A=pointer(dtypes.uint32), N=pointer(dtypes.int32), OUT=pointer(dtypes.uint32))
    i = k.tid()
    k.store(k.OUT, i, k.call(name, k.u32(FULL), k.load(k.A, i), k.load(k.N, i)))
    a = np.arange(100, 100 + threads, dtype=np.uint32)
    n = np.random.default_rng(threads).integers(0, 64, threads, dtype=np.int32)
    out = np.zeros_like(a)

    run_on(k.done(), [a, n, out], threads, schedule)

    sources = [i // WARP * WARP + _SOURCES[name](i % WARP, int(n[i]) % WARP) for i in range(threads)]
    assert [100 + (s if s < threads else i) for i, s in enumerate(sources)] == out.tolist()


@pytest.mark.parametrize("dtype", [dtypes.float64, dtypes.float16, dtypes.bool_, dtypes.int8], ids=lambda d: d.name)
def test_shuffle_of_any_dtype(dtype: DType) -> None:
    k = Kernel(A=pointer(dtype), OUT=pointer(dtype))
    k.store(k.OUT, k.tid(), k.call("shfl_xor_sync", k.u32(FULL), k.load(k.A, k.tid()), k.i32(5)))
    a = (np.arange(32) * 3 % 7).astype(dtype.numpy)
    out = np.zeros_like(a)

    report = run(k.done(), [a, out], ONE, (32, 1, 1), options=CHECKED)

    assert report.is_clean
    assert a[np.arange(32) ^ 5].tolist() == out.tolist()


# -- votes ------------------------------------------------------------------------------------------------------------


@each_order
@pytest.mark.parametrize("threads", [1, 20, 64, 70])
def test_votes_and_matches_under_divergence(threads: int, schedule: Schedule | None) -> None:
    """Only lanes that run take part; a half of the mask cuts the result down."""
    half = 0x00FF00FF
    k = Kernel(
        A=pointer(dtypes.uint32), **{n: pointer(dtypes.uint32) for n in ("BALLOT", "ANY", "ALL", "MATCH", "ACTIVE")}
    )
    i = k.tid()
    value = k.load(k.A, i)
    odd = k.eq(k.mod(value, k.u32(2)), k.u32(1))
    with k.when(k.ne(k.mod(value, k.u32(5)), k.u32(0))):
        k.store(k.BALLOT, i, k.call("ballot_sync", k.u32(half), odd))
        k.store(k.ANY, i, k.cast(k.call("any_sync", k.u32(half), odd), dtypes.uint32))
        k.store(k.ALL, i, k.cast(k.call("all_sync", k.u32(half), odd), dtypes.uint32))
        k.store(k.MATCH, i, k.call("match_any", k.u32(half), k.mod(value, k.u32(3))))
        k.store(k.ACTIVE, i, k.call("activemask"))
    a = np.random.default_rng(1).integers(0, 30, threads, dtype=np.uint32)
    results = [np.zeros(threads, np.uint32) for _ in range(5)]

    run_on(k.done(), [a, *results], threads, schedule)

    for i in range(threads):
        if a[i] % 5 == 0:
            assert [0] * 5 == [int(r[i]) for r in results]
            continue
        warp = {j: int(v) for j, v in enumerate(warp_of(a.tolist(), i)) if v % 5}
        voters = [j for j in warp if half >> j & 1]
        expected = [
            sum(1 << j for j in voters if warp[j] % 2),
            any(warp[j] % 2 for j in voters),
            all(warp[j] % 2 for j in voters),
            sum(1 << j for j in voters if warp[j] % 3 == a[i] % 3),
            sum(1 << j for j in warp),
        ]
        assert expected == [int(r[i]) for r in results]


@each_order
def test_warp_reductions_are_expansions_of_shuffles(schedule: Schedule | None) -> None:
    k = Kernel(A=pointer(dtypes.int32), OUT=pointer(dtypes.int32))
    k.store(k.OUT, k.tid(), k.call("redux_sync_add", k.u32(0xFFFF), k.load(k.A, k.tid())))
    a, out = np.arange(16, dtype=np.int32), np.zeros(16, np.int32)

    run_on(k.done(), [a, out], 16, schedule)

    assert [120] * 16 == out.tolist()


# -- barriers ---------------------------------------------------------------------------------------------------------


@each_order
def test_barriers_that_count(schedule: Schedule | None) -> None:
    threads = 70
    k = Kernel(**{n: pointer(dtypes.int32) for n in ("COUNT", "AND", "OR")}, n=INDEX)
    i = k.global_id()
    holds = k.lt(k.tid(), k.n)
    k.store(k.COUNT, i, k.call("syncthreads_count", holds))
    k.store(k.AND, i, k.cast(k.call("syncthreads_and", holds), dtypes.int32))
    k.store(k.OR, i, k.cast(k.call("syncthreads_or", holds), dtypes.int32))
    fn = k.done()

    for n in (0, 1, 45, 70):
        outs = [np.full(threads * 3, -1, np.int32) for _ in range(3)]
        run(fn, [*outs, n], (3, 1, 1), (threads, 1, 1), options=Options(schedule=schedule))

        assert [{n}, {int(n == threads)}, {int(n > 0)}] == [set(o.tolist()) for o in outs]


@each_order
@pytest.mark.parametrize("threads", [1, 33, 128])
def test_a_block_reverses_through_shared_memory(threads: int, schedule: Schedule | None) -> None:
    k = Kernel(A=pointer(dtypes.float32), OUT=pointer(dtypes.float32))
    tile = k.shared(dtypes.float32, threads)
    k.store(tile, k.tid(), k.load(k.A, k.global_id()))
    k.barrier()
    mirrored = k.sub(k.i64(threads - 1), k.tid())
    k.store(k.OUT, k.global_id(), k.load(tile, mirrored))
    a, out = np.arange(threads * 5, dtype=np.float32), np.zeros(threads * 5, np.float32)
    options = Options(checks=CHECKED.checks, schedule=schedule)

    report = run(k.done(), [a, out], (5, 1, 1), (threads, 1, 1), options=options)

    assert report.is_clean
    assert np.array_equal(a.reshape(5, -1)[:, ::-1].reshape(-1), out)


# -- atomics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["add", "sub", "min", "max", "and", "or", "xor"])
@pytest.mark.parametrize("schedule", ORDERS, ids=["vector", "backward", "random"])
def test_atomics_whose_results_nobody_reads(name: str, schedule: Schedule | None) -> None:
    k = Kernel(M=pointer(dtypes.int32), I=pointer(dtypes.int64), V=pointer(dtypes.int32))
    i = k.global_id()
    k.call(f"atomic_{name}", k.at(k.M, k.load(k.I, i)), k.load(k.V, i))
    rng = np.random.default_rng(0)
    memory, values = (rng.integers(0, 100, n).astype(np.int32) for n in (7, 90))
    index = rng.integers(0, 7, 90)
    expected, _ = one_after_another(f"atomic_{name}", memory, index.tolist(), values, values)

    run(k.done(), [memory, index, values], (3, 1, 1), (30, 1, 1), options=Options(schedule=schedule))

    assert expected.tolist() == memory.tolist()


def one_after_another(name: str, start: Any, index: list[int], values: Any, expected: Any) -> tuple[Any, list[Any]]:
    """What each thread finds, and what is left, if threads come in order."""
    memory, found = start.copy(), []
    combine = {
        "atomic_add": lambda old, v, e: old + v,
        "atomic_sub": lambda old, v, e: old - v,
        "atomic_min": lambda old, v, e: np.minimum(old, v),
        "atomic_max": lambda old, v, e: np.maximum(old, v),
        "atomic_and": lambda old, v, e: old & v,
        "atomic_or": lambda old, v, e: old | v,
        "atomic_xor": lambda old, v, e: old ^ v,
        "atomic_exchange": lambda old, v, e: v,
        "atomic_cas": lambda old, v, e: v if old == e else old,
    }[name]
    with np.errstate(all="ignore"):
        for i, place in enumerate(index):
            found.append(memory[place])
            memory[place] = combine(memory[place], values[i], expected[i])
    return memory, found


_ATOMICS = [
    *((n, d) for n in ("add", "sub", "min", "max", "exchange", "cas") for d in dtypes.INTEGER_DTYPES),
    *((n, d) for n in ("and", "or", "xor") for d in (dtypes.uint8, dtypes.int64)),
    *((n, d) for n in ("add", "sub", "min", "max", "exchange", "cas") for d in (dtypes.float32, dtypes.float64)),
    *(("add", d) for d in (dtypes.float16, dtypes.bfloat16)),
]


@settings(max_examples=80, deadline=None)
@given(
    which=st.sampled_from(_ATOMICS),
    places=st.integers(1, 40),
    space=st.sampled_from([Space.GLOBAL, Space.SHARED]),
    seed=st.integers(0, 10**6),
)
def test_atomics_act_as_if_lanes_came_in_order(which: tuple[str, DType], places: int, space: Space, seed: int) -> None:
    name, dtype, threads = f"atomic_{which[0]}", which[1], 50
    rng = np.random.default_rng(seed)
    k = Kernel(M=pointer(dtype), I=pointer(dtypes.int64), V=pointer(dtype), E=pointer(dtype), OUT=pointer(dtype))
    i, memory = k.tid(), k.M
    is_place, zero = k.lt(i, k.i64(places)), k.constant(round_to(0, dtype), dtype)
    if space is Space.SHARED:
        memory = k.shared(dtype, places)
        k.store(memory, i, k.load(k.M, i, is_place, zero), is_place)
        k.barrier()
    operands = [k.load(k.V, i)] if name != "atomic_cas" else [k.load(k.E, i), k.load(k.V, i)]
    k.store(k.OUT, i, k.call(name, k.at(memory, k.load(k.I, i)), *operands))
    if space is Space.SHARED:
        k.barrier()
        k.store(k.M, i, k.load(memory, i, is_place, zero), is_place)
    start, values, expected = (rng.integers(0, 4, n).astype(dtype.numpy) for n in (places, threads, threads))
    index, out, memory_array = rng.integers(0, places, threads), np.zeros(threads, dtype.numpy), start.copy()

    report = run(k.done(), [memory_array, index, values, expected, out], ONE, (threads, 1, 1), options=CHECKED)

    after, found = one_after_another(name, start, index.tolist(), values, expected)
    assert report.is_clean
    assert after.tolist() == memory_array.tolist()
    if not _comes_in_rounds(which):
        assert [f.item() for f in found] == out.tolist()


def _comes_in_rounds(which: tuple[str, DType]) -> bool:
    """A retry loop lets the lanes of one element through in some other order."""
    return which[1].is_float and (which[0] in ("min", "max") or which[1].bits == 16)


@pytest.mark.parametrize("options", [UNCHECKED, CHECKED, Options(schedule=Schedule("random", 1))], ids=str)
def test_a_histogram(options: Options) -> None:
    k = Kernel(A=pointer(dtypes.uint8), BINS=pointer(dtypes.int32))
    local = k.shared(dtypes.int32, 256)
    k.store(local, k.tid(), k.i32(0))
    k.barrier()
    k.call("atomic_add", k.at(local, k.cast(k.load(k.A, k.global_id()), dtypes.int64)), k.i32(1))
    k.barrier()
    k.call("atomic_add", k.at(k.BINS, k.tid()), k.load(local, k.tid()))
    a = np.random.default_rng(0).integers(0, 256, 256 * 6, dtype=np.uint8)
    bins = np.zeros(256, np.int32)

    report = run(k.done(), [a, bins], (6, 1, 1), (256, 1, 1), options=options)

    assert report.is_clean
    assert np.array_equal(np.bincount(a, minlength=256), bins)


# -- waiting ----------------------------------------------------------------------------------------------------------


@each_order
def test_a_warp_waits_for_another(schedule: Schedule | None) -> None:
    """Warp 0 waits for a flag that warp 1 sets; in one vector they would wait for ever."""
    k = Kernel(FLAG=pointer(dtypes.int32), DATA=pointer(dtypes.int32), OUT=pointer(dtypes.int32))
    is_first = k.eq(k.call("warp_id"), k.i64(0))
    with k.when(is_first):
        k.wait_until(lambda: k.ne(k.call("atomic_add", k.at(k.FLAG, k.i64(0)), k.i32(0)), k.i32(0)))
        k.call("threadfence")
        k.store(k.OUT, k.tid(), k.load(k.DATA, k.i64(0)))
    with k.when(k.eq(k.tid(), k.i64(32))):
        k.store(k.DATA, k.i64(0), k.i32(42))
        k.call("threadfence")
        k.call("atomic_exchange", k.at(k.FLAG, k.i64(0)), k.i32(1))
    flag, data, out = np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros(32, np.int32)
    options = Options(checks=CHECKED.checks, schedule=schedule)

    report = run(k.done(), [flag, data, out], ONE, (64, 1, 1), options=options)

    assert report.is_clean, report.findings
    assert [42] * 32 == out.tolist()


@each_order
def test_blocks_wait_for_each_other(schedule: Schedule | None) -> None:
    """A barrier over the grid: every block counts itself in and waits for the count. All have to be there at once."""
    blocks = 5
    k = Kernel(COUNT=pointer(dtypes.int32), A=pointer(dtypes.int32), OUT=pointer(dtypes.int32))
    with k.when(k.eq(k.tid(), k.i64(0))):
        k.store(k.A, k.bid(), k.cast(k.bid(), dtypes.int32))
        k.call("threadfence")
        k.call("atomic_add", k.at(k.COUNT, k.i64(0)), k.i32(1))
        k.wait_until(lambda: k.eq(k.call("atomic_add", k.at(k.COUNT, k.i64(0)), k.i32(0)), k.i32(blocks)))
        k.call("threadfence")
    k.barrier()
    k.store(k.OUT, k.global_id(), k.load(k.A, k.sub(k.i64(blocks - 1), k.bid())))
    count, a, out = np.zeros(1, np.int32), np.full(blocks, -1, np.int32), np.zeros(blocks * 40, np.int32)
    options = Options(checks=CHECKED.checks, schedule=schedule)

    report = run(k.done(), [count, a, out], (blocks, 1, 1), (40, 1, 1), options=options)

    assert report.is_clean, report.findings
    assert np.repeat(np.arange(blocks)[::-1], 40).tolist() == out.tolist()


@each_order
def test_a_lock_lets_one_block_in_at_a_time(schedule: Schedule | None) -> None:
    k = Kernel(LOCK=pointer(dtypes.int32), TOTAL=pointer(dtypes.int32))
    lock, total = k.at(k.LOCK, k.i64(0)), k.at(k.TOTAL, k.i64(0))
    with k.when(k.eq(k.tid(), k.i64(0))):
        k.wait_until(lambda: k.eq(k.call("atomic_cas", lock, k.i32(0), k.i32(1)), k.i32(0)))
        k.call("threadfence")
        k.b.store(total, k.add(k.b.load(total), k.i32(1)))
        k.call("threadfence")
        k.call("atomic_exchange", lock, k.i32(0))
    arrays = [np.zeros(1, np.int32) for _ in range(2)]
    options = Options(checks=CHECKED.checks, schedule=schedule)

    report = run(k.done(), arrays, (7, 1, 1), (64, 1, 1), options=options)

    assert report.is_clean, report.findings
    assert [7] == arrays[1].tolist()


@each_order
def test_the_last_block_adds_up(schedule: Schedule | None) -> None:
    """The pattern of the programming guide: a fence, a ticket, and whoever draws the last one reads what all have written."""
    blocks = 6
    k = Kernel(PART=pointer(dtypes.int32), TICKET=pointer(dtypes.int32), OUT=pointer(dtypes.int32))
    is_last = k.shared(dtypes.bool_, 1)
    with k.when(k.eq(k.tid(), k.i64(0))):
        k.store(k.PART, k.bid(), k.cast(k.mul(k.bid(), k.bid()), dtypes.int32))
        k.call("threadfence")
        ticket = k.call("atomic_add", k.at(k.TICKET, k.i64(0)), k.i32(1))
        k.store(is_last, k.i64(0), k.eq(ticket, k.i32(blocks - 1)))
    k.barrier()
    with k.when(k.load(is_last, k.i64(0))):
        k.store(k.OUT, k.tid(), k.load(k.PART, k.tid()))
    part, ticket, out = (np.zeros(n, np.int32) for n in (blocks, 1, blocks))
    options = Options(checks=CHECKED.checks, schedule=schedule)

    report = run(k.done(), [part, ticket, out], (blocks, 1, 1), (blocks, 1, 1), options=options)

    assert report.is_clean, report.findings
    assert [b * b for b in range(blocks)] == out.tolist()
