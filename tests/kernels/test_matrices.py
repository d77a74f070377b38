"""Matrices of any size, dtype and order, with epilogues, in every placement that the shelf chooses; and transpositions."""

from __future__ import annotations

import dataclasses
import linecache

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit import kernels
from stagekit.backends import ptxas
from stagekit.kernels import matrices
from tests.kernels.rows import DTYPES, EPS, each_place, run


def two(x, y):
    return x + y


MISTAKES = {
    "too few operands": (two, "BAD_CALL", "missing a required argument: 'y'", "def two"),
    "a sum of the block": (lambda x: sk.reduce_sum(x), "BAD_CALL", "needs other threads", "a sum"),
    "less the largest of the block": (lambda x: x - sk.reduce_max(x), "BAD_CALL", "needs other threads", "less the"),
    "turned round": (lambda x: x.T, "BAD_CALL", "", "turned round"),
    "other axes": (lambda x: x.reshape(-1), "BAD_CALL", "or a number", "other axes"),
    "nothing": (lambda x: None, "BAD_CALL", "`<lambda>` gives None", "nothing"),
    "several": (lambda x: (x, x), "BAD_CALL", "gives a tuple of length 2", "several"),
    "a text": (lambda x: x + "a", "BAD_OPERANDS", "'a'", "a text"),
}


@pytest.mark.parametrize(("function", "name", "text", "line"), MISTAKES.values(), ids=MISTAKES)
@pytest.mark.parametrize("side", [40, 32])
def test_a_mistake_in_a_given_function_is_shown_at_its_line(function, name, text, line, side):
    a = np.ones((side, side), np.float32)
    uses = [lambda: kernels.matmul(a, a, epilogue=function)]
    if "x.T" not in line and line not in ("turned round", "other axes"):  # of one axis these change nothing
        uses.append(lambda: kernels.elementwise(function, a))

    for use in uses:
        with pytest.raises(sk.StagekitError) as caught:
            use()

        assert caught.value.id == name
        assert text in str(caught.value)
        assert caught.value.loc.file == __file__
        assert line in linecache.getline(__file__, caught.value.loc.line)


@pytest.mark.parametrize(("dtype", "precision"), [(np.float32, "tf64"), (np.float32, None), (np.float16, "tf32")])
def test_a_precision_that_there_is_not_is_refused_before_anything_is_traced(dtype, precision):
    a = np.ones((4, 4), dtype)

    with pytest.raises(ValueError, match=f"precision={precision!r}"):
        kernels.matmul(a, a, precision=precision)


@dataclasses.dataclass
class Doubled:  # which has no hash
    factor: float = 2

    def __call__(self, x):
        return x * self.factor


@pytest.mark.parametrize("given", [3, "relu", Doubled()])
def test_what_is_no_function_is_refused_before_anything_is_traced(given):
    a = np.ones((4, 4), np.float32)

    with pytest.raises(ValueError, match="function"):
        kernels.matmul(a, a, epilogue=given)
    with pytest.raises(ValueError, match="function"):
        kernels.elementwise(given, a)


class Mixed:
    pass


class OfAUser(Mixed, np.ndarray):
    pass


def test_an_array_of_a_users_class_gives_one_of_the_library():
    a = np.arange(64, dtype=np.float32).reshape(8, 8)
    assert (kernels.matmul(a.view(OfAUser), a) == a @ a).all()
    assert (kernels.transpose(a.view(OfAUser)) == a.T).all()


@pytest.mark.parametrize("value", [2, 2.5, np.float32(3)])
def test_a_number_is_a_result_of_each_element(value):
    a = np.ones((5, 7), np.float32)

    np.testing.assert_array_equal(kernels.elementwise(lambda x: value, a), np.full_like(a, value))
    np.testing.assert_array_equal(kernels.matmul(a, a.T, epilogue=lambda x: value), np.full((5, 5), value, np.float32))


def clipped(x, scale, bias, old):
    return sk.maximum(x * scale + bias, 0) - old


@each_place
@settings(max_examples=5, deadline=None)
@given(st.data())
def test_products_with_an_epilogue(place, data):
    m, n, k = (data.draw(st.integers(1, 70)) for _ in range(3))
    dtype = data.draw(st.sampled_from(DTYPES))
    rng = np.random.default_rng(m)
    a, b = (rng.normal(size=shape).astype(dtype) for shape in ((m, k), (k, n)))
    bias, old = rng.normal(size=n).astype(np.float32), rng.normal(size=(m, n)).astype(dtype)
    if data.draw(st.booleans()):
        b = np.ascontiguousarray(b.T).T
    if data.draw(st.booleans()) and place != "gpu":
        a = np.asfortranarray(a)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    size = (
        np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)) * 2
        + np.abs(bias)
        + np.abs(old.astype(np.float64))
        + 1
    )

    if data.draw(st.booleans()):
        found, expected = run(place, kernels.matmul, a, b), exact
    else:
        found = run(place, lambda *x: kernels.matmul(*x[:2], 2.0, *x[2:], epilogue=clipped), a, b, bias, old)
        expected = np.maximum(exact * 2 + bias, 0) - old.astype(np.float64)

    error = np.abs(found.astype(np.float64) - expected)
    assert found.dtype == dtype
    assert (error <= np.abs(expected) * EPS[found.dtype] + size * 2.0**-18).all()


KINDS = {
    "bytes": np.int8,
    "halves": np.float16,
    "warpgroups": np.float16,
    "words": np.float32,
    "doubles": np.float64,
    "by threads": np.float32,
}
WHOLE = [
    (kind, blocks, 0)
    for kind, every in matrices.BLOCKS.items()
    for blocks in (every[-1:] if kind == "warpgroups" else every)  # large ones take long; tests of the GPU's have them
]
ODD = [(kind, every[-1], 1) for kind, every in matrices.BLOCKS.items()]


@pytest.mark.parametrize(("kind", "blocks", "extra"), [*WHOLE, *ODD, ("by threads", matrices.CPU_BLOCKS, 0)], ids=str)
def test_every_block_is_right_as_a_gpu_runs_it(kind, blocks, extra):
    """With rows of a whole number of vectors, which are read ahead, and the smallest of each kind without."""
    dtype, how = KINDS[kind], "tf32" if kind == "words" else "ieee"
    kernel = kernels.matmul_kernel(
        sk.dtypes.dtype_from_numpy(np.dtype(dtype)), sk.float32, ((None, 1), (1, None)), None, (), blocks, how
    )
    m, n, k = blocks.rows + 3, blocks.columns - 5, 2 * blocks.depth + 16 + extra
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (m, k)).astype(dtype), rng.integers(-4, 5, (n, k)).astype(dtype).T
    out = np.zeros((m, n), np.float32)

    with sk.sanitize():
        kernel[2, 1](a, b, out)

    np.testing.assert_array_equal(out, a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize(("down", "across"), [(1, 1), (3, 5), (8, 2), (19, 4)])
def test_programs_of_a_group_go_through_all_columns(down, across):
    @sk.jit(threads=32)
    def places(out):
        x, y = matrices.block_of()
        sk.atomic_add(out.ptr_to(y, x), 1 + sk.program_id(1) * down + sk.program_id(0))

    out = np.zeros((down, across), np.int64)
    places[down, across](out)

    assert sorted(out.reshape(-1)) == [*range(1, down * across + 1)]
    first = out[: min(down, matrices.GROUP)]
    assert sorted(first.reshape(-1)) == [*range(1, first.size + 1)]


@each_place
@pytest.mark.parametrize(("dtype", "sums"), [(np.int8, np.int32), (np.uint8, np.uint32)])
def test_products_of_bytes_are_sums_of_integers(place, dtype, sums):
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 99, (70, 100)).astype(dtype), rng.integers(0, 99, (100, 48)).astype(dtype)

    found = run(place, kernels.matmul, a, b)

    assert found.dtype == sums
    np.testing.assert_array_equal(found, a.astype(sums) @ b.astype(sums))


@each_place
@settings(max_examples=4, deadline=None)
@given(*[st.integers(1, 70)] * 3, st.booleans())
def test_products_of_float64_are_in_float64(place, m, n, k, is_turned):
    rng = np.random.default_rng(m)
    a, b = rng.normal(size=(m, k)), rng.normal(size=(k, n))
    if is_turned and place != "gpu":
        b = np.ascontiguousarray(b.T).T

    found = run(place, kernels.matmul, a, b)

    assert found.dtype == np.float64
    np.testing.assert_allclose(found, a @ b, rtol=0, atol=1e-14 * k)


@each_place
@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
@settings(max_examples=4, deadline=None)
@given(*[st.integers(1, 70)] * 3)
def test_products_of_float8_are_in_float32(place, dtype, m, n, k):
    rng = np.random.default_rng(m)
    a, b = (rng.normal(size=shape).astype(dtype) for shape in ((m, k), (k, n)))

    found = run(place, kernels.matmul, a, b)

    assert found.dtype == np.float32
    np.testing.assert_allclose(found, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("size", [1, 64, 1024, 4096])
@pytest.mark.parametrize(
    ("dtype", "how"), [(sk.int8, "ieee"), (sk.bfloat16, "ieee"), (sk.float32, "tf32"), (sk.float32, "ieee")]
)
def test_blocks_are_large_where_there_are_many(dtype, how, size):
    found = matrices.blocks_for(dtype, how, size, size, size)

    assert size < 4096 or found is matrices.known_blocks(dtype, how)[0]
    assert size > 64 or (found.rows, found.columns) <= (64, 64)


@pytest.mark.parametrize("room", [99, 163, 227])
@pytest.mark.parametrize(("dtype", "how"), [(sk.int8, "ieee"), (sk.bfloat16, "ieee"), (sk.float32, "tf32")])
def test_blocks_fit_the_shared_memory_of_a_gpu(dtype, how, room):
    """In KB: compute capability 8.6, 8.0 and 9.0."""
    known = matrices.known_blocks(dtype, how, room * 1024)

    assert max(each.bytes(dtype.itemsize) for each in known) <= room * 1024
    assert known[0].rows >= 128 <= known[0].columns
    assert matrices.blocks_for(dtype, how, 1, 1, room=room * 1024) == known[-1]


@pytest.mark.parametrize("dtype", [sk.int8, sk.bfloat16])
def test_a_block_has_a_multiprocessor_for_itself_where_that_is_quicker(dtype):
    """Nearly all of them have as many, blocks are whole, and the common axis is long: as measured on an H200."""
    largest, next_one, _ = matrices.known_blocks(dtype, "ieee")

    def found(rows, columns, depth):
        return matrices.blocks_for(dtype, "ieee", rows, columns, depth)

    assert {found(*sizes) for sizes in [(2048,) * 3, (4096,) * 3, (8192,) * 3, (16384, 1024, 4096)]} == {largest}
    assert {found(*sizes) for sizes in [(3072,) * 3, (4096, 4096, 512), (4095, 4096, 4096)]} == {next_one}


@each_place
@settings(max_examples=8, deadline=None)
@given(st.integers(1, 130), st.integers(1, 70), st.sampled_from([*DTYPES, np.int8, np.float64]))
def test_transpositions(place, rows, columns, dtype):
    x = np.random.default_rng(rows).integers(0, 99, (rows, columns)).astype(dtype)

    np.testing.assert_array_equal(run(place, kernels.transpose, x), x.T)


@pytest.mark.parametrize("write", [
    lambda x: kernels.transpose(x, out=x),
    lambda x: kernels.matmul(x, np.ones_like(x), out=x),
    lambda x: kernels.matmul(np.ones_like(x), x, out=x),
])  # fmt: skip
def test_what_other_blocks_still_read_is_not_written_over(write):
    x = np.ones((200, 200), np.float32)
    with pytest.raises(ValueError, match="other programs still read: give another array"):
        write(x)


# -- epilogues whose operands have more registers than there are ------------------------------------------------------------

BF16 = sk.bfloat16
MANY = {  # dtypes and axes of operands
    "a matrix and a row": ((BF16, 2), (BF16, 1)),
    "both of float32": ((sk.float32, 2), (sk.float32, 1)),
    "two matrices": ((BF16, 2), (BF16, 2)),
    "a matrix of float32": ((sk.float32, 2),),
    "three matrices and a row": ((sk.float32, 2), (sk.float32, 1), (sk.float32, 2), (BF16, 2)),
}


def added_up(x, *others):
    for each in others:
        x = x * 0.5 + each
    return x


def kernel_for(kinds, blocks):
    return kernels.matmul_kernel(BF16, sk.float32, ((None, 1), (1, None)), added_up, kinds, blocks)


@pytest.mark.parametrize("blocks", matrices.BLOCKS["warpgroups"], ids=str)
@pytest.mark.parametrize("kinds", MANY.values(), ids=MANY)
def test_sums_and_operands_of_an_epilogue_stay_in_registers(kinds, blocks):
    """They are taken in pieces: all operands are loaded before the first element is stored, as that may be one of them."""
    names = dict.fromkeys("cdef"[len(kinds) :])
    specialised = kernel_for(kinds, blocks).specialize(**names)

    found = ptxas.assemble(str(specialised.compile("cuda", capability=90).stages["ptx"]))

    assert (found.resources.spill_store_bytes, found.warnings) == (0, ())


@pytest.mark.parametrize("is_out", [False, True])
@pytest.mark.parametrize("kinds", MANY.values(), ids=MANY)
def test_pieces_are_the_whole(kinds, is_out):
    """Also where the result is written over the first operand, and blocks are not whole."""
    r = np.random.default_rng(0)
    m, n, k = 72, 120, 64
    a, b = r.integers(-3, 4, (m, k)).astype(ml_dtypes.bfloat16), r.integers(-3, 4, (n, k)).astype(ml_dtypes.bfloat16)
    given = [r.integers(-9, 9, (m, n)[-axes:]).astype(dtype.numpy) for dtype, axes in kinds]
    want = added_up(a.astype(np.float32) @ b.astype(np.float32).T, *[each.astype(np.float32) for each in given])
    blocks = matrices.Blocks(128, 128, 64, 128, 3)
    assert matrices.pieces_for(blocks, kinds) > 1
    out = given[0] if is_out and kinds[0][0] is sk.float32 else np.zeros((m, n), np.float32)

    with sk.sanitize():
        kernel_for(kinds, blocks)[1, 1](a, b.T, out, *given)

    np.testing.assert_array_equal(out, want)
