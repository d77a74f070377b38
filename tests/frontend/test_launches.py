"""Kernels as a whole: parameters, brackets by style, device_entry, printing, asserting, budgets, kernels in kernels."""

from __future__ import annotations

import time

import numpy as np
import pytest

import stagekit as sk
from tests.frontend.agreement import refuse

TARGETS = pytest.mark.parametrize("target", ["cpu", "interp"])


@pytest.fixture
def on(monkeypatch):
    """Choose the target of every launch of a test."""
    return lambda target: monkeypatch.setenv("STAGEKIT_TARGET", target)


def refused(attempt) -> sk.StagekitError:
    with pytest.raises(sk.StagekitError) as caught:
        attempt()
    return caught.value


# -- parameters -----------------------------------------------------------------------------------------------------------


@sk.jit
def widen(out, n):
    out[0] = sk.int64(n) * 3


@pytest.mark.parametrize("n", [0, 1, 2, 15, 16, 17, -1, 2**31 - 1, -(2**31)])
def test_the_type_of_an_argument_never_depends_on_its_value(n):  # P1
    out = np.zeros(1, np.int64)
    widen[1, 1](out, n)
    assert out[0] == n * 3
    assert len(widen.specialize()._variants) == 1


@pytest.mark.parametrize(("annotation", "value"), [(sk.int32, 2**40), (sk.uint8, 300), (sk.uint8, -1), (None, 2**31)])
def test_a_scalar_that_does_not_fit_names_the_parameter_and_the_value(annotation, value):  # T5
    @sk.jit
    def kernel(out, amount):
        out[0] = amount

    k = kernel if annotation is None else kernel.specialize(amount=annotation)
    error = refused(lambda: k[1, 1](np.zeros(1, np.int64), value))
    assert error.id == "INTEGER_OUT_OF_RANGE"
    assert "`amount`" in str(error)
    assert str(value) in str(error)


@TARGETS
@pytest.mark.parametrize("dtype", [sk.float16, sk.bfloat16, sk.float32, sk.float64], ids=lambda d: d.name)
def test_a_float_argument_takes_the_declared_type_by_correct_rounding(dtype, target, on):  # P34
    on(target)

    @sk.jit
    def kernel(out, x):
        out[0] = x

    k = kernel.specialize(x=dtype)
    for value in (42.0, 65504.0, 65520.0, 1e-8, 1 / 3, 0.1, float("nan"), 3):
        out = np.zeros(1, np.float64)
        k[1, 1](out, value)
        with np.errstate(over="ignore"):
            wanted = np.float64(np.asarray(value).astype(dtype.numpy))
        np.testing.assert_array_equal(out[0], wanted)


def test_numpy_scalars_keep_their_dtype():  # P32
    @sk.jit
    def kernel(out, x):
        sk.static_assert(x.dtype is sk.uint8 or x.dtype is sk.float64 or x.dtype is sk.bool_)
        out[0] = x

    for value in (np.uint8(200), np.float64(0.1), np.bool_(True)):
        out = np.zeros(1, np.float64)
        kernel[1, 1](out, value)
        assert out[0] == value


@TARGETS
def test_strided_views_keywords_and_defaults(target, on):  # T11
    on(target)

    @sk.jit
    def kernel(out, A, scale=2, *, shift=1):
        i, j = sk.cuda.thread_idx("x"), sk.cuda.thread_idx("y")
        out[i, j] = A[i, j] * scale + shift

    base = np.arange(24, dtype=np.int64).reshape(4, 6)
    for view in (base, base.T, base[::2, 1::2], base[::-1], base[1:3]):
        out = np.zeros(view.shape, np.int64)
        kernel[1, view.shape](out, A=view)
        np.testing.assert_array_equal(out, view * 2 + 1)
        kernel[1, view.shape](A=view, out=out, shift=0, scale=3)
        np.testing.assert_array_equal(out, view * 3)


def test_shape_ndim_dtype_len_size_and_strides_inside_a_kernel():
    @sk.jit
    def kernel(out, A):
        sk.static_assert(A.ndim == 2)
        sk.static_assert(A.dtype is sk.float32)
        out[0], out[1], out[2], out[3] = A.shape[0], A.shape[1], len(A), A.size
        rows, cols = A.shape
        out[4] = rows * 100 + cols
        out[5] = len(A[0])
        out[6] = A.T.shape[0]

    out = np.zeros(7, np.int64)
    kernel[1, 1](out, np.zeros((3, 5), np.float32))
    assert out.tolist() == [3, 5, 3, 15, 305, 5, 5]


@TARGETS
def test_views_of_views_and_swaps(target, on):  # T4, T3
    on(target)

    @sk.inline
    def twice(value, A):
        A[0] = 7
        return value + value

    @sk.jit
    def kernel(A, M):
        A[0], A[1] = A[1], A[0]
        A[2] = twice(A[0] * 10, A)
        row = M[1]
        row[2] = row[0] + M[0, 1:][1]
        column = M.T[0]
        column[0] = 50

    A, M = np.array([1, 2, 3], np.int64), np.arange(6, dtype=np.int64).reshape(2, 3)
    kernel[1, 1](A, M)
    assert A.tolist() == [7, 1, 40]
    assert M.tolist() == [[50, 1, 2], [3, 4, 5]]


@TARGETS
def test_an_array_chosen_at_run_time(target, on):
    on(target)

    @sk.jit
    def kernel(out, A, B, p):
        chosen = A if p else B
        out[0] = chosen[1] + len(chosen)
        if p:
            view = A[1:]
        else:
            view = B[:2]
        out[1] = view[0]

    A, B = np.array([1, 2, 3], np.int64), np.array([10, 20], np.int64)
    for p, wanted in ((1, [5, 2]), (0, [22, 10])):
        out = np.zeros(2, np.int64)
        kernel[1, 1](out, A, B, p)
        assert out.tolist() == wanted


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (lambda A: A[0.5], "BAD_INDEX"),
        (lambda A: A[True], "BAD_INDEX"),
        (lambda A: A[5], "BAD_INDEX"),
        (lambda A: A[-5], "BAD_INDEX"),
        (lambda A: A["x"], "BAD_INDEX"),
        (lambda A: A[None], "BAD_INDEX"),
        (lambda A: A[0, 0], "BAD_INDEX"),
        (lambda A: A[::0][0], "BAD_INDEX"),
        (lambda A: A + A, "BAD_OPERANDS"),
        (lambda A: A * 2, "BAD_OPERANDS"),
        (lambda A: A.shpe, "NO_ATTRIBUTE"),
        (lambda A: 1 if A else 2, "BAD_OPERANDS"),
        (lambda A: A(), "NOT_CALLABLE"),
        (lambda A: [x for x in A], "NOT_ITERABLE"),
    ],
)
def test_what_arrays_refuse(program, expected):  # T7
    @sk.jit
    def kernel(A: sk.Tensor((4,), sk.int64)):
        A[0] = program(A)

    assert refused(lambda: kernel[1, 1](np.zeros(4, np.int64))).id == expected


# -- brackets -------------------------------------------------------------------------------------------------------------


@sk.jit
def block_level(out):
    sk.store(out + sk.program_id(0), sk.program_id(0) + sk.program_id(1) * 10)


@sk.jit
def thread_level(out):
    out[sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")] = sk.cuda.block_dim("x")


@TARGETS
def test_what_stands_in_the_brackets_follows_the_style(target, on):
    on(target)
    for key in (4, (4,), (4, 1), (4, 1, 1)):
        out = np.full(4, -1, np.int64)
        block_level[key](out)
        assert out.tolist() == [0, 1, 2, 3]
    for key in ((2, 3), ((2,), (3,)), (2, (3, 1)), (2, 3, 0), sk.cuda.LaunchConfig(grid=2, block=3)):
        out = np.full(6, -1, np.int64)
        thread_level[key](out)
        assert out.tolist() == [3] * 6


def test_brackets_that_do_not_fit_the_style_are_refused():
    out = np.zeros(4, np.int64)
    for attempt in (
        lambda: thread_level[4](out),
        lambda: thread_level[(4,)](out),
        lambda: thread_level(out),
        lambda: block_level(out),
        lambda: block_level[(1, 1, 1, 1)](out),
        lambda: block_level["x"](out),
        lambda: thread_level[1, -1](out),
        lambda: thread_level[1, 2048](out),
        lambda: thread_level[1.5, 1](out),
    ):
        refused(attempt)


def test_mixed_styles_are_refused():
    @sk.jit
    def mixed(out):
        out[sk.program_id(0)] = sk.cuda.thread_idx("x")

    assert refused(lambda: mixed[1, 1](np.zeros(1, np.int64))).id == "MIXED_STYLES"


def test_a_zero_in_any_axis_is_no_launch():
    out = np.full(4, -1, np.int64)
    block_level[0](out)
    block_level[(3, 0)](out)
    thread_level[0, 4](out)
    assert out.tolist() == [-1] * 4
    empty = np.zeros(0, np.int64)
    entry(empty, empty)


# -- device_entry ---------------------------------------------------------------------------------------------------------

n = sk.dynamic("n")


@sk.function
def entry(A: sk.Tensor((n,), sk.int64), B: sk.Tensor((n,), sk.int64)):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(n, 4), block=4))
    i = sk.cuda.block_idx("x") * 4 + sk.cuda.thread_idx("x")
    if i < n:
        B[i] = A[i] + n


@TARGETS
@pytest.mark.parametrize("size", [0, 1, 4, 5, 17])
def test_a_kernel_computes_its_own_grid(target, size, on):
    on(target)
    A, B = np.arange(size, dtype=np.int64), np.zeros(size, np.int64)
    entry(A, B)
    assert B.tolist() == [a + size for a in range(size)]


def test_where_device_entry_may_stand():
    config = sk.cuda.LaunchConfig

    def under_if(out, x):
        if x:
            sk.device_entry(launch=config(grid=1, block=1))
        out[0] = 1

    def in_helper(out, x):
        def helper():
            sk.device_entry(launch=config(grid=1, block=1))

        helper()
        out[0] = 1

    def twice(out, x):
        sk.device_entry(launch=config(grid=1, block=1))
        sk.device_entry(launch=config(grid=1, block=1))

    def not_a_launch(out, x):
        sk.device_entry(launch=3)

    def from_memory(out, x):
        sk.device_entry(launch=config(grid=out[0], block=1))

    def too_large(out, x):
        sk.device_entry(launch=config(grid=1, block=(64, 64)))

    expected = {
        under_if: "ENTRY_MISPLACED", in_helper: "ENTRY_MISPLACED", twice: "ENTRY_MISPLACED", not_a_launch: "ENTRY_MISPLACED",
        from_memory: "LAUNCH_NOT_COMPUTABLE", too_large: "BAD_BLOCK_SIZE",
    }  # fmt: skip
    for program, wanted in expected.items():
        error = refused(lambda: sk.jit(program)(np.zeros(1, np.int64), 1))
        assert error.id == wanted, program.__name__
        assert error.loc.line > program.__code__.co_firstlineno


# -- printing and asserting -----------------------------------------------------------------------------------------------


def test_static_print_prints_once_per_specialisation(capfd):
    @sk.jit
    def kernel(out, N: sk.constexpr):
        for i in range(out.shape[0]):
            sk.static_print("N is", N, "and i is", i)
            if i > 2:
                sk.static_print("inside")
        out[0] = N

    out = np.zeros(3, np.int64)
    for _ in range(3):
        kernel[1, 1](out, 5)
    text = capfd.readouterr().out
    assert text.count("N is 5") == 1
    assert text.count("inside") == 1
    kernel[1, 1](out, 6)
    assert "N is 6" in capfd.readouterr().out


@TARGETS
def test_print_is_run_time(target, on, capfd):
    on(target)

    @sk.jit
    def kernel(x, y):
        if x > 2:
            print("x is", x, f"and y {y:.2f}", {"k": 1}, "{}", sep="|", end="!\n")

    for x in (1, 3, 4):
        kernel[1, 1](x, 0.5)
    lines = capfd.readouterr().out.splitlines()
    assert lines == [f"x is|{x}|and y 0.50|{{'k': 1}}|{{}}!" for x in (3, 4)]


@TARGETS
def test_a_failed_assert_says_line_values_block_and_thread(target, on):
    on(target)

    @sk.jit
    def kernel(A, limit):
        i = sk.cuda.thread_idx("x")
        assert A[i] < limit, f"A[{i}] is {A[i]}, limit {limit}"

    A = np.array([1, 5, 2], np.int64)
    kernel[1, 3](A, 9)
    error = refused(lambda: kernel[1, 3](A, 4))
    text = str(error)
    assert "A[1] is 5, limit 4" in text
    assert error.loc.line == kernel.function.__code__.co_firstlineno + 3
    assert "(1, 0, 0)" in text


@TARGETS
def test_an_assert_without_message_and_one_that_is_not_reached(target, on):
    on(target)

    @sk.jit
    def kernel(x, p):
        if p:
            assert x != 3
        assert True

    kernel[1, 1](3, 0)
    kernel[1, 1](4, 1)
    assert "x != 3" in str(refused(lambda: kernel[1, 1](3, 1)))


def test_static_assert_and_constexpr_refuse_run_time_values():
    def asserting(x):
        sk.static_assert(x > 0, "positive")
        return x

    def failing(x):
        width = 3
        sk.static_assert(width % 2 == 0, f"width {width} is odd")
        return x

    assert refuse(asserting, 1).id == "RUN_TIME_VALUE"
    assert refuse(lambda x: sk.constexpr(x + 1), 1).id == "RUN_TIME_VALUE"
    error = refuse(failing, 1)
    assert error.id == "STATIC_ASSERTION"
    assert "width 3 is odd" in str(error)


# -- budgets --------------------------------------------------------------------------------------------------------------


def test_too_much_unrolling_is_refused_under_a_second_naming_both_loops():  # Q30
    @sk.jit
    def kernel(out):
        for i in sk.static_range(300):
            for j in sk.static_range(300):
                out[0] = i + j

    start = time.process_time()
    error = refused(lambda: kernel[1, 1](np.zeros(1, np.int64)))
    elapsed = time.process_time() - start

    line = kernel.function.__code__.co_firstlineno
    assert error.id == "UNROLL_BUDGET"
    assert f"line {line + 2}" in str(error)
    assert f"line {line + 3}" in str(error)
    assert elapsed < 4  # under one second where nothing else runs


def test_budgets_can_be_raised_and_lowered():  # Q30
    def body(out):
        total = out[0]
        for i in sk.static_range(40):
            for j in sk.static_range(40):
                total += i ^ j
        out[0] = total

    out = np.zeros(1, np.int64)
    assert refused(lambda: sk.jit(body, unroll_budget=1000)[1, 1](out)).id == "UNROLL_BUDGET"
    assert refused(lambda: sk.jit(body, op_budget=500)[1, 1](out)).id == "OP_BUDGET"
    sk.jit(body, unroll_budget=1640)[1, 1](out)
    assert out[0] == sum(i ^ j for i in range(40) for j in range(40))


def test_an_endless_compile_time_while_is_refused():
    def program(x):
        while True:
            pass

    def counting(x):
        i = 0
        while i >= 0:
            i += 1
        return x

    assert refuse(counting, 1).id == "UNROLL_BUDGET"
    assert refuse(program, 1).id == "UNROLL_BUDGET"


# -- kernels and switches -------------------------------------------------------------------------------------------------


@TARGETS
def test_a_kernel_called_in_a_kernel_is_a_fragment(target, on):
    on(target)

    @sk.jit
    def inner(out, x, N: sk.constexpr = 3):
        out[0] = x * N

    @sk.jit
    def outer(out, x):
        inner(out, x + 1)
        inner(out[1:], x, 5)
        inner.specialize(N=3)

    def outer_plain(out, x):
        inner(out, x + 1)
        inner(out[1:], x, N=5)

    out = np.zeros(2, np.int64)
    sk.jit(outer_plain)[1, 1](out, 2)
    assert out.tolist() == [9, 10]


@pytest.mark.stagekit_unchecked(reason="a checked launch goes to the interpreter, whatever the switch says")
def test_the_switch_for_the_target(monkeypatch):
    @sk.jit
    def kernel(out):
        out[0] = 5

    out = np.zeros(1, np.int64)
    for target in ("interp", "cpu", ""):
        monkeypatch.setenv("STAGEKIT_TARGET", target)
        out[0] = 0
        kernel[1, 1](out)
        assert out[0] == 5
    monkeypatch.setenv("STAGEKIT_TARGET", "gpu")
    with pytest.raises(sk.StagekitError):
        kernel[1, 1](out)


def test_the_language_outside_a_kernel_says_so():
    for attempt in (
        lambda: sk.load(1),
        lambda: sk.cuda.thread_idx("x"),
        lambda: sk.cuda.syncthreads(),
    ):
        refused(attempt)


# -- where a kernel runs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kinds", "target"),
    [
        ([], "cpu"), (["cpu"], "cpu"), (["pinned"], "cpu"), (["managed"], "cuda"), (["cuda"], "cuda"), (["other"], "cpu"),
        (["pinned", "cuda"], "cuda"), (["managed", "cuda"], "cuda"), (["managed", "cpu"], "cpu"),
        (["pinned", "managed"], "cpu"),
    ],
)  # fmt: skip
def test_the_memory_of_the_arrays_decides_where_a_kernel_runs(kinds, target, monkeypatch):
    from stagekit.jit import argtypes
    from stagekit.runtime.views import Device

    names = [f"a{i}" for i in range(len(kinds))]
    parameters = sk.jit(_with_parameters(names)).parameters
    reader = argtypes.ArgumentTypes("kernel", parameters, dict.fromkeys(names), ())
    monkeypatch.setattr(reader, "_readers", [lambda v: (None, Device(v, 0))] * len(kinds))

    _, device = reader.of(kinds)
    assert argtypes.target_of(device) == target


def _with_parameters(names):
    import inspect

    def kernel():
        pass

    kernel.__signature__ = inspect.Signature(
        [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names]
    )
    return kernel
