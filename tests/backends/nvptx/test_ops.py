"""Every op and dtype as PTX that the real ptxas assembles, for every kind of GPU, without spills or local memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import pytest

from stagekit import dtypes
from stagekit.backends import nvptx, ptxas
from stagekit.dtypes import DType
from stagekit.ir import BinaryKind, Builder, CompareKind, Function, Scalar, Space, UnaryKind, Value
from tests.backends.nvptx.kernels import array, elementwise, kernel, many, thread

GPUS = [75, 80, 90, 100, 120]
COMPUTED = (dtypes.bool_, *dtypes.INTEGER_DTYPES, dtypes.float32, dtypes.float64)
BITWISE = (BinaryKind.AND, BinaryKind.OR, BinaryKind.XOR)
Part = tuple[Sequence[DType], DType, Callable[..., Value]]

on_every_gpu = pytest.mark.parametrize("capability", GPUS, ids=[f"sm_{capability}" for capability in GPUS])


def binary_kinds(dtype: DType) -> list[BinaryKind]:
    if dtype is dtypes.bool_:
        return list(BITWISE)
    if dtype.is_float:
        return [BinaryKind.ADD, BinaryKind.SUB, BinaryKind.MUL, BinaryKind.DIV]
    return [k for k in BinaryKind if k is not BinaryKind.DIV]


def binary_parts() -> list[Part]:
    def part(kind: BinaryKind, dtype: DType) -> Part:
        return [dtype] * 2, dtype, lambda b, x, y: b.binary(kind, x, y)

    return [part(kind, dtype) for dtype in COMPUTED for kind in binary_kinds(dtype)]


def compare_parts() -> list[Part]:
    def part(kind: CompareKind, dtype: DType) -> Part:
        return [dtype] * 2, dtypes.bool_, lambda b, x, y: b.compare(kind, x, y)

    return [part(kind, dtype) for dtype in COMPUTED for kind in CompareKind]


def unary_parts() -> list[Part]:
    def part(kind: UnaryKind, dtype: DType) -> Part:
        return [dtype], dtype, lambda b, x: b.unary(kind, x)

    negated = [part(UnaryKind.NEG, d) for d in COMPUTED if d is not dtypes.bool_]
    return negated + [part(UnaryKind.NOT, d) for d in COMPUTED if not d.is_float]


def cast_parts() -> list[Part]:
    def part(source: DType, target: DType) -> Part:
        return [source], target, lambda b, x: b.cast(x, target)

    narrow = [(dtypes.float16, dtypes.float32), (dtypes.float16, dtypes.float64), (dtypes.float32, dtypes.float16)]
    narrow += [(dtypes.bfloat16, dtypes.float32), (dtypes.float32, dtypes.bfloat16)]
    return [part(s, t) for s in COMPUTED for t in COMPUTED if s is not t] + [part(s, t) for s, t in narrow]


def memory_parts() -> list[Part]:
    """Every dtype through loads, stores and selects; and its bits as those of an integer."""

    def chosen(dtype: DType) -> Part:
        return [dtype, dtype, dtypes.bool_], dtype, lambda b, x, y, c: b.select(c, x, y)

    def bits(dtype: DType) -> Part:
        word = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}[dtype.bits]
        return [dtype], word, lambda b, x: b.bitcast(x, Scalar(word))

    return [chosen(d) for d in dtypes.ALL_DTYPES] + [bits(d) for d in dtypes.ALL_DTYPES if d is not dtypes.bool_]


FAMILIES = {
    "binary": binary_parts,
    "compare": compare_parts,
    "unary": unary_parts,
    "cast": cast_parts,
    "memory": memory_parts,
}


@functools.cache
def kernels(family: str) -> tuple[Function, ...]:
    """A family's ops, some forty to a kernel."""
    parts = FAMILIES[family]()
    return tuple(many(parts[i : i + 40]) for i in range(0, len(parts), 40))


@on_every_gpu
@pytest.mark.parametrize("family", FAMILIES)
def test_every_op_assembles(family: str, capability: int) -> None:
    for fn in kernels(family):
        code = nvptx.compile(fn, capability)

        assembled = ptxas.assemble(code.ptx)

        assert ".local" not in code.ptx
        assert assembled.resources.stack_bytes == 0
        assert assembled.warnings == ()


def control_kernel() -> Function:
    """A mask, a branch, loops of every kind of step, and a test loop."""

    def body(b: Builder, a: Value, out: Value, n: Value) -> None:
        i = thread(b)
        zero = b.constant(0.0, dtypes.float32)
        value = b.load(b.offset(a, i), b.compare(CompareKind.LT, i, n), zero)
        for start, stop, step in ((b.index(0), n, b.index(3)), (n, b.index(0), b.index(-2)), (i, n, n)):
            (value,) = accumulate(b, value, (start, stop, step), lambda b, v, j: b.add(v, b.load(b.offset(a, j))))
        (value,) = halve_until_small(b, value)
        b.store(b.offset(out, i), value, b.compare(CompareKind.GT, n, i))

    f32 = array(dtypes.float32)
    return kernel({"a": f32, "out": f32, "n": dtypes.int64}, body)


def accumulate(
    b: Builder, init: Value, bounds: tuple[Value, Value, Value], step: Callable[..., Value]
) -> tuple[Value, ...]:
    index, total = Value(bounds[0].type), Value(init.type)
    with b.block((index, total)) as loop:
        b.yield_(step(b, total, index))
    return b.for_(bounds, (init,), loop.done())


def halve_until_small(b: Builder, init: Value) -> tuple[Value, ...]:
    seen, kept = Value(init.type), Value(init.type)
    with b.block((seen,)) as before:
        b.condition(b.compare(CompareKind.GT, seen, b.constant(1.0, dtypes.float32)), seen)
    with b.block((kept,)) as after:
        b.yield_(b.mul(kept, b.constant(0.5, dtypes.float32)))
    return b.while_((init,), before.done(), after.done())


@on_every_gpu
def test_control_flow_assembles(capability: int) -> None:
    code = nvptx.compile(control_kernel(), capability)

    assert ptxas.assemble(code.ptx).resources.stack_bytes == 0


def test_thread_local_memory_lives_in_registers_when_its_indices_are_known() -> None:
    """Q29: an allocation that could be registers must not become local memory."""

    def body(b: Builder, x: Value) -> Value:
        pair = b.alloc(dtypes.float32, Space.LOCAL, 2, 4)
        b.store(b.offset(pair, b.index(0)), x)
        b.store(b.offset(pair, b.index(1)), b.mul(x, x))
        return b.add(b.load(b.offset(pair, b.index(0))), b.load(b.offset(pair, b.index(1))))

    code = nvptx.compile(elementwise([dtypes.float32], dtypes.float32, body), 80)

    assert ".local" not in code.ptx


def test_thread_local_memory_with_unknown_indices_is_local_space() -> None:
    def body(b: Builder, x: Value) -> Value:
        many_ = b.alloc(dtypes.int32, Space.LOCAL, 8, 4)
        index = b.cast(b.and_(x, b.constant(7, dtypes.int32)), dtypes.int64)
        b.store(b.offset(many_, index), x)
        return b.load(b.offset(many_, b.index(3)))

    code = nvptx.compile(elementwise([dtypes.int32], dtypes.int32, body), 80)

    assert "st.local.b32" in code.ptx
    assert "ld.local.b32" in code.ptx
