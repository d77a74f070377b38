"""The LLVM text of arithmetic, run on this machine, against `semantics.py`: scalars and vectors of 32 lanes."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from stagekit import dtypes
from stagekit.backends.llvm import arith, optimize
from stagekit.backends.llvm.types import llvm_type, memory_type
from stagekit.backends.llvm.writer import Abilities, Module, Writer
from stagekit.dtypes import DType
from stagekit.ir import BinaryKind, CompareKind, UnaryKind, semantics
from tests.cells import cell

LANES = 32
FORMS = [None, LANES]
COMPUTED = (dtypes.bool_, *dtypes.INTEGER_DTYPES, dtypes.float32, dtypes.float64)
BITWISE = (BinaryKind.AND, BinaryKind.OR, BinaryKind.XOR)


def host_machine() -> Any:
    """With this machine's features: without F16C a half conversion would call a function that is not there."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    return llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=1)


def run(
    emit: Callable[..., str],
    result: DType,
    lanes: int | None,
    inputs: list[np.ndarray],
    sources: list[DType],
) -> np.ndarray:
    """Apply `emit(w, *operands)` to every element of `inputs`, whose length is a multiple of LANES."""
    module = Module(Abilities())
    w = Writer(module)
    step = lanes or 1
    w.line("br label %loop")
    w.label("loop")
    index = w.hole()
    operands = [_load(w, n, source, lanes) for n, source in enumerate(sources)]
    value = emit(w, *operands)
    _store(w, len(sources), result, lanes, value)
    w.line(f"%next = add i64 %i, {step}")
    w.line("%more = icmp ult i64 %next, %n")
    w.fill(index, f"%i = phi i64 [ 0, %entry ], [ %next, %{w.block} ]")
    w.line("br i1 %more, label %loop, label %exit")
    w.label("exit")
    w.line("ret void")
    pointers = ", ".join(f"ptr %a{n}" for n in range(len(sources) + 1))
    module.add_function("f", f"define void @f({pointers}, i64 %n) {{\n{w.body()}\n}}")
    output = np.zeros(inputs[0].shape, result.numpy)
    _call(module.text(), [*inputs, output])
    return output


def _load(w: Writer, argument: int, dtype: DType, lanes: int | None) -> str:
    element = memory_type(dtype, None)
    place = w.emit(f"getelementptr {element}, ptr %a{argument}, i64 %i")
    raw = w.emit(f"load {memory_type(dtype, lanes)}, ptr {place}, align {dtype.itemsize}")
    if dtype is not dtypes.bool_:
        return raw
    return w.emit(f"trunc {memory_type(dtype, lanes)} {raw} to {llvm_type(dtype, lanes)}")


def _store(w: Writer, argument: int, dtype: DType, lanes: int | None, value: str) -> None:
    held = memory_type(dtype, lanes)
    if dtype is dtypes.bool_:
        value = w.emit(f"zext {llvm_type(dtype, lanes)} {value} to {held}")
    place = w.emit(f"getelementptr {memory_type(dtype, None)}, ptr %a{argument}, i64 %i")
    w.line(f"store {held} {value}, ptr {place}, align {dtype.itemsize}")


def _call(text: str, arrays: list[np.ndarray]) -> None:
    module = optimize.parse(text)
    optimize.run(module, host_machine(), 1)
    with llvm.create_mcjit_compiler(module, host_machine()) as engine:
        engine.finalize_object()
        function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arrays), ctypes.c_int64)(
            engine.get_function_address("f")
        )
        function(*(a.ctypes.data for a in arrays), arrays[0].size)


def emitting(rule: Callable[..., str], *given: Any, last: tuple[str, ...] = ()) -> Callable[..., str]:
    """`rule` as a function of the writer and the operands loaded; `last`: an operand that is a constant."""
    return lambda w, *operands: rule(w, *given, *operands, *last)


def just(w: Writer, text: str, operand: str) -> str:
    return text


def edge_values(dtype: DType) -> np.ndarray:
    if dtype is dtypes.bool_:
        return np.array([False, True])
    if dtype.is_integer:
        some = [
            0,
            1,
            2,
            3,
            5,
            7,
            8,
            dtype.bits - 1,
            dtype.bits,
            dtype.bits + 1,
            100,
            dtype.max,
            dtype.max - 1,
            dtype.max // 2,
        ]
        some += [-1, -2, -3, -7, -8, dtype.min, dtype.min + 1] if dtype.is_signed else [dtype.max // 3]
        return np.array([v for v in some if dtype.holds(v)], dtype.numpy)
    info = np.finfo(np.float64 if dtype is dtypes.float64 else np.float32)
    some = [0.0, 1.0, 0.5, 1 / 3, 2.5, 3.0, 127.5, 255.9, 3e9, 2.0**31, 2.0**32, 2.0**63, 2.0**64, 1.8e19, 1e-3]
    some += [float(info.max), float(info.tiny), float(info.smallest_subnormal), np.inf, np.nan, 1e30, 7e-40]
    with np.errstate(all="ignore"):
        return np.array([*some, *(-v for v in some)]).astype(dtype.numpy)


def pairs(dtype: DType, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of edge values, and random ones, as many as a multiple of the lanes."""
    rng = np.random.default_rng(seed)
    edges = edge_values(dtype)
    both = np.array(list(itertools.product(edges, edges)))
    a, b = both[:, 0].astype(dtype.numpy), both[:, 1].astype(dtype.numpy)
    missing = -len(a) % LANES + 10 * LANES
    raw = rng.integers(0, 256, (2, missing * dtype.itemsize), np.uint8)
    extra = raw.view(dtype.numpy) if dtype is not dtypes.bool_ else raw % 2 == 1
    return np.concatenate([a, extra[0]]), np.concatenate([b, extra[1]])


def assert_same(actual: np.ndarray, expected: np.ndarray, *operands: np.ndarray) -> None:
    """Equal bit for bit, but for the payload of NaN."""
    is_same = actual == expected
    if expected.dtype.kind == "f":
        is_same = (is_same & (np.signbit(actual) == np.signbit(expected))) | (np.isnan(actual) & np.isnan(expected))
    wrong = np.flatnonzero(~is_same)
    shown = [(*(x[i] for x in operands), actual[i], expected[i]) for i in wrong[:5]]
    assert len(wrong) == 0, f"{len(wrong)} of {len(actual)} differ, (operands, actual, expected): {shown}"


def exists(kind: BinaryKind, dtype: DType) -> bool:
    """Whether a target computes it: what other ops there are is legalised."""
    if dtype is dtypes.bool_:
        return kind in BITWISE
    if dtype.is_float:
        return kind in (BinaryKind.ADD, BinaryKind.SUB, BinaryKind.MUL, BinaryKind.DIV)
    return kind is not BinaryKind.DIV


@pytest.mark.parametrize("lanes", FORMS)
@pytest.mark.parametrize("dtype", COMPUTED, ids=str)
def test_binary_is_semantics(dtype: DType, lanes: int | None) -> None:
    """P29 and P36: floor division, remainders, shifts past the width, x / 0 and INT_MIN / -1 for every dtype."""
    a, b = pairs(dtype)
    for kind in filter(lambda kind: exists(kind, dtype), BinaryKind):
        actual = run(emitting(arith.binary, kind, dtype, lanes), dtype, lanes, [a, b], [dtype, dtype])

        with cell(kind):
            assert_same(actual, semantics.binary(kind, dtype, a, b), a, b)


@pytest.mark.parametrize("lanes", FORMS)
@pytest.mark.parametrize("dtype", dtypes.INTEGER_DTYPES, ids=str)
def test_a_constant_divisor_or_amount_changes_no_result(dtype: DType, lanes: int | None) -> None:
    """P29: powers of two become shifts, and none of the special cases may differ from the general one."""
    a, _ = pairs(dtype)
    numbers = (0, 1, 2, 3, 8, dtype.bits, dtype.max, dtype.min, -1, -2, -5)
    if lanes is not None:  # one case of each rule, which looks at the number alone
        numbers = (0, 3, 8, dtype.min, -1)
    for kind in (BinaryKind.FLOORDIV, BinaryKind.MOD, BinaryKind.SHL, BinaryKind.SHR):
        for number in filter(dtype.holds, numbers):
            by = (arith.constant(dtype, lanes, number),)

            actual = run(emitting(arith.binary, kind, dtype, lanes, last=by), dtype, lanes, [a], [dtype])

            assert_same(actual, semantics.binary(kind, dtype, a, np.full_like(a, number)), a)


@pytest.mark.parametrize("lanes", FORMS)
@pytest.mark.parametrize("dtype", COMPUTED, ids=str)
def test_comparisons_are_semantics(dtype: DType, lanes: int | None) -> None:
    a, b = pairs(dtype)
    for kind in CompareKind:
        actual = run(emitting(arith.compare, kind, dtype, lanes), dtypes.bool_, lanes, [a, b], [dtype] * 2)

        assert_same(actual, semantics.compare(kind, dtype, a, b), a, b)


@pytest.mark.parametrize("lanes", FORMS)
@pytest.mark.parametrize("dtype", COMPUTED, ids=str)
def test_unary_is_semantics(dtype: DType, lanes: int | None) -> None:
    a, _ = pairs(dtype)
    for kind in UnaryKind:
        if dtype.is_float if kind is UnaryKind.NOT else dtype is dtypes.bool_:
            continue

        actual = run(emitting(arith.unary, kind, dtype, lanes), dtype, lanes, [a], [dtype])

        assert_same(actual, semantics.unary(kind, dtype, a), a)


NARROW_CASTS = [
    (dtypes.float16, dtypes.float32),
    (dtypes.float16, dtypes.float64),
    (dtypes.float32, dtypes.float16),
    (dtypes.bfloat16, dtypes.float32),
    (dtypes.float32, dtypes.bfloat16),
]


@pytest.mark.parametrize("lanes", FORMS)
@pytest.mark.parametrize("source", COMPUTED, ids=str)
def test_casts_are_semantics(source: DType, lanes: int | None) -> None:
    """P32: the sign is the dtype's; floats saturate to integers, and NaN gives 0."""
    a, _ = pairs(source)
    for target in COMPUTED:
        actual = run(emitting(arith.cast, source, target, lanes), target, lanes, [a], [source])

        assert_same(actual, semantics.cast(a, source, target), a)


@pytest.mark.parametrize("lanes", FORMS)
@pytest.mark.parametrize(("source", "target"), NARROW_CASTS, ids=str)
def test_narrow_float_casts_round_once_to_even(source: DType, target: DType, lanes: int | None) -> None:
    if source.bits == 16:
        a = np.arange(1 << 16, dtype=np.uint16).view(source.numpy)
    else:
        middles = np.arange(1 << 16, dtype=np.uint32) << 16
        a = np.concatenate([middles | low for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0x1000, 0x0FFF)]).view(np.float32)

    actual = run(emitting(arith.cast, source, target, lanes), target, lanes, [a], [source])

    with np.errstate(all="ignore"):
        wide = actual.astype(np.float64), semantics.cast(a, source, target).astype(np.float64)
    assert_same(*wide, a)


@pytest.mark.parametrize("dtype", dtypes.ALL_DTYPES, ids=str)
def test_constants_are_exact(dtype: DType) -> None:
    values = (
        [0, 1]
        if dtype.kind == "bool"
        else [0, 1, 3, dtype.max, dtype.min]
        if dtype.is_integer
        else [0.0, -0.0, 1.5, -0.25, 2.0**-9]
    )
    for value in values:
        text = arith.constant(dtype, LANES, value)

        actual = run(emitting(just, text), dtype, LANES, [np.zeros(LANES, dtype.numpy)], [dtype])

        assert actual.tobytes() == np.full(LANES, value, dtype.numpy).tobytes()
