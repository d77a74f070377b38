"""What each pass makes of a small program: the program here, the result in `tests/golden/passes/`."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagekit.intrinsics import by_name
from stagekit.ir import Function
from stagekit.ir.printer import print_function
from stagekit.ir.verifier import verify
from stagekit.passes import Pass, PassContext
from stagekit.passes.cse import cse
from stagekit.passes.dce import dce
from stagekit.passes.expand import expand
from stagekit.passes.fold import fold
from stagekit.passes.records import records
from tools.ir_parser import parse_function

CPU = PassContext("cpu", 0, fastmath=False, debug=False)
CUDA = PassContext("cuda", 90, fastmath=False, debug=False)
CUDA_DEBUG = PassContext("cuda", 90, fastmath=False, debug=True)

HEAD = "func @f(%A: ptr<f32, global>, %n: i64, %i: i32, %x: f32, %go: bool, %k: u8)"


def parsed(lines: str, attributes: str = "") -> Function:
    return parse_function(f"{HEAD} {attributes} {{ {lines}\nyield() }}", by_name)


KEEP = """
    %p = offset %A, %n : ptr<f32, global>
    store %p, %x
"""

CASES: dict[str, tuple[Pass, PassContext, str]] = {
    "fold_constants": (
        fold,
        CPU,
        """
        %c3 = const -7 : i32
        %c2 = const 2 : i32
        %0 = binary.floordiv %c3, %c2 : i32
        %1 = binary.mod %c3, %c2 : i32
        %2 = cast %0 : f32
        %3 = unary.neg %2 : f32
        %4 = bitcast %3 : i32
        %5 = compare.lt %4, %1 : bool
        %6 = select %5, %i, %4 : i32
        print(%6) {format="{}"}
        """,
    ),
    "fold_identities": (
        fold,
        CPU,
        """
        %zero = const 0 : i32
        %one = const 1 : i32
        %ones = const 255 : u8
        %0 = binary.add %zero, %i : i32
        %1 = binary.mul %0, %one : i32
        %2 = binary.shl %1, %zero : i32
        %3 = binary.and %k, %ones : u8
        %4 = binary.xor %3, %3 : u8
        %5 = binary.mod %i, %one : i32
        %6 = unary.not %go : bool
        %7 = unary.not %6 : bool
        %8 = compare.lt %n, %n : bool
        %9 = compare.lt %i, %2 : bool
        %10 = unary.not %9 : bool
        print(%2, %3, %4, %5, %7, %8, %10) {format="{}{}{}{}{}{}{}"}
        """,
    ),
    "fold_keeps_float_bits": (
        fold,
        CPU,
        """
        %zero = const 0.0 : f32
        %one = const 1.0 : f32
        %0 = binary.add %x, %zero : f32
        %1 = binary.mul %x, %one : f32
        %2 = binary.sub %x, %x : f32
        %3 = compare.eq %x, %x : bool
        %4 = compare.lt %x, %zero : bool
        %5 = unary.not %4 : bool
        print(%0, %1, %2, %3, %5) {format="{}{}{}{}{}"}
        """,
    ),
    "fold_casts": (
        fold,
        CPU,
        """
        %0 = cast %k : i32
        %1 = cast %0 : f32
        %2 = cast %x : f64
        %3 = cast %2 : f32
        %4 = cast %i : f64
        %5 = cast %4 : u8
        %6 = cast %x : f16
        %7 = cast %6 : f32
        %8 = cast %n : i32
        %9 = cast %8 : u8
        %10 = bitcast %x : u32
        %11 = bitcast %10 : f32
        %12 = const 2139095041 : u32
        %13 = bitcast %12 : f32
        print(%1, %3, %5, %7, %9, %11, %13) {format="{}{}{}{}{}{}{}"}
        """,
    ),
    "fold_choices": (
        fold,
        CPU,
        """
        %true = const true : bool
        %false = const false : bool
        %not = unary.not %go : bool
        %0 = select %go, %true, %false : bool
        %1 = select %go, %false, %true : bool
        %2 = select %go, %not, %false : bool
        %3 = select %go, %true, %not : bool
        %4 = select %not, %x, %x : f32
        print(%0, %1, %2, %3, %4) {format="{}{}{}{}{}"}
        """,
    ),
    "fold_control": (
        fold,
        CPU,
        """
        %true = const true : bool
        %false = const false : bool
        %zero = const 0 : i64
        %0 = if %true : f32 then {
          %1 = unary.neg %x : f32
          %2 = if %false : f32 then { yield(%x) } else { yield(%1) }
          yield(%2)
        } else {
          yield(%x)
        }
        %3 = for %n, %n, %zero, (%0) : f32 loop(%j: i64, %a: f32) { yield(%x) }
        %4 = for %zero, %zero, %zero, (%3) : f32 loop(%j: i64, %a: f32) { yield(%x) }
        %5, %6, %7 = if %go : bool, f32, f32 then { yield(%true, %4, %x) } else { yield(%false, %4, %0) }
        assert %true, () {message="never"}
        assert %5, (%6, %7) {message="{}{}"}
        """,
    ),
    "fold_memory": (
        fold,
        CPU,
        """
        %true = const true : bool
        %false = const false : bool
        %zero = const 0 : i64
        %p = offset %A, %zero : ptr<f32, global>
        %0 = load %p, mask=%true, other=%x : f32
        %1 = load %p, mask=%false, other=%x : f32
        store %p, %0, mask=%true
        store %p, %1, mask=%false
        """,
    ),
    "fold_intrinsics": (
        fold,
        CPU,
        """
        %0 = const 12 : u32
        %1 = intrinsic.popcount(%0) : u32
        %2 = const 1.0 : f32
        %3 = intrinsic.sin(%2) : f32
        %4 = intrinsic.sqrt(%2) : f32
        print(%1, %3, %4) {format="{}{}{}"}
        """,
    ),
    "cse_scopes": (
        cse,
        CPU,
        """
        %0 = intrinsic.thread_idx() {params=("x")} : i64
        if %go then {
          %1 = intrinsic.thread_idx() {params=("x")} : i64
          %2 = intrinsic.thread_idx() {params=("y")} : i64
          %3 = binary.add %1, %2 : i64
          %4 = binary.add %0, %2 : i64
          print(%3, %4) {format="{}{}"}
          yield()
        } else {
          %5 = intrinsic.thread_idx() {params=("y")} : i64
          print(%5) {format="{}"}
          yield()
        }
        """,
    ),
    "cse_keeps_apart": (
        cse,
        CPU,
        """
        %0 = const 0.0 : f32
        %1 = const -0.0 : f32
        %2 = cast %i : f32
        %3 = cast %i : f64
        %4 = alloc.local {dtype=f32, count=1, align=4} : ptr<f32, local>
        %5 = alloc.local {dtype=f32, count=1, align=4} : ptr<f32, local>
        store %4, %0
        %6 = load %4 : f32
        store %4, %1
        %7 = load %4 : f32
        store %5, %2
        print(%3, %6, %7) {format="{}{}{}"}
        """,
    ),
    "dce_unused": (
        dce,
        CPU,
        """
        %0 = binary.add %n, %n : i64
        %1 = binary.add %0, %0 : i64
        %2 = load %A : f32
        %3 = alloc.shared {dtype=f32, count=64, align=4} : ptr<f32, shared>
        %4 = if %go : f32 then { yield(%2) } else { yield(%x) }
        if %go then {
          %5 = unary.neg %x : f32
          yield()
        } else {
          yield()
        }
        store %A, %x
        """,
    ),
    "dce_carried": (
        dce,
        CPU,
        """
        %0, %used, %1 = for %n, %n, %n, (%x, %x, %n) : f32, f32, i64 loop(%j: i64, %a: f32, %b: f32, %c: i64) {
          %2 = binary.add %a, %x : f32
          %3 = binary.mul %b, %x : f32
          yield(%2, %3, %c)
        }
        %4 = for %n, %n, %n, (%x) : f32 loop(%j: i64, %a: f32) {
          %5 = binary.mul %a, %x : f32
          yield(%5)
        }
        %6, %7 = while(%x, %x, %n) : f32, f32 before(%d: f32, %e: f32, %only: i64) {
          %8 = compare.lt %d, %x : bool
          condition %8, (%d, %e)
        } after(%g: f32, %h: f32) {
          %9 = binary.add %g, %x : f32
          %10 = binary.add %h, %x : f32
          yield(%9, %10, %n)
        }
        store %A, %used
        store %A, %6
        """,
    ),
    "dce_loops_that_carry_what_stays": (
        dce,
        CPU,
        """
        %0 = unary.neg %x : f32
        %1 = while(%n) : f32 before(%a: i64) {
          %2 = compare.lt %a, %n : bool
          condition %2, (%0)
        } after(%b: f32) {
          yield(%n)
        }
        %3 = for %n, %n, %n, (%1) : f32 loop(%j: i64, %c: f32) {
          store %A, %c
          %4 = unary.neg %c : f32
          yield(%4)
        }
        %5 = for %n, %n, %n, (%x) : f32 loop(%j: i64, %c: f32) {
          %6 = cast %j : f32
          yield(%6)
        }
        store %A, %5
        """,
    ),
    "expand_cpu": (
        expand,
        CPU,
        """
        %0 = intrinsic.program_id() {params=(1)} : i64
        %1 = asm(%i) {text="not.b32 $0, $1;", constraints="=r,r", has_side_effects=false} : i32 host(%0: i32) {
          %1 = unary.not %0 : i32
          yield(%1)
        }
        print(%0, %1) {format="{}{}"}
        """,
    ),
    "expand_cuda": (
        expand,
        CUDA,
        """
        %0 = intrinsic.program_id() {params=(1)} : i64
        %1 = asm(%i) {text="not.b32 $0, $1;", constraints="=r,r", has_side_effects=false} : i32 host(%0: i32) {
          %1 = unary.not %0 : i32
          yield(%1)
        }
        print(%0, %1) {format="{}{}"}
        """,
    ),
    "records_cpu": (
        records,
        CPU,
        """
        assert %go, (%x, %k) {message="x = {}, k = {}"}
        print() {format="here"}
        """,
    ),
    "records_cuda": (
        records,
        CUDA,
        """
        assert %go, (%x) {message="x = {}"}
        print() {format="here"}
        """,
    ),
    "records_cuda_debug": (
        records,
        CUDA_DEBUG,
        """
        assert %go, () {message="wrong"}
        print() {format="here"}
        """,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_pass(name: str, golden, golden_folder: Path) -> None:
    run, context, program = CASES[name]
    fn = parsed(program)
    verify(fn)

    result = run(fn, context)

    verify(result)
    golden.check(golden_folder / f"{name}.ir", print_function(result))
    assert run(result, context) is result, "a second run finds nothing to do"
