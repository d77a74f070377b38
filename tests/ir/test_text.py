"""Printing and parsing: whatever can be printed reads back as the same program."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit import dtypes
from stagekit.artifact import RecordSite
from stagekit.diagnostics import UNKNOWN, InternalError, Loc
from stagekit.dtypes import ALL_DTYPES, DType
from stagekit.intrinsics import by_name
from stagekit.ir import INDEX, Builder, Function, Value, semantics, walk
from stagekit.ir.core import OP_CLASSES
from stagekit.ir.printer import print_function
from stagekit.ir.verifier import verify
from tests.same_ir import same_ir
from tools.ir_parser import ParseError, parse_function

GOLDENS = sorted((Path(__file__).parents[1] / "golden").rglob("*.ir"))

EVERY_OP = """\
func @every_op(%A: ptr<f32, global>, %n: i64, %x: f32, %flag: bool, %v: vector<4 x f32>) {block=(128, 1, 1), fastmath=false} {
  %0 = const 3 : i64
  %1 = binary.add %n, %0 : i64
  %2 = unary.neg %x : f32
  %3 = compare.lt %1, %0 : bool
  %4 = select %3, %x, %2 : f32
  %5 = cast %4 : f16
  %6 = bitcast %x : u32
  %p = offset %A, %1 : ptr<f32, global>
  %7 = load %p : f32
  %8 = load %p, mask=%flag, other=%x : f32
  store %p, %7
  store %p, %8, mask=%3
  %tile = alloc.shared {dtype=f32, count=64, align=16} : ptr<f32, shared>
  %dynamic = alloc.shared {dtype=f32, align=16} : ptr<f32, shared>
  %9, %10 = if %flag : f32, i64 then {
    yield(%x, %0)
  } else {
    yield(%7, %1)
  }
  if %flag then {
    yield()
  } else {
    yield()
  }
  %acc = for %0, %n, %0, (%x) {unroll=4} : f32 loop(%i: i64, %acc.1: f32) {
    %11 = binary.mul %acc.1, %x : f32
    yield(%11)
  }
  %12 = while(%n) : i64 before(%13: i64) {
    condition %flag, (%13)
  } after(%14: i64) {
    yield(%14)
  }
  assert %flag, (%x, %n) {message="x = {}, n = {}"}
  print(%x) {format="\\u00e9 {:.3f}\\n"}
  breakpoint(%x) {scene=0}
  %15 = intrinsic.thread_idx() {params=("y")} : i64
  %16 = intrinsic.exp(%x) : f32
  %17 = asm(%6) {text="popc.b32 $0, $1;", constraints="=r,r", has_side_effects=false} : u32 host(%18: u32) {
    %19 = intrinsic.popcount(%18) : u32
    yield(%19)
  }
  %20 = splat %x {count=4} : vector<4 x f32>
  %21 = const -0.0 : vector<4 x f32>
  %22 = binary.add %20, %v : vector<4 x f32>
  %23 = compare.lt %22, %21 : vector<4 x bool>
  %24 = extract %23 {index=3} : bool
  %25 = pack(%x, %2) : vector<2 x f32>
  %lut = table {dtype=f32, data="0000803f00000040"} : ptr<f32, constant>
  asm() {text="bar.sync 0;", constraints="", has_side_effects=true}
  statement
  %26 = once : f32 thread {
    yield(%x)
  }
  yield()
}
"""


def parsed(text: str) -> Function:
    return parse_function(text, by_name)


def in_function(*lines: str) -> str:
    return "\n".join(["func @f(%x: f32, %n: i64) {", *lines, "}"])


def test_every_op_reads_back_as_the_text_it_was() -> None:
    fn = parsed(EVERY_OP)

    verify(fn)
    assert EVERY_OP == print_function(fn)
    assert OP_CLASSES.keys() == {op.mnemonic for op in walk(fn.body)}, "an op is missing in EVERY_OP"


def test_text_with_places_keeps_them() -> None:
    call = Loc("rows.py", 40, 8, 40, 20, "outer")
    loc = Loc('a "b".py', 3, 4, 5, 6, "f.<locals>.<lambda>", call, ("i = 2", "j = 0"))
    b = Builder(loc)
    b.yield_()
    fn = Function("<lambda>", b.current.done())

    found = parsed(print_function(fn, locations=True))

    assert loc == found.body.ops[0].loc
    assert "<lambda>" == found.name


@pytest.mark.parametrize("path", GOLDENS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_every_golden_reads_back(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert text == print_function(parsed(text))


def any_value(dtype: DType) -> st.SearchStrategy[object]:
    """A payload of `dtype`: any bits."""
    if dtype is dtypes.bool_:
        return st.booleans()
    if dtype.is_integer:
        return st.integers(dtype.min, dtype.max)
    return st.floats().map(lambda x: semantics.round_to(x, dtype))


@given(data=st.data(), dtype=st.sampled_from(ALL_DTYPES))
@settings(max_examples=100, deadline=None)
def test_every_constant_reads_back_exactly(data: st.DataObject, dtype: DType) -> None:
    value = data.draw(any_value(dtype))
    b = Builder(UNKNOWN)
    b.constant(value, dtype)
    b.yield_()
    fn = Function("f", b.current.done())

    found = parsed(print_function(fn))

    verify(fn)
    assert same_ir(fn, found)


LITERALS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(ALL_DTYPES)
    | st.builds(RecordSite, st.just("print"), st.text(), st.just((dtypes.int32,)), st.just(UNKNOWN)),
    lambda inner: st.lists(inner).map(tuple),
    max_leaves=6,
)


@given(value=LITERALS)
@settings(max_examples=100, deadline=None)
def test_every_attribute_value_reads_back(value: object) -> None:
    """None and () are left out: a function has an attribute or has not."""
    b = Builder(UNKNOWN)
    b.yield_()
    fn = Function("f", b.current.done(), (("key", value),) if value is not None and value != () else ())

    assert same_ir(fn, parsed(print_function(fn)))


def test_a_value_without_a_text_form_is_refused() -> None:
    b = Builder(UNKNOWN)
    b.yield_()

    with pytest.raises(InternalError, match="no text form"):
        print_function(Function("f", b.current.done(), (("key", object()),)))


def test_names_are_hints_and_stay_unique() -> None:
    names = ("acc", "acc", "3", "a b", "", "_3", "")
    params = tuple(Value(INDEX, name) for name in names)
    b = Builder(UNKNOWN, params)
    b.yield_()
    text = print_function(Function("f", b.current.done()))

    assert "(%acc: i64, %acc.1: i64, %_3: i64, %a_b: i64, %0: i64, %_3.1: i64, %1: i64)" in text
    assert text == print_function(parsed(text))


def test_comments_and_line_breaks_mean_nothing() -> None:
    plain = in_function("%0 = const 1 : i64", "yield()")
    airy = plain.replace("%0 = const 1", "// a comment\n%0 =\n  const // another\n 1")

    assert same_ir(parsed(plain), parsed(airy))


def test_a_value_of_a_body_is_unknown_behind_it() -> None:
    """And a name that the body used again means what it meant before."""
    text = in_function(
        "if %x then { %n = const 1.0 : f32 %y = const 1 : i64 yield() } else { yield() }",
        "%0 = unary.neg %n : i64",
        "yield()",
    )

    fn = parsed(text)

    assert fn.body.ops[1].operands() == (fn.params[1],)
    with pytest.raises(ParseError, match="a value that is defined here"):
        parsed(text.replace("unary.neg %n", "unary.neg %y"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%0 = binary.plus %x, %x : f32", "no BinaryKind is called `plus`"),
        ("%0 = binary %x, %x : f32", "no BinaryKind is called ``"),
        ("%0 = intrinsic.nothing(%x) : f32", "no Intrinsic is called `nothing`"),
        ("%0 = plus %x, %x : f32", "expected an op"),
        ("%0 = unary.neg %y : f32", "expected a value that is defined here"),
        ("%0 = unary.neg %x : f31", "expected a type"),
        ("%0 = cast %x : ptr<f32, moon>", "no Space is called `moon`"),
        ("%0 = unary.neg %x", "expected `:`"),
        ("%0, %1 = unary.neg %x : f32", "expected `,`"),
        ("%0 unary.neg %x : f32", "expected `=`"),
        ("%0 = for %n, %n, %n, (%x) {unrol=4} : f32 loop(%i: i64, %a: f32) { yield(%a) }", "no attribute `unrol` here"),
        ("if %x then { yield() }", "expected `else`"),
        ("assert %x, ()", "expected the attribute `message`"),
        ("%0 = const ? : f32", "expected a type"),
        ("}", "expected the end of the text"),
    ],
)
def test_a_syntax_error_shows_where(line: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parsed(in_function("  " + line, "yield()"))

    first, shown, caret = str(caught.value).splitlines()
    assert message in first
    assert first.startswith(f"line {2 if line in shown else 3}:{caret.index('^') + 1}: ")


def test_text_that_ends_too_early_is_refused() -> None:
    with pytest.raises(ParseError, match=r"found `nothing`"):
        parsed("func @f() { yield()")


# -- equality ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("const 0.0 : f32", "const -0.0 : f32"),
        ("const 1 : i64", "const 1 : i32"),
        ("const 1 : i64", "const 2 : i64"),
        ("binary.add %n, %n : i64", "binary.sub %n, %n : i64"),
        ("binary.add %n, %n : i64", "binary.add %n, %m : i64"),
        ("unary.neg %n : i64", "unary.not %n : i64"),
        ("cast %n : f32", "cast %n : f64"),
        ("intrinsic.minimum(%n, %m) : i64", "intrinsic.maximum(%n, %m) : i64"),
        ('intrinsic.block_idx() {params=("x")} : i64', 'intrinsic.block_idx() {params=("y")} : i64'),
    ],
)
def test_different_programs_differ(first: str, second: str) -> None:
    one, other = (parsed(f"func @f(%n: i64, %m: i64) {{ %0 = {op} yield() }}") for op in (first, second))

    assert same_ir(one, one)
    assert not same_ir(one, other)


def test_names_and_places_do_not_count() -> None:
    one = parsed("func @f(%n: i64) { %a = unary.neg %n : i64 yield() }")
    other = parsed('func @f(%m: i64) { %b = unary.neg %m : i64 loc("f.py", 1, 2, 3, 4, "f", ()) yield() }')

    assert same_ir(one, other)


@pytest.mark.parametrize("change", [("@f", "@g"), ("{x=1}", "{x=1.0}"), ("%n: i64", "%n: i32"), ("{x=1}", "{y=1}")])
def test_a_function_is_more_than_its_ops(change: tuple[str, str]) -> None:
    text = "func @f(%n: i64) {x=1} { yield() }"

    assert not same_ir(parsed(text), parsed(text.replace(*change)))
