"""Groups of lanes: tiled, coalesced and labelled; what moves between them and what is combined, in order, of any form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest

import stagekit as sk
from tests.cells import cell
from tests.places import each_place, on_cpu, run


class Affine(NamedTuple):
    """x -> a * x + b: followed by another one it is a third, and the order matters."""

    a: float
    b: float


def follow(p, q):
    return Affine(p.a * q.a, p.b * q.a + q.b)


@sk.inline
def use(group, out, t):
    """Everything that all groups do, a row of results each."""
    out[0, t], out[1, t] = group.rank, group.size
    step = Affine(sk.float64(2), sk.float64(t))
    out[2, t] = group.reduce(step, follow).b
    out[3, t] = group.scan(step, follow).b
    out[4, t] = group.scan(step, follow, Affine(1.0, 0.0), exclusive=True).b
    out[5, t] = group.reduce(t, lambda a, b: a + b, commutative=True)
    out[6, t] = group.reduce(t, sk.maximum)
    out[7, t] = group.shfl(sk.float64(t), 0)
    out[8, t] = group.shfl_up((t, [t]), 1)[1][0]
    out[9, t] = group.shfl_down(t, 1)
    out[10, t] = group.ballot(t % 3 == 0)
    out[11, t], out[12, t] = group.any(t == 5), group.all(t != 5)
    group.sync()


ROWS = 13


def expected(groups: Sequence[Sequence[int]], threads: int) -> np.ndarray:
    """The rows of `use`, where these threads form a group each."""
    rows = np.zeros((ROWS, threads))
    for lanes in groups:
        scans = [0.0]
        for lane in lanes:
            scans.append(scans[-1] * 2 + lane)
        for rank, t in enumerate(lanes):
            rows[:, t] = (
                *(rank, len(lanes), scans[-1], scans[rank + 1], scans[rank], sum(lanes), max(lanes), lanes[0]),
                *(lanes[max(rank - 1, 0)], lanes[min(rank + 1, len(lanes) - 1)]),
                *(sum((lane % 3 == 0) << r for r, lane in enumerate(lanes)), 5 in lanes, 5 not in lanes),
            )
    return rows


def grouped(labels: np.ndarray) -> list[list[int]]:
    """The threads of each warp that have one label, which is not negative."""
    found: dict[tuple[int, int], list[int]] = {}
    for t, label in enumerate(labels):
        if label >= 0:
            found.setdefault((t // 32, int(label)), []).append(t)
    return list(found.values())


each_way = pytest.mark.parametrize("way", ["plain", "sanitized"])


def launched(place, way, launch, arrays, *arguments):
    """What an array becomes by a launch, or by one that is checked."""
    if way == "plain" or place is not on_cpu:
        return run(place, launch, arrays, *arguments)[-1]
    with sk.sanitize():
        return run(place, launch, arrays, *arguments)[-1]


@sk.jit
def in_tiles(out, SIZE: sk.constexpr):
    t = sk.cuda.thread_idx("x")
    group = sk.tiled_partition(SIZE)
    use(group, out, t)
    out[13, t], out[14, t], out[15, t] = group.number, group.shfl_xor(t, SIZE // 2), group.shfl(t, SIZE - 1)


@each_place
@each_way
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32])
def test_a_warp_in_tiles(place, way, size):
    t = np.arange(96)

    out = launched(place, way, in_tiles[1, 96], [np.zeros((ROWS + 3, 96))], size)

    np.testing.assert_array_equal(out[:ROWS], expected(grouped(t // size), 96))
    np.testing.assert_array_equal(out[ROWS:], [t % 32 // size, t ^ size // 2, t // size * size + size - 1])


@sk.jit
def in_classes(labels, out):
    t = sk.cuda.thread_idx("x")
    if labels[t] >= 0:
        use(sk.labeled_partition(labels[t]), out, t)


@sk.jit
def where_it_holds(labels, out):
    t = sk.cuda.thread_idx("x")
    if labels[t] >= 0:
        use(sk.coalesced_threads(), out, t)


@each_place
@each_way
@pytest.mark.parametrize(("threads", "classes"), [(96, 4), (64, 40), (40, 1), (33, 3), (7, 2), (1, 1)])
def test_groups_of_any_lanes(place, way, threads, classes):
    labels = np.random.default_rng(threads).integers(-1, classes, threads).astype(np.int32)
    arrays = [labels, np.zeros((ROWS, threads))]

    np.testing.assert_allclose(
        launched(place, way, in_classes[1, threads], arrays), expected(grouped(labels), threads), rtol=1e-12
    )
    np.testing.assert_allclose(
        launched(place, way, where_it_holds[1, threads], arrays),
        expected(grouped(np.minimum(labels, 0)), threads),
        rtol=1e-12,
    )


@sk.jit
def counts_by_key(keys, counts):
    """One atomic for all lanes that have the same key."""
    i = sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")
    if i < len(keys):
        same = sk.labeled_partition(keys[i], sk.coalesced_threads())
        if same.rank == 0:
            sk.atomic_add(counts + keys[i], same.size)


@each_place
def test_atomics_of_a_group_are_one(place):
    keys = np.random.default_rng(0).integers(0, 10, 1000).astype(np.int32)

    _, counts = run(place, counts_by_key[8, 128], [keys, np.zeros(10, np.int32)])

    np.testing.assert_array_equal(counts, np.bincount(keys, minlength=10))


def test_a_shuffle_of_a_tile_is_one_instruction():
    ptx = in_tiles.specialize(out=sk.Tensor((16, None), sk.float64), SIZE=8).ptx

    assert "shfl.sync.idx.b32" in ptx
    assert ", 6175, " in ptx  # 24 bits of the lane's number stay: 0x181f


@pytest.mark.parametrize("size", [0, 3, 64, True, 8.0])
def test_a_size_that_is_none_is_refused(size):
    with pytest.raises(sk.StagingError, match="tiled_partition: size must be 1, 2, 4, 8, 16 or 32"):
        in_tiles.specialize(out=sk.Tensor((16, None), sk.float64), SIZE=size).ir


@sk.jit
def misused(out, mistake: sk.constexpr):
    out[0] = mistake(sk.tiled_partition(8), sk.int32(sk.cuda.thread_idx("x")))


MISTAKES = {
    "exclusive needs an identity": lambda group, t: group.scan(t, sk.maximum, exclusive=True),
    "combine must be a function": lambda group, t: group.reduce(t, 3),
    "the combiner gives float32 for elements of int32": lambda group, t: group.reduce(t, lambda a, b: a * 0.5),
    "has another form": lambda group, t: group.reduce((t, t), lambda a, b: a[0]),
    "takes a number": lambda group, t: group.shfl("text", 0),
    "`width` ": lambda group, t: sk.shfl_sync(0xFF, t, 0, 7),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_what_does_not_fit_is_refused(text):
    with pytest.raises(sk.StagingError, match=text):
        misused.specialize(out=sk.Tensor((None,), sk.int32), mistake=MISTAKES[text]).ir


@sk.jit
def with_lanes_away(out, what: sk.constexpr):
    t = sk.cuda.thread_idx("x")
    fours = sk.tiled_partition(4)
    here = sk.coalesced_threads()
    if t % 4 != 2:
        if what == "reduce":
            out[t] = fours.reduce(t, lambda a, b: a + b)
        elif what == "scan":
            out[t] = fours.scan(t, lambda a, b: a + b)
        elif what == "shfl":
            out[t] = fours.shfl(t, 2)
        elif what == "ballot":
            out[t] = fours.ballot(True)
        elif what == "sync":
            fours.sync()
        elif what == "coalesced":
            out[t] = here.any(t == 2)
        else:
            out[t] = sk.coalesced_threads().reduce(t, lambda a, b: a + b)
    sk.syncthreads()


def test_the_sanitizer_sees_lanes_that_do_not_come():
    watch = sk.sanitize(with_lanes_away)
    for what in ("reduce", "scan", "shfl", "ballot", "sync", "coalesced"):
        with cell(what), pytest.raises(sk.StagekitError, match="LANE_NOT_HERE"):
            watch[1, 8](np.zeros(8, np.int64), what)
    watch[1, 8](np.zeros(8, np.int64), "those that are here")
