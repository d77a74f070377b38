"""Tiles of several axes: what they compute is NumPy's, everywhere, and what does not fit is refused in words."""

from __future__ import annotations

import contextlib
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.backends import ptxas
from stagekit.testing import run_in_python
from tests import places

each_place = pytest.mark.parametrize(
    "place", ["python", "cpu", "sanitizer", pytest.param("gpu", marks=pytest.mark.gpu)]
)
extents = st.sampled_from([1, 2, 3, 5, 8, 16, 24, 32, 33, 64, 100])


def run(place, kernel, grid, arrays, *arguments):
    """Launch on copies of `arrays` and return them. The sanitizer runs what a GPU does, with its vectors."""
    if place == "python":
        copies = [array.copy() for array in arrays]
        run_in_python(kernel, grid, *copies, *arguments)
        return copies
    with sk.sanitize() if place == "sanitizer" else contextlib.nullcontext():
        return places.run(places.on_gpu if place == "gpu" else places.on_cpu, kernel[grid], arrays, *arguments)


@sk.jit
def matrices(x, row, column, out, m, n, ld, M: sk.constexpr, N: sk.constexpr):
    """Pointers and masks of two axes; tiles of one axis meet those of two."""
    i, j = sk.program_id(0) * M + sk.arange(0, M), sk.arange(0, N)
    rows, cols = i[:, None], j[None, :]
    mask = (rows < m) & (cols < n)
    v = sk.load(x + rows * ld + cols, mask=mask, other=-1.0)
    r = sk.load(row + j, mask=j < n)
    c = sk.load(column + i, mask=i < m)
    sk.store(
        out + rows * ld + cols, sk.where(cols < rows, v * c[:, None] + r, sk.float32(rows * 1000 + cols)), mask=mask
    )


@each_place
@settings(max_examples=12, deadline=None)
@given(extents, extents, st.sampled_from([0, 4, 5]), st.data())
def test_pointers_masks_and_rows_of_two_axes(place, M, N, gap, data) -> None:
    m, n = data.draw(st.integers(1, 2 * M)), data.draw(st.integers(1, N))
    x = np.random.default_rng(M).normal(size=(m, N + gap)).astype(np.float32)
    row, column = x[0, :n].copy(), x[:, 0].copy()

    *_, out = run(place, matrices, (2,), [x, row, column, np.zeros_like(x)], m, n, N + gap, M, N)

    i, j = np.indices((m, n))
    expected = np.zeros_like(x)
    expected[:, :n] = np.where(j < i, x[:, :n] * column[:, None] + row, i * 1000 + j)
    np.testing.assert_array_equal(out, expected)


@sk.jit
def turned(x, out, flat, one, A: sk.constexpr, B: sk.constexpr, C: sk.constexpr):
    """Transposed, reshaped, looked at by one index; read along the axis that lies in memory first."""
    a, b, c = sk.arange(0, A)[:, None, None], sk.arange(0, B)[:, None], sk.arange(0, C)
    v = sk.load(x + a + (b + c * B) * A)
    w = v.trans(2, 1, 0) + sk.full((C, B, A), 1, v.dtype)
    sk.store(out + sk.arange(0, A * B * C).reshape(C, B, A), w)
    sk.store(flat + sk.arange(0, A * B * C), v.reshape((A * B, C)).T.reshape(-1))
    one[0] = v[A - 1, 0, -1] + w.T[0, B // 2, 0]
    one[1] = sk.reduce_sum(w) + sk.reduce_max(v) * sk.zeros((), sk.float32)


@each_place
@settings(max_examples=12, deadline=None)
@given(extents, st.sampled_from([1, 2, 3, 4, 8]), st.sampled_from([1, 2, 5, 16]))
def test_tiles_are_transposed_and_reshaped(place, A, B, C) -> None:
    x = np.random.default_rng(A).integers(0, 100, (C, B, A)).astype(np.float32)
    size = A * B * C

    _, out, flat, one = run(
        place, turned, (1,), [x, np.zeros_like(x), np.zeros(size, np.float32), np.zeros(2, np.float32)], A, B, C
    )

    np.testing.assert_array_equal(out, x + 1)
    np.testing.assert_array_equal(flat, x.T.reshape(A * B, C).T.reshape(-1))
    np.testing.assert_array_equal(one, [x[-1, 0, A - 1] + x[0, B // 2, 0] + 1, (x + 1).sum()])


@sk.jit
def carried(x, out, old, n, M: sk.constexpr, N: sk.constexpr):
    """A tile that goes round a loop in another layout than it begins with; atomics of two axes."""
    i, j = sk.arange(0, M)[:, None], sk.arange(0, N)[None, :]
    total, columns = sk.zeros((M, N), sk.int32), sk.zeros((N, M), sk.int32)
    for k in range(n):
        v = sk.load(x + i + j * M + k * M * N)
        columns += v.T
        if k % 2 == 0:
            total = total + v
        else:
            total = columns.T - total
    sk.store(out + i + j * M, total)
    sk.store(old + i * N + j, sk.atomic_add(out + M * N + i * N + j, total, mask=i < M - 1))


@each_place
@settings(max_examples=8, deadline=None)
@given(extents, st.sampled_from([1, 3, 8, 32]), st.integers(0, 4))
def test_tiles_of_two_axes_go_round_loops(place, M, N, n) -> None:
    x = np.random.default_rng(M).integers(-99, 99, (5, N, M)).astype(np.int32)
    start = np.arange(2 * M * N, dtype=np.int32)
    total, columns = np.zeros((2, N, M), np.int32)
    for k in range(n):
        columns = columns + x[k]
        total = total + x[k] if k % 2 == 0 else columns - total

    _, out, old = run(place, carried, (1,), [x, start, np.zeros((M, N), np.int32)], n, M, N)

    added, before = total.T.copy(), start[M * N :].reshape(M, N).copy()
    added[M - 1], before[M - 1] = 0, 0
    np.testing.assert_array_equal(out[: M * N].reshape(N, M), total)
    np.testing.assert_array_equal(out[M * N :].reshape(M, N), start[M * N :].reshape(M, N) + added)
    np.testing.assert_array_equal(old, before)


# -- along an axis ----------------------------------------------------------------------------------------------------------


def after(p, q):
    """Compose x -> a * x + b with another such map that comes after it: associative, not commutative."""
    return p[0] * q[0], p[1] * q[0] + q[1]


@sk.jit
def along(x, wholes, sums, scans, pairs, A: sk.constexpr, B: sk.constexpr, C: sk.constexpr, AXIS: sk.constexpr):
    a, b, c = sk.arange(0, A)[:, None, None], sk.arange(0, B)[:, None], sk.arange(0, C)
    at, size = (a * B + b) * C + c, A * B * C
    v = sk.load(x + at)
    first, second = sk.reduce((v, v + 1), after, axis=AXIS)
    kept = sk.arange(0, first.extent).reshape(first.shape)
    found = (
        first, second, sk.reduce_sum(v, AXIS), sk.reduce_max(v, axis=AXIS), sk.reduce_min(v, AXIS),
        sk.reduce((v, v), lambda p, q: (p[0] | q[0], p[1] & q[1]), identity=(0, -1), commutative=True, axis=AXIS)[0],
        sk.argmax(v, axis=AXIS), sk.argmin(v, axis=AXIS), sk.count_nonzero(v, AXIS), sk.any(v > 7, AXIS), sk.all(v > 0, AXIS),
    )  # fmt: skip
    for number, each in enumerate(found):
        sk.store(wholes + number * first.extent + kept, each)
    sk.store(scans + at, sk.cumsum(v, axis=AXIS))
    sk.store(scans + size + at, sk.scan(v, lambda p, q: p * 3 + q * 0 + q, reverse=True, axis=AXIS) * 0)
    one, two = sk.scan((v, v + 1), after, identity=(1, 0), axis=AXIS, reverse=True)
    sk.store(pairs + at, one)
    sk.store(pairs + size + at, two)
    sums[0], sums[1], sums[2] = sk.argmax(v), sk.reduce((v, v + 1), after)[1], sk.any(v == 3)
    sk.store(sums + 3 + sk.arange(0, size), sk.cumsum(v))


@each_place
@settings(max_examples=3, deadline=None)
@given(
    st.sampled_from([1, 2, 3, 8, 17]), st.sampled_from([1, 2, 5]), st.sampled_from([1, 3, 4, 32]), st.integers(-3, 2)
)
def test_reductions_and_scans_along_an_axis_are_numpys(place, A, B, C, axis) -> None:
    x = np.random.default_rng(A).integers(-3, 9, (A, B, C)).astype(np.int32)
    shape, size = np.delete(x.shape, axis), x.size
    arrays = [np.zeros((11, *shape), np.int32), np.zeros(3 + size, np.int32), *np.zeros((2, 2, A, B, C), np.int32)]

    _, wholes, sums, scans, pairs = run(place, along, (1,), [x, *arrays], A, B, C, axis)

    def composed(rows):
        """The composition of the maps up to each place along the first axis."""
        found = [(rows[0], rows[0] + 1)]
        for row in rows[1:]:
            found.append(after(found[-1], (row, row + 1)))
        return [np.array(each) for each in zip(*found)]

    first, second = composed(np.moveaxis(x, axis, 0))
    logical = [np.bitwise_or.reduce(x, axis), x.argmax(axis), x.argmin(axis), np.count_nonzero(x, axis)]
    expected = [
        first[-1],
        second[-1],
        x.sum(axis),
        x.max(axis),
        x.min(axis),
        *logical,
        (x > 7).any(axis),
        (x > 0).all(axis),
    ]
    for got, wanted in zip(wholes, expected, strict=True):
        np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(scans, [x.cumsum(axis), np.zeros_like(x)])
    backwards = [np.moveaxis(each[::-1], 0, axis) for each in composed(np.moveaxis(x, axis, 0)[::-1])]
    np.testing.assert_array_equal(pairs, backwards)
    flat = x.reshape(-1)
    np.testing.assert_array_equal(sums, [x.argmax(), composed(flat[:, None])[1][-1][0], (x == 3).any(), *flat.cumsum()])


@sk.jit
def softmax_of_rows(x, out, m, n, ROWS: sk.constexpr, N: sk.constexpr):
    i, j = sk.program_id(0) * ROWS + sk.arange(0, ROWS)[:, None], sk.arange(0, N)
    mask = (i < m) & (j < n)
    v = sk.load(x + i * n + j, mask=mask, other=-1000.0)
    e = sk.exp(v - sk.reduce_max(v, axis=1)[:, None])
    sk.store(out + i * n + j, e / sk.reduce_sum(e, axis=1)[:, None], mask=mask)


@sk.jit(threads="T")
def spread(x, out, A: sk.constexpr, B: sk.constexpr, N: sk.constexpr, AXIS: sk.constexpr, T: sk.constexpr):
    """What is left of a tile with an axis of extent 1 goes to a longer one."""
    i, j = sk.arange(0, A), sk.arange(0, B)
    found = sk.reduce_max(sk.load(x + i[:, None] * B + j[None, :]), axis=AXIS)
    last = found[:, None] if AXIS else found[None, :]
    sk.store(out + i[:, None] * N + sk.arange(0, N)[None, :], last if AXIS else last + sk.zeros((A, N), sk.float32))


@each_place
@pytest.mark.parametrize("T", [2, 32, 96])
@pytest.mark.parametrize(("A", "B", "AXIS"), [(1, 1, 1), (1, 2, 1), (1, 33, 1), (3, 1, 1), (1, 1, 0), (5, 1, 0)])
def test_what_is_left_of_one_row_is_the_same_in_every_thread(place, A, B, AXIS, T) -> None:
    x = np.arange(1, A * B + 1, dtype=np.float32).reshape(A, B)

    _, out = run(place, spread, (1,), [x, np.zeros((A, 7), np.float32)], A, B, 7, AXIS, T)

    np.testing.assert_array_equal(out, np.broadcast_to(x.max(axis=AXIS, keepdims=True), out.shape))


@each_place
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("rows", "n"), [(4, 1000), (16, 64), (3, 100)])
def test_rows_of_a_matrix_are_normalised_together(place, rows, n, dtype) -> None:
    x = np.random.default_rng(n).normal(size=(10, n)).astype(dtype)
    with np.errstate(all="ignore"):
        _, out = run(
            place, softmax_of_rows, (-(-10 // rows),), [x, np.zeros_like(x)], 10, n, rows, 1 << (n - 1).bit_length()
        )

    e = np.exp(x.astype(np.float64) - x.astype(np.float64).max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=2e-6 if dtype == np.float32 else 4e-3, atol=1e-6)


# -- parts of arrays ------------------------------------------------------------------------------------------------------------


@sk.jit
def copied_in_parts(x, out, M: sk.constexpr, N: sk.constexpr):
    """Parts that begin before an array and end past it, of arrays with any strides; atomics, and masks besides."""
    row, column = (sk.program_id(0) - 1) * M + 1, sk.program_id(1) * N - 2
    v = sk.load(x.tile((row, column), (M, N)), other=7)
    sk.store(out.T.tile((column, row), (N, M)), v.T, v.T < 8)
    sk.atomic_add(out.tile((row, column), (M, N)), v, mask=(v > 5) & (sk.arange(0, N) < 3))
    sk.store(x[0].tile(column, N), v[0, 0] * 0, mask=sk.arange(0, N) < 0)


@each_place
@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from([1, 4, 16, 33]), st.sampled_from([4, 8, 32]), st.integers(1, 40), st.integers(1, 70), st.booleans()
)
def test_parts_of_arrays_leave_out_what_is_not_there(place, M, N, m, n, is_turned) -> None:
    x = np.random.default_rng(m).integers(0, 9, (n, m) if is_turned else (m, n)).astype(np.int32)
    x = x.T if is_turned else x

    _, out = run(
        place, copied_in_parts, (-(-(m - 1) // M) + 1, -(-(n + 2) // N)), [x, np.zeros((m, n), np.int32)], M, N
    )

    is_added = (x > 5) & ((np.arange(n) + 2) % N < 3)
    np.testing.assert_array_equal(out, np.where(x < 8, x, 0) + np.where(is_added, x, 0))


@each_place
@pytest.mark.parametrize("start", [2**63 - 1, 2**63 - 3, -(2**63), 2**62])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_part_far_beyond_an_array_has_no_elements(place, start, is_known) -> None:
    @sk.jit
    def far(x, out, at: sk.int64):
        first = start if is_known else at
        v = sk.load(x.tile((first, 0), (4, 8)), other=7) + sk.load(x.tile((0, first), (4, 8)), other=7)
        sk.store(x.tile((first, 1), (4, 8)), v)
        sk.store(out.tile((0, 0), (4, 8)), v)

    x, out = run(place, far, (1,), [np.ones((4, 8), np.int32), np.zeros((4, 8), np.int32)], start)

    assert (out == 14).all()
    assert (x == 1).all()


# -- what does not fit ----------------------------------------------------------------------------------------------------

REFUSED = {
    "extents": (lambda p, i, x: x + sk.arange(0, 3), "BAD_SHAPE", "shapes (4, 8) and (3,)"),
    "mask": (lambda p, i, x: sk.load(p + i, mask=x > 0), "BAD_SHAPE", "shapes (4, 8) and (5,)"),
    "value": (lambda p, i, x: sk.store(p + sk.arange(0, 8), x), "BAD_SHAPE", "shapes (4, 8) and (8,)"),
    "reshape": (lambda p, i, x: x.reshape(5, 6), "BAD_SHAPE", "whose product is 32"),
    "reshape twice": (lambda p, i, x: x.reshape(-1, -1), "BAD_SHAPE", "whose product is 32"),
    "trans": (lambda p, i, x: x.trans(0, 0), "BAD_SHAPE", "give each axis once"),
    "trans by text": (lambda p, i, x: x.trans(0, "a"), "BAD_SHAPE", "give each axis once"),
    "trans by bools": (lambda p, i, x: x.trans(True, False), "BAD_SHAPE", "give each axis once"),
    "trans by numbers of one": (lambda p, i, x: x.trans(1.0, 0), "BAD_SHAPE", "give each axis once"),
    "product": (lambda p, i, x: x @ x, "BAD_OPERANDS", "`sk.dot(x, y)` of tiles"),
    "product in place": (lambda p, i, x: in_place(x), "BAD_OPERANDS", "`sk.dot(x, y)` of tiles"),
    "product with a number": (lambda p, i, x: 2 @ x, "BAD_OPERANDS", "`sk.dot(x, y)` of tiles"),
    "product of arrays": (lambda p, i, x: p @ p, "BAD_OPERANDS", "`sk.dot(x, y)` of tiles"),
    "part plus a number": (lambda p, i, x: p.tile(0, 4) + 1, "BAD_OPERANDS", "a part of an array is for memory"),
    "number minus a part": (lambda p, i, x: 1 - p.tile(0, 4), "BAD_OPERANDS", "a part of an array is for memory"),
    "tile plus a part": (lambda p, i, x: i + p.tile(0, 5), "BAD_OPERANDS", "a part of an array is for memory"),
    "minus a part": (lambda p, i, x: -p.tile(0, 4), "BAD_OPERANDS", "a part of an array is for memory"),
    "part equals": (lambda p, i, x: p.tile(0, 4) == 1, "BAD_OPERANDS", "a part of an array is for memory"),
    "part below": (lambda p, i, x: p.tile(0, 4) < 1.0, "BAD_OPERANDS", "a part of an array is for memory"),
    "truth of a part": (lambda p, i, x: 1 if p.tile(0, 4) else 2, "BAD_OPERANDS", "a part of an array is for memory"),
    "index of a part": (lambda p, i, x: p.tile(0, 4)[0], "BAD_INDEX", "a part of an array is for memory"),
    "offset beyond int64": (lambda p, i, x: sk.load(p.tile(2**63, 4)), "BAD_INDEX", "an int64"),
    "arange beyond int64": (lambda p, i, x: sk.arange(2**63 - 2, 2**63 + 2), "STATIC_ASSERTION", "goes beyond int64"),
    "axes": (lambda p, i, x: x[:, :, :], "BAD_INDEX", "it has one for each axis at most"),
    "too many axes": (lambda p, i, x: x[None, None, None], "BAD_SHAPE", "at most 4"),
    "a slice": (lambda p, i, x: x[0 : i[1], :], "BAD_INDEX", "compile-time ints"),
    "outside": (lambda p, i, x: x[4, 0], "BAD_INDEX", "index 4 is outside axis 0"),
    "by a float": (lambda p, i, x: x[0.5, 0], "BAD_INDEX", "an integer for each axis"),
    "sort": (lambda p, i, x: sk.sort(x), "BAD_SHAPE", "sort of a tile of shape (4, 8)"),
    "gather": (lambda p, i, x: sk.gather(x, 3), "BAD_SHAPE", "`x.reshape(-1)`"),
    "histogram": (lambda p, i, x: sk.histogram(x, 3), "BAD_SHAPE", "`x.reshape(-1)`"),
    "zeros": (lambda p, i, x: sk.zeros((4, 0), sk.int32), "BAD_SHAPE", "each extent is at least 1"),
    "five axes": (lambda p, i, x: sk.zeros((1,) * 5, sk.int32), "STATIC_ASSERTION", "a tuple of up to 4"),
    "axis": (lambda p, i, x: sk.reduce_sum(x, axis=2), "BAD_SHAPE", "here from -2 to 1"),
    "axis of a scan": (lambda p, i, x: sk.cumsum(x, axis=True), "BAD_SHAPE", "cumsum along axis True"),
    "two shapes": (lambda p, i, x: sk.reduce((x, i), after), "BAD_SHAPE", "reduce of tiles of shapes (4, 8) and (5,)"),
    "part": (lambda p, i, x: sk.load(p.tile((0, 0), (4, 8))), "BAD_SHAPE", "of an array of 1 axes"),
    "offset of a part": (lambda p, i, x: sk.load(p.tile(0.5, 4)), "BAD_INDEX", "must be an integer"),
    "part as a number": (lambda p, i, x: sk.exp(p.tile(0, 4)), "STATIC_ASSERTION", "a part of an array is for memory"),
    "paths": (lambda p, i, x: (x if p[0] > 0 else x.T) + 1, "JOIN_MISMATCH", ""),
}


def in_place(x):
    x @= x


@sk.jit
def misused(p, PROGRAM: sk.constexpr):
    PROGRAM(p, sk.arange(0, 5), sk.zeros((4, 8), sk.int32) + sk.arange(0, 8))


@pytest.mark.parametrize(("program", "name", "hint"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_in_words(program, name, hint) -> None:
    with pytest.raises(sk.StagekitError) as caught:
        misused.specialize(p=sk.Tensor((None,), sk.int32), PROGRAM=program).trace()

    assert caught.value.id == name
    assert hint in str(caught.value)


# -- machine code -----------------------------------------------------------------------------------------------------------


@sk.jit(threads=128)
def copied(x: sk.Tensor((None,), sk.float32), out: sk.Tensor((None,), sk.float32), n, ld, TURNED: sk.constexpr):
    i, j = sk.arange(0, 64)[:, None], sk.arange(0, 64)[None, :]
    v = sk.load(x + i * ld + j, mask=(i < n) & (j < n))
    if TURNED:
        sk.store(out + i + j * ld, v, mask=(i < n) & (j < n))
    else:
        sk.store(out + i * ld + j, v, mask=(i < n) & (j < n))


@pytest.mark.parametrize("is_turned", [False, True])
def test_the_axis_that_lies_in_memory_is_accessed_by_16_bytes(is_turned) -> None:
    kernel = copied.specialize(n=sk.int32, ld=sk.int32, TURNED=is_turned)
    code = ptxas.disassemble(ptxas.assemble(kernel.ptx).cubin)
    accesses = re.findall(r"\b(?:LDG|STG|LDS|STS|LDL|STL)\b[.\w]*", code)

    assert Counter(each for each in accesses if each[2] == "G") == {"LDG.E.128": 8, "STG.E.128": 8}
    assert any("LDS" in each for each in accesses) == is_turned
    assert not any(each.startswith(("LDL", "STL")) for each in accesses)


@sk.jit
def ordered_rows(x, out, M: sk.constexpr, N: sk.constexpr):
    v = sk.load(x + sk.arange(0, M)[:, None] * N + sk.arange(0, N))
    sk.store(out + sk.arange(0, M), sk.reduce((v, v + 1), after, axis=1)[1])


def test_rows_are_combined_in_order_where_their_elements_are() -> None:
    like = sk.Tensor((None,), sk.int32)
    code = ptxas.disassemble(ptxas.assemble(ordered_rows.specialize(x=like, out=like, M=32, N=64).ptx).cubin)

    assert re.findall(r"\b(?:LDS|STS|BAR)\b", code) == []
    assert len(re.findall(r"\bSHFL\b", code)) == 2 * 4 * 4  # both numbers of 4 rows, over 16 threads
