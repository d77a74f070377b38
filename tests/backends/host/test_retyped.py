"""Pointers to memory of a thread, of a block and of arrays as pointers to elements of another size (R17)."""

from __future__ import annotations

import numpy as np
import pytest

import stagekit as sk
from stagekit.backends import ptxas

TARGETS = ("interp", "cpu")
SIZED = [sk.uint8, sk.uint16, sk.uint32, sk.uint64, sk.int16, sk.float32, sk.float64]


@sk.jit
def retyped(out, given, OLD: sk.constexpr, NEW: sk.constexpr, BYTES: sk.constexpr, SPACE: sk.constexpr):
    t = sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")
    old, new = BYTES // OLD.itemsize, BYTES // NEW.itemsize
    if SPACE == "local":
        cell = sk.alloc_local((old,), OLD)
    else:
        cell = sk.alloc_shared((256, old), OLD, align=8)[sk.cuda.thread_idx("x")]
    other = cell.ptr.to(NEW)
    for k in range(old):
        cell[k] = sk.load(given[t].ptr.to(OLD) + k)
    for k in range(new):
        x = sk.load(other + k)
        if t % 3 != 0:
            sk.store(other + k, x + sk.int32(1).to(NEW))
    back = (
        (other + new // 2).to(OLD) - new // 2 * NEW.itemsize // OLD.itemsize
        if OLD.itemsize <= NEW.itemsize
        else cell.ptr
    )
    for k in range(old):
        sk.store(out[t].ptr.to(OLD) + k, sk.load(back + k))


@pytest.mark.parametrize("space", ["local", "shared"])
@pytest.mark.parametrize("new", SIZED, ids=lambda d: d.name)
@pytest.mark.parametrize("old", SIZED, ids=lambda d: d.name)
def test_memory_of_a_thread_is_read_and_written_as_another_dtype(old, new, space):
    if space == "local" and new.itemsize > old.itemsize:
        pytest.skip("local memory is aligned for its own elements")
    rng = np.random.default_rng(7)
    threads, size = 70, 24
    given = rng.integers(0, 64, (threads, size)).astype(np.uint8)
    wanted = given.copy()
    changed = np.arange(threads) % 3 != 0
    with np.errstate(all="ignore"):
        wanted.view(new.numpy)[changed] += new.numpy.type(1)

    for target in TARGETS:
        out = np.zeros_like(given)
        made = retyped.specialize(OLD=old, NEW=new, BYTES=size, SPACE=space)
        sk.compile(made, target)[1, threads](out, given)
        np.testing.assert_array_equal(out, wanted)


@sk.jit
def example(out, x: sk.uint32):
    cell = sk.alloc_local((1,), sk.uint32)
    cell[0] = x
    out[0] = sk.load(cell.ptr.to(sk.uint16))
    out[1] = sk.load(cell.ptr.to(sk.uint16) + 1)


def test_a_half_of_a_word():
    for target in TARGETS:
        out = np.zeros(2, np.uint32)
        sk.compile(example, target)[1, 1](out, np.uint32(0xABCD1234))
        assert out.tolist() == [0x1234, 0xABCD]


@sk.jit
def chosen(out, x: sk.uint32, first):
    t = sk.cuda.thread_idx("x")
    a, b = sk.alloc_local((3,), sk.uint8), sk.alloc_local((2,), sk.uint32)
    for k in range(3):
        a[k] = k + t
    b[0], b[1] = x, t
    p = b.ptr.to(sk.uint8) if t < first else a.ptr
    sk.syncthreads()
    out[t] = sk.load(p + 1)


def test_a_pointer_that_is_one_of_two_keeps_its_lane_across_a_barrier():
    for threads in (32, 96):
        for target in TARGETS:
            out = np.zeros(threads, np.uint32)
            sk.compile(chosen, target)[1, threads](out, np.uint32(0x7700), 20)
            assert out.tolist() == [0x77 if t < 20 else 1 + t for t in range(threads)]


def test_ptx_of_retyped_memory_is_assembled():
    kinds = {"out": sk.Tensor((None, None), sk.uint8), "given": sk.Tensor((None, None), sk.uint8)}
    for space in ("local", "shared"):
        ptxas.assemble(retyped.specialize(OLD=sk.uint32, NEW=sk.uint16, BYTES=24, SPACE=space, **kinds).ptx)
