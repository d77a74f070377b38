"""Cases about numbers and addresses: what values become, and which memory is touched."""

from __future__ import annotations

import itertools
import mmap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk

SIGNED = (np.int8, np.int16, np.int32, np.int64)


@sk.jit
def widened(n: sk.int32, out):
    out[0] = sk.int64(n) * 3


@pytest.mark.parametrize("value", [0, 1, 2, 15, 16, 17, -1, 2**31 - 1, -(2**31)])
def test_the_type_of_an_argument_never_depends_on_its_value(run, value):  # P1
    out = np.zeros(1, np.int64)
    run(widened, value, out)
    assert out[0] == value * 3
    assert len({types for types, *_ in widened.specialize()._variants}) == 1


@sk.jit
def divided(a, b, out):
    i = sk.cuda.thread_idx("x")
    out[0, i] = a[i] // b[i]
    out[1, i] = a[i] % b[i]


@pytest.mark.parametrize("dtype", SIGNED)
def test_division_floors_and_never_traps(run, dtype):  # P29
    limits = np.iinfo(dtype)
    values = [limits.min, limits.min + 1, -8, -7, -1, 0, 1, 2, 3, 7, 8, limits.max]
    pairs = np.array(list(itertools.product(values, values)), dtype)
    a, b = pairs[:, 0].copy(), pairs[:, 1].copy()
    out = np.zeros((2, len(a)), dtype)
    run(divided, a, b, out, at=(1, len(a)))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(out[0], a // b)
        np.testing.assert_array_equal(out[1], a % b)


def test_a_power_of_two_divisor_floors_like_any_other(run):  # P29
    @sk.jit
    def kernel(a, out, D: sk.constexpr):
        i = sk.cuda.thread_idx("x")
        out[i] = a[i] // D * 1000 + a[i] % D

    a = np.arange(-20, 20, dtype=np.int32)
    for divisor in (1, 2, 8, 7, -4, -3):
        out = np.zeros_like(a)
        run(kernel, a, out, at=(1, 40), D=divisor)
        np.testing.assert_array_equal(out, a // divisor * 1000 + a % divisor)


def test_an_index_product_past_2_to_the_31_does_not_wrap(run):  # P30
    @sk.jit
    def kernel(stride: sk.int32, out):
        if sk.program_id(0) == 319:
            sk.store(out + 0, sk.program_id(0) * stride)

    out = np.zeros(1, np.int64)
    run(kernel, 7864320, out, at=320)
    assert out[0] == 2508718080


def test_the_multiplication_that_feeds_an_address_is_64_bits_wide():  # P30
    @sk.jit
    def kernel(A: sk.Tensor((None, None), sk.float32), row: sk.int32):
        A[row, 0] = 1

    assert "binary.mul" in kernel.specialize().ir
    product = next(line for line in kernel.specialize().ir.splitlines() if "binary.mul" in line)
    assert product.endswith(": i64")


@sk.jit
def converted(x, out):
    i = sk.cuda.thread_idx("x")
    out[i] = x[i]


@pytest.mark.parametrize(
    "target", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64]
)
@pytest.mark.parametrize("source", [np.bool_, np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64])
def test_the_sign_of_an_integer_belongs_to_our_type(run, source, target):  # P32
    info = None if source is np.bool_ else np.iinfo(source)
    x = np.array([0, 1] if info is None else [0, 1, info.max, info.min, info.max // 2], source)
    out = np.zeros(len(x), target)
    run(converted, x, out, at=(1, len(x)))
    np.testing.assert_array_equal(out, x.astype(target))


def test_false_is_less_than_true_and_an_unsigned_times_a_literal_stays_unsigned(run):  # P32
    @sk.jit
    def kernel(m, u, out):
        out[0] = m[0] < m[1]
        out[1] = u[0] * 2 > 4
        out[2] = sk.int32(m[1])

    out = np.zeros(3, np.int64)
    run(kernel, np.array([False, True]), np.array([2**63], np.uint64), out)
    assert list(out) == [1, 0, 1]


_EDGES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_two_rules_for_nan_have_two_names(run, dtype):  # P33
    @sk.jit
    def kernel(a, b, out):
        i = sk.cuda.thread_idx("x")
        out[0, i] = sk.maximum(a[i], b[i])
        out[1, i] = sk.minimum(a[i], b[i])
        out[2, i] = sk.fmax(a[i], b[i])
        out[3, i] = sk.fmin(a[i], b[i])

    pairs = np.array(list(itertools.product(_EDGES, _EDGES)), dtype)
    a, b = pairs[:, 0].copy(), pairs[:, 1].copy()
    out = np.zeros((4, len(a)), dtype)
    run(kernel, a, b, out, at=(1, len(a)))
    for row, rule in enumerate((np.maximum, np.minimum, np.fmax, np.fmin)):
        np.testing.assert_array_equal(out[row], rule(a, b))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("value", [42.0, 65504.0, 65520.0, 1e-8, 1 / 3, float("nan"), -0.0])
def test_a_float_argument_is_rounded_once_to_the_declared_type(run, dtype, value):  # P34
    kind = getattr(sk, dtype)

    @sk.jit
    def kernel(v: kind, out):
        out[0] = v

    out = np.zeros(1, kind.numpy)
    run(kernel, value, out)
    with np.errstate(over="ignore"):
        wanted = np.array([value]).astype(kind.numpy)
    np.testing.assert_array_equal(out.view(np.uint8), wanted.view(np.uint8))


def test_a_literal_takes_the_other_operands_type(run):  # P34
    @sk.jit
    def kernel(x, out):
        out[0] = x[0] + 2e50
        out[1] = x[0] * 0.1

    x, out = np.array([3.0]), np.zeros(2)
    run(kernel, x, out)
    assert list(out) == [3.0 + 2e50, 3.0 * 0.1]


@sk.jit
def contracted(a, b, c, out):
    i = sk.cuda.thread_idx("x")
    out[0, i] = a[i] * b[i] + c[i]
    out[1, i] = a[i] / b[i]
    out[2, i] = sk.sqrt(a[i])


def test_no_contraction_and_correctly_rounded_division(run):  # P36
    rng = np.random.default_rng(3)
    a, b, c = (rng.normal(size=256).astype(np.float32) for _ in range(3))
    a[:4] = [4.6875, 1e-42, np.float32(1e-45), 0.0]
    b[:4] = [0.9375, 3.0, 2.0, -0.0]
    out = np.zeros((3, 256), np.float32)
    run(contracted, a, b, c, out, at=(1, 256))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(out[0], a * b + c)
        np.testing.assert_array_equal(out[1], a / b)
        np.testing.assert_array_equal(out[2], np.sqrt(a))


def test_fastmath_is_per_kernel_and_seen_in_the_code():  # P36
    @sk.jit(fastmath=True)
    def fast(A: sk.Tensor((None,), sk.float32)):
        A[0] = A[1] * A[2] + A[3]

    @sk.jit
    def strict(A: sk.Tensor((None,), sk.float32)):
        A[0] = A[1] * A[2] + A[3]

    assert "fma.rn.ftz.f32" in fast.specialize().ptx
    assert "fma.rn.f32" not in strict.specialize().ptx


def _before_a_guard(count: int) -> np.ndarray:
    """An array whose last element is the last before the end of its mapping."""
    size = mmap.PAGESIZE
    return np.frombuffer(mmap.mmap(-1, size), np.float32)[size // 4 - count :]


@pytest.mark.parametrize("fill", [0, 7, -1.5, float("nan")])
def test_masked_lanes_touch_nothing_and_get_the_fill(run, fill):  # P37
    @sk.jit
    def kernel(src, dst, n, FILL: sk.constexpr, BLOCK: sk.constexpr):
        i = sk.arange(0, BLOCK)
        x = sk.load(src + (i - 1_000_000_000_000) + 1_000_000_000_000, mask=i < n, other=FILL)
        far = sk.load(src + i * 1_000_000_000, mask=i < 1)
        sk.store(dst + i, x + far * 0)

    src = _before_a_guard(27)
    src[:] = np.arange(27)
    dst = np.zeros(64, np.float32)
    run(kernel, src, dst, 27, at=1, FILL=fill, BLOCK=64)
    np.testing.assert_array_equal(dst, np.concatenate([src, np.full(37, fill, np.float32)]))


def test_the_default_fill_is_zero(run):  # P37
    @sk.jit
    def kernel(src, dst, BLOCK: sk.constexpr):
        i = sk.arange(0, BLOCK)
        sk.store(dst + i, sk.load(src + i, mask=i < 3) + 1)

    dst = np.zeros(8, np.float32)
    run(kernel, np.ones(3, np.float32), dst, at=1, BLOCK=8)
    assert list(dst) == [2, 2, 2, 1, 1, 1, 1, 1]


@sk.jit
def summed(src, dst, n, BLOCK: sk.constexpr):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    x = sk.load(src + i, mask=i < n)
    sk.store(dst + i, x * 2, mask=i < n)
    total = sk.reduce_sum(x)
    sk.atomic_add(dst + n, sk.where(sk.arange(0, BLOCK) == 0, total, 0.0))


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(0, 300),
    block=st.sampled_from([1, 2, 3, 31, 32, 33, 96, 100, 127, 128, 256, 1000, 1024]),
)
def test_any_block_size_gives_the_same_answer(n, block):  # P38
    src = np.arange(n, dtype=np.float64)
    dst = np.zeros(n + 1)
    summed[(max(-(-n // block), 1),)](src, dst, n, block)
    np.testing.assert_array_equal(dst[:n], src * 2)
    assert dst[n] == src.sum()


@pytest.mark.parametrize("block", [0, -1, 64.0, True])
def test_what_cannot_be_a_block_is_refused_by_name_and_value(block):  # P38
    with pytest.raises(sk.StagekitError) as error:
        summed[(1,)](np.zeros(4), np.zeros(5), 4, block)
    assert "BLOCK" in str(error.value)
    assert repr(block) in str(error.value)


def test_the_report_names_the_lines_that_compute_in_float64():  # C4
    @sk.jit
    def kernel(out, A):
        i = sk.cuda.thread_idx("x")
        out[i] = A[i] * 0.5 + sk.float32(i) * 0.01
        out[i] += i * 0.01
        out[i] += sk.float64(A[i]) / 3

    array = sk.Tensor((None,), sk.float32)
    report = str(kernel.specialize(out=array, A=array).report())
    first = kernel.function.__code__.co_firstlineno

    lines = [line for line in report.splitlines() if "float64 arithmetic" in line]
    assert lines == [
        f"line {first + 4}: float64 arithmetic, of integers",
        f"line {first + 5}: float64 arithmetic",
    ]
