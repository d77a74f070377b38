"""Cases from the two seed systems, each the wrong answer of one of them."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk


def test_return_under_a_run_time_if_in_a_fragment(run):  # T1
    @sk.inline
    def clipped(v):
        if v > 100:
            return 100
        v = v - 7
        return v

    @sk.jit
    def kernel(x, out):
        i = sk.cuda.thread_idx("x")
        out[i] = clipped(x[i])

    out = np.zeros(3, np.int64)
    run(kernel, np.array([100, 101, 0]), out, at=(1, 3))
    assert list(out) == [93, 100, -7]


def test_while_if_else_augmented_assignment_and_return(run):  # T2, Y1
    @sk.jit
    def kernel(x, out):
        i = 0
        while i < 4:
            if x[i] > 1:
                out[0] += x[i]
            else:
                out[1] += 1
            i += 1
        if x[0] == 0:
            return
        out[0] = -1

    out = np.zeros(2, np.int64)
    run(kernel, np.array([0, 1, 2, 3]), out)
    assert list(out) == [5, 2]


def test_arguments_of_fragments_are_evaluated_once_and_by_value(run):  # T3
    @sk.inline
    def twice(A, v):
        A[0] = v + 1
        A[1] = v + 1

    @sk.jit
    def kernel(A):
        twice(A, A[0] * 10)

    A = np.array([1, 0])
    run(kernel, A)
    assert list(A) == [11, 11]


def test_simultaneous_assignment_reads_before_it_writes(run):  # T4
    @sk.jit
    def kernel(A):
        A[0], A[1] = A[1], A[0]

    A = np.array([1, 2])
    run(kernel, A)
    assert list(A) == [2, 1]


@pytest.mark.parametrize(("dtype", "value"), [("int32", 2**40), ("uint8", 300), ("uint8", -1), ("int64", 2**63)])
def test_a_scalar_out_of_range_is_refused_by_name_and_value(run, dtype, value):  # T5
    kind = getattr(sk, dtype)

    @sk.jit
    def kernel(amount: kind, out):
        out[0] = amount

    with pytest.raises(sk.ArgumentError) as error:
        run(kernel, value, np.zeros(1))
    assert "amount" in str(error.value)
    assert str(value) in str(error.value)


def test_a_dimension_past_2_to_the_31_gives_the_right_address():  # T6
    n, m = sk.dynamic("n"), sk.dynamic("m")

    @sk.jit
    def kernel(A: sk.Tensor((n, m), sk.int8), out: sk.Tensor((None,), sk.int64)):
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(n, 1024), block=1))
        if sk.cuda.block_idx("x") == 0:
            out[0] = n
            out[1] = A.ptr_to(n - 1, m - 1) - A.ptr_to(0, 0)

    rows = 2**31 + 5
    one = np.zeros(4, np.int8)
    A = np.lib.stride_tricks.as_strided(one, (rows, 3), (0, 1))
    out = np.zeros(2, np.int64)
    kernel(A, out)
    assert list(out) == [rows, 2]


@pytest.mark.parametrize("index", [0.5, "x", 7, -5, True])
def test_an_index_that_cannot_be_is_refused_with_its_line(run, index):  # T7
    @sk.jit
    def kernel(A: sk.Tensor((4,), sk.float32), INDEX: sk.constexpr):
        A[INDEX] = 1

    with pytest.raises(sk.StagingError) as error:
        run(kernel, np.zeros(4, np.float32), INDEX=index)
    assert error.value.loc.line > 0
    assert "A[INDEX]" in str(error.value)


def test_out_of_range_at_run_time_is_found_by_the_checking_target():  # T7
    @sk.jit
    def kernel(A, k):
        A[k] = 1

    with pytest.raises(sk.StagekitError, match="OUT_OF_BOUNDS"):
        sk.compile(kernel.specialize(), "interp")[1, 1](np.zeros(4), 4)


def test_a_name_is_not_a_dtype(run):  # T8
    @sk.jit
    def kernel(A: sk.Tensor((4,), "float17")):
        A[0] = 1

    with pytest.raises(sk.SpecializeError, match="float16"):
        run(kernel, np.zeros(4))


def test_rebinding_in_a_for_is_seen_afterwards(run):  # T9
    @sk.jit
    def kernel(x, n, out):
        last = -1
        for i in range(n):
            last = x[i]
        out[0] = last

    for n in (0, 3):
        out = np.zeros(1, np.int64)
        run(kernel, np.array([4, 5, 6]), n, out)
        assert out[0] == (6 if n else -1)


def test_a_python_bool_leaves_no_branch():  # T10
    @sk.jit
    def kernel(x: sk.Tensor((None,), sk.float32), FLAG: sk.constexpr):
        if FLAG:
            x[0] = 1
        else:
            x[0] = 2

    assert "if" not in kernel.specialize(FLAG=True).ir


def test_ordinary_arrays_and_views_work(run):  # T11
    @sk.jit
    def kernel(x, y):
        i = sk.cuda.thread_idx("x")
        y[i] = x[i] + 1

    base = np.arange(41, dtype=np.float32)
    for x in (base[1:11], base[::4][:10], base[::-1][:10], base[3:13]):
        y = np.zeros(21, np.float32)[1::2]
        run(kernel, x, y, at=(1, 10))
        np.testing.assert_array_equal(y, x + 1)


def test_tracing_grows_linearly_with_the_body():  # T12
    def body(count):
        lines = "\n".join(f"    x[{j}] = x[{j}] * 2 + {j}" for j in range(count))
        return f"import stagekit as sk\n\n@sk.jit\ndef kernel(x: sk.Tensor((None,), sk.float32)):\n{lines}\n"

    assert _ops_per_second(body(200)) < 6 * _ops_per_second(body(2000))


def _ops_per_second(text):
    import linecache

    name = f"<body {len(text)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope = {}
    exec(compile(text, name, "exec"), scope)
    start = time.process_time()
    count = scope["kernel"].specialize().ir.count("\n")
    return count / (time.process_time() - start)


def test_arange_starts_where_it_says_and_lengths_may_differ(run):  # Y2, Y3
    @sk.jit
    def kernel(out):
        a, b = sk.arange(4, 8), sk.arange(0, 50)
        sk.store(out + b, b)
        sk.syncthreads()  # the same elements, by other threads
        sk.store(out + a, a * 10)

    out = np.full(60, -1, np.int64)
    run(kernel, out, at=1)
    wanted = np.concatenate([np.arange(50), np.full(10, -1)])
    wanted[4:8] = np.arange(4, 8) * 10
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint8, np.float16, np.bool_])
def test_scalars_and_arrays_keep_value_and_dtype(run, dtype):  # Y4
    @sk.jit
    def kernel(x, s, out):
        out[0] = x[0]
        out[1] = s

    x, out = np.array([1], dtype), np.zeros(2)
    run(kernel, x, 0.5, out)
    assert list(out) == [1, 0.5]


@pytest.mark.parametrize("block", [16.7, True, 0, -4])
def test_what_is_no_extent_is_refused_and_4096_works(run, block):  # Y5
    @sk.jit
    def kernel(out, BLOCK: sk.constexpr):
        i = sk.arange(0, BLOCK)
        sk.store(out + i, 1)

    with pytest.raises(sk.StagekitError, match="BLOCK"):
        run(kernel, np.zeros(4096), at=1, BLOCK=block)
    out = np.zeros(4096)
    run(kernel, out, at=1, BLOCK=4096)
    assert out.all()


def test_constexprs_stand_anywhere_and_surplus_arguments_are_refused():  # Y6
    @sk.jit
    def kernel(BLOCK: sk.constexpr, out, n):
        i = sk.arange(0, BLOCK)
        sk.store(out + i, n, mask=i < n)

    out = np.zeros(8)
    kernel[(1,)](8, out, 3)
    kernel[(1,)](BLOCK=8, out=out, n=3)
    assert list(out) == [3, 3, 3, 0, 0, 0, 0, 0]
    with pytest.raises(sk.StagekitError) as error:
        kernel[(1,)](8, out, 3, 4)
    assert "out" in str(error.value)


def test_one_array_as_output_and_input_works_in_place(run):  # Y7
    @sk.jit
    def kernel(out, x):
        i = sk.cuda.thread_idx("x")
        out[i] = x[i] * 2

    x = np.arange(8.0)
    run(kernel, x, x, at=(1, 8))
    np.testing.assert_array_equal(x, np.arange(8.0) * 2)


def test_a_read_only_array_is_an_input_and_no_output(run):  # Y8
    @sk.jit
    def kernel(x, out):
        out[0] = x[0]

    fixed = np.ones(1)
    fixed.flags.writeable = False
    out = np.zeros(1)
    run(kernel, fixed, out)
    assert out[0] == 1
    with pytest.raises(sk.ArgumentError, match="`out`"):
        run(kernel, out, fixed)


@sk.jit
def softmax(src, dst, N, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    x = sk.load(src + i, mask=i < N, other=-float("inf"))
    e = sk.exp(x - sk.reduce_max(x))
    total = sk.reduce_sum(e)
    lowest = sk.reduce_min(e)
    sk.store(dst + i, e / total, mask=i < N)
    sk.store(dst + N, sk.reduce_max(e) + lowest * 0)


@settings(max_examples=15, deadline=None)
@given(n=st.integers(1, 200), extra=st.integers(0, 60))
def test_softmax_at_any_block_and_several_reductions_in_a_row(n, extra):  # Y9
    x = np.random.default_rng(n).normal(size=n).astype(np.float32)
    dst = np.zeros(n + 1, np.float32)
    softmax[(1,)](x, dst, n, n + extra)
    wanted = np.exp(x - x.max())
    np.testing.assert_allclose(dst[:n], wanted / wanted.sum(), rtol=1e-5)
    assert dst[n] == 1


def test_masked_loads_in_nested_run_time_loops(run):  # Y10
    @sk.jit
    def kernel(src, dst, rows, cols, BLOCK: sk.constexpr):
        i = sk.arange(0, BLOCK)
        total = sk.float32(0)
        for r in range(rows):
            for start in range(0, cols, BLOCK):
                at = start + i
                total += sk.reduce_sum(sk.load(src + r * cols + at, mask=at < cols))
        sk.store(dst + 0, total)

    src = np.arange(3 * 45, dtype=np.float32)
    dst = np.zeros(1, np.float32)
    run(kernel, src, dst, 3, 45, at=1, BLOCK=16)
    assert dst[0] == src.sum()


def test_outputs_left_unwritten_are_found_on_request():  # Y11
    @sk.jit
    def kernel(x, out, n, BLOCK: sk.constexpr):
        i = sk.arange(0, BLOCK)
        sk.store(out + i, sk.load(x + i, mask=i < n), mask=i < n)

    short = sk.sanitize(kernel, outputs=("out",))
    with pytest.raises(sk.StagekitError, match="UNWRITTEN_OUTPUT"):
        short[(1,)](np.zeros(40), np.zeros(40), 40, 32)


def test_a_new_length_does_not_compile_again():  # Y12
    @sk.jit
    def kernel(x, N):
        i = sk.arange(0, 32)
        sk.store(x + i, 1, mask=i < N)

    for n in (17, 18, 1000):
        kernel[(1,)](np.zeros(n), n)
    assert len(kernel.specialize()._variants) == 1
