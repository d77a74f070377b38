"""What the generated code is like: no calls that nobody answers, on any x86; regular accesses without gathers; linear size."""

from __future__ import annotations

import copy
import random
import re

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit import dtypes
from stagekit.backends import host, interp
from stagekit.backends.host.compiler import compile_for
from stagekit.backends.host.loader import check_symbols, undefined_symbols
from stagekit.backends.host.target import Processor, this_processor
from stagekit.diagnostics import InternalError
from stagekit.intrinsics import all_intrinsics
from stagekit.ir import INDEX, PURE, BinaryKind, Builder, CompareKind, Function, Pointer, Scalar, Space, Value
from tests.backends.host import programs
from tests.backends.host.kernels import array, barrier, f32, i32, kernel, loop, thread, when
from tests.backends.host.running import CPU, Runner, Triple, lower
from tests.backends.host.test_random import INTERP

is_x86 = llvm.get_default_triple().startswith("x86_64")
x86_only = pytest.mark.skipif(not is_x86, reason="names x86 processors")

BASELINE = Processor("x86-64", "")
HASWELL = Processor("haswell", "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+popcnt,+sse3,+sse4.1,+sse4.2,+ssse3")
PROCESSORS = [pytest.param(p, id=p.name) for p in (BASELINE, HASWELL)]


def runs_here(processor: Processor) -> bool:
    mine = this_processor()
    return all(mine.has(feature.removeprefix("+")) for feature in processor.features.split(",") if feature[:1] == "+")


@x86_only
@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("target", dtypes.ALL_DTYPES, ids=lambda d: d.name)
def test_conversions_need_nothing_from_libgcc(processor: Processor, target: dtypes.DType) -> None:
    """From every dtype, as vectors and as scalars."""

    def body(b: Builder, *params: Value) -> None:
        t, *pairs = thread(b), *zip(params[::2], params[1::2], strict=True)
        for pointer, scalar in pairs:
            for value in (b.load(b.offset(pointer, t)), scalar):
                b.store(b.bitcast(b.offset(params[0], t), Pointer(target, Space.GLOBAL)), b.cast(value, target))

    types = [kind for d in dtypes.ALL_DTYPES for kind in (array(d), Scalar(d))]

    code = compile_for(lower(kernel(*types, body=body), CPU, ()), (64, 1, 1), processor)

    assert [] == undefined_symbols(code.object_code)


@x86_only
@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("spec", [s for s in all_intrinsics() if s.effects == PURE and s.args], ids=lambda s: s.name)
def test_every_pure_intrinsic_links_on_any_x86(processor: Processor, spec: object) -> None:
    """`compile_for` refuses an object whose symbols the process does not have."""
    for sig in spec.sigs:  # type: ignore[attr-defined]
        if any(isinstance(t, Pointer) for t in (*sig.args, *sig.results)):
            continue

        def body(b: Builder, *params: Value, sig: object = sig) -> None:
            t = thread(b)
            args = [b.load(b.offset(p, t)) for p in params[: len(sig.args)]]  # type: ignore[attr-defined]
            results = b.call(spec, args, tuple(p.default for p in spec.params))  # type: ignore[attr-defined]
            for pointer, result in zip(params[len(args) :], results, strict=True):
                b.store(b.offset(pointer, t), result)

        compile_for(
            lower(kernel(*(array(t.dtype) for t in (*sig.args, *sig.results)), body=body), CPU, ()),
            (32, 1, 1),
            processor,
        )


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
        host.load(code, "f")


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
    text = host.compile(lower(tile_product(width), CPU, ()), (width * width, 1, 1)).llvm

    assert not re.search(r"masked\.(gather|scatter)", text)
    assert not re.search(r"[us](div|rem) <32", text)


def test_a_guard_has_an_unmasked_copy() -> None:
    def body(b: Builder, x: Value, n: Value) -> None:
        t = thread(b)
        with when(b, b.compare(CompareKind.LT, t, n)):
            b.store(b.offset(x, t), b.constant(1, i32))

    text = host.compile(kernel(array(i32), INDEX, body=body), (256, 1, 1)).llvm

    assert "store <32 x i32>" in text
    assert "llvm.masked.store" in text


def test_a_block_of_one_warp_has_no_memory_for_values_that_cross_barriers() -> None:
    code = host.compile(lower(tile_product(4), CPU, ()), (16, 1, 1))

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
    sizes = [len(host.compile(lower(statements(count), CPU, ()), (100, 1, 1)).llvm) for count in (4, 8, 16)]

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

    sizes = [len(host.compile(body(depth), (256, 1, 1)).llvm) for depth in (10, 20, 40)]

    assert sizes[2] < 8 * sizes[0]
