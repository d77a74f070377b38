"""The instructions of a few whole kernels, to be read beside the IR that they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stagekit import dtypes
from stagekit.backends import nvptx
from stagekit.intrinsics import registry
from stagekit.ir import Builder, CompareKind, Function, Scalar, Space, Value
from stagekit.ir.printer import print_function
from tests.backends.nvptx.kernels import array, call, kernel, thread

f32, i64 = dtypes.float32, dtypes.int64
BLOCK = 128


def vector_add() -> Function:
    def body(b: Builder, a: Value, c: Value, out: Value, n: Value) -> None:
        i = b.add(b.mul(call(b, "block_idx", params=("x",)), b.index(BLOCK)), thread(b))
        with b.block() as inside:
            b.store(b.offset(out, i), b.add(b.load(b.offset(a, i)), b.load(b.offset(c, i))))
            b.yield_()
        with b.block() as outside:
            b.yield_()
        b.if_(b.compare(CompareKind.LT, i, n), inside.done(), outside.done())

    return kernel({"a": array(f32), "b": array(f32), "out": array(f32), "n": i64}, body, block=(BLOCK, 1, 1))


def strided_sum() -> Function:
    """A loop from the thread's index in steps of the block."""

    def body(b: Builder, a: Value, out: Value, n: Value) -> None:
        i, total = Value(Scalar(i64), "i"), Value(Scalar(f32), "total")
        with b.block((i, total)) as loop:
            b.yield_(b.add(total, b.load(b.offset(a, i))))
        (result,) = b.for_((thread(b), n, b.index(BLOCK)), (b.constant(0.0, f32),), loop.done())
        b.store(b.offset(out, thread(b)), result)

    return kernel({"a": array(f32), "out": array(f32), "n": i64}, body, block=(BLOCK, 1, 1))


def reverse() -> Function:
    """Through shared memory, with a barrier between."""

    def body(b: Builder, a: Value) -> None:
        t = thread(b)
        held = b.alloc(f32, Space.SHARED, BLOCK, 4)
        b.store(b.offset(held, t), b.load(b.offset(a, t)))
        b.call(registry.by_name("syncthreads"), ())
        b.store(b.offset(a, t), b.load(b.offset(held, b.sub(b.index(BLOCK - 1), t))))

    return kernel({"a": array(f32)}, body, block=(BLOCK, 1, 1))


def masked_copy() -> Function:
    def body(b: Builder, a: Value, out: Value, n: Value) -> None:
        t = thread(b)
        mask = b.compare(CompareKind.LT, t, n)
        b.store(b.offset(out, t), b.load(b.offset(a, t), mask, b.constant(-1.0, f32)), mask)

    return kernel({"a": array(f32), "out": array(f32), "n": i64}, body, block=(BLOCK, 1, 1))


@pytest.mark.parametrize("make", [vector_add, strided_sum, reverse, masked_copy], ids=lambda make: make.__name__)
def test_ptx_of_whole_kernels(make: Any, golden: Any, golden_folder: Path) -> None:
    fn = make()

    body = nvptx.compile(fn, 90).ptx.partition("\n{\n")[2].rstrip("}\n")

    commented = "".join(f"// {line}\n" for line in print_function(fn).splitlines())
    shown = "\n".join(line for line in body.splitlines() if line and not line.startswith("\t.reg"))
    golden.check(golden_folder / f"{make.__name__}.ptx", f"{commented}{shown}\n")
