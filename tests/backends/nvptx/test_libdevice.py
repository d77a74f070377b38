"""libdevice functions taken out as text: the same code as a real link gives, without its cost."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from stagekit import dtypes
from stagekit.backends import libdevice, nvptx, ptxas
from stagekit.backends.llvm import optimize
from stagekit.backends.nvptx.target import _machine
from stagekit.diagnostics import StagekitError
from stagekit.dtypes import DType
from stagekit.intrinsics.registry import sig
from stagekit.ir import Extern, Function, Intrinsic
from tests.backends.nvptx.kernels import elementwise

f32, f64 = dtypes.float32, dtypes.float64


def calling(symbol: str, dtype: DType, result: DType | None = None) -> Function:
    """A kernel that applies one libdevice function to every element."""
    record = Intrinsic(
        name="f",
        args=("x",),
        sigs=(sig([dtype], result or dtype),),
        lower={"cuda": Extern(symbol)},
        doc="d",
        source="s",
    )
    return elementwise([dtype], result or dtype, lambda b, x: b.call_one(record, (x,)))


def linked(symbol: str, dtype: DType) -> str:
    """The PTX of the same kernel when LLVM links the whole library and drops what is not called."""
    kernel_text = nvptx.compile(calling(symbol, dtype), 80).llvm.partition("define ptx_kernel")
    held = "float" if dtype is f32 else "double"
    lines = (
        'target triple = "nvptx64-nvidia-cuda"',
        f"declare {held} @{symbol}({held})",
        "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()",
        "".join(kernel_text[1:]),
        '!llvm.module.flags = !{!0, !1}\n!0 = !{i32 4, !"nvvm-reflect-ftz", i32 0}',
        '!1 = !{i32 4, !"nvvm-reflect-prec-sqrt", i32 1}',
    )
    context = llvm.create_context()
    module = optimize.parse("\n".join(lines), context)
    library = llvm.parse_bitcode(Path(str(libdevice.library_path())).read_bytes(), context)
    library.triple, library.data_layout = module.triple, module.data_layout
    module.link_in(library)
    for function in module.functions:
        if not function.is_declaration and function.name != "k":
            function.linkage = "internal"
    machine = _machine("sm_80", 80)
    optimize.run(module, machine, 2)
    return str(machine.emit_assembly(module))


def instructions(ptx: str) -> Counter[str]:
    """How often each instruction occurs, whatever its registers and labels."""
    lines = (line.strip() for line in ptx.splitlines() if line.startswith("\t") and not line.startswith("\t."))
    return Counter(re.sub(r"%\w+|\$L\w+", "_", line) for line in lines)


@pytest.mark.parametrize(("symbol", "dtype"), [("__nv_expf", f32), ("__nv_sinf", f32), ("__nv_log", f64)])
def test_a_function_taken_out_is_the_function_linked(symbol: str, dtype: DType) -> None:
    assert instructions(nvptx.compile(calling(symbol, dtype), 80).ptx) == instructions(linked(symbol, dtype))


def test_a_function_vanishes_into_the_kernel() -> None:
    """The time is shown, not judged."""
    fn = calling("__nv_expf", f32)
    nvptx.compile(fn, 80)
    start = time.perf_counter()

    code = nvptx.compile(fn, 80)

    print(f"exp of libdevice, second compile: {(time.perf_counter() - start) * 1e3:.1f} ms")  # noqa: T201
    assert "ex2.approx.ftz.f32" in code.ptx
    assert "call" not in code.ptx
    assert "__nv" not in code.ptx


def test_functions_that_call_others_bring_them_along() -> None:
    code = nvptx.compile(calling("__nv_sin", f64), 80)

    assert "__internal_trig_reduction_slowpathd" in code.ptx
    ptxas.assemble(code.ptx)


def test_a_test_gives_bool() -> None:
    ptxas.assemble(nvptx.compile(calling("__nv_isnanf", f32, dtypes.bool_), 80).ptx)


def test_a_missing_library_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libdevice, "library_path", lambda: None)

    with pytest.raises(StagekitError, match="pip install nvidia-nvvm") as caught:
        nvptx.compile(calling("__nv_expf", f32), 80)

    assert caught.value.id == "LIBDEVICE_MISSING"
