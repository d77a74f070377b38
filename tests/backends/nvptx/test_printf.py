"""`str.format` templates as printf formats, and the call that they end in."""

from __future__ import annotations

import pytest

from stagekit import dtypes
from stagekit.backends import nvptx, ptxas
from stagekit.backends.nvptx.printf import c_format
from stagekit.dtypes import DType
from stagekit.ir import Builder, Value
from stagekit.passes import PassContext
from stagekit.passes.pipeline import lower
from tests.backends.nvptx.kernels import array, kernel, thread

f32, f64, i32, i64, u64 = dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64, dtypes.uint64


@pytest.mark.parametrize(
    ("template", "operands", "expected"),
    [
        ("nothing\n", [], "nothing\n"),
        ("100% {{}}", [], "100%% {}"),
        ("{}", [f32], "%.7g"),
        ("{}", [f64], "%.16g"),
        ("{}", [dtypes.float16], "%.4g"),
        ("{} {} {} {}", [i32, i64, dtypes.uint8, u64], "%d %lld %u %llu"),
        ("{:.3f}", [f32], "%.3f"),
        ("{:10.2e}|{:<8}|{:>8}", [f64, i32, i32], "%10.2e|%-8d|%8d"),
        ("{:5d} {:05d} {:+d} {: d}", [i32] * 4, "%5d %05d %+d % d"),
        ("{:x} {:#X} {:08x} {:x}", [i32, i32, i64, u64], "%x %#X %08llx %llx"),
        ("{} {:>6}", [dtypes.bool_, dtypes.bool_], "%s %6s"),
        ("{:g} {:G}", [f32, f64], "%g %G"),
        ("{:*^9}", [i32], "%9d"),
        ("{:,}", [i32], "%d"),
        ("{:.1%}", [f32], "%.1f"),
        ("{:d}", [f32], "%f"),
    ],
)
def test_a_template_becomes_a_printf_format(template: str, operands: list[DType], expected: str) -> None:
    assert c_format(template, operands) == expected


def test_every_dtype_and_pointers_can_be_printed() -> None:
    def body(b: Builder, *arrays: Value) -> None:
        values = [*(b.load(b.offset(a, thread(b))) for a in arrays), arrays[0]]
        b.print_("{} " * len(values) + "\n", tuple(values))
        b.print_('a "quoted" \\ line, é\n', ())

    fn = kernel({d.short: array(d) for d in dtypes.ALL_DTYPES}, body)

    code = nvptx.compile(lower(fn, PassContext("cuda", 80, fastmath=False, debug=False), hooks=()), 80)

    assert code.ptx.count("call.uni") + code.ptx.count("call ") >= 2
    assert "vprintf" in code.ptx
    ptxas.assemble(code.ptx)
