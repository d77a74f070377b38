"""What the generated code is like: no calls that nobody answers, on any x86; regular accesses without gathers; linear size."""

from __future__ import annotations

import copy
import functools
import itertools
import operator
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit import dtypes
from stagekit.backends import interp
from stagekit.backends.host.compiler import compile, compile_for
from stagekit.backends.host.target import Processor, check_symbols, load, machine_for, this_processor, undefined_symbols
from stagekit.backends.llvm import optimize
from stagekit.diagnostics import InternalError
from stagekit.intrinsics import all_intrinsics
from stagekit.ir import (
    INDEX,
    PURE,
    BinaryKind,
    Builder,
    CompareKind,
    Function,
    Intrinsic,
    Pointer,
    Scalar,
    Space,
    Value,
    semantics,
)
from tests.backends.host import programs
from tests.backends.host.kernels import array, barrier, call, f32, global_thread, i32, kernel, loop, thread, when
from tests.backends.host.running import CPU, Runner, Triple, lower
from tests.backends.host.test_random import INTERP

is_x86 = llvm.get_default_triple().startswith("x86_64")
x86_only = pytest.mark.skipif(not is_x86, reason="names x86 processors")

BASELINE = Processor("x86-64", "")
HASWELL = Processor("haswell", "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+popcnt,+sse3,+sse4.1,+sse4.2,+ssse3")
PROCESSORS = [pytest.param(p, id=p.name) for p in (BASELINE, HASWELL)]
lesser_processors = pytest.mark.parametrize("processor", PROCESSORS)  # this one compiles all that other tests run
each_processor = pytest.mark.parametrize("processor", [*PROCESSORS, pytest.param(this_processor(), id="this")])


def runs_here(processor: Processor) -> bool:
    mine = this_processor()
    return all(mine.has(feature.removeprefix("+")) for feature in processor.features.split(",") if feature[:1] == "+")


@x86_only
@lesser_processors
@pytest.mark.parametrize("target", dtypes.ALL_DTYPES, ids=lambda d: d.name)
def test_conversions_need_nothing_from_libgcc(processor: Processor, target: dtypes.DType) -> None:
    """From every dtype, as vectors and as scalars, which all threads share."""

    def body(b: Builder, *params: Value) -> None:
        t, *pairs = thread(b), *zip(params[::2], params[1::2], strict=True)
        for pointer, scalar in pairs:
            for value in (b.load(b.offset(pointer, t)), scalar):
                b.store(b.bitcast(b.offset(params[0], t), Pointer(target, Space.GLOBAL)), b.cast(value, target))

    types = [kind for d in dtypes.ALL_DTYPES for kind in (array(d), Scalar(d))]

    code = compile_for(lower(kernel(*types, body=body), CPU, ()), (64, 1, 1), processor)

    assert [] == undefined_symbols(code.object_code)


FLOATS = [d for d in dtypes.ALL_DTYPES if d.is_float]
HALVES = {Scalar(d) for d in FLOATS if d.bits < 32}


@x86_only
@lesser_processors
@pytest.mark.parametrize("source", FLOATS, ids=lambda d: d.name)
def test_rounding_what_has_another_sign_needs_nothing_from_libgcc(processor: Processor, source: dtypes.DType) -> None:
    """LLVM rounds the magnitude and the sign of a `copysign` alone, the sign through all of several roundings at once."""

    def body(b: Builder, *params: Value) -> None:
        t, one = thread(b), b.constant(1.0, source)
        loaded, scalar = b.load(b.offset(params[0], t)), params[1]
        for wide in (dtypes.float32, dtypes.float64):
            x, y, z = (b.cast(value, wide) for value in (loaded, scalar, one))
            for magnitude, sign in ((x, y), (y, x), (z, x), (y, z), (x, z)):
                value = call(b, "copysign", magnitude, sign)
                for target, pointer in zip(FLOATS, params[2:], strict=True):
                    b.store(b.offset(pointer, t), b.cast(value, target))
                    b.store(b.offset(pointer, t), b.cast(b.cast(value, dtypes.float32), target))

    types = [array(source), Scalar(source), *map(array, FLOATS)]

    code = compile_for(lower(kernel(*types, body=body), CPU, ()), (32, 1, 1), processor)

    assert [] == undefined_symbols(code.object_code)


@x86_only
@lesser_processors
@pytest.mark.parametrize("spec", [s for s in all_intrinsics() if s.effects == PURE and s.args], ids=lambda s: s.name)
def test_every_pure_intrinsic_links_on_any_x86(processor: Processor, spec: Intrinsic) -> None:
    """`compile_for` refuses an object whose symbols the process does not have. All signatures are in one kernel.

    A function of one or two halves is that of float32 between conversions, which the tests above look at.
    """
    sigs = [sig for sig in spec.sigs if not any(isinstance(t, Pointer) for t in (*sig.args, *sig.results))]
    if len(spec.args) < 3 and any(Scalar(dtypes.float32) in sig.args for sig in sigs):
        sigs = [sig for sig in sigs if not {*sig.args} & HALVES]

    def body(b: Builder, *params: Value) -> None:
        t, rest = thread(b), iter(params)
        for sig in sigs:
            args = [b.load(b.offset(next(rest), t)) for _ in sig.args]
            for result in b.call(spec, args, tuple(p.default for p in spec.params)):
                b.store(b.offset(next(rest), t), result)

    types = [array(t.dtype) for sig in sigs for t in (*sig.args, *sig.results)]
    fn = lower(kernel(*types, body=body), CPU, ())
    # what has no instruction for a number has none for many; of 32 LLVM makes several of 8, in three times the time
    for threads in (1, 8) if processor == BASELINE else (8,):
        compile_for(fn, (threads, 1, 1), processor)


Pattern = Callable[[Builder, Value, Value], Value]


def of_thread(kind: CompareKind, period: int, factor: int, offset: int) -> Pattern:
    """`thread % period kind factor * turn + offset`."""

    def pattern(b: Builder, t: Value, turn: Value) -> Value:
        limit = b.add(b.mul(turn, b.index(factor)), b.index(offset))
        return b.compare(kind, b.binary(BinaryKind.MOD, t, b.index(period)), limit)

    return pattern


MASKS = {
    "one lane": of_thread(CompareKind.EQ, 1024, 1, 0),
    "none": of_thread(CompareKind.LT, 1024, 0, 0),
    "a head": of_thread(CompareKind.LT, 1024, 9, 1),
    "every third": of_thread(CompareKind.EQ, 3, 1, 0),
    "all but two": of_thread(CompareKind.NE, 31, 1, 3),
}


@x86_only
@each_processor
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.float64], ids=lambda d: d.name)
def test_masks_that_are_known_in_the_end_do_not_abort_llvm(
    processor: Processor, mask: str, dtype: dtypes.DType
) -> None:
    """Known when the code is written, or once LLVM has unrolled the loop; equal masked stores follow one another."""

    def access(b: Builder, params: Sequence[Value], turn: Value) -> None:
        t, zero = thread(b), b.constant(dtype(0).item(), dtype)
        is_on = MASKS[mask](b, t, turn)
        for place in (t, b.mul(t, t)):
            x = b.load(b.offset(params[0], place), is_on, zero)
            for value in (x, x, zero, zero, zero, params[2], params[2]):
                b.store(b.offset(params[1], place), value, is_on)
            b.store(b.offset(params[1], b.add(t, b.index(4096))), x)

    def body(b: Builder, *params: Value) -> None:
        for turn in range(2):
            access(b, params, b.index(turn))

        def again(turn: Value) -> tuple[()]:
            access(b, params, turn)
            return ()

        loop(b, (b.index(0), b.index(3), b.index(1)), (), again)

    for threads in (5, 33):
        fn = kernel(array(dtype), array(dtype), Scalar(dtype), body=body)
        compile_for(lower(fn, CPU, ()), (threads, 1, 1), processor)


ZNVER3 = Processor("znver3", HASWELL.features)
LANE_PATTERNS = {  # `thread % period kind limit`
    "all": (CompareKind.GE, 1024, 0),
    "none": (CompareKind.LT, 1024, 0),
    "one": (CompareKind.EQ, 1024, 13),
    "a head": (CompareKind.LT, 1024, 5),
    "a tail": (CompareKind.GT, 1024, 15),
    "every seventh": (CompareKind.EQ, 7, 3),
    "the ends of each register": (CompareKind.NE, 31, 9),
}
JOINS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "known": lambda known, other: known,
    "and": lambda known, other: known & other,
    "or": lambda known, other: known | other,
    "half": lambda known, other: np.where(np.arange(len(known)) % 32 < 16, other, known),
}


@x86_only
@pytest.mark.parametrize("processor", [HASWELL, ZNVER3], ids=lambda p: p.name)
@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("join", JOINS)
def test_loads_under_masks_that_llvm_comes_to_know(processor: Processor, dtype: dtypes.DType, join: str) -> None:
    """In whole or in part, beside lanes that are known at run time, one by one or all alike.

    LLVM aborted over some of them, and read lanes that are off under others; the value is stored as it was loaded.
    """

    def body(b: Builder, src: Value, dst: Value, kept: Value, n: Value, other: Value) -> None:
        t = thread(b)
        by_lane = b.compare(CompareKind.NE, b.load(b.offset(kept, t)), b.constant(0, i32))
        alike = b.compare(CompareKind.NE, n, b.constant(0, i32))
        for turn, ((kind, period, limit), unknown) in enumerate(
            itertools.product(LANE_PATTERNS.values(), (by_lane, alike))
        ):
            mask = of_thread(kind, period, 0, limit)(b, t, t)
            if join == "half":
                in_front = b.compare(CompareKind.LT, b.binary(BinaryKind.MOD, t, b.index(32)), b.index(16))
                mask = b.select(in_front, unknown, mask)
            elif join != "known":
                mask = b.binary(BinaryKind[join.upper()], mask, unknown)
            for half, fill in enumerate((b.constant(dtype(0).item(), dtype), other)):
                place = b.add(t, b.index(64 * (2 * turn + half)))
                b.store(b.offset(dst, place), b.load(b.offset(src, t), mask, fill))

    fn = kernel(array(dtype), array(dtype), array(i32), Scalar(i32), Scalar(dtype), body=body)
    src, kept = np.arange(1, 65).astype(dtype.numpy), (np.arange(64) * 5 % 3 == 1).astype(np.int32)
    for threads, n in ((5, 1), (32, 1), (40, 0)):
        runner = Runner(compile_for(lower(fn, CPU, ()), (threads, 1, 1), processor))
        if runs_here(processor):
            dst = np.full((len(LANE_PATTERNS), 2, 2, 64), 7, dtype.numpy)
            runner([src, dst, kept, np.int32(n), dtype.numpy.type(99)], (1, 1, 1))
            t, on = np.arange(threads), kept[:threads] != 0
            for results, (kind, period, limit) in zip(dst, LANE_PATTERNS.values(), strict=True):
                known = getattr(operator, kind.name.lower())(t % period, limit)
                for pair, unknown in zip(results, (on, np.full(threads, n != 0)), strict=True):
                    mask = JOINS[join](known, unknown)
                    for result, fill in zip(pair, (0, 99), strict=True):
                        np.testing.assert_array_equal(result[:threads], np.where(mask, src[:threads], fill))
                        assert np.all(result[threads:] == 7)
        runner.close()


@x86_only
@pytest.mark.parametrize("processor", PROCESSORS)
def test_every_half_is_converted_bit_by_bit(processor: Processor) -> None:
    """Also by a processor without F16C: every half to wider floats, and floats at, between and beside the halves back."""
    if not runs_here(processor):
        pytest.skip(f"this machine does not run code for {processor.name}")
    half, single, double = dtypes.float16, dtypes.float32, dtypes.float64
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    between = np.frombuffer((np.arange(1 << 16, dtype=np.uint32) * 65537).tobytes(), np.float32)
    with np.errstate(all="ignore"):
        ties = (halves.astype(np.float32) + np.nextafter(halves, np.float16(np.inf)).astype(np.float32)) / 2
        beside = [np.nextafter(ties, np.float32(end)) for end in (-np.inf, np.inf)]

    def body(b: Builder, narrow: Value, wide: Value, up: Value, further: Value, down: Value) -> None:
        i = global_thread(b)
        x = b.load(b.offset(narrow, i))
        b.store(b.offset(up, i), b.cast(x, single))
        b.store(b.offset(further, i), b.cast(x, double))
        b.store(b.offset(down, i), b.cast(b.load(b.offset(wide, i)), half))

    fn = kernel(array(half), array(single), array(single), array(double), array(half), body=body)
    runner = Runner(compile_for(lower(fn, CPU, ()), (64, 1, 1), processor))
    for wide in (ties, between, *beside):
        results = [np.zeros(1 << 16, dtype.numpy) for dtype in (single, double, half)]
        runner([halves, wide, *results], (1024, 1, 1))
        wanted = (
            semantics.cast(halves, half, single),
            semantics.cast(halves, half, double),
            semantics.cast(wide, single, half),
        )
        for found, expected in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(found, expected)
            np.testing.assert_array_equal(np.signbit(found[expected == 0]), np.signbit(expected[expected == 0]))
    runner.close()


EQUAL_STORES = """
declare void @llvm.masked.store.v32i32.p0(<32 x i32>, ptr, <32 x i1>)
define void @f(ptr %place, i32 %x, <32 x i32> %v, <32 x i1> %m) {
  %i = insertelement <32 x i32> poison, i32 %x, i64 0
  %s = shufflevector <32 x i32> %i, <32 x i32> poison, <32 x i32> zeroinitializer
  STORES
  br label %end
end:
  ret void
}
"""


@pytest.mark.parametrize("value", ["%s", "%v"])
@pytest.mark.parametrize("mask", ["%m", f"<i1 true{', i1 false' * 31}>"], ids=["run time", "one lane"])
@pytest.mark.parametrize("pipeline", [optimize.VECTORS, optimize.LOCAL_VECTORS], ids=["plain", "local"])
def test_no_masked_store_follows_an_equal_one_into_instruction_selection(
    value: str, mask: str, pipeline: optimize.Pipeline
) -> None:
    """LLVM 22.1 aborts the process over some of them: "DAG root value is not a chain!"."""
    store = f"call void @llvm.masked.store.v32i32.p0(<32 x i32> {value}, ptr align 4 %place, <32 x i1> {mask})\n"
    module = optimize.parse(EQUAL_STORES.replace("STORES", store * 3), llvm.create_context())

    optimize.run(module, machine_for(this_processor()), pipeline)

    assert 1 == str(module).count("call void @llvm.masked.store")


def test_llvm_takes_few_scatters_of_bytes_apart() -> None:
    """Its time for scalar stores grows with the square of their number."""

    def body(b: Builder, *params: Value) -> None:
        for step in range(20):
            place = b.add(b.mul(thread(b), b.index(64)), b.index(step))
            b.store(b.offset(params[1], place), b.load(b.offset(params[0], place)))

    fn = kernel(array(dtypes.int8), array(dtypes.int8), body=body)

    code = compile_for(lower(fn, CPU, ()), (32, 1, 1), this_processor())

    assert 8 == code.llvm.count("call void @llvm.masked.scatter")


@x86_only
@settings(max_examples=25, deadline=None)
@given(
    source=st.randoms(use_true_random=False),
    shape=st.sampled_from([(32, 1, 1), (33, 1, 1), (96, 1, 1), (16, 8, 1), (11, 3, 2)]),
    processor=st.sampled_from([BASELINE, HASWELL]),
)
def test_code_for_lesser_processors_means_the_same(source: random.Random, shape: Triple, processor: Processor) -> None:
    if not runs_here(processor):
        pytest.skip(f"this machine does not run code for {processor.name}")
    fn = programs.random_kernel(source, shape, most=8)
    slots = programs.arguments(source, 2 * shape[0] * shape[1] * shape[2])
    expected = copy.deepcopy(slots)
    interp.run(lower(fn, INTERP, ()), expected, (2, 1, 1), shape)

    runner = Runner(compile_for(lower(fn, CPU, ()), shape, processor))
    runner(slots, (2, 1, 1))
    runner.close()

    for wanted, got in zip(expected, slots, strict=True):
        np.testing.assert_array_equal(got, wanted)


def masked_copies(dtype: dtypes.DType) -> Function:
    """dst[i] = src[i] and twice[3 * i] = src[7 * i % n] where i < n and kept[i]; `other` in dst where only kept[i] fails."""

    def body(b: Builder, src: Value, kept: Value, dst: Value, twice: Value, n: Value) -> None:
        i, zero = thread(b), b.constant(dtype.numpy.type(0).item(), dtype)
        with when(b, b.compare(CompareKind.LT, i, n)):
            is_kept = b.compare(CompareKind.NE, b.load(b.offset(kept, i)), b.constant(0, i32))
            b.store(b.offset(dst, i), b.load(b.offset(src, i), is_kept, zero))
            place = b.binary(BinaryKind.MOD, b.mul(i, b.index(7)), n)
            moved = b.load(b.offset(src, place), is_kept, zero)
            b.store(b.offset(twice, b.mul(i, b.index(3))), moved, is_kept)

    return kernel(array(dtype), array(i32), array(dtype), array(dtype), INDEX, body=body)


@x86_only
@pytest.mark.parametrize("processor", [*PROCESSORS, pytest.param(this_processor(), id="this")])
@pytest.mark.parametrize("name", ["bool", "int8", "uint16", "float16", "int32", "float32", "int64", "float64"])
def test_masked_accesses_touch_the_lanes_that_are_on(name: str, processor: Processor) -> None:
    """Of any width, whether the processor has instructions for it or each lane has its turn."""
    if not runs_here(processor):
        pytest.skip(f"this machine does not run code for {processor.name}")
    dtype = dtypes.dtype_named(name)
    seed = np.random.default_rng(0)
    runner = Runner(compile_for(lower(masked_copies(dtype), CPU, ()), (96, 1, 1), processor))
    for n in (0, 1, 31, 33, 70, 96):
        src = seed.integers(0, 2 if name == "bool" else 100, 96).astype(dtype.numpy)
        kept = seed.integers(0, 2, 96).astype(np.int32)
        dst, twice = np.ones(96, dtype.numpy), np.ones(288, dtype.numpy)

        runner([src, kept, dst, twice, np.int64(n)], (1, 1, 1))

        i = np.arange(n)
        on = kept[:n] != 0
        wanted, wanted_twice = np.ones_like(dst), np.ones_like(twice)
        wanted[:n] = np.where(on, src[:n], np.zeros_like(src[:n]))
        wanted_twice[3 * i[on]] = src[7 * i[on] % max(n, 1)]
        np.testing.assert_array_equal(dst, wanted)
        np.testing.assert_array_equal(twice, wanted_twice)
    runner.close()


def test_a_symbol_that_nobody_defines_is_refused_before_loading() -> None:
    source = "declare i32 @nobody_defines_this(i32)\ndefine i32 @f() { %x = call i32 @nobody_defines_this(i32 1)\nret i32 %x }"
    module = llvm.parse_assembly(source, llvm.create_context())
    machine = llvm.Target.from_default_triple().create_target_machine()
    code = bytes(machine.emit_object(module))

    with pytest.raises(InternalError, match="nobody_defines_this"):
        check_symbols(code, "f")
    with pytest.raises(InternalError, match="nobody_defines_this"):
        load(code, "f")


# -- shape ------------------------------------------------------------------------------------------------------------


def tile_product(width: int) -> Function:
    """acc += a[t // width, k] * b[k, t % width], k = 0..width-1, from shared memory; n known at run time."""

    def body(b: Builder, x: Value, y: Value, n: Value) -> None:
        t, w = thread(b), b.index(width)
        row, col = b.binary(BinaryKind.FLOORDIV, t, w), b.binary(BinaryKind.MOD, t, w)
        tile = b.alloc(f32, Space.SHARED, width * width, 4)
        b.store(b.offset(tile, b.add(b.mul(row, w), col)), b.load(b.offset(x, b.add(b.mul(row, n), col))))
        barrier(b)

        def one(k: Value, acc: Value) -> list[Value]:
            left = b.load(b.offset(tile, b.add(b.mul(row, w), k)))
            right = b.load(b.offset(tile, b.add(b.mul(k, w), col)))
            return [b.add(acc, b.mul(left, right))]

        (acc,) = loop(b, (b.index(0), w, b.index(1)), [b.constant(0.0, f32)], one)
        b.store(b.offset(y, b.add(b.mul(row, n), col)), acc)

    return kernel(array(f32), array(f32), INDEX, body=body)


@pytest.mark.parametrize("width", [4, 8, 16, 32])
def test_tile_indices_need_no_gather(width: int) -> None:
    """`t // 16` and `t % 16` stay patterns over the lanes, with a row length known at run time."""
    text = compile(lower(tile_product(width), CPU, ()), (width * width, 1, 1)).llvm

    assert not re.search(r"masked\.(gather|scatter)", text)
    assert not re.search(r"[us](div|rem) <32", text)


@pytest.mark.parametrize(
    ("dtype", "step", "reads", "writes"),
    [
        (dtypes.float32, 1, 2, 2),
        (dtypes.float64, 1, 4, 4),
        (dtypes.uint8, 1, 1, 1),
        (dtypes.float32, 2, 4, 2),
        (dtypes.float32, 7, 0, 2),
    ],
)
def test_memory_is_asked_early_once_for_each_line_that_neighbours_reach(
    dtype: dtypes.DType, step: int, reads: int, writes: int
) -> None:
    """x[t * step - 1] + x[t * step] + x[t * step + 1], whose lines are the same; both pointers move on."""

    def body(b: Builder, x: Value, y: Value, n: Value) -> None:
        def one(i: Value, x: Value, y: Value) -> Sequence[Value]:
            t = b.mul(thread(b), b.index(step))
            around = [b.load(b.offset(x, b.add(t, b.index(k)))) for k in (-1, 0, 1)]
            b.store(b.offset(y, thread(b)), functools.reduce(b.add, around))
            return [b.offset(pointer, b.index(1024)) for pointer in (x, y)]

        loop(b, (b.index(0), n, b.index(1)), [x, y], one)

    assert Counter({"0": reads, "1": writes}) == asked_early(kernel(array(dtype), array(dtype), INDEX, body=body))


def asked_early(fn: Function, threads: int = 32) -> Counter[str]:
    """How many lines a kernel asks for early, to be read ("0") and to be written ("1")."""
    text = compile(fn, (threads, 1, 1)).llvm
    return Counter(re.findall(r"call void @llvm\.prefetch\.p0\(ptr %t\d+, i32 (\d)", text))


@pytest.mark.parametrize(("factor", "asked"), [(1, {}), (256, {"0": 2, "1": 2})])
def test_memory_is_not_asked_early_for_what_no_block_reaches(factor: int, asked: dict[str, int]) -> None:
    """y[t] = x[t] of 256 threads, all of which is nearer; then t + factor * (0 to 63), of which a loop goes through 8 KB."""

    def body(b: Builder, x: Value, y: Value) -> None:
        def one(i: Value) -> Sequence[Value]:
            at = b.add(thread(b), b.mul(i, b.index(factor)))
            b.store(b.offset(y, at), b.load(b.offset(x, at)))
            return ()

        loop(b, (b.index(0), b.index(64), b.index(1)), (), one)

    assert Counter(asked) == asked_early(kernel(array(f32), array(f32), body=body), 256)


@pytest.mark.parametrize(("apart", "asked"), [((-1, 0, 1), 2), ((0, 64), 4)])
def test_memory_is_asked_once_where_scalars_are_little_apart_and_for_what_is_updated(
    apart: tuple[int, ...], asked: int
) -> None:
    """x[(i + k) + t] += 1, of i numbers that are the same in all threads."""

    def body(b: Builder, x: Value, n: Value) -> None:
        def one(i: Value) -> Sequence[Value]:
            for k in apart:
                place = b.offset(x, b.add(b.add(i, b.index(k)), thread(b)))
                b.store(place, b.add(b.load(place), b.constant(1, f32)))
            return ()

        loop(b, (b.index(0), n, b.index(256)), (), one)

    assert asked_early(kernel(array(f32), INDEX, body=body)) == Counter({"0": asked})


def test_a_guard_has_an_unmasked_copy() -> None:
    def body(b: Builder, x: Value, n: Value) -> None:
        t = thread(b)
        with when(b, b.compare(CompareKind.LT, t, n)):
            b.store(b.offset(x, t), b.constant(1, i32))

    text = compile(kernel(array(i32), INDEX, body=body), (256, 1, 1)).llvm

    assert "store <32 x i32>" in text
    assert "llvm.masked.store" in text


def test_a_block_of_one_warp_has_no_memory_for_values_that_cross_barriers() -> None:
    code = compile(lower(tile_product(4), CPU, ()), (16, 1, 1))

    assert code.scratch_bytes == code.shared_bytes == 64


def statements(count: int) -> Function:
    """`count` times: a guarded update, a loop, and every fourth time a barrier."""

    def body(b: Builder, x: Value, n: Value) -> None:
        t = thread(b)
        value = b.load(b.offset(x, t))
        for number in range(count):
            with when(b, b.compare(CompareKind.LT, value, b.cast(n, i32))):
                b.store(b.offset(x, t), value)
            add = lambda i, total: [b.add(total, b.load(b.offset(x, i)))]  # noqa: E731
            (value,) = loop(b, (t, n, b.index(100)), [value], add)
            if number % 4 == 0:
                barrier(b)

    return kernel(array(i32), INDEX, body=body)


def test_t12_text_grows_as_the_kernel_does() -> None:
    sizes = [len(compile(lower(statements(count), CPU, ()), (100, 1, 1)).llvm) for count in (4, 8, 16)]

    assert (sizes[2] - sizes[1]) / (sizes[1] - sizes[0]) < 2.2


def test_nested_guards_do_not_multiply() -> None:
    """The unmasked copy of a guard holds copies of the guards in it; that stops at a size."""

    def nest(b: Builder, x: Value, n: Value, depth: int) -> None:
        t = thread(b)
        if depth == 0:
            b.store(b.offset(x, t), b.constant(1, i32))
            return
        with when(b, b.compare(CompareKind.LT, b.add(t, b.load(b.offset(n, b.index(depth)))), b.index(500))):
            nest(b, x, n, depth - 1)

    def body(depth: int) -> Function:
        return kernel(array(i32), array(dtypes.int64), body=lambda b, x, n: nest(b, x, n, depth))

    sizes = [len(compile(body(depth), (256, 1, 1)).llvm) for depth in (10, 20, 40)]

    assert sizes[2] < 8 * sizes[0]
