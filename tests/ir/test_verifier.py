"""The verifier: valid IR passes, and each rule has a program that breaks it and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stagekit.diagnostics import UNKNOWN, Loc
from stagekit.dtypes import bfloat16, bool_, float8_e4m3fn, float16, float32, int8, int32, uint8
from stagekit.intrinsics import by_name
from stagekit.ir import INDEX, BinaryKind, Block, Builder, Function, Op, Scalar, Value, ops
from stagekit.ir.core import OP_CLASSES
from stagekit.ir.typing import RULES as TYPING_RULES
from stagekit.ir.verifier import VerifyError, verify
from tools.ir_parser import parse_function

HEAD = "func @f(%A: ptr<f32, global>, %n: i64, %x: f32, %h: f16, %q: f8e4m3, %go: bool, %v: vector<4 x f32>, %w: vector<2 x f32>)"


def parsed(*lines: str) -> Function:
    return parse_function("\n".join([HEAD, "{", *lines, "yield()", "}"]), by_name)


# -- rules that text can break ----------------------------------------------------------------------------------------

BROKEN = {
    # types, by `typing.infer`
    "operands of one type": ("%0 = binary.add %n, %x : i64", "operands of add differ: i64 and f32"),
    "add takes numbers": ("%0 = binary.add %go, %go : bool", "add of bool"),
    "bitwise takes no float": ("%0 = binary.and %x, %x : f32", "and of float32"),
    "shift takes integers": ("%0 = binary.shl %go, %go : bool", "shl of bool"),
    "div takes floats": ("%0 = binary.div %n, %n : i64", "div of int64"),
    "arithmetic on storage": ("%0 = binary.add %q, %q : f8e4m3", "float8_e4m3fn has no arithmetic"),
    "arithmetic on a pointer": ("%0 = binary.add %A, %A : ptr<f32, global>", "add needs scalars"),
    "neg of bool": ("%0 = unary.neg %go : bool", "neg of bool"),
    "not of float": ("%0 = unary.not %x : f32", "not of float32"),
    "not of a pointer": ("%0 = unary.not %A : ptr<f32, global>", "not needs a scalar"),
    "compare of two types": ("%0 = compare.lt %n, %x : bool", "operands of a comparison differ"),
    "select by a bool": ("%0 = select %n, %x, %x : f32", "select condition is i64"),
    "select of two types": ("%0 = select %go, %x, %n : f32", "select of f32 and i64"),
    "cast to a pointer": ("%0 = cast %n : ptr<f32, global>", "cast of i64 to ptr<f32, global>"),
    "bitcast keeps size": ("%0 = bitcast %n : f32", "bitcast of i64 to f32"),
    "bitcast keeps space": ("%0 = bitcast %A : ptr<f32, shared>", "bitcast of ptr<f32, global> to ptr<f32, shared>"),
    "offset of a pointer": ("%0 = offset %n, %n : i64", "offset of i64"),
    "offset by an index": ("%0 = offset %A, %x : ptr<f32, global>", "offset by f32, must be i64"),
    "load from a pointer": ("%0 = load %x : f32", "not a pointer: f32"),
    "mask with other": ("%0 = load %A, mask=%go : f32", "load needs both mask and other"),
    "mask is bool": ("%0 = load %A, mask=%n, other=%x : f32", "load mask is i64"),
    "other is an element": ("%0 = load %A, mask=%go, other=%n : f32", "load other is i64"),
    "store of an element": ("store %A, %n", "store of i64 to ptr<f32, global>"),
    "store mask is bool": ("store %A, %x, mask=%n", "store mask is not bool"),
    "alloc of no elements": (
        "%0 = alloc.local {dtype=f32, count=-1, align=4} : ptr<f32, local>",
        "alloc of -1 elements",
    ),
    "alloc of global memory": (
        "%0 = alloc.global {dtype=f32, count=1, align=4} : ptr<f32, global>",
        "alloc of global memory, which the launcher gives",
    ),
    "result type": ("%0 = binary.add %n, %n : i32", "results are i32, by the operands i64"),
    "constant of a pointer": ("%0 = const 0 : ptr<f32, global>", "constant of ptr<f32, global>"),
    "overload": ("%0 = intrinsic.exp(%go) : bool", "exp has no overload for (bool)"),
    "compile-time count": ("%0 = intrinsic.block_idx() : i64", "block_idx needs 1 compile-time values"),
    "compile-time choice": ('%0 = intrinsic.block_idx() {params=("w")} : i64', "block_idx: axis = 'w'"),
    # vectors
    "vectors of two widths": (
        "%0 = binary.add %v, %w : vector<4 x f32>",
        "binary of vector<4 x f32>, vector<2 x f32>: vectors meet only vectors of as many lanes",
    ),
    "vector beside scalar": (
        "%0 = select %go, %v, %v : vector<4 x f32>",
        "select of bool, vector<4 x f32>, vector<4 x f32>",
    ),
    "cast keeps the lanes": (
        "%0 = cast %v : vector<2 x f16>",
        "cast of vector<4 x f32>, vector<2 x f16>: vectors meet",
    ),
    "what scalars cannot": ("%0 = binary.and %v, %v : vector<4 x f32>", "and of float32"),
    "overload of lanes": ("%0 = intrinsic.popcount(%v) : vector<4 x f32>", "popcount has no overload for (f32)"),
    "no lanes across threads": ("%0 = intrinsic.ballot_sync(%v, %v) : u32", "has no overload for (vector<4 x f32>"),
    "splat of a scalar": ("%0 = splat %v {count=4} : vector<4 x f32>", "splat of vector<4 x f32> to 4 lanes"),
    "splat to a width": ("%0 = splat %x {count=3} : vector<4 x f32>", "splat of f32 to 3 lanes"),
    "pack of one type": ("%0 = pack(%x, %h) : vector<2 x f32>", "pack of f32, f16"),
    "pack to a width": ("%0 = pack(%x, %x, %x) : vector<4 x f32>", "pack of f32, f32, f32"),
    "extract of a vector": ("%0 = extract %x {index=0} : f32", "extract of lane 0 of f32"),
    "extract of a lane": ("%0 = extract %v {index=4} : f32", "extract of lane 4 of vector<4 x f32>"),
    "a vector is no condition": ("if %v then { yield() } else { yield() }", "if condition is vector<4 x f32>"),
    "print of a vector": ('print(%v) {format="{}"}', "print of vector<4 x f32>"),
    "load of so many": ("%0 = load %A {count=3} : f32", "load of 3 elements"),
    "load of a vector": (
        "%0 = load %A {count=4} : vector<2 x f32>",
        "results are vector<2 x f32>, by the operands vector<4",
    ),
    "other is a vector": (
        "%0 = load %A, mask=%go, other=%x {count=4} : vector<4 x f32>",
        "load other is f32, what is loaded vector<4 x f32>",
    ),
    "a mask for all lanes": ("store %A, %v, mask=%v", "store mask is not bool"),
    "store of other elements": (
        "%0 = cast %v : vector<4 x f16> store %A, %0",
        "store of vector<4 x f16> to ptr<f32, global>",
    ),
    "align is a power of two": ("store %A, %v {align=12}", "store of f32 at multiples of 12 bytes"),
    "align is an element's": ("%0 = load %A {align=2} : f32", "load of f32 at multiples of 2 bytes"),
    "lanes are exact": ("%0 = const 0.1 : vector<4 x f32>", "0.1 is not a value of float32"),
    "assert a bool": ('assert %n, () {message=""}', "assert condition is i64"),
    "if by a bool": ("if %n then { yield() } else { yield() }", "if condition is i64"),
    "arms agree": ("%0 = if %go : f32 then { yield(%x) } else { yield(%n) }", "arms yield f32 and i64"),
    "for over integers": ("for %x, %x, %x, () loop(%i: f32) { yield() }", "for over f32"),
    "for bounds agree": ("for %n, %x, %n, () loop(%i: i64) { yield() }", "for bounds differ in type"),
    "for parameters": ("%0 = for %n, %n, %n, (%x) : f32 loop(%i: i64) { yield(%x) }", "for body parameters"),
    "for yields": (
        "%0 = for %n, %n, %n, (%x) : f32 loop(%i: i64, %a: f32) { yield(%i) }",
        "for yields i64, carries f32",
    ),
    "while parameters": (
        "%0 = while(%x) : f32 before(%a: i64) { condition %go, (%x) } after(%b: f32) { yield(%x) }",
        "while parameters do not match inits",
    ),
    "while test": ("while() before { yield() } after { yield() }", "while test does not end in condition"),
    "while by a bool": ("while() before { condition %n, () } after { yield() }", "while condition is i64"),
    "while forwards": (
        "while() before { condition %go, (%n) } after { yield() }",
        "while body parameters do not match condition",
    ),
    "while yields": (
        "while() before { condition %go, () } after { yield(%n) }",
        "while yields i64, carries nothing",
    ),
    "asm parameters": (
        '%0 = asm(%n) {text="", constraints="=l,l", has_side_effects=false} : i64 host { yield(%n) }',
        "asm host body parameters",
    ),
    "asm results": (
        '%0 = asm() {text="", constraints="=l", has_side_effects=false} : i64 host { yield(%x) }',
        "asm host body does not yield the results",
    ),
    # constants and formats
    "int in range": ("%0 = const 128 : i8", "128 is not a value of int8"),
    "float is exact": ("%0 = const 0.1 : f32", "0.1 is not a value of float32"),
    "float is in range": ("%0 = const 1e+39 : f32", "1e+39 is not a value of float32"),
    "bfloat16 is exact": ("%0 = const 1.001 : bf16", "1.001 is not a value of bfloat16"),
    "int is no float": ("%0 = const 1 : f32", "1 is not a value of float32"),
    "bool is no int": ("%0 = const true : i64", "True is not a value of int64"),
    "int is no bool": ("%0 = const 1 : bool", "1 is not a value of bool"),
    "a field per operand": ('print(%x) {format="{} {}"}', "does not have one `{}` for each of 1 operands"),
    "fields without names": ('print(%x) {format="{x}"}', "does not have one `{}` for each of 1 operands"),
    "a whole format": ('assert %go, (%x) {message="{"}', "format '{': "),
    # structure
    "a block ends": ("if %go then { } else { yield() }", "a block ends in a terminator"),
    "a terminator stands last": ("yield()", "a terminator stands last"),
    "condition only in a test": ("if %go then { condition %go, () } else { yield() }", "body does not end in yield"),
}


@pytest.mark.parametrize(("line", "reason"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_rule_is_named_at_its_op(line: str, reason: str) -> None:
    fn = parsed(line)

    with pytest.raises(VerifyError) as caught:
        verify(fn)

    assert reason in caught.value.reason
    shown = str(caught.value).splitlines()
    at = next(i for i, text in enumerate(shown) if text.lstrip().startswith("// ^ "))
    assert caught.value.reason in shown[at]


def test_every_op_class_has_a_typing_rule() -> None:
    assert set(OP_CLASSES.values()) == TYPING_RULES.keys()


@pytest.mark.parametrize("terminator", ["yield(%x)", "condition %go, ()"])
def test_a_function_yields_nothing(terminator: str) -> None:
    with pytest.raises(VerifyError, match=r"a function ends in `yield\(\)`"):
        verify(parse_function(f"{HEAD} {{ {terminator} }}", by_name))


def test_an_empty_function_is_refused() -> None:
    with pytest.raises(VerifyError, match="a block ends in a terminator"):
        verify(Function("f", Block((), ())))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        *((127, int8), (255, uint8), (-(2**31), int32), (True, bool_)),
        *((65504.0, float16), (float("nan"), float32), (-float("inf"), float16), (1.0078125, bfloat16)),
        *((448.0, float8_e4m3fn), (-0.0, float32)),
    ],
)
def test_an_exact_constant_is_valid(value: float, dtype: object) -> None:
    verify(built(lambda b: b.constant(value, dtype)))


# -- rules that only hand-made ops can break --------------------------------------------------------------------------


def built(make: Callable[[Builder], object]) -> Function:
    b = Builder(UNKNOWN)
    make(b)
    b.yield_()
    return Function("f", b.current.done())


def test_a_value_is_defined_before_its_use() -> None:
    def make(b: Builder) -> None:
        b.neg(b.index(1))
        b.current.ops.reverse()

    with pytest.raises(VerifyError, match="definition is not visible"):
        verify(built(make))


def test_a_value_of_one_arm_is_not_visible_in_the_other() -> None:
    def make(b: Builder) -> None:
        with b.block() as then_body:
            inner = b.index(1)
            b.yield_()
        with b.block() as else_body:
            b.neg(inner)
            b.yield_()
        b.if_(b.true(), then_body.done(), else_body.done())

    with pytest.raises(VerifyError, match="definition is not visible"):
        verify(built(make))


def test_a_value_of_a_body_is_not_visible_behind_it() -> None:
    def make(b: Builder) -> None:
        with b.block() as arm:
            inner = b.index(1)
            b.yield_()
        b.if_(b.true(), arm.done(), nothing(b))
        b.neg(inner)

    with pytest.raises(VerifyError, match="definition is not visible"):
        verify(built(make))


def nothing(b: Builder) -> Block:
    with b.block() as arm:
        b.yield_()
    return arm.done()


def test_a_value_is_defined_once() -> None:
    def make(b: Builder) -> None:
        b.index(1)
        b.append(b.current.ops[0])

    with pytest.raises(VerifyError, match="a value is defined twice"):
        verify(built(make))


def test_a_parameter_is_defined_once() -> None:
    twice = Value(INDEX)
    b = Builder(UNKNOWN)
    b.yield_()

    with pytest.raises(VerifyError, match="a value is defined twice"):
        verify(Function("f", Block((twice, twice), tuple(b.current.ops))))


def test_a_body_that_stands_in_two_places_is_refused() -> None:
    def make(b: Builder) -> None:
        arm = nothing(b)
        b.if_(b.true(), arm, arm)

    with pytest.raises(VerifyError, match="one op object stands in two places"):
        verify(built(make))


def test_an_op_has_a_place() -> None:
    with pytest.raises(VerifyError, match="an op has a place"):
        verify(built(lambda b: b.append(ops.Constant(value=1, loc=None, results=(Value(INDEX),)))))


def test_the_set_of_ops_is_closed() -> None:
    class Mine(ops.Constant):
        """Not declared with `@op`."""

    with pytest.raises(VerifyError, match="Mine is not a core op"):
        verify(built(lambda b: b.append(Mine(value=1, loc=UNKNOWN, results=(Value(INDEX),)))))


# -- stage legality and the message -----------------------------------------------------------------------------------


def test_an_op_may_be_illegal_in_a_stage() -> None:
    def no_half(op: Op) -> str | None:
        is_half = isinstance(op, ops.Binary) and op.lhs.type == Scalar(float16)
        return "no half here" if is_half else None

    fine, bad = (parsed(f"%0 = binary.add %{v}, %{v} : {t}") for v, t in (("x", "f32"), ("h", "f16")))

    verify(fine, no_half)
    verify(bad)
    with pytest.raises(VerifyError, match="no half here"):
        verify(bad, no_half)


def test_the_message_shows_the_ir_around_the_op_and_the_users_line(tmp_path: Path) -> None:
    source = tmp_path / "kernel.py"
    source.write_text("def kernel(n):\n    return n + 0.5  # here\n", encoding="utf-8")
    b = Builder(Loc(str(source), 2, 11, 2, 18, "kernel"))
    for number in range(100):
        b.index(number)
    b.append(ops.Binary(kind=BinaryKind.ADD, lhs=b.current.ops[0].result, rhs=b.constant(0.5, float32), loc=b.loc))
    for number in range(100):
        b.index(number)
    b.yield_()

    with pytest.raises(VerifyError) as caught:
        verify(Function("kernel", b.current.done()))

    lines = str(caught.value).splitlines()
    assert lines[0] == "invalid IR in `kernel`: operands of add differ: i64 and f32"
    assert lines[1] == f"{source}:2:12: return n + 0.5  # here"
    assert "  binary.add %0, %100" in lines
    assert "  // ^ operands of add differ: i64 and f32" in lines
    assert len(lines) < 40
