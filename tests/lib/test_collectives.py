"""What each thread has, combined over blocks of any shape: in the order of threads, of any form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

import stagekit as sk
from tests.places import each_place, on_cpu, run


class Best(NamedTuple):
    score: float
    index: int


@dataclass(frozen=True)
class Affine:
    """x -> a * x + b, modulo 2**32; the name is no number and stays."""

    a: int
    b: int
    name: str = "affine"

    def then(self, other):
        return Affine(self.a * other.a, self.b * other.a + other.b)


def better(p, q):
    return q if q.score > p.score else p


@sk.jit
def collect(src, best, maps, pairs, SHAPE: sk.constexpr):
    X, Y, _ = SHAPE
    t = sk.cuda.thread_idx("x") + X * (sk.cuda.thread_idx("y") + Y * sk.cuda.thread_idx("z"))
    found = sk.block_reduce(Best(src[t], sk.int32(t)), better, block_threads=SHAPE)
    best[0, t], best[1, t] = found.score, found.index
    step, none = Affine(sk.uint32(3), sk.uint32(t)), Affine(1, 0)
    maps[0, t] = sk.block_reduce(step, lambda p, q: p.then(q), none, SHAPE).b
    maps[1, t] = sk.block_scan(step, lambda p, q: p.then(q), block_threads=SHAPE).b
    maps[2, t] = sk.block_scan(step, lambda p, q: p.then(q), none, SHAPE, exclusive=True).b
    both = sk.block_scan(
        [t, {"most": t}],
        lambda p, q: [p[0] + q[0], {"most": sk.maximum(p[1]["most"], q[1]["most"])}],
        block_threads=SHAPE,
    )
    pairs[0, t], pairs[1, t] = both[0], both[1]["most"]
    pairs[2, t] = sk.block_reduce(t, lambda a, b: a + b, 0, SHAPE, commutative=True)
    pairs[3, t] = sk.block_reduce(t, sk.maximum, block_threads=SHAPE)


SHAPES = [(1, 1, 1), (2, 1, 1), (3, 1, 1), (32, 1, 1), (33, 1, 1), (96, 1, 1), (100, 1, 1)]
SHAPES += [(5, 7, 1), (8, 8, 1), (16, 16, 1), (3, 5, 7), (25, 40, 1), (8, 8, 16)]


@each_place
@pytest.mark.parametrize("way", ["plain", "sanitized"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_blocks_of_any_shape(place, way, shape):
    threads = int(np.prod(shape))
    t = np.arange(threads)
    src = np.random.default_rng(threads).integers(0, 50, threads).astype(np.float32)
    arrays = [src, np.zeros((2, threads)), np.zeros((3, threads), np.uint32), np.zeros((4, threads), np.int64)]
    with sk.sanitize() if way == "sanitized" and place is on_cpu and threads < 300 else np.errstate():
        _, best, maps, pairs = run(place, collect[1, shape], arrays, shape)

    total, scans = 0, []
    for each in t:
        total = (total * 3 + int(each)) % 2**32
        scans.append(total)
    assert (best[0] == src.max()).all()
    assert (best[1] == src.argmax()).all()  # the first of several: the order is kept
    np.testing.assert_array_equal(maps, [[total] * threads, scans, [0, *scans[:-1]]])
    np.testing.assert_array_equal(pairs, [t.cumsum(), t, [t.sum()] * threads, [threads - 1] * threads])


@sk.jit
def rounds(src, out, count, BLOCK: sk.constexpr):
    """Each round uses the result of the last; the block is that of the entry."""
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=BLOCK))
    t = sk.cuda.thread_idx("x")
    x = src[t]
    for _ in range(count):
        x = sk.block_reduce(x, lambda a, b: a * 3 + b) ^ sk.block_scan(x, lambda a, b: a + b)
    out[t] = x


@each_place
@pytest.mark.parametrize("block", [20, 64, 96, 130])
def test_again_and_again_in_the_block_of_the_entry(place, block):
    """`a * 3 + b` is not associative, so that one order of combining alone gives what interp gives."""
    src = np.random.default_rng(block).integers(0, 1000, block).astype(np.uint32)
    arrays = [src, np.zeros_like(src)]
    wanted = np.zeros_like(src)
    sk.compile(rounds.specialize(BLOCK=block), "interp")(src, wanted, 5)

    _, out = run(place, rounds, arrays, 5, block)

    np.testing.assert_array_equal(out, wanted)


@sk.jit
def misused(out, mistake: sk.constexpr):
    out[0] = mistake(sk.int32(sk.cuda.thread_idx("x")))


ADD = lambda a, b: a + b  # noqa: E731
MISTAKES = {
    "`block_reduce` of a block that is not known": lambda t: sk.block_reduce(t, ADD),
    "block_threads is .8, 8, 8, 8.: it is no int": lambda t: sk.block_reduce(t, ADD, 0, (8, 8, 8, 8)),
    "block_threads is .64, 64.: a block has 1 to 1024": lambda t: sk.block_scan(t, ADD, 0, (64, 64)),
    "over .8, 8, 1. threads, in a block of 64": lambda t: (
        sk.block_scan(t, ADD, 0, 64) + sk.block_scan(t, ADD, 0, (8, 8))
    ),
    "identity has another form": lambda t: sk.block_reduce((t, t), ADD, 0, 64)[0],
    "exclusive needs an identity": lambda t: sk.block_scan(t, ADD, block_threads=64, exclusive=True),
    "for the elements of a tile there is sk.reduce": lambda t: sk.block_reduce(sk.arange(0, 64), ADD, 0, 64),
    "the combiner gives int64": lambda t: sk.block_reduce(t, lambda a, b: sk.int64(a), 0, 64),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_what_does_not_fit_is_refused(text):
    with pytest.raises(sk.StagekitError, match=text):
        misused.specialize(out=sk.Tensor((None,), sk.int32), mistake=MISTAKES[text]).ir
