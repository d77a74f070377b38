"""Loops that read ahead: the same as loads in the loop, whatever the arrays; what they need, and what they cost."""

from __future__ import annotations

import re
from collections import Counter

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.backends import ptxas
from stagekit.testing import force_entry
from tests.lib.test_axes import run

each_place = pytest.mark.parametrize("place", ["cpu", "sanitizer", pytest.param("gpu", marks=pytest.mark.gpu)])


@sk.jit(threads="THREADS")
def product(a, b, out, M: sk.constexpr, N: sk.constexpr, K: sk.constexpr, STAGES: sk.constexpr, THREADS: sk.constexpr):
    """Matrices of shape (m, k) and (k, n)."""
    row, column = sk.program_id(0) * M, sk.program_id(1) * N

    def loads(k):
        return a.tile((row, k), (M, K)), b.tile((k, column), (K, N))

    total = sk.zeros((M, N), out.dtype)
    for x, y in sk.staged(range(0, a.shape[1], K), loads, stages=STAGES):
        total = sk.dot(x, y, total)
    sk.store(out.tile((row, column), (M, N)), total)


def numbers(rng, shape, dtype, gap):
    """Small integers, whose sums are exact; a part of wider rows."""
    return rng.integers(-4, 5, (shape[0], shape[1] + gap)).astype(dtype)[:, : shape[1]]


@each_place
@settings(max_examples=4, deadline=None)
@given(
    *[st.integers(0, 90)] * 2,
    st.sampled_from([0, 1, 16, 24, 100, 128]),
    st.sampled_from([0, 8, 3]),
    st.integers(2, 5),
    st.sampled_from([np.float16, ml_dtypes.bfloat16, np.float32]),
)
def test_a_staged_product_is_numpys(place, m, n, k, gap, stages, dtype) -> None:
    rng = np.random.default_rng(k)
    a, b = numbers(rng, (m, k), dtype, gap), numbers(rng, (k, n), dtype, gap)

    arrays = [a, b, np.full((m, n), -1, np.float32)]
    *_, out = run(place, product, (-(-m // 32), -(-n // 64)), arrays, 32, 64, 32, stages, 64)

    np.testing.assert_array_equal(out, a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize("dtype", [np.int8, ml_dtypes.bfloat16, np.float32])
@pytest.mark.parametrize("turned", [(False, True), (True, False)])
def test_a_product_that_is_copied_some_rows_at_a_time_is_numpys(dtype, turned) -> None:
    """Elements begin anywhere, and a part has more of them than a thread loads before it stores them."""
    rng = np.random.default_rng(0)
    given = rng.integers(-4, 5, (67, 133)), rng.integers(-4, 5, (133, 65))
    arrays = [np.asarray(each.astype(dtype), order="CF"[is_turned]) for each, is_turned in zip(given, turned)]
    out = np.full((67, 65), -1, np.int32 if dtype is np.int8 else np.float32)

    with sk.sanitize():
        product[2, 2](*arrays, out, 64, 64, 64, 3, 64)

    np.testing.assert_array_equal(out, given[0] @ given[1])


def staged_by_warpgroups(shape, blocks, threads, turned, dtype, on_gpu=lambda array: array):
    """Arrays that are turned stay so: copies of them by NumPy would not."""
    (m, n, k), (M, N) = shape, blocks
    rng = np.random.default_rng(k)
    a, b = (
        rng.integers(-4, 5, shape[::-1] if is_turned else shape).astype(dtype)
        for shape, is_turned in zip(((m, k), (k, n)), turned)
    )
    out = np.full((m, n), -1, np.float32)

    given = [on_gpu(each).T if is_turned else on_gpu(each) for each, is_turned in zip((a, b), turned)]
    placed = on_gpu(out)
    product[-(-m // M), -(-n // N)](*given, placed, M, N, 64, 3, threads)

    a, b = (
        each.astype(np.float32).T if is_turned else each.astype(np.float32) for each, is_turned in zip((a, b), turned)
    )
    np.testing.assert_array_equal(out if placed is out else placed.cpu().numpy(), a @ b)


@pytest.mark.parametrize("turned", [(False, False), (True, True)])
def test_a_staged_product_by_warpgroups_is_numpys(turned) -> None:
    with sk.sanitize():
        staged_by_warpgroups((56, 64, 136), (64, 64), 128, turned, ml_dtypes.bfloat16)


@pytest.mark.gpu
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize(("blocks", "threads"), [((64, 128), 128), ((128, 64), 256), ((128, 256), 256)])
def test_a_staged_product_by_warpgroups_is_numpys_on_a_gpu(turned, blocks, threads) -> None:
    torch = pytest.importorskip("torch")

    def on_gpu(array):
        found = torch.from_numpy(array.astype(np.float32)).cuda()
        return {np.float16: found.half, ml_dtypes.bfloat16: found.bfloat16}.get(array.dtype.type, lambda: found)()

    for dtype in (np.float16, ml_dtypes.bfloat16):
        for shape in (72, 136, 136), (128, 256, 64), (520, 264, 1000), (64, 64, 8), (1, 8, 2040):
            staged_by_warpgroups(shape, blocks, threads, turned, dtype, on_gpu)


@sk.jit(threads=128)
def turned_again(a, b, out, TIMES: sk.constexpr, LEAVES: sk.constexpr):
    """Products of 64 rows, each of the one before, which was written to memory; a loop that may end early is no other."""

    def loads(k):
        return a.tile((0, k), (64, 64)), b.tile((k, 0), (64, 64))

    for _ in range(TIMES):
        total = sk.zeros((64, 64), sk.float32)
        for x, y in sk.staged(range(0, a.shape[1], 64), loads, stages=2):
            total = sk.dot(x, y, total)
            if LEAVES and out.shape[0] == 0:
                break
        sk.store(a.tile((0, 0), (64, 64)), total.to(a.dtype))
        sk.store(out.tile((0, 0), (64, 64)), total)


@pytest.mark.parametrize("place", ["sanitizer", pytest.param("gpu", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("leaves", [False, True])
def test_what_was_written_is_read_ahead_of_products_by_warpgroups(place, leaves) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (64, 64)), np.eye(64)[rng.permutation(64)]

    arrays = [a.astype(np.float16), b.astype(np.float16), np.zeros((64, 64), np.float32)]
    *_, out = run(place, turned_again, (1,), arrays, 3, leaves)

    np.testing.assert_array_equal(out, a @ b @ b @ b)


STRANGE = {
    "no elements": lambda a: a[:, :0],
    "equal rows": lambda a: np.broadcast_to(a[0], (64, 64)),
    "rows from the last to the first": lambda a: a[::-1],
    "rows that begin anywhere": lambda a: np.pad(a, ((0, 0), (0, 3)))[:, :64],
}


@pytest.mark.parametrize("strange", STRANGE)
def test_arrays_without_a_tensor_map_are_multiplied(strange) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (64, 64)).astype(np.float16) for _ in range(2))
    a, out = STRANGE[strange](a), np.full((64, 64), -1, np.float32)

    with sk.sanitize():
        product[1, 1](a, b[: a.shape[1]], out, 64, 64, 64, 3, 128)

    np.testing.assert_array_equal(out, a.astype(np.float32) @ b[: a.shape[1]].astype(np.float32))


def test_what_a_gpu_has_multiplies() -> None:
    """Another trace for other GPUs than those whose warpgroups multiply, and nothing that ptxas would serialise."""
    of = (sk.Tensor((None, None), sk.bfloat16, strides=(None, 1)),) * 2
    kernel = product.specialize(
        a=of[0], b=of[1], out=sk.Tensor((None, None), sk.float32), M=64, N=64, K=64, STAGES=3, THREADS=128
    )
    found = {}
    for capability in (90, 120):
        ptx = str(force_entry(kernel, "quick").compile("cuda", capability=capability).stages["ptx"])
        assembled = ptxas.assemble(ptx)
        assert (assembled.resources.spill_store_bytes, assembled.warnings) == (0, ())
        signs = ".target sm_90a", "wgmma.mma_async", "cp.async.bulk.tensor", "cp.async.cg", "mma.sync"
        found[capability] = [each for each in signs if each in ptx]

    assert found == {
        90: [".target sm_90a", "wgmma.mma_async", "cp.async.bulk.tensor"],
        120: ["cp.async.cg", "mma.sync"],
    }


@pytest.mark.parametrize(
    ("blocks", "threads", "is_by_warpgroups"),
    [((256, 192), 512, True), ((256, 256), 512, False), ((512, 128), 512, False), ((256, 256), 1024, False)],
)
def test_blocks_whose_sums_leave_no_registers_are_multiplied_as_for_other_gpus(blocks, threads, is_by_warpgroups):
    of = (sk.Tensor((None, None), sk.bfloat16, strides=(None, 1)),) * 2
    kernel = product.specialize(
        a=of[0], b=of[1], out=sk.Tensor((None, None), sk.float32), M=blocks[0], N=blocks[1], K=64, STAGES=2, THREADS=threads
    )  # fmt: skip

    ptx = str(force_entry(kernel, "quick").compile("cuda", capability=90).stages["ptx"])

    assert ("wgmma.mma_async" in ptx) == is_by_warpgroups
    assert not ptxas.assemble(ptx).warnings


@sk.jit(threads=128)
def attended(q, k, v, out):
    """Tiles of k and v could be multiplied with each other, and are not."""
    x, total = sk.load(q.tile((0, 0), (64, 64))), sk.zeros((64, 64), sk.float32)
    for y, z in sk.staged(range(0, k.shape[0], 64), lambda i: (k.tile((i, 0), (64, 64)), v.tile((i, 0), (64, 64)))):
        total = sk.dot(sk.dot(x, y.T).to(x.dtype), z, total)
    sk.store(out.tile((0, 0), (64, 64)), total)


def test_tiles_that_are_not_each_others_factors_are_copied_as_for_other_gpus() -> None:
    of = (sk.Tensor((None, None), sk.bfloat16, strides=(None, 1)),) * 3
    kernel = attended.specialize(**dict(zip("qkv", of)), out=sk.Tensor((None, None), sk.float32))

    ptx = str(force_entry(kernel, "quick").compile("cuda", capability=90).stages["ptx"])

    assert "cp.async.cg" in ptx
    assert "fence.proxy" not in ptx


@sk.jit(threads=64)
def other_uses(x, out, after):
    """Tiles in shared memory meet others, are turned, cut and kept for the next round, and behind the loop."""
    last, total = sk.zeros((16, 64), sk.float32), sk.zeros((64,), sk.float32)
    rounds = 0
    for part in sk.staged(range(0, x.shape[0], 16), lambda k: x.tile((k, 0), (16, 64)), stages=3):
        total += sk.reduce_sum(part.T, axis=1) + part[3] * 2 + sk.reduce_sum(last * part, axis=0)
        last = part
        rounds += 1  # noqa: SIM113 - a kernel has no run-time `enumerate`
        if rounds == 3:
            break
    sk.store(out.tile(0, 64), total)
    sk.store(after.tile((0, 0), (16, 64)), last)


@each_place
@pytest.mark.parametrize("rows", [16, 32, 96])
def test_staged_tiles_are_tiles(place, rows) -> None:
    x = np.random.default_rng(rows).integers(-4, 5, (rows, 64)).astype(np.float32)

    _, out, after = run(place, other_uses, (1,), [x, np.zeros(64, np.float32), np.zeros((16, 64), np.float32)])

    parts = x.reshape(-1, 16, 64)[:3]
    expected = sum(p.sum(0) + p[3] * 2 for p in parts) + sum((p * q).sum(0) for p, q in zip(parts[1:], parts))
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(after, parts[-1])


@sk.jit(threads=64)
def repeated(x, factors, out, TIMES: sk.constexpr):
    """Each round of the outer loop begins anew in the same memory. A number for each row is read ahead with it."""
    for i in range(TIMES):
        total = sk.zeros((64,), sk.float32)
        for part, each in sk.staged(
            range(0, x.shape[0], 16), lambda k: (x.tile((k, 0), (16, 64)), factors.tile(k, 16))
        ):
            total += sk.reduce_sum(part * each[:, None], axis=0)
        sk.store(out.tile((i, 0), (1, 64)), total[None, :])


@sk.jit(threads=32)
def summed_by_names(rows: sk.Tensor((None, 16), sk.float32, (16, 1)), out):
    """Three squares. The function has a variable of the name that the loop has: it is another one."""

    def part(number):
        square = number * 16
        return rows.tile((square, 0), (16, 16))

    total = sk.zeros((16, 16), sk.float32)
    for square in sk.staged(range(3), part, stages=2):
        total += square
    sk.store(out.tile((0, 0), (16, 16)), total)


@each_place
def test_a_variable_of_the_function_that_loads_is_not_that_of_the_loop(place) -> None:
    rows = np.arange(48 * 16, dtype=np.float32).reshape(48, 16)

    _, out = run(place, summed_by_names, (1,), [rows, np.zeros((16, 16), np.float32)])

    np.testing.assert_array_equal(out, rows.reshape(3, 16, 16).sum(axis=0))


@each_place
def test_a_staged_loop_in_a_loop(place) -> None:
    x, factors = np.arange(37 * 64, dtype=np.float32).reshape(37, 64), np.arange(37, dtype=np.float32) % 5

    *_, out = run(place, repeated, (1,), [x, factors, np.zeros((3, 64), np.float32)], 3)

    np.testing.assert_array_equal(out, np.tile(factors @ x, (3, 1)))


@sk.jit(threads=64)
def in_place(x, TIMES: sk.constexpr):
    """Each round of the outer loop reads what the one before wrote: all copies have arrived by then."""
    for _ in range(TIMES):
        total = sk.zeros((16, 64), sk.float32)
        for part in sk.staged(range(0, x.shape[0], 16), lambda k: x.tile((k, 0), (16, 64))):
            total += part
        sk.store(x.tile((16, 0), (16, 64)), total)


@each_place
def test_a_loop_around_may_write_what_was_read_ahead(place) -> None:
    x = np.arange(48 * 64, dtype=np.float32).reshape(48, 64) % 7
    expected = x.copy()
    for _ in range(3):
        expected[16:32] = expected.reshape(3, 16, 64).sum(0)

    (found,) = run(place, in_place, (1,), [x], 3)

    np.testing.assert_array_equal(found, expected)


@sk.jit(threads=64)
def written_meanwhile(x, out):
    for part in sk.staged(range(0, 256, 64), lambda k: x.tile((0, k), (16, 64))):
        sk.store(out.tile((0, 64), (16, 64)), part + 1)


def test_arrays_that_overlap_are_not_read_ahead() -> None:
    x = np.arange(16 * 256, dtype=np.float32).reshape(16, 256)
    expected = x.copy()
    for k in range(0, 256, 64):
        expected[:, 64:128] = expected[:, k : k + 64] + 1

    with sk.sanitize():
        written_meanwhile[1](x, x)

    np.testing.assert_array_equal(x, expected)


REFUSED = {
    "a step": (lambda n: sk.staged(range(0, 64, n), None), "step is a positive compile-time int"),
    "no range": (lambda n: sk.staged([1, 2], None), "a range is needed, got a list"),
    "no stage": (lambda n: sk.staged(range(0, n, 16), None, stages=0), "1 to 16 stages"),
    "tiles": (lambda n: sk.staged(range(0, n, 16), lambda k: sk.arange(0, 16)), "`loads` returns parts of arrays"),
}


@sk.jit
def misused(n, LOOP: sk.constexpr):
    sk.arange(0, 32)
    for part in LOOP(n):
        sk.reduce_sum(part)


@pytest.mark.parametrize(("loop", "words"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_in_words(loop, words) -> None:
    with pytest.raises(sk.StagekitError, match=re.escape(words)):
        misused.specialize(n=sk.int64, LOOP=loop).trace()


def test_a_round_has_one_barrier_and_copies_no_register() -> None:
    matrix = sk.Tensor((None, None), sk.bfloat16, strides=(None, 1))
    out = sk.Tensor((None, None), sk.float32, strides=(None, 1))
    kernel = product.specialize(a=matrix, b=matrix, out=out, M=64, N=64, K=32, STAGES=3, THREADS=128)

    text = ptxas.disassemble(ptxas.assemble(kernel.ptx).cubin)
    ops = Counter(re.findall(r"\b(?:BAR\.SYNC|LDGSTS|LDSM|HMMA|LDG|STL|STS|LDS)\b(?!\s+RZ)", text))

    assert ops["HMMA"] == 64 * 64 * 32 // (16 * 8 * 16 * 4)
    assert ops["LDSM"] == 2 * 2 * 2 * 2 // 2
    assert (ops["BAR.SYNC"], ops["LDG"], ops["STL"], ops["STS"], ops["LDS"]) == (2, 0, 0, 0, 0)
