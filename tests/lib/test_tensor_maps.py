"""`sk.tensor_map`: tiles through the TMA unit, over dtypes, axes, boxes, swizzles, strides and coordinates past every edge."""

from __future__ import annotations

import contextlib
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.backends import ptxas
from stagekit.cache import from_plain, to_plain
from tests import places

each_place = pytest.mark.parametrize("place", ["sanitizer", "random", pytest.param("gpu", marks=pytest.mark.gpu)])
THREADS = 32
DTYPES = (
    np.float32,
    np.float16,
    ml_dtypes.bfloat16,
    np.float64,
    np.int8,
    np.uint16,
    np.int32,
    np.uint32,
    np.int64,
    np.uint64,
)


@sk.inline
def element(number, box):
    """The index of element `number` of a box in its order."""
    index = ()
    for side in box[::-1]:
        index = (number % side, *index)
        number = number // side
    return index


@sk.inline
def begun(tensor_map, tile, at, fault=""):
    """Load a tile and wait for it."""
    full = sk.alloc_shared((1,), sk.uint64)
    t = sk.cuda.thread_idx("x")
    if t == 0:
        sk.cuda.mbarrier_init(full, 1)
        sk.cuda.fence_mbarrier_init()
    sk.syncthreads()
    if t == 0:
        tensor_map.prefetch()
        tensor_map.prefetch(at)
        sk.cuda.mbarrier_arrive_expect_tx(full, tensor_map.nbytes - 16 * (fault == "fewer bytes expected"))
        tensor_map.load(tile, at, full)
    if fault != "no wait":
        sk.cuda.mbarrier_wait(full, 0)


@sk.jit
def moved(
    A, B, out, raw, used, kept, at, to, box: sk.constexpr, swizzle: sk.constexpr, fill: sk.constexpr, op: sk.constexpr
):
    """Load the tile of A at `at`; copy it as it lies to `raw`, in the order of the box to `out`; bring it doubled to B at `to`.

    Of the last axis of A only the first `used` elements count, of B's the first `kept`.
    """
    a = sk.tensor_map(A[..., :used], box, swizzle=swizzle, fill=fill)
    b = sk.tensor_map(B[..., :kept], box, swizzle=swizzle)
    tile, t = a.alloc(), sk.cuda.thread_idx("x")
    begun(a, tile, at)
    for i in range(t, a.count, THREADS):
        raw[i] = tile[i]
        out[i] = tile[a.place(*element(i, box))]
    sk.syncthreads()
    for i in range(t, a.count, THREADS):
        tile[i] = tile[i] + tile[i]
    sk.cuda.fence_proxy_async()
    sk.syncthreads()
    if t == 0:
        if op == "store":
            b.store(tile, to)
        else:
            b.reduce(op, tile, to)
        sk.cuda.cp_async_bulk_commit()
        sk.cuda.cp_async_bulk_wait()


def run(place, launch, arrays, *arguments):
    checked = {"sanitizer": sk.sanitize(), "random": sk.sanitize(order="random", seed=3)}.get(place)
    with checked or contextlib.nullcontext():
        return places.run(places.on_gpu if place == "gpu" else places.on_cpu, launch, arrays, *arguments)


def tile_of(array, at, box, fill):
    """The tile at `at`, filled where the array has no elements, and which elements those are."""
    index = np.indices(box) + np.reshape(at, (-1, *[1] * len(box)))
    is_there = np.all([(i >= 0) & (i < n) for i, n in zip(index, array.shape)], axis=0)
    inside = np.clip(index, 0, np.reshape(array.shape, (-1, *[1] * len(box))) - 1)
    return (
        np.where(is_there, array[tuple(inside)], np.array(np.nan if fill == "nan" else 0, array.dtype)),
        is_there,
        inside,
    )


def swizzled(tile, swizzle):
    """The bytes of a tile in rows of `swizzle` bytes, of which bits 4 to 6 are exclusive-ored with bits 7 to 9."""
    count = max(swizzle // 16, 1)
    offset = np.arange(tile.nbytes)
    found = np.empty(tile.nbytes, np.uint8)
    found[offset ^ ((offset >> 7 & (count - 1)) << 4)] = tile.reshape(-1).view(np.uint8)
    return found.view(tile.dtype)


COMBINE = {"store": lambda a, b: b, "add": np.add, "min": np.minimum, "max": np.maximum, "xor": np.bitwise_xor}


def wide(array):
    """The same numbers where NumPy's comparisons know NaN, which those of bfloat16 do not in every version."""
    return array.astype(np.float64) if array.dtype.kind == "V" else array


def check(place, array, used, kept, at, to, box, swizzle, fill, op):
    rng = np.random.default_rng(0)
    before = rng.integers(0, 50, array.shape).astype(array.dtype)
    count = math.prod(box)

    after, out, raw = run(
        place,
        moved[1, THREADS],
        [array, before, np.zeros(count, array.dtype), np.zeros(count, array.dtype)],
        used, kept, tuple(at), tuple(to), box, swizzle, fill, op,
    )[1:]  # fmt: skip

    tile = tile_of(array[..., :used], at, box, fill)[0]
    _, is_there, inside = tile_of(before[..., :kept], to, box, fill)
    np.testing.assert_array_equal(wide(out.reshape(box)), wide(tile))
    np.testing.assert_array_equal(wide(raw), wide(swizzled(tile, swizzle)))
    expected = before.copy()
    where = tuple(i[is_there] for i in inside)
    expected[where] = COMBINE[op](before[where], (tile + tile)[is_there]).astype(array.dtype)
    np.testing.assert_array_equal(wide(after), wide(expected))


@st.composite
def cases(draw):
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    swizzle = draw(st.sampled_from((0, 32, 64, 128)))
    inner = (swizzle or 16 * draw(st.integers(1, 5))) // dtype.itemsize
    box = (*draw(st.lists(st.integers(1, 5), max_size=4)), inner)
    rows = draw(st.lists(st.integers(1, 9), min_size=len(box) - 1, max_size=len(box) - 1))
    unit = 16 // dtype.itemsize
    last = unit * draw(st.integers(1, 9))
    used = draw(st.integers(1, last))  # the others are between the rows
    kept = unit * draw(st.integers(1, last // unit))
    at = [draw(st.integers(-side - 1, size + 1)) for side, size in zip(box, rows)]
    at.append(unit * draw(st.integers(-inner // unit - 1, used // unit + 1)))
    to = [*[draw(st.integers(0, size + 1)) for size in rows], unit * draw(st.integers(0, kept // unit + 1))]
    is_float = dtype.kind in "fV"
    fill = draw(st.sampled_from(("zero", "nan"))) if is_float else "zero"
    op = draw(st.sampled_from(reductions(dtype))) if fill == "zero" else "store"
    array = np.arange(math.prod(rows) * last).reshape(*rows, last) % 50
    return array.astype(dtype), used, kept, at, to, box, swizzle, fill, op


def reductions(dtype):
    if dtype.itemsize == 1 or dtype == np.uint16:
        return ("store",)
    if dtype in (np.float32, np.float64):
        return ("store", "add")
    if dtype == np.int64:
        return ("store", "min", "max")
    return ("store", "min", "max", "add", *(("xor",) if dtype.kind in "iu" else ()))


FAULTS = {
    "no wait": {"COPY_UNDER_WAY", "UNINITIALISED_READ"},
    "fewer bytes expected": {"MBARRIER_STUCK"},
    "no proxy fence": {"PROXY_FENCE_MISSING"},
    "tile not aligned": {"MISALIGNED_ACCESS"},
    "tile too short": {"OUT_OF_BOUNDS"},
    "no wait at the end": {"COPY_LEFT_BEHIND"},
    "overwritten early": {"COPY_UNDER_WAY"},
    "tiles overlap": {"COPY_UNDER_WAY", "GRID_RACE", "BLOCK_RACE"},
    "stores and reductions": {"COPY_UNDER_WAY"},
}


@sk.jit
def faulty(A, fault: sk.constexpr):
    a = sk.tensor_map(A, (8, 32), swizzle=128)
    tile = sk.alloc_shared((a.count - (fault == "tile too short"),), A.dtype, align=256 if "not al" in fault else 1024)
    t = sk.cuda.thread_idx("x")
    begun(a, tile, (0, 0), fault)
    for i in range(t, a.count - 32, THREADS):
        tile[i] = tile[i] + 1
    if fault != "no proxy fence":
        sk.cuda.fence_proxy_async()
    sk.syncthreads()
    if t == 0:
        a.store(tile, (0, 0))
        if fault == "tiles overlap":
            a.store(tile, (7, 0))
        if fault == "stores and reductions":
            a.reduce("add", tile, (0, 0))
        sk.cuda.cp_async_bulk_commit()
        if fault != "no wait at the end":
            sk.cuda.cp_async_bulk_wait(read=fault == "overwritten early", pending=int(fault == "overwritten early"))
        if fault == "overwritten early":
            tile[0] = 0
            sk.cuda.cp_async_bulk_wait()


@pytest.mark.parametrize("fault", ["", *FAULTS])
def test_a_fault_in_the_use_of_a_tile_is_found(fault):
    watch = sk.sanitize(faulty, collect=True)

    watch[1, THREADS](np.ones((16, 32), np.float32), fault)

    found = watch.report.findings[:1]
    assert bool(found) == bool(fault)
    assert not fault or found[0].id in FAULTS[fault]


def test_reductions_of_blocks_add_up():
    @sk.jit
    def added(A):
        a = sk.tensor_map(A, (4, 8))
        tile, t = a.alloc(), sk.cuda.thread_idx("x")
        tile[t] = t
        sk.cuda.fence_proxy_async()
        sk.syncthreads()
        if t == 0:
            a.reduce("add", tile, (1, 0))
            a.reduce("add", tile, (0, 0))
            sk.cuda.cp_async_bulk_commit()
            sk.cuda.cp_async_bulk_wait()

    total = np.zeros((4, 8), np.float32)

    sk.sanitize(added)[5, THREADS](total)

    own = np.arange(32).reshape(4, 8)
    np.testing.assert_array_equal(total, 5 * (own + np.concatenate([np.zeros((1, 8)), own[:-1]])))


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (np.zeros((4, 33), np.float32)[:, :32], "stride along axis 0 is 132 bytes"),
        (np.zeros((4, 64), np.float32)[::-1, :32], "stride along axis 0 is -256 bytes"),
        (np.zeros((4, 64), np.float32)[:, ::2], "lie 2 apart along the last axis"),
        (np.zeros((4, 64), np.float32)[:, 1:33], "address is 4 bytes past a multiple of 16"),
        (np.zeros((0, 32), np.float32), "0 elements along axis 0"),
        (np.zeros((4, 36), np.float32)[:, :33], "its last axis has 132 bytes, and the kernel stores tiles to it"),
    ],
)
def test_an_array_without_a_map_is_refused_before_anything_runs(array, why):
    with pytest.raises(sk.LaunchError, match=why):
        sk.sanitize(faulty)[1, THREADS](array, "")
    sk.sanitize(faulty)[0, THREADS](array, "")


@sk.inline
def begin_at(A, copy, at):
    a = sk.tensor_map(A, (4, 8))
    tile = a.alloc()
    begun(a, tile, at if copy == "load" else (0, 0))
    if sk.cuda.thread_idx("x") == 0 and copy != "load":
        if copy == "store":
            a.store(tile, at)
        else:
            a.reduce("add", tile, at)
        sk.cuda.cp_async_bulk_commit()
        sk.cuda.cp_async_bulk_wait()


@sk.jit
def placed(A, copy: sk.constexpr, at):
    begin_at(A, copy, at)


@sk.jit
def placed_as_known(A, copy: sk.constexpr, at: sk.constexpr):
    begin_at(A, copy, at)


@pytest.mark.parametrize("copy", ["load", "store", "reduce"])
@pytest.mark.parametrize("at", [(0, 1), (0, -3), (1, 6), (-1, 0), (0, -4), (2, 4)])
def test_a_tile_begins_where_the_unit_can(copy, at):
    is_right = at[1] % 4 == 0 and (copy == "load" or min(at) >= 0)
    watch = sk.sanitize(placed, collect=True)

    watch[1, THREADS](np.ones((8, 16), np.float32), copy, at)

    assert [each.id for each in watch.report.findings][:1] == ([] if is_right else ["TILE_MISPLACED"])
    known = placed_as_known.specialize(A=sk.Tensor((None, None), sk.float32), copy=copy, at=at)
    refused = (
        contextlib.nullcontext() if is_right else pytest.raises(sk.StagekitError, match="a tile of `A` that begins at")
    )
    with refused:
        assert known.ir


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ({"box": (8, 31)}, "124 bytes"),
        ({"box": (8, 16), "swizzle": 128}, "64 bytes"),
        ({"box": (257, 32)}, "the box of `A` is"),
        ({"box": (8,)}, "the box of `A` is"),
        ({"box": [8, 32]}, "the box of `A` is"),
        ({"box": (256, 256)}, "262144 bytes"),
        ({"box": (8, 32), "swizzle": 16}, "swizzle=16"),
        ({"box": (8, 32), "swizzle": True}, "swizzle=True"),
        ({"box": (8, 32), "fill": "one"}, "fill='one'"),
    ],
)
def test_a_form_that_does_not_fit_is_refused(form, why):
    @sk.jit
    def kernel(A):
        sk.tensor_map(A, **form)

    with pytest.raises(sk.StagekitError, match=why):
        _ = kernel.specialize(A=sk.Tensor((None, None), sk.float32)).ir


def test_a_view_of_a_thread_has_no_map_and_one_of_arguments_has():
    @sk.jit
    def kernel(A, k, by_thread: sk.constexpr):
        sk.tensor_map(A[sk.cuda.thread_idx("x") if by_thread else k, 1:], (8, 32))

    cube = sk.Tensor((None, None, None), sk.float32)

    (spec,) = kernel.specialize(A=cube, k=sk.int32, by_thread=False).compile("cuda", capability=90).signature.maps
    assert spec.box == (8, 32)
    with pytest.raises(sk.StagekitError, match="do not follow from arguments alone"):
        _ = kernel.specialize(A=cube, k=sk.int32, by_thread=True).ir


@pytest.mark.parametrize("rank", range(1, 6))
def test_ptxas_takes_every_form(rank):
    box = (*[2] * (rank - 1), 32)
    array = sk.Tensor((None,) * rank, sk.float16)
    for op in ("store", "add", "min", "max"):
        kernel = moved.specialize(
            A=array, B=array, out=sk.Tensor((None,), sk.float16), raw=sk.Tensor((None,), sk.float16), used=sk.int32,
            kept=sk.int32, at=(8,) * rank, to=(8,) * rank, box=box, swizzle=64, fill="nan", op=op,
        )  # fmt: skip
        found = ptxas.assemble(kernel.compile("cuda", capability=90).stages["ptx"])
        assert not found.warnings
        assert found.resources.stack_bytes == 0
    with pytest.raises(sk.StagekitError, match=r"needs compute capability 9\.0"):
        kernel.compile("cuda", capability=80)


@settings(max_examples=25, deadline=None)
@given(cases())
def test_tiles_come_and_go_as_they_lie(case):
    check("sanitizer", *case)


@pytest.mark.gpu
@settings(max_examples=60, deadline=None)
@given(cases())
def test_tiles_come_and_go_as_they_lie_on_a_gpu(case):
    check("gpu", *case)


def test_what_a_launch_must_know_is_kept_on_disk():
    kernel = moved.specialize(
        A=sk.Tensor((None, None), sk.float16), B=sk.Tensor((None, None), sk.float16), out=sk.Tensor((None,), sk.float16),
        raw=sk.Tensor((None,), sk.float16), used=sk.int32, kept=sk.int32,
        at=(8, 8), to=(8, 8), box=(2, 32), swizzle=64, fill="nan", op="add",
    )  # fmt: skip
    signature = kernel.compile("cuda", capability=90).signature

    assert from_plain(to_plain(signature)) == signature


@sk.jit
def spread(A, out, blocks: sk.constexpr, fault: sk.constexpr):
    """Each block of a cluster loads a part of every tile for all; they add its elements up, then tell all that it is free."""
    parts = sk.tensor_map(A, box=(8, 32), swizzle=128)
    tile = sk.alloc_shared((blocks, parts.count), A.dtype, align=parts.align)
    bars, t, rank = sk.alloc_shared((2,), sk.uint64), sk.cuda.thread_idx("x"), sk.cuda.cluster_rank()
    full, empty, everyone = bars + 0, bars + 1, (1 << blocks) - 1
    if t == 0:
        sk.cuda.mbarrier_init(full, 1)
        sk.cuda.mbarrier_init(empty, blocks)
        sk.cuda.fence_mbarrier_init()
    if fault == "mbarriers of others are not waited for":
        sk.syncthreads()
    else:
        sk.cuda.cluster_sync()
    rounds, total = A.shape[0] // (8 * blocks), A.dtype(0)
    for k in range(rounds):
        if t == 0:
            sk.cuda.mbarrier_wait(empty, k & 1 ^ 1)
            sk.cuda.mbarrier_arrive_expect_tx(full, parts.nbytes * (1 if fault == "own bytes alone" else blocks))
            row = (k * blocks + rank) * 8
            ranks = {"no such rank": everyone << 1, "not for all": 1}.get(fault, everyone)
            parts.load(tile[rank], (row, 0), full, ranks=ranks)
        sk.cuda.mbarrier_wait(full, k & 1)
        for i in range(blocks * 8):
            total += tile[i // 8, parts.place(i % 8, t)]
        sk.syncwarp()
        if t < blocks and fault != "nobody is told":
            to = rank if fault == "the own block is told" else t
            sk.cuda.mbarrier_arrive_peer(sk.peer(bars, to) + 1, order="relaxed")
    if fault != "the end is not ordered":
        sk.cuda.cluster_sync()
    out[sk.cuda.block_idx("x"), t] = total


@each_place
@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_a_load_for_all_blocks_of_a_cluster(place, blocks):
    A = np.random.default_rng(0).integers(-9, 9, (3 * 8 * blocks, 32)).astype(np.float32)
    launch = spread[sk.cuda.LaunchConfig(2 * blocks, THREADS, cluster=blocks)]

    _, out = run(place, launch, [A, np.zeros((2 * blocks, 32), np.float32)], blocks, "")

    np.testing.assert_array_equal(out, np.tile(A.sum(axis=0), (2 * blocks, 1)))


@pytest.mark.parametrize(
    ("fault", "ids"),
    [
        ("own bytes alone", {"COPY_UNDER_WAY", "MBARRIER_STUCK"}),
        ("no such rank", {"NO_PEER"}),
        ("not for all", {"MBARRIER_STUCK"}),
        ("nobody is told", {"MBARRIER_STUCK"}),
        ("the own block is told", {"COPY_UNDER_WAY", "GRID_RACE"}),
        ("the end is not ordered", {"PEER_ENDED"}),
        ("mbarriers of others are not waited for", {"MBARRIER_ABSENT", "GRID_RACE"}),
    ],
)
def test_a_fault_in_a_load_for_a_cluster_is_found(fault, ids):
    A = np.ones((48, 32), np.float32)
    with sk.sanitize(collect=True) as session:
        spread[sk.cuda.LaunchConfig(2, THREADS, cluster=2)](A, np.zeros((2, 32), np.float32), 2, fault)

    assert ids & {finding.id for report in session.reports for finding in report.findings}
