"""What the PTX of small kernels says: exact arithmetic, narrow indices, calls that vanish, limits, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import stagekit as sk
from stagekit import dtypes
from stagekit.backends import nvptx, ptxas
from stagekit.backends.nvptx import target
from stagekit.diagnostics import InternalError, Loc, StagekitError
from stagekit.intrinsics import registry
from stagekit.intrinsics.registry import sig
from stagekit.ir import (
    BOOL,
    I32,
    BinaryKind,
    Builder,
    CompareKind,
    Extern,
    Function,
    Intrinsic,
    Scalar,
    Space,
    Value,
)
from tests.backends.nvptx.kernels import array, call, elementwise, kernel, thread

f32, f64, i32, i64 = dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64


def instructions(fn: Function, capability: int = 80) -> list[str]:
    """The PTX instructions of a kernel, one string each, without registers' declarations."""
    body = nvptx.compile(fn, capability).ptx.partition("\n{")[2]
    return [line.strip() for line in body.splitlines() if line.startswith("\t") and not line.startswith("\t.")]


def opcodes(fn: Function, capability: int = 80) -> list[str]:
    return [re.sub(r"^@!?%\w+ ", "", line).split()[0].rstrip(";") for line in instructions(fn, capability)]


# -- exact arithmetic -------------------------------------------------------------------------------------------------


def multiply_add(b: Builder, x: Value, y: Value, z: Value) -> Value:
    return b.add(b.mul(x, y), z)


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_nothing_is_contracted_or_approximated(dtype: dtypes.DType) -> None:
    """P36: a product and a sum stay two roundings, and `/` and sqrt are correctly rounded; of float32 see `test_division.py`."""
    product = opcodes(elementwise([dtype] * 3, dtype, multiply_add))
    quotient = opcodes(elementwise([dtype] * 2, dtype, lambda b, x, y: call(b, "sqrt", b.div(x, y))))

    assert [o for o in product if dtype.short in o] == [f"mul.rn.{dtype.short}", f"add.rn.{dtype.short}"]
    if dtype is f64:
        assert [o for o in quotient if dtype.short in o] == [f"div.rn.{dtype.short}", f"sqrt.rn.{dtype.short}"]


def test_fastmath_lets_the_assembler_contract() -> None:
    fast = opcodes(elementwise([f32] * 3, f32, lambda b, x, y, z: b.add(b.mul(x, y), b.div(z, y)), fastmath=True))

    assert "div.approx.ftz.f32" in fast
    assert not {"mul.rn.f32", "add.rn.f32", "div.rn.f32"} & set(fast)


def test_a_float_becomes_an_integer_by_one_saturating_conversion() -> None:
    converted = opcodes(elementwise([f32], i32, lambda b, x: b.cast(x, i32)))

    assert converted.count("cvt.rzi.s32.f32") == 1
    assert not any(o.startswith(("setp", "selp")) for o in converted)


@pytest.mark.parametrize("kind", [BinaryKind.SHL, BinaryKind.SHR])
def test_a_64_bit_shift_amount_is_not_cut_to_32_bits(kind: BinaryKind) -> None:
    """LLVM 22.1 turns `amount < 64 ? x << amount : 0` into a `shl.b64` by the low word of the amount: 2**32 shifted by 0."""
    lines = instructions(elementwise([dtypes.uint64] * 2, dtypes.uint64, lambda b, x, y: b.binary(kind, x, y)))

    shift = next(line for line in lines if re.match(r"sh[lr]\.", line))
    amount = shift.rstrip(";").split(", ")[-1]
    narrowed = next(line for line in lines if re.match(rf"cvt\.u32\.u64 \t?{re.escape(amount)},", line))
    clamped = narrowed.rstrip(";").split(", ")[-1]
    assert any(re.match(rf"min\.u64 \t?{re.escape(clamped)},", line) for line in lines)


# -- indices ----------------------------------------------------------------------------------------------------------


def test_index_arithmetic_on_threads_is_narrow() -> None:
    """Indices are int64 in the language; a thread index is known to be small, so none of this needs 64 bits."""

    def body(b: Builder, out: Value) -> None:
        t = thread(b)
        row, column = (b.binary(k, t, b.index(7)) for k in (BinaryKind.FLOORDIV, BinaryKind.MOD))
        b.store(b.offset(out, t), b.cast(b.add(b.mul(row, b.index(100)), column), i32))

    used = opcodes(kernel({"out": array(i32)}, body, block=(256, 1, 1)))

    assert not any(o.startswith(("div", "rem", "mul.hi", "mul.lo.s64")) for o in used)


@pytest.mark.parametrize(("kind", "instruction"), [(BinaryKind.FLOORDIV, "shr.s32"), (BinaryKind.MOD, "and.b32")])
def test_a_power_of_two_divides_by_one_instruction(kind: BinaryKind, instruction: str) -> None:
    """P29: flooring is what a shift does; truncating division would need a correction."""
    used = opcodes(elementwise([i32], i32, lambda b, x: b.binary(kind, x, b.constant(8, i32))))

    assert instruction in used
    assert not any(o.startswith(("add.s32", "sub", "setp")) for o in used)


def test_addresses_are_computed_in_64_bits() -> None:
    """P30: row * stride past 2**31 must not wrap."""

    def body(b: Builder, out: Value, stride: Value) -> None:
        row = call(b, "block_idx", params=("x",))
        b.store(b.offset(out, b.add(b.mul(row, b.cast(stride, i64)), thread(b))), b.constant(1.0, f32))

    used = opcodes(kernel({"out": array(f32), "stride": i32}, body))

    assert {"mul.lo.s64", "mad.lo.s64", "mul.wide.s32", "mul.wide.u32"} & set(used)
    assert "mul.lo.s32" not in used


def test_a_fixed_block_folds_its_extent() -> None:
    def body(b: Builder, out: Value) -> None:
        b.store(b.offset(out, thread(b)), call(b, "block_dim", params=("x",)))

    assert "%ntid" not in nvptx.compile(kernel({"out": array(i64)}, body, block=(96, 1, 1)), 80).ptx
    assert "%ntid.x" in nvptx.compile(kernel({"out": array(i64)}, body), 80).ptx


# -- memory -----------------------------------------------------------------------------------------------------------


def test_a_store_is_seen_by_a_later_load_of_another_array() -> None:
    """Arrays may overlap: a load after a store is a new load."""

    def body(b: Builder, a: Value, out: Value) -> None:
        before = b.load(a)
        b.store(out, b.add(before, before))
        b.store(b.offset(out, b.index(1)), b.load(a))

    used = opcodes(kernel({"a": array(f32), "out": array(f32)}, body))

    assert used.count("ld.global.b32") == 2


def test_a_masked_load_is_behind_a_branch() -> None:
    """P37: where the mask is off nothing is touched."""

    def body(b: Builder, a: Value, out: Value, n: Value) -> None:
        i = thread(b)
        value = b.load(b.offset(a, i), b.compare(CompareKind.LT, i, n), b.constant(-1.0, f32))
        b.store(b.offset(out, i), value)

    lines = instructions(kernel({"a": array(f32), "out": array(f32), "n": i64}, body))

    branch = next(n for n, line in enumerate(lines) if line.startswith("@"))
    load = next(n for n, line in enumerate(lines) if line.startswith("ld.global"))
    assert branch < load


def test_a_constant_mask_leaves_no_branch() -> None:
    def body(b: Builder, a: Value, out: Value) -> None:
        b.store(out, b.load(a, b.true(), b.constant(0.0, f32)), b.true())
        b.store(out, b.load(a, b.false(), b.constant(0.0, f32)), b.false())

    assert not any(line.startswith("@") for line in instructions(kernel({"a": array(f32), "out": array(f32)}, body)))


@pytest.mark.parametrize(("align", "loads"), [((), ["ld.global.b32"] * 4), ((16, 4), ["ld.global.v4.b32"])])
def test_neighbours_are_loaded_together_where_the_address_is_known_to_be_aligned(
    align: tuple[int, ...], loads: list[str]
) -> None:
    def body(b: Builder, a: Value, out: Value) -> None:
        start = b.mul(thread(b), b.index(4))
        a0, a1, a2, a3 = (b.load(b.offset(a, b.add(start, b.index(n)))) for n in range(4))
        b.store(b.offset(out, thread(b)), b.add(b.add(a0, a1), b.add(a2, a3)))

    used = opcodes(kernel({"a": array(f32), "out": array(f32)}, body, align=align))

    assert [o for o in used if o.startswith("ld.global")] == loads


def shared_kernel(*counts: int | None) -> Function:
    """Writes to one shared allocation of float32 per count."""

    def body(b: Builder, out: Value) -> None:
        t = thread(b)
        places = [b.offset(b.alloc(f32, Space.SHARED, count, 4), t) for count in counts]
        for number, place in enumerate(places):
            b.store(place, b.constant(float(number), f32))
        call_barrier(b)
        for number, place in enumerate(places):
            b.store(b.offset(out, b.index(number)), b.load(place))

    return kernel({"out": array(f32)}, body, block=(128, 1, 1))


def call_barrier(b: Builder) -> None:
    b.call(registry.by_name("syncthreads"), ())


def test_static_shared_memory_is_counted() -> None:
    code = nvptx.compile(shared_kernel(128, 256), 80)

    assert (code.shared_bytes, code.dynamic_bytes, code.uses_dynamic_shared) == (1536, 0, False)
    assert ptxas.assemble(code.ptx).resources.shared_bytes == 1536


def test_dynamic_shared_memory_is_external() -> None:
    code = nvptx.compile(shared_kernel(128, None), 80)

    assert (code.shared_bytes, code.dynamic_bytes, code.uses_dynamic_shared) == (512, 0, True)
    assert ".extern .shared .align 16 .b8 stagekit_dynamic_shared[]" in code.ptx
    ptxas.assemble(code.ptx)


def test_more_than_48_KiB_of_shared_memory_comes_with_the_launch() -> None:
    code = nvptx.compile(shared_kernel(64 * 256, 128, None), 90)

    assert (code.shared_bytes, code.dynamic_bytes, code.uses_dynamic_shared) == (0, 65536 + 512, True)
    ptxas.assemble(code.ptx)


def in_turn(*counts: int) -> Function:
    """Writes to one shared allocation of float32 per count, and reads it, before it begins the next."""

    def body(b: Builder, out: Value) -> None:
        t = thread(b)
        for number, count in enumerate(counts):
            place = b.offset(b.alloc(f32, Space.SHARED, count, 4), t)
            b.store(place, b.constant(float(number), f32))
            call_barrier(b)
            b.store(b.offset(out, b.index(number)), b.load(place))
            call_barrier(b)

    return kernel({"out": array(f32)}, body, block=(128, 1, 1))


def test_arrays_that_are_used_in_turn_take_the_memory_of_the_largest() -> None:
    code = nvptx.compile(in_turn(128, 1024, 256), 80)

    assert code.shared_bytes == ptxas.assemble(code.ptx).resources.shared_bytes == 4096
    assert nvptx.compile(in_turn(64 * 256, 128, 48 * 256), 90).dynamic_bytes == 65536


def test_more_shared_memory_than_the_gpu_has_is_refused() -> None:
    fn = shared_kernel(128 * 256)

    with pytest.raises(StagekitError) as caught:
        nvptx.compile(fn, 86)

    assert caught.value.id == "SHARED_MEMORY_EXCEEDED"
    assert "131072 bytes per block; compute capability 8.6 has 101376" in str(caught.value)


# -- loops ------------------------------------------------------------------------------------------------------------


def summing(unroll: int | None) -> Function:
    def body(b: Builder, a: Value, out: Value, n: Value) -> None:
        i, total = Value(n.type), Value(Scalar(f32))
        with b.block((i, total)) as loop:
            b.yield_(b.add(total, b.load(b.offset(a, i))))
        bounds = (b.index(0), n, b.index(1))
        (result,) = b.for_(bounds, (b.constant(0.0, f32),), loop.done(), unroll=unroll)
        b.store(out, result)

    return kernel({"a": array(f32), "out": array(f32), "n": i64}, body)


@pytest.mark.parametrize(("unroll", "loads"), [(1, 1), (8, 9)])
def test_a_loop_is_unrolled_as_asked(unroll: int, loads: int) -> None:
    """By 8: eight copies, and one in the loop for the rest. By 1: none, and ptxas is told so too."""
    used = opcodes(summing(unroll))

    assert used.count("ld.global.b32") == loads


def test_an_invariant_is_hoisted_out_of_a_loop() -> None:
    """Q29: what does not change is computed once; reading an index has no effect that would hold it in place."""

    def body(b: Builder, out: Value, n: Value) -> None:
        i = Value(n.type)
        with b.block((i,)) as loop:
            place = b.add(b.mul(call(b, "block_idx", params=("x",)), n), thread(b))
            b.store(b.offset(out, b.add(place, i)), b.constant(0.0, f32))
            b.yield_()
        b.for_((b.index(0), n, b.index(1)), (), loop.done(), unroll=1)

    lines = instructions(kernel({"out": array(f32), "n": i64}, body))

    start = next(n for n, line in enumerate(lines) if line.startswith("st.global"))
    assert not any("%tid" in line or "%ctaid" in line or line.startswith("mul") for line in lines[start:])


# -- launch bounds and names ------------------------------------------------------------------------------------------


def test_a_fixed_block_is_required_of_the_launch() -> None:
    """A launch with another block would be silently wrong, since the extent is folded; the driver refuses it instead."""
    ptx = nvptx.compile(elementwise([f32], f32, lambda b, x: x, block=(32, 4, 2)), 80).ptx

    assert ".reqntid 32, 4, 2" in ptx
    assert ".maxntid" not in ptx


def test_registers_are_limited_as_asked() -> None:
    code = nvptx.compile(elementwise([f32], f32, lambda b, x: x, max_registers=24), 80)

    assert ".maxnreg 24" in code.ptx
    assert ptxas.assemble(code.ptx).resources.registers <= 24


def test_so_many_blocks_fit_as_asked() -> None:
    """Of 1,024 threads two blocks leave 32 registers for each."""
    code = nvptx.compile(elementwise([f32], f32, lambda b, x: x, min_blocks=2, block=(1024, 1, 1)), 80)

    assert ".minnctapersm 2" in code.ptx
    assert ptxas.assemble(code.ptx).resources.registers <= 32


@pytest.mark.parametrize("name", ["add", "mov", "tid", "WARP_SZ", "vprintf", "größe", "_private", "stagekit_text0"])
def test_any_python_name_is_a_kernel_name(name: str) -> None:
    code = nvptx.compile(elementwise([f32], f32, lambda b, x: x, name=name), 80)

    assert f".visible .entry {code.entry}(" in code.ptx
    ptxas.assemble(code.ptx)


@pytest.mark.parametrize(
    ("capability", "directives"),
    [
        (75, (".version 8.0", ".target sm_75")),
        (90, (".version 8.0", ".target sm_90")),
        (100, (".version 8.6", ".target sm_100")),
        (120, (".version 8.7", ".target sm_120")),
        (130, (".version 8.8", ".target sm_121")),
    ],
)
def test_each_gpu_gets_the_oldest_ptx_that_has_it(capability: int, directives: tuple[str, ...]) -> None:
    ptx = nvptx.compile(elementwise([f32], f32, lambda b, x: x), capability).ptx

    assert all(d in ptx for d in directives)


# -- inline assembly --------------------------------------------------------------------------------------------------


def asm_kernel(text: str, constraints: str, sources: list[dtypes.DType], results: list[Any]) -> Function:
    def body(b: Builder, *pointers: Value) -> None:
        inputs = [b.load(p) for p in pointers[: len(sources)]]
        values = b.asm(text, constraints, inputs, results, has_side_effects=False, host=None)
        for pointer, value in zip(pointers[len(sources) :], values, strict=True):
            b.store(pointer, value)

    params = {f"a{n}": array(d) for n, d in enumerate(sources)} | {
        f"r{n}": array(t.dtype) for n, t in enumerate(results)
    }
    return kernel(params, body)


@pytest.mark.parametrize(
    ("text", "constraints", "sources", "results"),
    [
        ("add.s32 $0, $1, $2;", "=r,r,r", [i32, i32], [I32]),
        ("{ add.s32 $0, $2, $3;\n\tsub.s32 $1, $2, $3; }", "=r,=r,r,r", [i32, i32], [I32, I32]),
        ('add.f16 $0, $1, $1; // "half" \\', "=h,h", [dtypes.float16], [Scalar(dtypes.float16)]),
        ("fma.rn.f64 $0, $1, $1, $1;", "=d,0", [f64], [Scalar(f64)]),
        ("mov.pred $0, $1;", "=b,b", [dtypes.bool_], [BOOL]),
        ("mov.b64 $0, {$1, $1};", "=l,f", [f32], [Scalar(i64)]),
    ],
)
def test_inline_assembly_assembles(
    text: str, constraints: str, sources: list[dtypes.DType], results: list[Any]
) -> None:
    ptxas.assemble(nvptx.compile(asm_kernel(text, constraints, sources, results), 80).ptx)


@pytest.mark.parametrize(
    ("text", "constraints", "reason"),
    [
        ("add.s32 $0, $1, $2;", "=r,r", "1 output and 1 input in '=r,r', but 1 result and 2 operands"),
        ("add.s32 $0, $1, $2;", "r,r,=r", "an output constraint stands after an input"),
        ("add.s32 $0, $1, $2;", "=r,r,f", "constraint `f` cannot hold i32"),
        ("add.s32 $0, $1, $2;", "=l,r,r", "constraint `=l` cannot hold i32"),
        ("add.s32 $0, $1, $2;", "=r,r,m", "constraint `m` cannot hold i32"),
        ("add.s32 $0, $1, $3;", "=r,r,r", "`$3` is not an operand; there are 3"),
        ("add.s32 $0, $1, $x;", "=r,r,r", "a `$` that does not name an operand"),
        ("add.s32 $0, $1, ${2:u};", "=r,r,r", "a `$` that does not name an operand"),
        ("add.s32 $0, $1, $2;", "=r,r,n", "constraint `n` needs a value that is known when the kernel is compiled"),
        ("add.s32 $0, $1, $2; // é", "=r,r,r", r"'\xe9' is no ASCII character, and PTX is written in these alone"),
        (
            "add.s32 $0, $1, $2; // \ud800",
            "=r,r,r",
            r"'\ud800' is no ASCII character, and PTX is written in these alone",
        ),
        ("add.s32 $0, $1, $2;", "=r,r,7", "input i32 is tied to output 7, which is not of that type"),
    ],
)
def test_inline_assembly_that_does_not_fit_is_refused(text: str, constraints: str, reason: str) -> None:
    """LLVM would end the process for most of these."""
    with pytest.raises(StagekitError) as caught:
        nvptx.compile(asm_kernel(text, constraints, [i32, i32], [I32]), 80)

    assert caught.value.id == "ASM_MISMATCH"
    assert reason in str(caught.value)


def test_a_known_operand_may_be_an_immediate() -> None:
    def body(b: Builder, x: Value) -> Value:
        operands = (x, b.constant(5, i32))
        (result,) = b.asm("shl.b32 $0, $1, $2;", "=r,r,n", operands, [I32], has_side_effects=False, host=None)
        return result

    assert any(line.endswith(", 5;") for line in instructions(elementwise([i32], i32, body)))


def test_assembly_that_ptxas_refuses_is_a_user_error() -> None:
    code = nvptx.compile(asm_kernel("no.such $0, $1;", "=r,r", [i32], [I32]), 80)

    with pytest.raises(StagekitError, match="no") as caught:
        ptxas.assemble(code.ptx)

    assert caught.value.id == "PTX_REFUSED"


# -- source lines -----------------------------------------------------------------------------------------------------


def located(*, lineinfo: bool) -> Function:
    """A product on line 5, and a sum on line 31 of a fragment that line 6 calls."""
    kernel_line = Loc('kernels/a "b".py', 5, 8, 5, 9, "k")
    call_site = Loc('kernels/a "b".py', 6, 4, 6, 9, "k")
    fragment_line = Loc("kernels/fragments.py", 31, 0, 31, 9, "add_one", call_site)

    def body(b: Builder, x: Value) -> Value:
        b.loc = kernel_line
        product = b.mul(x, x)
        b.loc = fragment_line
        return b.add(product, x)

    return elementwise([f32], f32, body, lineinfo=lineinfo)


def test_instructions_carry_source_lines_when_asked() -> None:
    ptx = nvptx.compile(located(lineinfo=True), 80).ptx

    assert re.search(r'\.file\s+(\d+) "kernels/fragments.py"', ptx)
    assert re.search(r"\.loc\s+\d+ 5 9\n\tmul", ptx)
    assert re.search(r"\.loc\s+\d+ 31 1\n\tadd", ptx)
    assert ptxas.assemble(ptx).warnings == ()


def test_source_lines_change_no_instruction() -> None:
    assert opcodes(located(lineinfo=True)) == opcodes(located(lineinfo=False))


# -- the process ------------------------------------------------------------------------------------------------------


def test_text_that_llvm_refuses_is_an_internal_error_with_the_text() -> None:
    with pytest.raises(InternalError, match=r"LLVM refuses the text(.|\n)*1 define void @f"):
        target.GpuTarget(80).assemble("define void @f() { ret i32 %nothing }", 0)


def test_many_threads_compile_at_once() -> None:
    """P23: LLVM is called from whichever thread compiles."""
    logarithm = Intrinsic(
        name="f", args=("x",), sigs=(sig([f32], f32),), lower={"cuda": Extern("__nv_logf")}, doc="doc", source="source"
    )
    fns: list[Callable[[Builder, Value], Value]] = [
        lambda b, x: b.mul(x, x),
        lambda b, x: b.call_one(logarithm, (x,)),
    ]
    kernels = [elementwise([f32], f32, fns[n % 2]) for n in range(8)]

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda fn: nvptx.compile(fn, 80).ptx, kernels * 4))

    assert len(set(made)) == 2


def test_sass_can_be_read() -> None:
    if ptxas.find_tool("nvdisasm") is None:
        pytest.skip("nvdisasm is not installed (pip install nvidia-cuda-nvdisasm)")
    cubin = ptxas.assemble(nvptx.compile(elementwise([f32], f32, lambda b, x: b.add(x, x)), 80).ptx).cubin

    assert "FADD" in ptxas.disassemble(cubin)
    with pytest.raises(StagekitError, match=r"TOOL_FAILED(.|\n)*nvdisasm"):
        ptxas.disassemble(b"no machine code")


def test_a_missing_tool_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptxas, "find_tool", lambda name: None)

    with pytest.raises(StagekitError, match="nvidia-cuda-nvdisasm"):
        ptxas.disassemble(b"")


@pytest.mark.parametrize(("align", "loads"), [(None, ["ld.global.b32"] * 4), (16, ["ld.global.v4.b32"])])
def test_an_alignment_that_a_parameter_asks_for_reaches_ptx(align: int | None, loads: list[str]) -> None:
    @sk.jit(debug=True)  # which adds a parameter
    def kernel(a: sk.Pointer(sk.float32, align=align), out: sk.Pointer(sk.float32)):
        i = sk.cuda.thread_idx("x")
        assert i < 1024
        total = sk.load(a + 4 * i) + sk.load(a + 4 * i + 1) + sk.load(a + 4 * i + 2) + sk.load(a + 4 * i + 3)
        sk.store(out + i, total)

    found = [line.split()[0] for line in kernel.specialize().ptx.splitlines() if "ld.global" in line]

    assert found == loads


def test_a_row_in_shared_memory_is_accessed_whole() -> None:
    """Also where an instruction without effects stands between the accesses."""

    @sk.jit
    def kernel(out: sk.Tensor((None,), sk.float32)):
        held = sk.alloc_shared((33, 4), sk.float32)
        t = sk.cuda.thread_idx("x")
        for k in sk.static_range(4):
            held[t, k] = 0.0
        sk.syncthreads()
        out[t] = sk.fast_rsqrt(held[t + 1, 0] + held[t + 1, 1]) * held[t + 1, 2] * held[t + 1, 3]

    found = [
        line.split()[0] for line in kernel.specialize().ptx.splitlines() if "d.shared" in line or "t.shared" in line
    ]

    assert found == ["st.shared.v4.b32", "ld.shared.v4.b32"]


def test_indices_and_sizes_are_divided_as_the_unsigned_numbers_that_they_are() -> None:
    @sk.jit
    def kernel(out: sk.Tensor((None, None), sk.float32)):
        i = sk.cuda.block_idx("x") * 128 + sk.cuda.thread_idx("x")
        out[i // out.shape[1], i % out.shape[1]] = 0.0

    assert "rem.u64" in kernel.specialize().ptx or "div.u64" in kernel.specialize().ptx
    assert not re.search(r"(rem|div)\.s64", kernel.specialize().ptx)


def test_what_many_rounds_would_compute_anew_is_computed_before_the_loop() -> None:
    """Here the keys of the rounds of a random generator, which its seed alone decides."""

    @sk.jit
    def kernel(out: sk.Tensor((None,), sk.float32), seed: sk.int64):
        total = sk.float32(0)
        for i in range(len(out)):
            total += sk.randn(seed, i)
        out[0] = total

    ptx = kernel.specialize().ptx
    step_of_keys = "-1640531527"  # 0x9E3779B9

    assert step_of_keys in ptx[: ptx.index("$L__BB0_2:")]
    assert step_of_keys not in ptx[ptx.index("$L__BB0_2:") :]


def test_addresses_that_are_the_same_in_each_round_do_not_take_the_whole_pipeline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ptxas folds the constant parts of 32 addresses into their accesses, in fewer registers."""

    @sk.jit
    def kernel(a: sk.Tensor((None, None), sk.float32), out: sk.Tensor((None,), sk.float32)):
        kept, t, total = sk.alloc_shared((32, 33), sk.float32), sk.cuda.thread_idx("x"), sk.float32(0)
        for row in range(a.shape[0]):
            kept[row % 32, t] = a[row, t]
            sk.syncthreads()
            for k in sk.static_range(32):
                total += kept[t, k]
            sk.syncthreads()
        out[t] = total

    taken, run = list[object](), target.optimize.run
    monkeypatch.setattr(target.optimize, "run", lambda *given: (taken.append(given[-1]), run(*given)))
    _ = kernel.specialize().ptx

    assert taken == [target.optimize.LOOPS]


def test_line_information_names_the_users_file() -> None:
    @sk.jit(lineinfo=True)
    def kernel(out: sk.Pointer(sk.float32)):
        sk.store(out, 1.0)

    ptx = kernel.specialize().ptx

    assert f'"{__file__}"' in ptx
    assert ".loc" in ptx


def test_what_the_library_does_has_the_line_of_the_users_call() -> None:
    @sk.jit(lineinfo=True)
    def kernel(out: sk.Pointer(sk.float32)):
        tile = sk.arange(0, 64)
        sk.store(out + tile, sk.reduce_sum(tile))

    ptx = kernel.specialize().ptx

    assert [Path(__file__).name] == [Path(name).name for name in re.findall(r'\.file\s+\d+ "([^"]*)"', ptx)]


def test_ifs_that_compare_a_number_with_constants_are_no_switch() -> None:
    """A switch is a jump to an address, for which threads that disagree wait in turns; alone, each is predicated."""

    @sk.jit
    def kernel(out: sk.Tensor((None, 4), sk.int32)):
        lane = sk.lane_id()
        for place in sk.static_range(4):
            if lane == place:
                out[lane, place] = place * place

    assert "brx" not in kernel.specialize().ptx
    assert "BRA" not in kernel.specialize().sass.replace("BRA `(.L_x_0)", "")
