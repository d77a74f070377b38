"""Clusters: ranks and shapes, the barrier of them all, and each other's shared memory; each planted fault under its name."""

from __future__ import annotations

import contextlib
import re

import numpy as np
import pytest

import stagekit as sk
from stagekit.backends import ptxas
from stagekit.cuda import LaunchConfig
from tests import places

each_place = pytest.mark.parametrize("place", ["sanitizer", "random", pytest.param("gpu", marks=pytest.mark.gpu)])


def run(place, launch, arrays, *arguments):
    checked = {"sanitizer": sk.sanitize(), "random": sk.sanitize(order="random", seed=5)}.get(place)
    with checked or contextlib.nullcontext():
        return places.run(places.on_gpu if place == "gpu" else places.on_cpu, launch, arrays, *arguments)


@sk.jit
def placed(out):
    """One row per block: its rank, then per axis its place in the cluster, the cluster's in the grid, and the extents."""
    cuda = sk.cuda
    block = cuda.block_idx("x") + cuda.grid_dim("x") * (cuda.block_idx("y") + cuda.grid_dim("y") * cuda.block_idx("z"))
    if cuda.thread_idx("x") == 0:
        out[block, 0] = cuda.cluster_rank()
        out[block, 1] = cuda.cluster_blocks()
        for k, axis in enumerate("xyz"):
            out[block, 2 + k] = cuda.block_idx_in_cluster(axis)
            out[block, 5 + k] = cuda.cluster_idx(axis)
            out[block, 8 + k] = cuda.cluster_dim(axis)


@each_place
@pytest.mark.parametrize(("grid", "cluster"), [((4, 3, 2), (2, 1, 2)), ((3, 2), 1), (8, 8), ((2, 6), (2, 3))])
def test_each_block_knows_its_place(place, grid, cluster):
    config = LaunchConfig(grid, 33, cluster=cluster)
    (x, y, z), shape = config.grid, np.array(config.cluster)
    blocks = np.array([(i, j, k) for k in range(z) for j in range(y) for i in range(x)])

    (out,) = run(place, placed[config], [np.zeros((len(blocks), 11), np.int64)])

    inner = blocks % shape
    np.testing.assert_array_equal(out[:, 0], inner @ (1, shape[0], shape[0] * shape[1]))
    assert (out[:, 1] == shape.prod()).all()
    np.testing.assert_array_equal(out[:, 2:5], inner)
    np.testing.assert_array_equal(out[:, 5:8], blocks // shape)
    assert (out[:, 8:] == shape).all()


BLOCK = 48


@sk.jit
def handed_round(x, out, fault: sk.constexpr):
    """Each block reads the tile of the next one of its cluster, twice, of which the second is another tile."""
    t, rank, blocks = sk.cuda.thread_idx("x"), sk.cuda.cluster_rank(), sk.cuda.cluster_blocks()
    i = sk.cuda.block_idx("x") * BLOCK + t
    tile = sk.alloc_shared((2, BLOCK // 2), x.dtype)
    row, column = t // (BLOCK // 2), t % (BLOCK // 2)
    next_rank = rank + 1 if fault == "no such rank" else (rank + 1) % blocks
    other = sk.peer(tile, next_rank)
    found = x.dtype(0)
    for step in range(2):
        tile[row, column] = x[i] + step
        if fault == "only the block waits":
            sk.syncthreads()
        elif fault != "nobody waits before":
            sk.cuda.cluster_sync()
        found += other[row, column]
        if step == 0 and fault != "written again too early":
            sk.cuda.cluster_sync()
    if fault != "the end is not ordered":
        sk.cuda.cluster_arrive()
    out[i] = found
    if fault != "the end is not ordered":
        sk.cuda.cluster_wait()


@each_place
@pytest.mark.parametrize(("grid", "cluster"), [(2, 2), (6, 3), (8, 8), (3, 1), ((2, 2), (2, 1))])
def test_blocks_read_each_others_tiles(place, grid, cluster):
    config = LaunchConfig(grid, BLOCK, cluster=cluster)
    x = np.arange(config.grid[0] * BLOCK, dtype=np.float32)
    if config.grid[1] > 1:  # rows of blocks that do the same
        pytest.skip("one row is enough")

    _, out = run(place, handed_round[config], [x, np.zeros_like(x)], "")

    tiles = x.reshape(-1, config.cluster[0], BLOCK)
    np.testing.assert_array_equal(out, 2 * np.roll(tiles, -1, axis=1).reshape(-1) + 1)


FAULTS = {
    "nobody waits before": {"UNINITIALISED_READ", "GRID_RACE"},
    "only the block waits": {"UNINITIALISED_READ", "GRID_RACE"},
    "written again too early": {"GRID_RACE"},
    "the end is not ordered": {"PEER_ENDED"},
    "no such rank": {"NO_PEER"},
}


@pytest.mark.parametrize("order", ["forward", "backward", "random"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_among_blocks_is_found(fault, order):
    x = np.arange(4 * BLOCK, dtype=np.float32)
    with sk.sanitize(order=order, collect=True) as session:
        handed_round[LaunchConfig(4, BLOCK, cluster=2)](x, np.zeros_like(x), fault)

    found = {finding.id for report in session.reports for finding in report.findings}
    assert found & FAULTS[fault]
    assert found <= FAULTS[fault] | {"GRID_RACE", "NO_PEER"}


@sk.jit
def counted(x, out, bins: sk.constexpr, fault: sk.constexpr):
    """A histogram whose bins are dealt to the blocks of a cluster, each of which has its part in shared memory."""
    t, rank, blocks = sk.cuda.thread_idx("x"), sk.cuda.cluster_rank(), sk.cuda.cluster_blocks()
    part = sk.alloc_shared((bins,), sk.int32)
    for i in range(t, bins, sk.cuda.block_dim("x")):
        part[i] = 0
    sk.cuda.cluster_sync()
    first = sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + t
    for i in range(first, len(x), sk.cuda.grid_dim("x") * sk.cuda.block_dim("x")):
        value = x[i]
        theirs = sk.peer(part, value % blocks)
        if fault == "not atomic":
            theirs[value // blocks] += 1
        else:
            sk.atomic_add(theirs.ptr_to(value // blocks), 1)
    sk.cuda.cluster_sync()
    for i in range(t, bins, sk.cuda.block_dim("x")):
        if i * blocks + rank < len(out):
            sk.atomic_add(out.ptr_to(i * blocks + rank), part[i])


@each_place
@pytest.mark.parametrize(("grid", "cluster", "length"), [(4, 4, 1000), (4, 2, 1), (2, 1, 0)])
def test_a_histogram_over_the_shared_memory_of_a_cluster(place, grid, cluster, length):
    x = np.random.default_rng(0).integers(0, 23, length).astype(np.int32)

    _, out = run(place, counted[LaunchConfig(grid, 64, cluster=cluster)], [x, np.zeros(23, np.int32)], 24, "")

    np.testing.assert_array_equal(out, np.bincount(x, minlength=23))


def test_updates_of_peers_that_are_no_atomics_race():
    x = np.zeros(256, np.int32)
    with pytest.raises(sk.StagekitError, match="_RACE"):
        run("sanitizer", counted[LaunchConfig(2, 64, cluster=2)], [x, np.zeros(23, np.int32)], 24, "not atomic")


@sk.jit
def astray(out, fault: sk.constexpr):
    rank, t = sk.cuda.cluster_rank(), sk.cuda.thread_idx("x")
    if fault == "arrives twice":
        sk.cuda.cluster_arrive()
        sk.cuda.cluster_arrive()
        sk.cuda.cluster_wait()
    elif fault == "waits alone":
        sk.cuda.cluster_wait()
    elif fault == "one block waits for itself":
        if rank == 0:
            sk.cuda.cluster_sync()
        else:
            ready = sk.alloc_shared((1,), sk.uint64)
            if t == 0:
                sk.cuda.mbarrier_init(ready, 2)
            sk.syncthreads()
            sk.cuda.mbarrier_wait(ready, 0)
    elif (t < 32) == (rank == 0):  # the others end, and are not waited for
        sk.cuda.cluster_sync()
    out[0] = 1


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("arrives twice", "CLUSTER_BARRIER_MISUSED.*before it has waited"),
        ("waits alone", "CLUSTER_BARRIER_MISUSED.*without having arrived"),
        (
            "one block waits for itself",
            "(CLUSTER_BARRIER_STUCK.*64 threads of the cluster|MBARRIER_STUCK.*barrier of its cluster)",
        ),
        ("ended threads", None),
    ],
)
def test_the_barrier_of_a_cluster(fault, text):
    expected = pytest.raises(sk.StagekitError, match=f"(?s){text}") if text else contextlib.nullcontext()
    with expected, sk.sanitize():
        astray[LaunchConfig(2, 64, cluster=2)](np.zeros(1, np.int32), fault)


def test_ptxas_takes_it_and_older_gpus_and_the_cpu_are_refused():
    array = sk.Tensor((None,), sk.float32)
    kernel = handed_round.specialize(x=array, out=array, fault="")

    found = ptxas.assemble(kernel.compile("cuda", capability=90).stages["ptx"])

    assert (found.warnings, found.resources.stack_bytes) == ((), 0)
    for target, capability, text in (
        ("cuda", 80, r"needs compute capability 9\.0"),
        ("cpu", None, "blocks run one after"),
    ):
        options = {"capability": capability} if capability else {"block": 64}
        with pytest.raises(sk.StagekitError, match=text):
            kernel.compile(target, **options)


def test_only_shared_memory_has_peers():
    @sk.jit
    def kernel(x, what: sk.constexpr):
        sk.peer({"global": x, "number": 3}[what], 0)

    for what, text in (("global", "in global memory"), ("number", "peer")):
        with pytest.raises(sk.StagekitError, match=re.escape(text)):
            kernel[1, 1](np.zeros(4, np.float32), what)


@pytest.mark.gpu
def test_a_launch_that_may_begin_early_gives_what_it_gives_without():
    x = np.arange(4 * BLOCK, dtype=np.float32)
    array, out = sk.cuda.to_device(x), sk.cuda.to_device(x)
    for programmatic in (False, True, True):
        handed_round[LaunchConfig(4, BLOCK, cluster=2, programmatic=programmatic)](array, out, "")
    np.testing.assert_array_equal(out.to_host(), 2 * np.roll(x.reshape(2, 2, BLOCK), -1, axis=1).reshape(-1) + 1)


@sk.jit
def step(before, after):
    sk.cuda.griddepcontrol_launch_dependents()  # from here on the next step may begin
    i = sk.cuda.block_idx("x") * BLOCK + sk.cuda.thread_idx("x")
    sk.cuda.griddepcontrol_wait()
    after[i] = before[(i + BLOCK) % len(before)] + 1


@pytest.mark.parametrize("place", ["cpu", "sanitizer", pytest.param("gpu", marks=pytest.mark.gpu)])
def test_launches_that_begin_early_wait_for_what_the_ones_before_them_write(place):
    blocks, steps = (200, 50) if place == "gpu" else (4, 3)
    x = np.arange(blocks * BLOCK, dtype=np.float32)
    put = sk.cuda.to_device if place == "gpu" else np.array
    arrays, launch = [put(x), put(x)], step[LaunchConfig(blocks, BLOCK, programmatic=True)]

    with sk.sanitize() if place == "sanitizer" else contextlib.nullcontext():
        for _ in range(steps):
            launch(*arrays)
            arrays.reverse()

    np.testing.assert_array_equal(places.fetch(arrays[0]), np.roll(x, -steps * BLOCK) + steps)
