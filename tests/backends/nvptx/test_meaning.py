"""The emitted LLVM text of control flow and memory, run on this machine: one thread, flat memory, no GPU needed.

Kernels here use nothing that only a GPU has, so their text is valid for any target once the address spaces are gone.
"""

from __future__ import annotations

import ctypes
import re
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit import dtypes
from stagekit.backends import nvptx
from stagekit.backends.llvm import optimize
from stagekit.backends.nvptx import division
from stagekit.dtypes import DType
from stagekit.ir import BinaryKind, Builder, CompareKind, Function, Scalar, Space, Value
from tests.backends.llvm.test_arith import host_machine
from tests.backends.nvptx.kernels import array, kernel

i64 = dtypes.int64
MOST_ITERATIONS = 40
C_TYPES = {8: ctypes.c_int8, 16: ctypes.c_int16, 32: ctypes.c_int32, 64: ctypes.c_int64}


def run(fn: Function, *arguments: Any, capability: int = 80) -> None:
    """Call the kernel after each pipeline for loops, on this machine: arrays by address, NumPy scalars by value."""
    emitted = nvptx.compile(fn, capability).llvm
    text = re.sub(r"addrspace\(\d\) ?|ptx_kernel |^target triple.*", "", emitted, flags=re.MULTILINE)
    text = re.sub(r"addrspacecast ptr (%\w+) to ptr", r"getelementptr i8, ptr \1, i64 0", text)
    text = _with_divisions_of_llvm(text)
    copy = [_copied(a) for a in arguments]
    _call(text, 2, *copy)
    _call(text, optimize.LOOPS, *arguments)
    np.testing.assert_equal([_with_nan(a) for a in copy], [_with_nan(a) for a in arguments])


_DIVISION = re.compile(
    r'  (%\w+) = call (float|\{ float(?:, float)* \}) asm "([^"]*usual:[^"]*)", "[^"]+"\(([^)]*)\) nounwind memory\(none\)'
)


def _with_divisions_of_llvm(text: str) -> str:
    """The text with `fdiv` and `llvm.sqrt` in place of the PTX that divides float32, lane by lane."""
    text, count = _DIVISION.subn(_division_of_llvm, text)
    return f"{text}\ndeclare float @llvm.sqrt.f32(float)\n" if count else text


def _division_of_llvm(found: re.Match[str]) -> str:
    name, held, ptx, operands = found.groups()
    args = operands.split(", ")
    results = held.count("float")
    if ptx == division._rooting(results):
        lanes = [f"call float @llvm.sqrt.f32({x})" for x in args]
    elif ptx == division._inverting(results):
        lanes = [f"fdiv float 1.0, {x.removeprefix('float ')}" for x in args]
    else:
        divisors = [b.removeprefix("float ") for b in args[results:]]
        lanes = [f"fdiv {a}, {divisors[lane % len(divisors)]}" for lane, a in enumerate(args[:results])]
    if held == "float":
        return f"  {name} = {lanes[0]}"
    lines, packed = [], "poison"
    for lane, formula in enumerate(lanes):
        whole = name if lane == results - 1 else f"{name}_all{lane}"
        lines += [
            f"  {name}_{lane} = {formula}",
            f"  {whole} = insertvalue {held} {packed}, float {name}_{lane}, {lane}",
        ]
        packed = whole
    return "\n".join(lines)


def _copied(argument: Any) -> Any:
    """A copy that begins as far behind a multiple of 64 bytes, which wide accesses may count on."""
    if not isinstance(argument, np.ndarray):
        return argument
    room = np.empty(argument.nbytes + 128, np.uint8)
    start = (argument.ctypes.data - room.ctypes.data) % 64
    copy = room[start : start + argument.nbytes].view(argument.dtype).reshape(argument.shape)
    copy[...] = argument
    return copy


def _with_nan(argument: Any) -> Any:
    """The argument, as float32 where NumPy does not know which of its elements are NaN."""
    return (
        argument.astype(np.float32) if isinstance(argument, np.ndarray) and argument.dtype.isbuiltin == 2 else argument
    )


def _call(text: str, pipeline: optimize.Pipeline, *arguments: Any) -> None:
    module = optimize.parse(text)
    optimize.run(module, host_machine(), pipeline)
    native = [a.ctypes.data if isinstance(a, np.ndarray) else int(a) for a in arguments]
    kinds = [ctypes.c_void_p if isinstance(a, np.ndarray) else C_TYPES[a.itemsize * 8] for a in arguments]
    with llvm.create_mcjit_compiler(module, host_machine()) as engine:
        engine.finalize_object()
        ctypes.CFUNCTYPE(None, *kinds)(engine.get_function_address("k"))(*native)


# -- for --------------------------------------------------------------------------------------------------------------


@st.composite
def ranges(draw: st.DrawFn) -> tuple[DType, int, int, int]:
    """A dtype and start, stop, step of a range that is not too long, often at the very ends of the dtype."""
    dtype = draw(st.sampled_from(dtypes.INTEGER_DTYPES))
    near_ends = st.integers(dtype.min, min(dtype.min + 20, dtype.max)) | st.integers(dtype.max - 20, dtype.max)
    value = near_ends | st.integers(max(dtype.min, -30), 30) | st.integers(dtype.min, dtype.max)
    start = draw(value)
    step = draw(value.filter(bool))
    iterations = draw(st.integers(-2, MOST_ITERATIONS))
    stop = draw(st.integers(start + step * iterations - 1, start + step * iterations + 1) | value)
    stop = min(max(stop, dtype.min), dtype.max)
    if (stop - start) // step > MOST_ITERATIONS:  # `len` refuses a range longer than any list
        stop = min(max(start + step * 3, dtype.min), dtype.max)
    return dtype, start, stop, step


@given(ranges(), st.tuples(st.booleans(), st.booleans(), st.booleans()))
@settings(max_examples=100, deadline=None)
def test_for_is_pythons_range(bounds: tuple[DType, int, int, int], is_constant: tuple[bool, bool, bool]) -> None:
    """Every dtype, both directions, bounds known when compiling or not, up to the last value of the dtype."""
    dtype, *numbers = bounds

    def body(b: Builder, visited: Value, count: Value, *given_: Value) -> None:
        start, stop, step = (
            b.constant(number, dtype) if known else value
            for number, known, value in zip(numbers, is_constant, given_, strict=True)
        )
        i, place = Value(Scalar(dtype)), Value(Scalar(i64))
        with b.block((i, place)) as loop:
            b.store(b.offset(visited, place), i)
            b.yield_(b.add(place, b.index(1)))
        (total,) = b.for_((start, stop, step), (b.index(0),), loop.done())
        b.store(count, total)

    params = {"visited": array(dtype), "count": array(i64), "start": dtype, "stop": dtype, "step": dtype}
    visited, count = np.zeros(MOST_ITERATIONS + 4, dtype.numpy), np.zeros(1, np.int64)

    run(kernel(params, body), visited, count, *(dtype.numpy.type(n) for n in numbers))

    expected = list(range(*numbers))
    assert count[0] == len(expected)
    assert visited[: len(expected)].tolist() == expected


def test_a_step_of_zero_runs_no_iteration() -> None:
    def body(b: Builder, out: Value, step: Value) -> None:
        i, total = Value(Scalar(i64)), Value(Scalar(i64))
        with b.block((i, total)) as loop:
            b.yield_(b.add(total, b.index(1)))
        (result,) = b.for_((b.index(0), b.index(10), step), (b.index(0),), loop.done())
        b.store(out, result)

    out = np.full(1, -1)

    run(kernel({"out": array(i64), "step": i64}, body), out, np.int64(0))

    assert out[0] == 0


def test_carried_values_are_exchanged_at_once() -> None:
    """T4: `a, b = b, a + b` reads both old values before either is replaced, after no iteration too."""

    def body(b: Builder, out: Value, n: Value) -> None:
        i, x, y = (Value(Scalar(i64)) for _ in range(3))
        with b.block((i, x, y)) as loop:
            b.yield_(y, b.add(x, y))
        x, y = b.for_((b.index(0), n, b.index(1)), (b.index(0), b.index(1)), loop.done())
        b.store(out, x)
        b.store(b.offset(out, b.index(1)), y)

    for n, expected in ((0, [0, 1]), (1, [1, 1]), (10, [55, 89])):
        out = np.zeros(2, np.int64)

        run(kernel({"out": array(i64), "n": i64}, body), out, np.int64(n))

        assert out.tolist() == expected


# -- while and if -----------------------------------------------------------------------------------------------------


def collatz(b: Builder, out: Value, n: Value) -> None:
    """The number of steps from n to 1, by a `while` whose body is an `if`."""
    one, two, three = (b.index(k) for k in (1, 2, 3))
    seen, steps = Value(Scalar(i64)), Value(Scalar(i64))
    with b.block((seen, steps)) as before:
        b.condition(b.compare(CompareKind.NE, seen, one), seen, steps)
    kept, count = Value(Scalar(i64)), Value(Scalar(i64))
    with b.block((kept, count)) as after:
        with b.block() as even:
            b.yield_(b.binary(BinaryKind.FLOORDIV, kept, two))
        with b.block() as odd:
            b.yield_(b.add(b.mul(kept, three), one))
        is_even = b.compare(CompareKind.EQ, b.binary(BinaryKind.MOD, kept, two), b.index(0))
        (following,) = b.if_(is_even, even.done(), odd.done())
        b.yield_(following, b.add(count, one))
    _, total = b.while_((n, b.index(0)), before.done(), after.done())
    b.store(out, total)


def test_while_and_if_carry_values() -> None:
    """T2: the condition is evaluated anew each time, on the values of the last iteration."""
    for n, expected in ((1, 0), (6, 8), (27, 111)):
        out = np.zeros(1, np.int64)

        run(kernel({"out": array(i64), "n": i64}, collatz), out, np.int64(n))

        assert out[0] == expected


# -- memory -----------------------------------------------------------------------------------------------------------


def test_masked_memory_touches_nothing_where_the_mask_is_off() -> None:
    """P37: the address of a masked access may be anything; this one is far outside of every array."""

    def body(b: Builder, a: Value, out: Value, is_on: Value) -> None:
        wild = b.select(is_on, b.index(1), b.index(2**40))
        value = b.load(b.offset(a, wild), is_on, b.constant(-1.0, dtypes.float32))
        b.store(out, value)
        b.store(b.offset(a, wild), b.constant(9.0, dtypes.float32), is_on)

    params = {"a": array(dtypes.float32), "out": array(dtypes.float32), "is_on": dtypes.bool_}
    for is_on, expected in ((True, ([1.0, 9.0], 2.0)), (False, ([1.0, 2.0], -1.0))):
        a, out = np.array([1.0, 2.0], np.float32), np.zeros(1, np.float32)

        run(kernel(params, body), a, out, np.bool_(is_on))

        assert (a.tolist(), out[0]) == expected


def test_any_nonzero_byte_is_true_and_true_is_stored_as_one() -> None:
    """P8: a bool in memory is a byte; a bool value is one bit."""

    def body(b: Builder, a: Value, out: Value) -> None:
        for n in range(3):
            b.store(b.offset(out, b.index(n)), b.load(b.offset(a, b.index(n))))

    out = np.full(3, 7, np.uint8)

    run(kernel({"a": array(dtypes.bool_), "out": array(dtypes.bool_)}, body), np.array([0, 1, 255], np.uint8), out)

    assert out.tolist() == [0, 1, 1]


def test_local_memory_is_one_array_for_the_whole_kernel() -> None:
    """An allocation inside a loop is the same memory each time."""

    def body(b: Builder, out: Value, n: Value) -> None:
        i = Value(Scalar(i64))
        with b.block((i,)) as loop:
            cell = b.alloc(i64, Space.LOCAL, 4, 8)
            place = b.offset(cell, b.and_(i, b.index(3)))
            b.store(place, i)
            b.store(b.offset(out, i), b.load(b.offset(cell, b.index(0))))
            b.yield_()
        b.for_((b.index(0), n, b.index(1)), (), loop.done())

    out = np.zeros(6, np.int64)

    run(kernel({"out": array(i64), "n": i64}, body), out, np.int64(6))

    assert out.tolist() == [0, 0, 0, 0, 4, 4]
