"""Cases about arithmetic, addresses and extents, for other dtypes and at other limits than where they were first seen."""

from __future__ import annotations

import enum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@sk.jit
def _ceildivs(out, a, b, n, S: sk.constexpr):
    for j in range(n):
        out[j, 0] = sk.ceildiv(a[j], b[j])
        out[j, 1] = sk.cdiv(a[j], S)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("target", ["cpu", "interp"])
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_ceiling_division_for_every_dtype_and_sign(dtype, target, data):  # P29
    info = np.iinfo(dtype)
    numbers = st.one_of(st.sampled_from([info.min, info.max, 0, 1]), st.integers(info.min, info.max))
    pairs = data.draw(
        st.lists(st.tuples(numbers, numbers.filter(bool)).filter(lambda p: p != (info.min, -1)), min_size=1, max_size=8)
    )
    a, b = (np.array(column, dtype) for column in zip(*pairs))
    out = np.zeros((len(pairs), 2), dtype)
    sk.compile(_ceildivs.specialize(S=32), target)[1, 1](out, a, b, len(pairs))
    assert out.tolist() == [[-(-x // y), -(-x // 32)] for x, y in pairs]


@pytest.mark.parametrize(
    ("a", "b"), [(np.uint8(200), 200), (np.uint8(200), np.uint8(7)), (np.int8(-100), 3), (True, 2)]
)
def test_ceiling_division_outside_a_kernel(a, b):  # P29
    assert int(sk.ceildiv(a, b)) == -(-int(a) // int(b))


@pytest.mark.parametrize("count", [np.uint32(100), np.uint8(200), np.int8(100), np.int64(77)])
def test_a_grid_from_a_count_of_any_dtype(count):  # P29
    @sk.jit
    def kernel(A, n, BLOCK: sk.constexpr):
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(n, BLOCK), block=BLOCK))
        i = sk.cuda.block_idx("x") * BLOCK + sk.cuda.thread_idx("x")
        if i < n:
            A[i] = 1

    for _ in range(3):  # by the host's expression, then in machine code
        A = np.zeros(300, np.int32)
        kernel(A, count, BLOCK=33)
        assert A.sum() == int(count)


class Block(enum.IntEnum):
    SMALL = 5


@pytest.mark.parametrize("block", [np.uint8(200), np.int8(100), np.int64(33), Block.SMALL])
def test_an_extent_may_be_any_integer(run, block):  # Y5
    @sk.jit
    def kernel(dst, src, n, BLOCK: sk.constexpr):
        i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
        x = sk.load(src + i, mask=i < n) + sk.full(BLOCK, 1, sk.int32) + sk.zeros((BLOCK,), sk.int32)
        sk.store(dst + i, x, mask=i < n)

    n = 150
    src, dst = np.arange(n, dtype=np.int32), np.zeros(n, np.int32)
    run(kernel, dst, src, n, at=-(-n // int(block)), BLOCK=block)
    assert list(dst) == list(src + 1)


@pytest.mark.parametrize("bounds", [(2**63 + 1,), (0, 2**64), (-(2**63) - 1, 0)])
def test_bounds_beyond_the_index_are_refused(bounds):  # T7
    @sk.jit
    def kernel(out, BOUNDS: sk.constexpr):
        for j in range(*BOUNDS):
            out[0] = j

    with pytest.raises(sk.StagingError, match="LITERAL_RANGE"):
        kernel[1, 1](np.zeros(1), bounds)


def test_bounds_at_the_limits_of_the_index_work(run):  # T7
    @sk.jit
    def kernel(out):
        for j in range(-(2**63), 2**63 - 1):
            out[0] = j
            if j < 0:
                break

    out = np.zeros(1, np.int64)
    run(kernel, out)
    assert out[0] == -(2**63)


@pytest.mark.parametrize("bounds", [(0, 4, 0), (), (1, 2, 3, 4)])
def test_a_static_range_that_python_refuses_is_refused(bounds):  # T7
    @sk.jit
    def kernel(out, BOUNDS: sk.constexpr):
        for j in sk.static_range(*BOUNDS):
            out[0] = j

    with pytest.raises(sk.StagingError, match="BAD_CALL"):
        kernel[1, 1](np.zeros(1), bounds)


def test_strides_that_span_more_than_there_are_addresses(run):  # T6
    @sk.jit
    def kernel(out, A, i: sk.int64):
        out[0] = A.ptr_to(i, i) - A.ptr_to(0, 0)
        out[1] = A.size

    shape = (2**31 + 5, 2**31)
    A = np.lib.stride_tricks.as_strided(np.zeros(8, np.int8), shape, (2**33, 4))
    out = np.zeros(2, np.int64)
    run(kernel, out, A, 5)
    assert list(out) == [5 * (2**33 + 4), shape[0] * shape[1]]


@pytest.mark.parametrize(
    ("argument", "way_out"),
    [
        (np.arange(4).astype(">i8"), "x.astype(x.dtype.newbyteorder('='))"),
        (memoryview(b"ab"), "np.asarray(x)"),
        (np.zeros(2, np.clongdouble), "supported dtypes"),
    ],
    ids=["byte order", "memoryview", "longer complex numbers"],
)
def test_what_is_no_array_for_a_kernel_says_what_to_pass(argument, way_out):  # T11
    @sk.jit
    def kernel(out, x):
        out[0] = x[0]

    with pytest.raises(sk.ArgumentError, match="UNSUPPORTED_ARGUMENT") as error:
        kernel[1, 1](np.zeros(1), argument)
    assert way_out in str(error.value)
