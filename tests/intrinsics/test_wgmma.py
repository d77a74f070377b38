"""Products of warpgroups: every dtype and width, to the bit; each planted fault is found under its name."""

from __future__ import annotations

import contextlib
import re
from typing import Annotated

import ml_dtypes
import numpy as np
import pytest

import stagekit as sk
from stagekit.backends import ptxas
from stagekit.intrinsics.wgmma import ATOM_BYTES, COLUMNS, FACTORS, PAIRS, descriptor
from tests import places

SOME = [8, 96, 256]  # of the widths
OF_NUMPY = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "int8": np.int8,
    "uint8": np.uint8,
}


@sk.inline
def fill(panels, source, t, threads, columns):
    """Copy a matrix of that many columns to panels, in their order of chunks."""
    per_row, per_chunk = 128 // source.dtype.itemsize, 16 // source.dtype.itemsize
    rows = len(source) // columns
    for i in range(t, len(source), threads):
        r, panel, c = i // columns, i % columns // per_row, i % per_row
        place = ((c // per_chunk) ^ (r & 7)) * per_chunk + c % per_chunk
        panels[(panel * rows + r) * per_row + place] = source[i]


@sk.inline
def words_of(A, row, step):
    """The four words of a thread of A, from the step's 32 bytes of each row: of this row and of the one 8 below."""
    size, unsigned = A.dtype.itemsize, getattr(sk, f"uint{A.dtype.bits}")
    words = []
    for w in sk.static_range(4):
        first = (row + w % 2 * 8) * (128 // size) + (32 * step + w // 2 * 16 + sk.lane_id() % 4 * 4) // size
        word = sk.uint32(0)
        for i in sk.static_range(4 // size):
            word = word | sk.uint32(A[first + i].view(unsigned)) << (A.dtype.bits * i)
        words.append(word)
    return words


@sk.jit
def multiplied(
    A,
    B,
    out,
    n: sk.constexpr,
    turned: sk.constexpr,
    rounds: sk.constexpr,
    fault: sk.constexpr,
    rs: sk.constexpr = False,
):
    """out = rounds * A @ B, by one warpgroup: A is 64 by K and B n by K, of 128 bytes, or both turned. rs: A from registers."""
    cuda = sk.cuda
    t, per_row = cuda.thread_idx("x"), 128 // A.dtype.itemsize
    step, depth = 32 // A.dtype.itemsize, 64
    align = 128 if fault == "no room for panels" else 1024
    a = sk.alloc_shared((64 * per_row,), A.dtype, align=align)
    b = sk.alloc_shared((n * per_row - 8 * (fault == "too small"),), B.dtype, align=align)
    multiply, settle = getattr(cuda, f"wgmma_{'rs_' * rs}m64n{n}"), getattr(cuda, f"wgmma_wait_m64n{n}")
    sums = [sk.int32(0) if A.dtype.is_integer else sk.float32(0)] * (n // 2)
    for _ in sk.static_range(rounds):
        if fault != "no barrier behind the product":
            sk.syncthreads()
        fill(a, A, t, 128, per_row)
        fill(b, B, t, 128, n if turned else per_row) if fault != "too small" else None
        if fault != "no proxy fence":
            cuda.fence_proxy_async()
        if fault != "no barrier":
            sk.syncthreads()
        if fault == "half a warpgroup" and t >= 64:
            continue
        words = [words_of(A, t // 32 * 16 + t % 32 // 4, s) for s in range(4)] if rs else None
        if fault != "no fence":
            cuda.wgmma_fence()
        for s in sk.static_range(4):
            along_a, along_b = (s * 16 * depth if each else s * step for each in (turned, turned))
            more = 16 if fault == "begins between rows" else t // 64 * 64 * 8 if fault == "other factors" else 0
            is_moved = s % 2  # by offsets, which is the same as by pointers
            one, other = (a + more, b) if is_moved else (a + along_a + more, b + along_b)
            if fault == "sums in another order":
                sums = [*sums[1:], sums[0]]
            kept = {"trans_a": turned, "trans_b": turned, "panel_b": depth * 128 if turned and n > 64 else 0}
            if is_moved:
                kept |= {"offset_a": along_a * A.dtype.itemsize, "offset_b": along_b * A.dtype.itemsize}
            if rs:
                kept = {name: value for name, value in kept.items() if name[-1] == "b"}
            sums = list(multiply(*(words[s] if rs else [one]), other, *sums, **kept))
        if fault != "no commit":
            cuda.wgmma_commit()
        if fault == "looked at too early":
            sums = [sums[0] + 1, *sums[1:]]
        if fault != "no wait":
            sums = list(settle(*sums, pending=1 if fault == "one pending" else 0))
    w, lane = t // 32, t % 32
    for j in sk.static_range(n // 8):
        for h in sk.static_range(2):
            for e in sk.static_range(2):
                out[16 * w + lane // 4 + 8 * h, 8 * j + 2 * (lane % 4) + e] = sums[4 * j + 2 * h + e]


def run(place, n, a_dtype, b_dtype, turned=False, rounds=1, rs=False):
    r = np.random.default_rng(n)
    low = 0 if a_dtype == "uint8" or b_dtype == "uint8" else -4
    k = 128 // np.dtype(OF_NUMPY[a_dtype]).itemsize
    a, b = r.integers(low, 5, (64, k)).astype(OF_NUMPY[a_dtype]), r.integers(low, 5, (n, k)).astype(OF_NUMPY[b_dtype])
    total = np.int32 if "int" in a_dtype else np.float32
    by_columns = (turned and not rs, turned)
    given = [np.ascontiguousarray(x.T if is_turned else x).reshape(-1) for x, is_turned in zip((a, b), by_columns)]
    with sk.sanitize() if place == "sanitizer" else contextlib.nullcontext():
        where = places.on_gpu if place == "gpu" else places.on_cpu
        arrays = [*given, np.full((64, n), -1, total)]
        *_, out = places.run(where, multiplied[1, 128], arrays, n, turned, rounds, "", rs)
    np.testing.assert_array_equal(out, rounds * (a.astype(total) @ b.astype(total).T))


@pytest.mark.parametrize(("a", "b"), PAIRS, ids=lambda dtype: dtype.name)
def test_a_product_of_every_dtype(a, b):
    run("sanitizer", 8, a.name, b.name, rounds=1 + (a is b))


@pytest.mark.gpu
@pytest.mark.parametrize(("a", "b"), PAIRS, ids=lambda dtype: dtype.name)
def test_a_product_of_every_dtype_on_a_gpu(a, b):
    run("gpu", 16, a.name, b.name, rounds=2)


@pytest.mark.parametrize("columns", SOME)
def test_a_product_of_some_widths(columns):
    run("sanitizer", columns, "bfloat16", "bfloat16")


@pytest.mark.parametrize("place", ["sanitizer", pytest.param("gpu", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", FACTORS, ids=lambda dtype: dtype.name)
def test_a_left_factor_from_registers(dtype, place):
    run(place, 16, dtype.name, dtype.name, rounds=2, rs=True)
    if dtype.itemsize == 2:
        run(place, 128, dtype.name, dtype.name, turned=True, rs=True)


@pytest.mark.gpu
@pytest.mark.parametrize("columns", COLUMNS)
def test_a_product_of_every_width_on_a_gpu(columns):
    run("gpu", columns, "bfloat16", "bfloat16")


@pytest.mark.parametrize("place", ["sanitizer", pytest.param("gpu", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("columns", [64, 128])
def test_factors_that_lie_along_m_and_n(place, columns):
    run(place, columns, "float16", "float16", turned=True)


def test_sums_wrap_and_factors_lose_what_tf32_has_not():
    a, b = np.full(64 * 128, 127, np.int8), np.full(8 * 128, 127, np.int8)
    with sk.sanitize():
        _, _, out = places.run(places.on_cpu, multiplied[1, 128], [a, b, np.zeros((64, 8), np.int32)], 8, False, 3, "")
    np.testing.assert_array_equal(out, 3 * 128 * 127 * 127)

    x, y = np.full(64 * 32, 1 + 2**-11, np.float32), np.ones(8 * 32, np.float32)
    with sk.sanitize():
        _, _, out = places.run(
            places.on_cpu, multiplied[1, 128], [x, y, np.zeros((64, 8), np.float32)], 8, False, 1, ""
        )
    np.testing.assert_array_equal(out, 32)


FAULTS = {
    "no fence": {"PRODUCT_MISUSED"},
    "no proxy fence": {"PROXY_FENCE_MISSING"},
    "no barrier": {"BLOCK_RACE", "UNINITIALISED_READ", "PROXY_FENCE_MISSING"},
    "no barrier behind the product": {"PRODUCT_UNDER_WAY", "BLOCK_RACE"},
    "half a warpgroup": {"PRODUCT_MISUSED"},
    "other factors": {"PRODUCT_MISUSED"},
    "begins between rows": {"PRODUCT_MISUSED"},
    "no room for panels": {"PRODUCT_MISUSED"},
    "too small": {"PRODUCT_MISUSED", "UNINITIALISED_READ"},
    "sums in another order": {"PRODUCT_MISUSED"},
    "looked at too early": {"SUMS_NOT_THERE"},
    "no commit": {"PRODUCT_UNDER_WAY"},
    "no wait": {"PRODUCT_UNDER_WAY"},
    "one pending": {"PRODUCT_UNDER_WAY", "SUMS_NOT_THERE"},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_product_is_found(fault):
    a, b = np.ones(64 * 64, np.float16), np.ones(8 * 64, np.float16)
    watch = sk.sanitize(multiplied, collect=True)

    watch[1, 128](a, b, np.zeros((64, 8), np.float32), 8, False, 2, fault)

    assert watch.report.findings[0].id in FAULTS[fault]


def test_a_block_that_ends_before_its_product_is_found():
    a, b = np.ones(64 * 64, np.float16), np.ones(8 * 64, np.float16)
    watch = sk.sanitize(multiplied, collect=True)

    watch[1, 128](a, b, np.zeros((64, 8), np.float32), 8, False, 1, "no wait")

    assert {each.id for each in watch.report.findings} == {"SUMS_NOT_THERE", "PRODUCT_LEFT_BEHIND"}


# -- what ptxas and other targets say -------------------------------------------------------------------------------------


def kernel_of(dtype, columns, *, turned=False, other=None, rs=False):
    flat, total = sk.Tensor((None,), dtype), sk.int32 if dtype.is_integer else sk.float32
    right, out = sk.Tensor((None,), other or dtype), sk.Tensor((64, columns), total)
    return multiplied.specialize(A=flat, B=right, out=out, n=columns, turned=turned, rounds=1, fault="", rs=rs)


@pytest.mark.parametrize("columns", COLUMNS)
def test_products_are_assembled_as_they_are(columns):
    """Where registers of a product are looked at under way, ptxas lets each wait for the last: C7510 and its neighbours."""
    pairs = {8: PAIRS, 256: [(sk.bfloat16,) * 2, (sk.int8,) * 2]}.get(columns, [(sk.float16,) * 2])
    for dtype, other in pairs:
        for rs in {False, dtype is other}:
            ptx = kernel_of(dtype, columns, turned=dtype.itemsize == 2 and columns % 64 == 0, other=other, rs=rs).ptx
            found = ptxas.assemble(ptx)
            assert ".target sm_90a" in ptx
            assert (found.resources.spill_store_bytes, found.warnings) == (0, ())


@pytest.mark.parametrize(("capability", "text"), [(80, "9.0"), (100, "9.0 and no other"), (120, "9.0 and no other")])
def test_other_gpus_are_refused(capability, text):
    with pytest.raises(sk.StagekitError, match=f"needs compute capability {text}, this kernel is for"):
        kernel_of(sk.float16, 8).compile("cuda", capability=capability)


def test_the_cpu_says_why_it_refuses():
    with pytest.raises(sk.StagekitError, match="UNSUPPORTED_ON_TARGET"):
        kernel_of(sk.float16, 8)[1, 128](*[np.ones(64 * 64, np.float16)] * 2, np.zeros((64, 8), np.float32))


@pytest.mark.parametrize(
    ("dtype", "given", "text"),
    [
        (sk.float32, {"trans_b": True}, "`trans_b` is for 16 bits; float32 lies along K"),
        (sk.int8, {"trans_a": True}, "`trans_a` is for 16 bits; int8 lies along K"),
        (sk.float16, {"trans_b": True}, "`panel_b` says how far the next panel is: a row of one has 64 elements"),
        (
            sk.float16,
            {"trans_b": True, "panel_b": 1000},
            "`panel_b` is 1000, and panels begin at multiples of 1024 bytes",
        ),
        (sk.float16, {"panel_a": -1024}, "`panel_a` is -1024"),
        (sk.float16, {"offset_b": 8}, "`offset_b` is 8, and factors begin at multiples of 16 bytes"),
        (sk.float16, {"offset_a": -32}, "`offset_a` is -32"),
    ],
)
def test_what_no_product_can_do_is_refused_while_specialising(dtype, given, text):
    @sk.jit
    def kernel(A: Annotated[sk.Array, sk.Tensor((None,), dtype)]):
        a = sk.alloc_shared((1 << 13,), A.dtype, align=1024)
        zero = sk.int32(0) if A.dtype.is_integer else sk.float32(0)
        sk.cuda.wgmma_m64n128(a, a, *[zero] * 64, **given)

    with pytest.raises(sk.StagekitError, match=re.escape(text)):
        _ = kernel.specialize().ir


def test_descriptors():
    """By hand, as PTX's page lays out: address, leading offset, stride offset, order of chunks."""
    assert descriptor(0x400, is_turned=False, panel_bytes=0) == 0x4000004000010040
    assert descriptor(0x1000400, is_turned=True, panel_bytes=8 * ATOM_BYTES) == 0x4000004002000040
