"""What is computed at compile time has the bits of what is computed at run time: every operator, every dtype, edge values."""

from __future__ import annotations

import operator

import ml_dtypes  # noqa: F401  (registers bfloat16 with NumPy)
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.dtypes import ALL_DTYPES, ARITHMETIC_DTYPES, FLOAT_DTYPES, INTEGER_DTYPES, promote, true_divide_dtype

ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod)
BITWISE = (operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift)
COMPARISONS = (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge)
DIVISION = (operator.truediv,)
UNARY = (operator.neg, operator.pos, abs)


def edges(dtype: sk.DType) -> tuple:
    """Values that break arithmetic, as NumPy scalars of the dtype."""
    if dtype is sk.bool_:
        return tuple(np.array([False, True]))
    if dtype.is_float:
        info = ml_dtypes.finfo(dtype.numpy)
        values = [0.0, -0.0, 1.5, -2.5, 0.1, 7.0, info.max, info.smallest_subnormal, np.inf, np.nan]
    elif dtype.is_signed:
        values = [0, 1, 2, 7, -1, -2, -7, dtype.max, dtype.min]
    else:
        values = [0, 1, 2, 7, dtype.max, dtype.max - 1, dtype.max // 2 + 1]
    return tuple(np.array(values, object if dtype is sk.uint64 else None).astype(dtype.numpy))


def operators(dtype: sk.DType) -> list[tuple[tuple, sk.DType]]:
    """Groups of operators with the dtype of their results."""
    if dtype is sk.bool_:
        return [(ARITHMETIC, sk.int32), (BITWISE[:3], sk.bool_), (COMPARISONS, sk.bool_), (DIVISION, sk.float32)]
    groups = [(ARITHMETIC + (() if dtype.is_float else BITWISE), dtype), (COMPARISONS, sk.bool_)]
    return [*groups, (DIVISION, true_divide_dtype(dtype))]


@sk.jit
def run_time(out, A, B, functions: sk.constexpr, constants: sk.constexpr):
    """Plane 0: both operands loaded. Plane 1: the left one a constant. Plane 2: the right one."""
    j = sk.cuda.thread_idx("x")
    for i in range(len(A)):
        for k, function in enumerate(functions):
            out[0, k, i, j] = function(A[i], B[j])
    for i, value in constants:
        for k, function in enumerate(functions):
            out[1, k, i, j] = function(value, B[j])
            out[2, k, j, i] = function(A[j], value)


@sk.jit
def compile_time(out, functions: sk.constexpr, values: sk.constexpr):
    for k, function in enumerate(functions):
        for i, left in enumerate(values):
            for j, right in enumerate(values):
                out[k, i, j] = function(left, right)


def same_bits(found: np.ndarray, wanted: np.ndarray) -> None:
    """NaN is NaN, and zeros have their signs."""
    if found.dtype.kind in "biu":
        np.testing.assert_array_equal(found, wanted)
        return
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_array_equal(found, wanted)
    is_number = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found)[is_number], np.signbit(wanted)[is_number])


@pytest.mark.parametrize("dtype", ARITHMETIC_DTYPES, ids=lambda d: d.name)
def test_folding_is_bit_equal_to_the_cpu_and_to_the_interpreter(dtype, monkeypatch):  # P2
    values = edges(dtype)
    n, array = len(values), np.array(values, dtype.numpy)
    constants = [1, n - 2, n - 1] if n > 2 else [0, 1]
    for functions, result in operators(dtype):
        folded = np.zeros((len(functions), n, n), result.numpy)
        monkeypatch.setenv("STAGEKIT_TARGET", "interp")
        compile_time[1, 1](folded, functions, values)
        for target in ("interp", "cpu"):
            monkeypatch.setenv("STAGEKIT_TARGET", target)
            out = np.zeros((3, len(functions), n, n), result.numpy)
            run_time[1, n](out, array, array, functions, tuple((i, values[i]) for i in constants))
            same_bits(out[0], folded)
            same_bits(out[1][:, constants], folded[:, constants])
            same_bits(out[2][:, :, constants], folded[:, :, constants])


@sk.jit
def unary_run_time(out, A, functions: sk.constexpr):
    i = sk.cuda.thread_idx("x")
    for k, function in enumerate(functions):
        out[k, i] = function(A[i])


@sk.jit
def unary_compile_time(out, functions: sk.constexpr, values: sk.constexpr):
    for k, function in enumerate(functions):
        for i, value in enumerate(values):
            out[k, i] = function(value)


@pytest.mark.parametrize("dtype", ARITHMETIC_DTYPES, ids=lambda d: d.name)
def test_unary_operators_and_builtins_fold_like_they_run(dtype, monkeypatch):  # P2
    values = edges(dtype)
    groups = [
        ((operator.neg, operator.pos), sk.int32 if dtype is sk.bool_ else dtype),
        ((bool, operator.not_), sk.bool_),
    ]
    groups += [] if dtype is sk.bool_ else [((abs,), dtype)]
    groups += [((operator.invert,), dtype)] if not dtype.is_float else []
    for functions, result in groups:
        folded = np.zeros((len(functions), len(values)), result.numpy)
        monkeypatch.setenv("STAGEKIT_TARGET", "interp")
        unary_compile_time[1, 1](folded, functions, values)
        for target in ("interp", "cpu"):
            monkeypatch.setenv("STAGEKIT_TARGET", target)
            out = np.zeros_like(folded)
            unary_run_time[1, len(values)](out, np.array(values, dtype.numpy), functions)
            same_bits(out, folded)


def bits_of(value, dtypes, word):
    """The bits of `value`, seen as each of `dtypes` in between."""
    return [value.view(dtype).view(word) for dtype in dtypes]


@sk.jit
def view_run_time(out, A, DTYPES: sk.constexpr):
    i = sk.cuda.thread_idx("x")
    for k, bits in enumerate(bits_of(A[i], DTYPES, out.dtype)):
        out[k, i] = bits


@sk.jit
def view_compile_time(out, A: sk.constexpr, DTYPES: sk.constexpr):
    for i, value in enumerate(A):
        for k, bits in enumerate(bits_of(value, DTYPES, out.dtype)):
            out[k, i] = bits


@sk.jit
def view_tile(out, A, DTYPES: sk.constexpr):
    i = sk.arange(0, 4096)
    for k, bits in enumerate(bits_of(sk.load(A + i % 32), DTYPES, out.dtype)):
        sk.store(out + k * 4096 + i, bits)


@pytest.mark.parametrize("target", ["interp", "cpu"])
@pytest.mark.parametrize("source", [d for d in ALL_DTYPES if d is not sk.bool_], ids=lambda d: d.name)
def test_views_fold_like_they_run(source, target, monkeypatch):
    """Every dtype as every other of its size, a NaN's bits too; elements of a tile in vectors."""
    monkeypatch.setenv("STAGEKIT_TARGET", target)
    A, word = np.resize(np.array(edges(source), source.numpy), 32), source.unsigned
    dtypes = tuple(d for d in ALL_DTYPES if d.bits == source.bits)
    for launch, count, values in (
        (view_run_time[1, 32], 32, A),
        (view_compile_time[1, 1], 32, tuple(A)),
        (view_tile[1], 4096, A),
    ):
        out = np.zeros((len(dtypes), count), word.numpy)
        launch(out, values, dtypes)
        np.testing.assert_array_equal(out, np.broadcast_to(np.resize(A.view(word.numpy), count), out.shape))


NARROW = tuple(d for d in ARITHMETIC_DTYPES if d not in (sk.int64, sk.uint64))  # float64 holds their values


@sk.jit
def convert_run_time(out, signed, unsigned, A):
    i = sk.cuda.thread_idx("x")
    for k, dtype in enumerate(NARROW):
        out[k, i] = A[i].to(dtype)
    signed[i], unsigned[i] = sk.int64(A[i]), sk.uint64(A[i])


@sk.jit
def convert_compile_time(out, signed, unsigned, values: sk.constexpr):
    for i, value in enumerate(values):
        for k, dtype in enumerate(NARROW):
            out[k, i] = dtype(value)
        signed[i], unsigned[i] = sk.int64(value), sk.uint64(value)


@pytest.mark.parametrize("source", ARITHMETIC_DTYPES, ids=lambda d: d.name)
def test_conversions_fold_like_they_run(source, monkeypatch):  # P32
    values = edges(source)
    n = len(values)

    def results(launch, *arguments):
        outs = np.zeros((len(NARROW), n)), np.zeros(n, np.int64), np.zeros(n, np.uint64)
        launch(*outs, *arguments)
        return outs

    monkeypatch.setenv("STAGEKIT_TARGET", "interp")
    folded = results(convert_compile_time[1, 1], values)
    for target in ("interp", "cpu"):
        monkeypatch.setenv("STAGEKIT_TARGET", target)
        for found, wanted in zip(results(convert_run_time[1, n], np.array(values, source.numpy)), folded, strict=True):
            same_bits(found, wanted)


# -- mixed dtypes ---------------------------------------------------------------------------------------------------------


@sk.jit
def mixed(out, A, B, value: sk.constexpr):
    i = sk.cuda.thread_idx("x")
    out[0, i] = A[0] * B[i] + B[i]
    out[1, i] = value * B[i] + B[i]


@settings(max_examples=25, deadline=None)
@given(left=st.sampled_from(ARITHMETIC_DTYPES), right=st.sampled_from(ARITHMETIC_DTYPES), data=st.data())
def test_two_dtypes_meet_in_the_same_one_at_both_times(left, right, data):
    met = promote(left, right)
    value = data.draw(st.sampled_from(edges(left)))
    if met is None or sk.bool_ in (left, right):
        return
    A, B = np.array([value], left.numpy), np.array(edges(right), right.numpy)
    with pytest.MonkeyPatch.context() as environment:
        for target in ("interp", "cpu"):
            environment.setenv("STAGEKIT_TARGET", target)
            out = np.zeros((2, len(B)), met.numpy)
            mixed[1, len(B)](out, A, B, value)
            same_bits(out[1], out[0])


@sk.jit
def choices(out, x, yes, no, A: sk.constexpr, B: sk.constexpr):
    for k, (at_run_time, known, half_known) in enumerate(
        (
            (sk.where(yes, A, B), sk.where(True, A, B), sk.where(sk.uint64(3), x, B)),
            (sk.where(no, A, B), sk.where(False, A, B), sk.where(sk.bool_(0), x, B)),
            (min(x, B), min(A, B), min(B, x)),
            (max(x, B), max(A, B), max(B, x)),
            (max(x, B, key=lambda v: 0), max(A, B, key=lambda v: 0), max(A, B, key=lambda v: -v if v is A else v)),
        )
    ):
        sk.static_assert(at_run_time.dtype is known.dtype)
        sk.static_assert(at_run_time.dtype is half_known.dtype)
        out[0, k], out[1, k] = at_run_time, known


@settings(max_examples=40, deadline=None)
@given(
    left=st.sampled_from(ARITHMETIC_DTYPES), right=st.sampled_from([*ARITHMETIC_DTYPES, 5, 300, 2.5]), data=st.data()
)
def test_a_choice_that_is_known_meets_in_the_dtype_of_one_at_run_time(left, right, data):
    A = data.draw(st.sampled_from([v for v in edges(left) if v == v]))
    B = data.draw(st.sampled_from([v for v in edges(right) if v == v])) if isinstance(right, sk.DType) else right
    if isinstance(right, sk.DType) and promote(left, right) is None:
        return
    if left is sk.bool_ and right is sk.uint64:
        return  # the key `-v` makes an int32 of a bool, which no uint64 is compared with
    if isinstance(right, int) and (left is sk.bool_ or not left.is_float and not left.holds(right)):
        return  # `where` refuses the literal; `min` and `max` take its own dtype
    out = np.zeros((2, 5), np.float64)

    choices[1, 1](out, A, True, False, A, B)

    same_bits(out[1], out[0])


# -- literals -------------------------------------------------------------------------------------------------------------


@sk.jit
def with_literal(out, A, literal: sk.constexpr, functions: sk.constexpr):
    i = sk.cuda.thread_idx("x")
    for k, function in enumerate(functions):
        out[0, k, i] = function(A[i], literal)
        out[1, k, i] = function(literal, A[i])
        out[2, k, i] = function(A[i], A.dtype(literal))
        out[3, k, i] = function(A.dtype(literal), A[i])


@pytest.mark.parametrize("dtype", INTEGER_DTYPES, ids=lambda d: d.name)
def test_an_integer_literal_takes_the_dtype_of_the_other_operand(dtype, monkeypatch):  # P32
    values = np.array(edges(dtype), dtype.numpy)
    for literal in (3, dtype.max):
        for functions, result in ((ARITHMETIC + BITWISE, dtype), (COMPARISONS, sk.bool_)):
            for target in ("interp", "cpu"):
                monkeypatch.setenv("STAGEKIT_TARGET", target)
                out = np.zeros((4, len(functions), len(values)), result.numpy)
                with_literal[1, len(values)](out, values, literal, functions)
                np.testing.assert_array_equal(out[0], out[2])
                np.testing.assert_array_equal(out[1], out[3])


@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("literal", [0.1, 3, 1 / 3, 65504.0])
def test_a_float_literal_is_rounded_once_to_the_dtype_of_the_other_operand(dtype, literal, monkeypatch):  # P34
    values = np.array(edges(dtype), dtype.numpy)
    for target in ("interp", "cpu"):
        monkeypatch.setenv("STAGEKIT_TARGET", target)
        out = np.zeros((4, 5, len(values)), dtype.numpy)
        with_literal[1, len(values)](out, values, literal, ARITHMETIC)
        same_bits(out[0], out[2])
        same_bits(out[1], out[3])


@pytest.mark.parametrize("literal", [2**31, -(2**31) - 1, 2**63])
def test_an_integer_literal_that_does_not_fit_is_refused_but_compares(literal):
    @sk.jit
    def adding(out, A, literal: sk.constexpr):
        out[0] = A[0] + literal

    @sk.jit
    def comparing(out, A, literal: sk.constexpr):
        out[0] = A[0] < literal
        out[1] = literal <= A[0]
        out[2] = A[0] == literal
        out[3] = literal != A[0]

    A = np.array([5], np.int32)
    with pytest.raises(sk.StagekitError) as caught:
        adding[1, 1](np.zeros(1, np.int32), A, literal)
    assert caught.value.id == "LITERAL_RANGE"
    out = np.zeros(4, bool)
    comparing[1, 1](out, A, literal)
    assert out.tolist() == [5 < literal, literal <= 5, False, True]


def test_literals_chosen_at_run_time_are_still_literals():  # P34
    @sk.jit
    def kernel(out, A, p):
        beta = 0.1 if p else 1 / 3
        out[0] = A[0] * beta
        out[1] = beta
        out[2] = beta * 3 + A[0]
        n = 1
        if p:
            n = 2
        out[3] = A[0] + n / 3

    for dtype in (np.float64, np.float32):
        A = np.array([7], dtype)
        for p, beta, n in ((1, 0.1, 2), (0, 1 / 3, 1)):
            out = np.zeros(4, dtype)
            kernel[1, 1](out, A, p)
            wanted = [A[0] * dtype(beta), dtype(beta), dtype(beta * 3) + A[0], A[0] + dtype(n / 3)]
            assert out.tolist() == wanted
