"""mbarriers and bulk copies: right protocols run in every order, and each planted fault is found under its name."""

from __future__ import annotations

import contextlib
import re

import ml_dtypes
import numpy as np
import pytest

import stagekit as sk
from stagekit.backends import ptxas
from tests import places

each_place = pytest.mark.parametrize("place", ["sanitizer", "random", pytest.param("gpu", marks=pytest.mark.gpu)])
TILE = 64


def run(place, launch, arrays, *arguments):
    checked = {"sanitizer": sk.sanitize(), "random": sk.sanitize(order="random", seed=5)}.get(place)
    with checked or contextlib.nullcontext():
        return places.run(places.on_gpu if place == "gpu" else places.on_cpu, launch, arrays, *arguments)


@sk.inline
def ring(stages, count, fault):
    """Two rows of mbarriers: `full`, at which the producer arrives, and `empty`, at which consumers do."""
    full = sk.alloc_shared((stages,), sk.uint64)
    empty = sk.alloc_shared((stages,), sk.uint64)
    if sk.cuda.thread_idx("x") == 0 or fault == "initialised by all":
        for stage in sk.static_range(stages):
            if fault != "not initialised":
                sk.cuda.mbarrier_init(full + stage, sk.cuda.thread_idx("y") + (fault != "count of 0"))
            sk.cuda.mbarrier_init(empty + stage, count + (fault == "count too high"))
        if fault != "initialisation not fenced":
            sk.cuda.fence_mbarrier_init()
    if fault != "no barrier behind the initialisation":
        sk.syncthreads()
    return full, empty


@sk.jit
def doubled(x, out, rounds, stages: sk.constexpr, consumers: sk.constexpr, fault: sk.constexpr):
    """Lane 0 of the first warp copies tiles to a ring of stages, which the other threads work on."""
    t = sk.cuda.thread_idx("x")
    size = TILE * x.dtype.itemsize
    tiles = sk.alloc_shared((stages * TILE,), x.dtype, align=128)
    full, empty = ring(stages, consumers, fault)
    if t == 0:
        for k in range(rounds):
            stage, parity = k % stages, (k // stages) & 1
            if fault != "producer does not wait":
                sk.cuda.mbarrier_wait(empty + stage, parity ^ (fault != "producer waits for the wrong parity"))
            if fault == "bytes not expected":
                sk.cuda.mbarrier_arrive(full + stage)
            elif fault == "bytes expected behind the arrival":
                sk.cuda.mbarrier_arrive(full + stage)
                sk.cuda.mbarrier_expect_tx(full + stage, size)
            else:
                wrong = {"more bytes expected": 16, "fewer bytes expected": -16}.get(fault, 0)
                sk.cuda.mbarrier_arrive_expect_tx(full + stage, size + wrong)
            if fault != "no copy":
                source = x + k * TILE + (1 if fault == "source not aligned" else 0)
                length = {"size of 24": 20 + rounds, "copy past the end": size * 4 * rounds}.get(fault, size)
                sk.cuda.cp_async_bulk_g2s(tiles + stage * TILE, source, length, full + stage)
    elif t >= 32:
        for k in range(rounds):
            stage, parity = k % stages, (k // stages) & 1
            if fault == "parity does not alternate":
                parity = sk.int32(0)
            if fault == "parity of 2":
                parity = rounds // 2
            if fault != "consumer does not wait":
                sk.cuda.mbarrier_wait(full + stage, parity ^ (fault == "consumer waits for the wrong parity"))
            if fault == "released too early":
                sk.cuda.mbarrier_arrive(empty + stage)
            for i in range(t - 32, TILE, consumers):
                out[k * TILE + i] = tiles[stage * TILE + i] + tiles[stage * TILE + i]
            if fault not in ("released too early", "not released"):
                sk.cuda.mbarrier_arrive(empty + stage, 1 + (fault == "arrives too often") * consumers)


@each_place
@pytest.mark.parametrize(("stages", "consumers"), [(1, 33), (2, 32), (3, 96)])
def test_a_ring_of_copies(place, stages, consumers):
    for rounds, dtype in ((0, np.float32), (1, np.float64), (5, ml_dtypes.bfloat16), (7, np.uint8)):
        x = np.random.default_rng(rounds).integers(0, 99, rounds * TILE).astype(dtype)

        _, out = run(place, doubled[1, 32 + consumers], [x, np.zeros_like(x)], rounds, stages, consumers, "")

        np.testing.assert_array_equal(out, x + x)


FAULTS = {
    "not initialised": {"MBARRIER_ABSENT"},
    "initialised by all": {"MBARRIER_MISUSED"},
    "initialisation not fenced": {"PROXY_FENCE_MISSING"},
    "count of 0": {"MBARRIER_MISUSED"},
    "count too high": {"MBARRIER_STUCK"},
    "no barrier behind the initialisation": {"MBARRIER_ABSENT", "BLOCK_RACE"},
    "producer does not wait": {"BLOCK_RACE", "MBARRIER_OVERRUN"},
    "producer waits for the wrong parity": {"MBARRIER_STUCK"},
    "bytes not expected": {"COPY_UNDER_WAY", "UNINITIALISED_READ"},
    "bytes expected behind the arrival": {"MBARRIER_STUCK", "COPY_UNDER_WAY", "UNINITIALISED_READ"},
    "more bytes expected": {"MBARRIER_STUCK"},
    "fewer bytes expected": {"MBARRIER_STUCK"},
    "no copy": {"MBARRIER_STUCK"},
    "source not aligned": {"MISALIGNED_ACCESS"},
    "size of 24": {"BAD_BULK_SIZE"},
    "copy past the end": {"OUT_OF_BOUNDS"},
    "parity does not alternate": {"COPY_UNDER_WAY", "MBARRIER_STUCK", "BLOCK_RACE"},
    "parity of 2": {"MBARRIER_MISUSED"},
    "consumer does not wait": {"COPY_UNDER_WAY", "UNINITIALISED_READ"},
    "consumer waits for the wrong parity": {"COPY_UNDER_WAY", "UNINITIALISED_READ"},
    "released too early": {"BLOCK_RACE"},
    "not released": {"MBARRIER_STUCK"},
    "arrives too often": {"MBARRIER_OVERRUN"},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_ring_is_found(fault):
    x = np.zeros(4 * TILE, np.float32)
    for order in (None, "random"):
        watch = sk.sanitize(doubled, collect=True, order=order, seed=1)

        watch[1, 64](x, np.zeros_like(x), 4, 2, 32, fault)

        assert watch.report.findings[0].id in FAULTS[fault]


@sk.jit
def stored(x, out, fault: sk.constexpr):
    """Each round writes a tile, of which one thread copies both halves to `out`, in groups of their own."""
    t = sk.cuda.thread_idx("x")
    tile = sk.alloc_shared((TILE,), x.dtype, align=16)
    half = TILE // 2 * x.dtype.itemsize
    for k in range(len(x) // TILE):
        tile[t] = x[k * TILE + t]
        if fault not in ("no proxy fence", "fence of one thread before the barrier"):
            sk.cuda.fence_proxy_async()
        if fault == "fence of one thread before the barrier" and t == 0:
            sk.cuda.fence_proxy_async()
        if fault != "no barrier":
            sk.syncthreads()
        if fault == "fence behind the barrier" and t == 0:
            sk.cuda.fence_proxy_async()
        if t == 0:
            for part in sk.static_range(2):
                sk.cuda.cp_async_bulk_s2g(out + k * TILE + part * (TILE // 2), tile + part * (TILE // 2), half)
                if fault != "no commit":
                    sk.cuda.cp_async_bulk_commit()
            if fault != "no wait":
                sk.cuda.cp_async_bulk_wait(pending=1 if fault == "one pending" else 0, read=fault != "wait in full")
            if fault == "target read too early":
                out[0] = out[0]
        sk.syncthreads()


@each_place
@pytest.mark.parametrize("how", ["", "wait in full"])
def test_copies_to_global_memory(place, how):
    for dtype in (np.float32, np.uint8, np.float64, np.float16):
        x = np.random.default_rng(1).integers(0, 99, 3 * TILE).astype(dtype)

        _, out = run(place, stored[1, TILE], [x, np.zeros_like(x)], how)

        np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize(
    ("fault", "id"),
    [
        ("no proxy fence", "PROXY_FENCE_MISSING"),
        ("fence of one thread before the barrier", "PROXY_FENCE_MISSING"),
        ("no barrier", "BLOCK_RACE"),
        ("no commit", "COPY_UNDER_WAY"),
        ("no wait", "COPY_UNDER_WAY"),
        ("one pending", "COPY_UNDER_WAY"),
        ("target read too early", "COPY_UNDER_WAY"),
    ],
)
def test_a_fault_in_copies_to_global_memory_is_found(fault, id):
    x = np.ones(2 * TILE, np.float32)
    watch = sk.sanitize(stored, collect=True)

    watch[1, TILE](x, np.zeros_like(x), fault)

    assert id in {finding.id for finding in watch.report.findings}


def test_a_proxy_fence_behind_the_barrier_will_do():
    x = np.ones(2 * TILE, np.float32)

    sk.sanitize(stored)[1, TILE](x, np.zeros_like(x), "fence behind the barrier")


@sk.jit
def left(x, fault: sk.constexpr):
    tile = sk.alloc_shared((16,), x.dtype, align=16)
    bar = sk.alloc_shared((2,), sk.uint64, align=16)
    if sk.cuda.thread_idx("x") == 0:
        sk.cuda.mbarrier_init(bar, 1)
        sk.cuda.mbarrier_init(bar + 1, 1)
        sk.cuda.fence_mbarrier_init()
        if fault == "bytes":
            sk.cuda.mbarrier_arrive_expect_tx(bar, 64)
        elif fault == "load":
            sk.cuda.mbarrier_arrive_expect_tx(bar, 64)
            sk.cuda.cp_async_bulk_g2s(tile, x, 64, bar)
        elif fault == "store":
            for i in range(16):
                tile[i] = 1
            sk.cuda.fence_proxy_async(space="shared")
            sk.cuda.cp_async_bulk_s2g(x + 16 * sk.cuda.block_idx("x"), tile, 64)
            sk.cuda.cp_async_bulk_commit()
        elif fault == "looked at":
            x[0] = bar[0] != 0
        elif fault == "written":
            bar[0] = 0
        elif fault == "copied":
            sk.cuda.cp_async_bulk_s2g(x, bar, 16)
            sk.cuda.cp_async_bulk_commit()
            sk.cuda.cp_async_bulk_wait()
        elif fault == "copied over":
            sk.cuda.mbarrier_arrive_expect_tx(bar, 16)
            sk.cuda.cp_async_bulk_g2s(bar, x, 16, bar)
            sk.cuda.mbarrier_wait(bar, 0)
        elif fault == "ended too early":
            sk.cuda.mbarrier_arrive_expect_tx(bar, 64)
            sk.cuda.mbarrier_inval(bar)
        else:
            sk.cuda.mbarrier_inval(bar)
            bar[0] = 0
            if fault == "use behind the end":
                sk.cuda.mbarrier_arrive(bar)
            sk.cuda.mbarrier_init(bar, 1)


@pytest.mark.parametrize(
    ("fault", "ids"),
    [
        ("bytes", ["MBARRIER_BYTES_LEFT"]),
        ("load", ["COPY_LEFT_BEHIND", "MBARRIER_BYTES_LEFT"]),
        ("store", ["COPY_LEFT_BEHIND"]),
        ("looked at", ["MBARRIER_MISUSED"]),
        ("written", ["MBARRIER_MISUSED"]),
        ("copied", ["MBARRIER_MISUSED"]),
        ("copied over", ["MBARRIER_MISUSED", "UNINITIALISED_READ", "COPY_UNDER_WAY"]),
        ("ended too early", ["MBARRIER_MISUSED"]),
        ("use behind the end", ["MBARRIER_ABSENT"]),
        ("", []),
    ],
)
def test_what_a_block_leaves_undone_is_found(fault, ids):
    watch = sk.sanitize(left, collect=True)

    watch[1, 32](np.zeros(32, np.uint64), fault)

    assert [finding.id for finding in watch.report.findings] == ids


def test_a_deadlock_names_who_waits_for_what():
    x = np.zeros(4 * TILE, np.float32)
    watch = sk.sanitize(doubled, collect=True)

    watch[1, 64](x, np.zeros_like(x), 4, 2, 32, "not released")

    text = str(watch.report.findings[0])
    assert "waits for the phase of parity 0 of `empty[0]`, whose phase 0 lacks 32 of 32 arrivals" in text
    other = "thread (32, 0, 0) of block (0, 0, 0) waits for the phase of parity 1 of `full[0]`"
    assert f"{other}, whose phase 1 lacks 1 of 1 arrival" in text


@sk.jit
def polled(x, out):
    """Asks a limited number of times, in every thread, and adds up how often in vain."""
    t = sk.cuda.thread_idx("x")
    tile = sk.alloc_shared((32,), x.dtype, align=16)
    bar = sk.alloc_shared((1,), sk.uint64)
    if t == 0:
        sk.cuda.mbarrier_init(bar, 1)
        sk.cuda.fence_mbarrier_init()
    sk.syncthreads()
    if t == 0:
        sk.cuda.mbarrier_arrive_expect_tx(bar, 128)
        sk.cuda.cp_async_bulk_g2s(tile, x, 128, bar)
    tries = 0
    while tries < 100_000 and not sk.cuda.mbarrier_test_wait(bar, 0):
        tries += 1
    if tries < 100_000:
        out[t] = tile[t]


@each_place
def test_who_asks_often_enough_sees_the_copy(place):
    x = np.arange(32, dtype=np.float32)

    _, out = run(place, polled[1, 32], [x, np.zeros_like(x)])

    np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize(
    ("kernel", "values"), [(doubled, {"rounds": sk.int32, "stages": 3, "consumers": 64}), (stored, {})]
)
def test_ptxas_takes_it_and_keeps_to_registers(kernel, values):
    array = sk.Tensor((None,), sk.float16)
    kernel = kernel.specialize(x=array, out=array, fault="", **values)

    found = ptxas.assemble(kernel.compile("cuda", capability=90).stages["ptx"])

    assert not found.warnings
    assert found.resources.stack_bytes == 0
    with pytest.raises(sk.StagekitError, match=r"needs compute capability 9\.0, this kernel is for 8\.6"):
        kernel.compile("cuda", capability=86)


@sk.jit
def unfit(x, call: sk.constexpr):
    tile = sk.alloc_shared((32,), x.dtype, align=16)
    bar = sk.alloc_shared((1,), sk.uint64)
    call(x, tile, bar)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x, tile, bar: sk.cuda.mbarrier_init(bar, 0), "`count` of `mbarrier_init` is 0"),
        (lambda x, tile, bar: sk.cuda.mbarrier_arrive(bar, 1 << 20), "`count` of `mbarrier_arrive` is 1048576"),
        (lambda x, tile, bar: sk.cuda.mbarrier_expect_tx(bar, -16), "`bytes` of `mbarrier_expect_tx` is -16"),
        (lambda x, tile, bar: sk.cuda.mbarrier_init(bar, 1 << 20_000), "it is 1 to 1048575"),
        (lambda x, tile, bar: sk.cuda.mbarrier_init(bar, 1.5), "`count` of `mbarrier_init` is 1.5"),
        (lambda x, tile, bar: sk.cuda.mbarrier_wait(bar, 2), "`parity` of `mbarrier_wait` is 2"),
        (lambda x, tile, bar: sk.cuda.mbarrier_try_wait(bar, np.int64(-1)), "`parity` of `mbarrier_try_wait` is -1"),
        (lambda x, tile, bar: sk.cuda.cp_async_bulk_g2s(tile, x, 24, bar), "it is 16 to 232448, a multiple of 16"),
        (lambda x, tile, bar: sk.cuda.cp_async_bulk_s2g(x, tile, 0), "`size` of `cp_async_bulk_s2g` is 0"),
        (lambda x, tile, bar: sk.cuda.cp_async_bulk_wait(-1), "`pending` of `cp_async_bulk_wait` is -1"),
    ],
)
def test_numbers_that_cannot_be_right_are_refused_while_specialising(call, text):
    with pytest.raises(sk.StagekitError, match=re.escape(text)):
        _ = unfit.specialize(x=sk.Tensor((None,), sk.float32), call=call).ir


@sk.jit
def elected(out, mask: sk.constexpr):
    t = sk.cuda.thread_idx("x")
    if mask >> (t & 31) & 1:
        out[t] = sk.cuda.elect_sync(mask)


@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0x00F0F000, 1 << 31])
@pytest.mark.parametrize("place", ["cpu", "sanitizer", pytest.param("gpu", marks=pytest.mark.gpu)])
def test_one_lane_of_each_warp_is_elected(place, mask):
    (out,) = run(place, elected[1, 64], [np.zeros(64, np.int32)], mask)

    np.testing.assert_array_equal(out.reshape(2, 32).sum(axis=1), 1)
    assert all(mask >> lane & 1 for lane in np.flatnonzero(out[:32]))


def test_the_cpu_says_why_it_refuses():
    x = np.zeros(TILE, np.float32)

    with pytest.raises(sk.StagekitError, match="UNSUPPORTED_ON_TARGET"):
        stored[1, TILE](x, x.copy(), "")
