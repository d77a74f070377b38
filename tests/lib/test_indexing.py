"""What stands in the brackets of a tile is NumPy's, and so are tiles turned round, put together and taken apart."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.backends import ptxas
from tests.lib.test_axes import each_place, run

extents = st.sampled_from([1, 2, 3, 8, 16, 33, 64])
bounds = st.none() | st.integers(-70, 70)
steps = st.none() | st.sampled_from([-33, -2, -1, 1, 2, 3])


@sk.jit
def cut(x, out, weak, row, column, i, M: sk.constexpr, N: sk.constexpr, A: sk.constexpr, B: sk.constexpr):
    """A tile that holds something, and a weak one with its mask, taken apart in the same way; a row and a column."""
    at = sk.arange(0, M)[:, None] * N + sk.arange(0, N)
    v = sk.load(x + at)
    taken = v[A[0] : A[1] : A[2], B[0] : B[1] : B[2]]
    place = sk.arange(0, taken.extent).reshape(taken.shape)
    sk.store(out + place, taken)
    few = (at < i)[A[0] : A[1] : A[2], B[0] : B[1] : B[2]]
    sk.store(weak + place, at[A[0] : A[1] : A[2], B[0] : B[1] : B[2]], mask=few)
    sk.store(row + sk.arange(0, N), v[i // N])
    sk.store(column + sk.arange(0, M), v[..., i % N] + v[None, :, -1].reshape(M))


@each_place
@settings(max_examples=12, deadline=None)
@given(extents, extents, st.tuples(bounds, bounds, steps), st.tuples(bounds, bounds, steps), st.data())
def test_slices_are_numpys(place, M, N, A, B, data) -> None:
    rows, columns = slice(*A), slice(*B)
    x = np.random.default_rng(M).integers(-99, 99, (M, N)).astype(np.int16)
    wanted = x[rows, columns]
    if not wanted.size:
        return
    i = data.draw(st.integers(0, M * N - 1))
    at = np.arange(M * N).reshape(M, N)[rows, columns]
    arrays = [x, np.zeros_like(wanted), np.full(wanted.shape, -1), np.zeros(N, np.int16), np.zeros(M, np.int16)]

    _, out, weak, row, column = run(place, cut, (1,), arrays, i, M, N, A, B)

    np.testing.assert_array_equal(out, wanted)
    np.testing.assert_array_equal(weak, np.where(at < i, at, -1))
    np.testing.assert_array_equal(row, x[i // N])
    np.testing.assert_array_equal(column, x[:, i % N] + x[:, -1])


@sk.jit
def turned(x, out, joined, halves, N: sk.constexpr, M: sk.constexpr):
    i = sk.arange(0, M)[:, None] * N + sk.arange(0, N)
    size = M * N
    v = sk.load(x + i)
    sk.store(out + i, sk.flip(v))
    sk.store(out + size + i, sk.flip(v, 0))
    sk.store(out + 2 * size + i, sk.flip(v, axis=-1) + sk.flip(i).to(v.dtype))
    pairs = sk.join(v, v[:1] * 2)
    sk.store(joined + sk.arange(0, 2 * size).reshape(M, N, 2), pairs)
    first, second = sk.split(pairs)
    third, fourth = sk.split(sk.load(joined + sk.arange(0, 2 * size)).reshape(size, 2))
    sk.store(halves + i, first - second)
    sk.store(halves + size + sk.arange(0, size), third - fourth)
    even, odd = sk.split(sk.arange(0, 2 * size).reshape(-1, 2))
    sk.store(halves + 2 * size + sk.arange(0, size), (odd * 2 - even).to(v.dtype))


@each_place
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float16], ids=lambda d: np.dtype(d).name)
@settings(max_examples=6, deadline=None)
@given(st.sampled_from([1, 2, 3, 16, 128]), extents)
def test_tiles_are_turned_round_put_together_and_taken_apart(place, dtype, M, N) -> None:
    x = np.random.default_rng(M).integers(-20, 20, (M, N)).astype(dtype)
    arrays = [np.zeros((3, M, N), dtype), np.zeros((M, N, 2), dtype), np.zeros((3, M, N), dtype)]

    _, out, joined, halves = run(place, turned, (1,), [x, *arrays], N, M)

    pairs = np.stack(np.broadcast_arrays(x, x[:1] * 2), axis=-1).astype(dtype)
    at = np.arange(M * N).reshape(M, N)
    np.testing.assert_array_equal(out[:2], [np.flip(x), np.flip(x, 0)])
    np.testing.assert_array_equal(out[2], (np.flip(x, 1) + np.flip(at).astype(dtype)).astype(dtype))
    np.testing.assert_array_equal(joined, pairs)
    np.testing.assert_array_equal(halves[:2], [(pairs[..., 0] - pairs[..., 1]).astype(dtype)] * 2)
    np.testing.assert_array_equal(halves[2], (2 * at + 2).astype(dtype))


@sk.jit
def pointers(x, out, N: sk.constexpr):
    """A tile of pointers that follow from loaded numbers is cut, too; new axes beside integers."""
    i = sk.arange(0, N)
    table = x + sk.load(x + i)
    sk.store(out + i, sk.load(table[::-1]))
    sk.store(out + N + sk.arange(0, 1)[:, None], (sk.load(table) * 2)[None, -1, None])


@each_place
@pytest.mark.parametrize("N", [1, 5, 64, 300])
def test_pointers_are_cut(place, N) -> None:
    x = np.random.default_rng(N).permutation(N).astype(np.int32)
    _, out = run(place, pointers, (1,), [x, np.zeros(N + 1, np.int32)], N)
    np.testing.assert_array_equal(out, [*x[x][::-1], 2 * x[x[-1]]])


@sk.jit
def complex_product(x, y, out, BLOCK: sk.constexpr):
    i = sk.program_id(0) * 2 * BLOCK + sk.arange(0, 2 * BLOCK)
    (a, b), (c, d) = [sk.split(sk.load(p + i).reshape(-1, 2)) for p in (x, y)]
    sk.store(out + i, sk.join(a * c - b * d, a * d + b * c).reshape(-1))


def test_pairs_of_neighbours_stay_in_their_threads() -> None:
    like = sk.Tensor((4096,), sk.float32)
    code = ptxas.assemble(complex_product.specialize(x=like, y=like, out=like, BLOCK=1024).ptx)
    text = ptxas.disassemble(code.cubin)

    assert re.findall(r"\b(?:LDS|STS|BAR)\b", text) == []
    assert len(re.findall(r"LDG.E.128|STG.E.128", text)) == 3 * 4  # 16 floats of a thread


@pytest.mark.parametrize(("use", "text"), [
    (lambda v, n: v[n:], "start, stop and step are compile-time ints"),
    (lambda v, n: v[::0], "step is not 0"),
    (lambda v, n: v[4:4], "takes nothing"),
    (lambda v, n: v[9], "index 9 is outside axis 0 of a tile of shape"),
    (lambda v, n: v[..., ...], "`...` once"),
    (lambda v, n: v[0, 0, 0], "an index of 3 for a tile of shape"),
    (lambda v, n: v[v > 2], "cannot be indexed so"),
    (lambda v, n: v[None, None, None], "that gives 5 axes"),
    (lambda v, n: sk.join(v, v.to(sk.int32)), "join of float32 and int32"),
    (lambda v, n: sk.join(v[:, :, None, None], v), "at most 4 axes"),
    (lambda v, n: sk.split(v), "split of a tile of shape"),
    (lambda v, n: sk.flip(v, 2), "flip along axis 2 of a tile of shape"),
    (lambda v, n: sk.flip(n), "flip takes a tile"),
])  # fmt: skip
def test_what_is_no_index_is_refused(use, text) -> None:
    @sk.jit
    def kernel(x, n):
        v = sk.load(x + sk.arange(0, 8)[:, None] * 8 + sk.arange(0, 8))
        use(v, n)

    with pytest.raises(sk.StagekitError, match=re.escape(text)):
        kernel[1](np.zeros(64, np.float32), 3)
