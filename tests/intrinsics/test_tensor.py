"""Products of small matrices by a warp, and fragments from shared memory: every instruction, exact numbers, everywhere."""

from __future__ import annotations

import contextlib

import ml_dtypes
import numpy as np
import pytest

import stagekit as sk
from stagekit.backends import ptxas
from stagekit.intrinsics.tensor import PRODUCTS
from tests import places

each_place = pytest.mark.parametrize("place", ["cpu", "sanitizer", pytest.param("gpu", marks=pytest.mark.gpu)])

LANE = np.arange(32)
GROUP, PLACE = LANE // 4, LANE % 4
HELD = {name: np.float64 if row.element is sk.float64 else np.uint32 for name, row in PRODUCTS.items()}


def run(place, launch, arrays, *arguments):
    with sk.sanitize() if place == "sanitizer" else contextlib.nullcontext():
        return places.run(places.on_gpu if place == "gpu" else places.on_cpu, launch, arrays, *arguments)


@sk.jit
def multiply(a, b, c, product: sk.constexpr, counts: sk.constexpr):
    t = sk.cuda.thread_idx("x")
    given = [array[i, t] for array, count in zip((a, b, c), counts) for i in range(count)]
    for i, each in enumerate(product(*given)):
        c[i, t] = each


def numbers(row, shape, rng):
    """Small integers: all sums are exact in every dtype of them, in any order."""
    low = 0 if row.element.kind == "uint" else -8
    return rng.integers(low, 9, shape).astype(row.element.numpy)


def fragments_of_a(a, held):
    """The holders of each lane: of row g, of row g + 8, then those 4 further on."""
    words = np.ascontiguousarray(a).view(held)
    halves = len(a) // 8
    parts = [words[GROUP + 8 * h, PLACE + 4 * w] for w in range(words.shape[1] // 4) for h in range(halves)]
    return np.stack(parts)


def fragments_of_b(b, held):
    words = np.ascontiguousarray(b.T).view(held)
    return np.stack([words[GROUP, PLACE + 4 * w] for w in range(words.shape[1] // 4)])


def fragments_of_c(c):
    return np.stack([c[GROUP + 8 * h, 2 * PLACE + j] for h in range(len(c) // 8) for j in range(2)])


@each_place
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_warp_multiplies(place, name):
    row, rng = PRODUCTS[name], np.random.default_rng(3)
    m, n, k = row.shape
    a, b = numbers(row, (m, k), rng), numbers(row, (k, n), rng)
    c = rng.integers(-99, 99, (m, n)).astype(row.total.numpy)
    parts = [fragments_of_a(a, HELD[name]), fragments_of_b(b, HELD[name]), fragments_of_c(c)]

    *_, found = run(place, multiply[1, 32], parts, getattr(sk.cuda, name), tuple(map(len, parts)))

    expected = c.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(found, fragments_of_c(expected))


@each_place
def test_the_lowest_bits_of_tf32_are_not_looked_at(place):
    a, b = np.full((16, 8), 1 + 2.0**-11, np.float32), np.eye(8, dtype=np.float32)
    parts = [fragments_of_a(a, np.uint32), fragments_of_b(b, np.uint32), np.zeros((4, 32), np.float32)]

    *_, found = run(place, multiply[1, 32], parts, sk.cuda.mma_m16n8k8_tf32, (4, 2, 4))

    np.testing.assert_array_equal(found, 1)


@each_place
def test_sums_of_integers_wrap(place):
    a, b = np.ones((16, 32), np.int8), np.ones((32, 8), np.int8)
    parts = [fragments_of_a(a, np.uint32), fragments_of_b(b, np.uint32), np.full((4, 32), 2**31 - 1, np.int32)]

    *_, found = run(place, multiply[1, 32], parts, sk.cuda.mma_m16n8k32_s8, (4, 2, 4))

    np.testing.assert_array_equal(found, -(2**31) + 31)


@sk.jit
def matrices(x, out, load: sk.constexpr, count: sk.constexpr, trans: sk.constexpr):
    """Row r of matrix i is row 8 * i + r of x; the other lanes point past the end."""
    t = sk.cuda.thread_idx("x")
    shared = sk.alloc_shared((8 * count, 16 // x.dtype.itemsize), x.dtype, align=16)
    for i in sk.static_range(16 // x.dtype.itemsize):
        if t < 8 * count:
            shared[t, i] = x[t, i]
    sk.syncthreads()
    words = load(shared.ptr_to(t, 0), trans=trans)
    for i, each in enumerate(words if count > 1 else (words,)):
        out[i, t] = each


@each_place
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int8, np.uint16, np.float32])
def test_fragments_are_words_of_rows_or_of_columns(place, dtype, count, trans):
    words = np.random.default_rng(1).integers(0, 2**32, (8 * count, 4), np.uint32)
    x = words.view(dtype)

    _, out = run(place, matrices[1, 32], [x, np.zeros((count, 32), np.uint32)], load(count), count, trans)

    halves = np.ascontiguousarray(words).view(np.uint16)
    for matrix, found in enumerate(out):
        rows = words[8 * matrix : 8 * matrix + 8]
        part = halves[8 * matrix : 8 * matrix + 8]
        turned = part[2 * PLACE, GROUP].astype(np.uint32) | part[2 * PLACE + 1, GROUP].astype(np.uint32) << 16
        np.testing.assert_array_equal(found, turned if trans else rows[GROUP, PLACE])


@sk.jit
def kept(fragments, out, store: sk.constexpr, count: sk.constexpr, trans: sk.constexpr):
    """Row r of matrix i goes to row 8 * i + r of out; the other lanes point past the end."""
    t = sk.cuda.thread_idx("x")
    shared = sk.alloc_shared((8 * count, 16 // out.dtype.itemsize), out.dtype, align=16)
    words = [fragments[i, t] for i in sk.static_range(count)]
    store(shared.ptr_to(t, 0), *words, trans=trans)
    sk.syncthreads()
    for i in sk.static_range(16 // out.dtype.itemsize):
        if t < 8 * count:
            out[t, i] = shared[t, i]


@each_place
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_fragments_are_stored_as_they_are_loaded(place, count, trans):
    for dtype in (np.float16, np.int8, np.float32) if count == 4 else (ml_dtypes.bfloat16,):
        fragments = np.random.default_rng(count).integers(0, 2**32, (count, 32), np.uint32)
        rows = np.zeros((8 * count, 16 // np.dtype(dtype).itemsize), dtype)
        put, got = (getattr(sk.cuda, f"{name}matrix_x{count}") for name in ("st", "ld"))

        _, stored = run(place, kept[1, 32], [fragments, rows], put, count, trans)
        _, loaded = run(place, matrices[1, 32], [stored, np.zeros_like(fragments)], got, count, trans)

        np.testing.assert_array_equal(loaded, fragments)


def load(count):
    return getattr(sk.cuda, f"ldmatrix_x{count}")


def types_of(*dtypes):
    return {name: sk.Tensor((None, 32), dtype) for name, dtype in zip("abc", dtypes)}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_is_one_instruction(name):
    row = PRODUCTS[name]
    counts = (row.halves * row.words // 4, row.words // 4, 2 * row.halves)
    kernel = multiply.specialize(
        **types_of(row.holder, row.holder, row.total), product=getattr(sk.cuda, name), counts=counts
    )

    assert kernel.ptx.count("mma.sync") == 1
    if name == "mma_m16n8k16_f16":  # the others take as long, and show the same
        assert ptxas.disassemble(ptxas.assemble(kernel.ptx).cubin).count("MMA") == 1


def test_older_devices_multiply_by_shuffles():
    kernel = multiply.specialize(
        **types_of(sk.uint32, sk.uint32, sk.float32), product=sk.cuda.mma_m16n8k16_f16, counts=(4, 2, 4)
    )

    text = kernel.compile("cuda", capability=75).stages["ptx"]

    assert "shfl.sync" in text
    assert "mma.sync" not in text


@sk.jit
def doubled(x, out, size: sk.constexpr, waits: sk.constexpr):
    """Copies a row of as many threads as it has parts, in two groups; the last parts are masked."""
    t = sk.cuda.thread_idx("x")
    count = size // x.dtype.itemsize
    here = sk.alloc_shared((64 * count,), x.dtype, align=16)
    for half in sk.static_range(2):
        at = (t + 32 * half) * count
        sk.cuda.cp_async(here + at, x + at, t + 32 * half < 60, size=size)
        sk.cuda.cp_async_commit()
    for pending in waits:
        sk.cuda.cp_async_wait(pending)
    sk.syncwarp()
    for half in sk.static_range(2):
        for i in sk.static_range(count):
            at = (31 - t + 32 * half) * count + i
            out[at] = here[at]


@each_place
@pytest.mark.parametrize("size", [4, 8, 16])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8, ml_dtypes.bfloat16])
def test_copies_arrive(place, dtype, size):
    count = size // np.dtype(dtype).itemsize
    x = np.random.default_rng(size).integers(1, 99, 64 * count).astype(dtype)

    _, out = run(place, doubled[1, 32], [x, np.zeros_like(x)], size, (0,))

    expected = x.copy()
    expected[60 * count :] = 0
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("waits", [(), (1,)])
def test_a_copy_that_nobody_waited_for_is_found(waits):
    x = np.arange(64, dtype=np.float32)

    with pytest.raises(sk.StagekitError, match="UNINITIALISED_READ"), sk.sanitize():
        doubled[1, 32](x, np.zeros_like(x), 4, waits)


@sk.jit
def overwritten(x, out):
    """The copy may arrive before the other lanes have read what it replaces."""
    t = sk.cuda.thread_idx("x")
    here = sk.alloc_shared((32,), x.dtype, align=16)
    here[t] = x[t]
    sk.syncwarp()
    out[t] = here[31 - t]
    sk.cuda.cp_async(here + t, x + t, True, size=4)
    sk.cuda.cp_async_commit()
    sk.syncwarp()
    sk.cuda.cp_async_wait(0)
    out[t] += here[t]


def test_a_copy_over_what_others_still_read_is_a_race():
    x = np.arange(32, dtype=np.float32)

    with pytest.raises(sk.StagekitError, match="RACE"), sk.sanitize():
        overwritten[1, 32](x, np.zeros_like(x))
