"""Products of tiles: exact where numbers are, on every target and in the oracle; and the machine code of one."""

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
from stagekit.lib.layout import enumerated
from stagekit.lib.products import of_product
from tests.lib.test_axes import each_place, run


@sk.jit(threads="THREADS")
def product(A, B, C, M: sk.constexpr, N: sk.constexpr, K: sk.constexpr, OF: sk.constexpr, THREADS: sk.constexpr):
    row, column = sk.program_id(0) * M, sk.program_id(1) * N
    acc = sk.zeros((M, N), OF)
    for k in range(0, A.shape[1], K):
        acc = sk.dot(sk.load(A.tile((row, k), (M, K))), sk.load(B.tile((k, column), (K, N))), acc)
    sk.store(C.tile((row, column), (M, N)), acc + sk.arange(0, N))


DTYPES = {
    np.float32: sk.float32,
    np.float16: sk.float32,
    ml_dtypes.bfloat16: sk.float32,
    np.float64: sk.float64,
    ml_dtypes.float8_e4m3fn: sk.float32,
    ml_dtypes.float8_e5m2: sk.float32,
    np.int8: sk.int32,
    np.uint32: sk.uint32,
}


@each_place
@settings(max_examples=6, deadline=None)
@given(
    *[st.sampled_from([1, 4, 12, 16, 33])] * 2,
    st.sampled_from([1, 5, 8]),
    *[st.integers(1, 40)] * 3,
    st.sampled_from([*DTYPES]),
    st.sampled_from([1, 16, 32, 64, 96]),
)
def test_products_are_numpys(place, M, N, K, m, n, k, dtype, threads) -> None:
    rng = np.random.default_rng(m)
    a, b = (rng.integers(0, 9, shape).astype(dtype) for shape in ((m, k), (k, n)))
    of = DTYPES[dtype]

    *_, c = run(place, product, (-(-m // M), -(-n // N)), [a, b, np.zeros((m, n), of.numpy)], M, N, K, of, threads)

    np.testing.assert_array_equal(c, a.astype(np.float64) @ b.astype(np.float64) + np.arange(n) % N)


@sk.jit
def chained(x, out, M: sk.constexpr):
    """A product of what came from a product, turned, scaled by rows, and of a tile that is not held."""
    i, j = sk.arange(0, M)[:, None], sk.arange(0, M)
    v = sk.load(x + i * M + j)
    s = sk.dot(v.T, v)
    p = s - sk.reduce_max(s, axis=1)[:, None]
    sk.store(out + i * M + j, sk.dot(p, v) + sk.dot(sk.full((M, 3), 2, sk.float32), sk.zeros((3, M), sk.float32) + 1))


@each_place
@pytest.mark.parametrize("size", [8, 20, 32])
def test_products_go_into_other_operations_and_products(place, size) -> None:
    x = np.random.default_rng(size).integers(-2, 3, (size, size)).astype(np.float32)

    _, out = run(place, chained, (1,), [x, np.zeros_like(x)], size)

    s = x.T @ x
    np.testing.assert_array_equal(out, (s - s.max(1, keepdims=True)) @ x + 6)


@sk.jit(threads="THREADS")
def attention_like(q, k, v, out, M: sk.constexpr, N: sk.constexpr, D: sk.constexpr, n, THREADS: sk.constexpr):
    """Rows of a product that are reduced, and multiplied again, where they are; factors that stay in shared memory."""
    x = sk.shared(sk.load(q.tile((0, 0), (M, D))))
    total, largest = sk.zeros((M, D), out.dtype), sk.full(M, -1000.0, out.dtype)
    for start in range(0, n, N):
        y, z = sk.shared(sk.load(k.tile((start, 0), (N, D)))), sk.load(v.tile((start, 0), (N, D)))
        scores = sk.dot(x, y.T, whole_rows=True)
        largest = sk.maximum(largest, sk.reduce_max(scores, axis=1))
        total = sk.dot((scores - sk.reduce_sum(scores, axis=1)[:, None]).to(q.dtype), z, total) + largest[:, None]
    sk.store(out.tile((0, 0), (M, D)), total)


@each_place
@pytest.mark.parametrize(("M", "N", "D", "threads", "dtype"), [
    (64, 32, 16, 128, ml_dtypes.bfloat16), (32, 48, 32, 32, ml_dtypes.bfloat16),
    (64, 32, 16, 128, np.float16), (48, 16, 24, 96, np.float32),
    (32, 32, 80, 32, np.float32), (20, 12, 33, 32, np.float32), (64, 32, 16, 128, np.float64),
])  # fmt: skip
def test_rows_of_a_product_are_multiplied_where_they_are(place, M, N, D, threads, dtype) -> None:
    rng = np.random.default_rng(M)
    q, k, v = (rng.integers(-1, 2, (rows, D)).astype(dtype) for rows in (M, 2 * N, 2 * N))
    rows = np.arange(M) % 2 == 0  # of the others the scores are small, so that all sums are exact in 8 bits
    q[~rows] = 0
    q[rows, 3:] = 0
    expected, largest = np.zeros((M, D)), np.full(M, -1000.0)
    for start in (0, N):
        y, z = (each[start : start + N].astype(np.float64) for each in (k, v))
        scores = q.astype(np.float64) @ y.T
        largest = np.maximum(largest, scores.max(axis=1))
        expected = (scores - scores.sum(axis=1, keepdims=True)) @ z + expected + largest[:, None]

    of = np.zeros((M, D), DTYPES[dtype].numpy)
    *_, out = run(place, attention_like, (1,), [q, k, v, of], M, N, D, 2 * N, threads)

    np.testing.assert_array_equal(out, expected)


def test_what_a_warp_needs_of_its_rows_is_in_its_registers() -> None:
    matrix = sk.Tensor((None, None), sk.bfloat16, strides=(None, 1))
    kernel = attention_like.specialize(
        q=matrix, k=matrix, v=matrix, out=sk.Tensor((None, None), sk.float32, strides=(None, 1)),
        M=64, N=64, D=64, n=sk.int32, THREADS=128,
    )  # fmt: skip
    code = ptxas.disassemble(ptxas.assemble(kernel.ptx).cubin)

    assert len(re.findall(r"\bHMMA\b", code)) == 2 * 4 * 8  # of each product 16 rows by 64 by 64 for a warp
    assert len(re.findall(r"\bLDS\b", code)) <= 4  # the first largest numbers come as memory has them


REFUSED = {
    "shapes": (lambda a, b: sk.dot(a, a), "BAD_SHAPE", "shapes (4, 8) and (4, 8)"),
    "axes": (lambda a, b: sk.dot(a[None], b), "BAD_SHAPE", "(M, K) and (K, N)"),
    "dtypes": (lambda a, b: sk.dot(a, b.to(sk.float16)), "STATIC_ASSERTION", "dot of float32 and float16"),
    "bool": (lambda a, b: sk.dot(a > 0, b > 0), "STATIC_ASSERTION", "dot of bool and bool"),
    "acc": (lambda a, b: sk.dot(a, b, sk.zeros((4, 4), sk.float64)), "BAD_SHAPE", "`sk.zeros((4, 4), sk.float32)`"),
    "precision": (lambda a, b: sk.dot(a, b, precision="tf64"), "STATIC_ASSERTION", "'ieee', 'tf32', 'tf32x3'"),
    "precision of integers": (
        lambda a, b: sk.dot(*[x.to(sk.int8) for x in (a, b)], precision="tf32"),
        "STATIC_ASSERTION",
        "dot of int8 with precision='tf32'",
    ),
    "a number": (lambda a, b: sk.dot(a, 2), "STATIC_ASSERTION", "dot takes two tiles"),
}


@sk.jit
def misused(PROGRAM: sk.constexpr):
    PROGRAM(sk.zeros((4, 8), sk.float32), sk.zeros((8, 4), sk.float32))


@pytest.mark.parametrize(("program", "name", "hint"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_in_words(program, name, hint) -> None:
    with pytest.raises(sk.StagekitError) as caught:
        misused.specialize(PROGRAM=program).trace()

    assert caught.value.id == name
    assert hint in str(caught.value)


@settings(max_examples=40, deadline=None)
@given(
    *[st.integers(1, 130)] * 2, st.sampled_from([1, 7, 32, 96, 128, 256]), st.sampled_from([1, 2, 4, 8]), st.booleans()
)
def test_a_thread_holds_a_block_of_a_product(rows, columns, threads, most, is_apart) -> None:
    layout = of_product((rows, columns), threads, most, is_apart=is_apart)
    held = enumerated(layout)

    assert sorted(held[held >= 0]) == [*range(rows * columns)]
    for of_thread in held:
        index = of_thread[of_thread >= 0]
        assert len(set(index // columns)) * len(set(index % columns)) == len(index)


def test_a_product_of_float32_is_multiplications_and_wide_accesses() -> None:
    matrix = sk.Tensor((None, None), sk.float32, strides=(None, 1))
    fixed = {"M": 128, "N": 128, "K": 8, "OF": sk.float32, "THREADS": 256}
    assembled = ptxas.assemble(product.specialize(A=matrix, B=matrix, C=matrix, **fixed).ptx)
    ops = Counter(re.findall(r"\b(?:FFMA|LD[GSL]|ST[GL])\b[.\w]*", ptxas.disassemble(assembled.cubin)))

    assert ops == {"FFMA": 512, "LDS.128": 32, "LDG.E.128": 2, "STG.E.128": 16}
