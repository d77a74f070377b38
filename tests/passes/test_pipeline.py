"""The whole way from traced IR to what a target emits: order, legality, refusals, records, and cost."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest

from stagekit.config import STAGES
from stagekit.diagnostics import UNKNOWN, Loc, StagekitError
from stagekit.dtypes import float16, float32
from stagekit.intrinsics import by_name
from stagekit.ir import (
    INDEX,
    PURE,
    TARGETS,
    BinaryKind,
    Builder,
    Effect,
    Expand,
    Extern,
    Function,
    Intrinsic,
    Lowering,
    Pointer,
    Scalar,
    Sig,
    Space,
    Unsupported,
    Value,
    walk,
)
from stagekit.ir.printer import print_function
from stagekit.ir.rewriter import rewrite
from stagekit.ir.verifier import VerifyError, verify
from stagekit.passes import Pass, PassContext, pipeline
from stagekit.passes.cse import cse
from stagekit.passes.expand import expand
from stagekit.passes.fold import fold
from stagekit.passes.pipeline import PASSES, legal, lower
from tools.ir_parser import parse_function

CPU = PassContext("cpu", 0, fastmath=False, debug=False)
CUDA = PassContext("cuda", 75, fastmath=False, debug=False)
INTERP = PassContext("interp", 0, fastmath=False, debug=False)

PROGRAM = """\
func @every_pass(%A: ptr<f16, global>, %n: i64, %x: f16) {block=(64, 1, 1)} {
  %0 = intrinsic.program_id() {params=(0)} : i64
  %1 = intrinsic.block_dim() {params=("x")} : i64
  %2 = binary.mul %0, %1 : i64
  %3 = intrinsic.thread_idx() {params=("x")} : i64
  %i = binary.add %2, %3 : i64
  %4 = compare.lt %i, %n : bool
  %5 = offset %A, %i : ptr<f16, global>
  %6 = const 0.0 : f16
  %7 = load %5, mask=%4, other=%6 : f16
  %8 = binary.add %7, %x : f16
  %9 = compare.ne %8, %8 : bool
  %10 = unary.not %9 : bool
  assert %10, (%8) {message="nan at {}"}
  store %5, %8, mask=%4
  yield()
}
"""


@pytest.mark.parametrize("context", [CPU, CUDA, INTERP], ids=lambda c: c.target)
def test_pipeline(context: PassContext, golden, golden_folder: Path) -> None:
    lowered = lower(parse_function(PROGRAM, by_name), context, hooks=())

    golden.check(golden_folder / f"pipeline_{context.target}.ir", print_function(lowered))


def test_every_pass_is_a_stage_that_can_be_looked_at() -> None:
    passes = {each.__name__ for passes in PASSES.values() for each in passes}
    page = (Path(__file__).parents[2] / "docs" / "debugging.md").read_text(encoding="utf-8")

    assert set(STAGES) == {"trace", "llvm", "ptx"} | passes, "`STAGES` of `config.py` differs from the passes"
    assert [] == [name for name in passes if f"`{name}`" not in page], "docs/debugging.md does not name the pass"


def test_every_file_of_a_pass_stands_in_a_pipeline() -> None:
    files = {path.stem for path in Path(pipeline.__file__).parent.glob("*.py")} - {"__init__", "pipeline", "identities"}

    assert {each.__name__ for passes in PASSES.values() for each in passes} == files, (
        "a line in `pipeline.py` is missing"
    )


def test_order_of_passes() -> None:
    """Each comment in `pipeline.py` is a constraint; this is the list they led to."""
    names = {target: [p.__name__ for p in passes] for target, passes in PASSES.items()}
    compiled = ["scalarize", "legalize", "fold", "cse", "dce"]

    assert names == {
        "cuda": ["prefetch", "records", "expand", "join", *compiled, "sink"],
        "cpu": ["records", "expand", *compiled],
        "interp": ["expand", "scalarize"],
    }
    assert set(TARGETS) == PASSES.keys()


@pytest.mark.parametrize(
    ("target", "op", "reason"),
    [
        ("cpu", "%0 = intrinsic.program_id() {params=(0)} : i64", "program_id is not expanded for cpu"),
        ("cpu", "%0 = binary.add %h, %h : f16", "binary of f16"),
        ("cpu", "%0 = binary.floordiv %x, %x : f32", "binary of f32"),
        ("cuda", "%0 = unary.neg %h : f16", "unary of f16"),
        ("cuda", "%0 = compare.lt %h, %h : bool", "compare of f16"),
        ("cuda", "%0 = cast %n : f16", "cast of i64 to f16"),
        ("cpu", 'print() {format=""}', "print is not lowered for cpu"),
        ("cuda", 'assert %go, () {message=""}', "assert is not lowered for cuda"),
        ("cpu", 'asm() {text="", constraints="", has_side_effects=true}', "asm is not lowered"),
        ("interp", "%0 = intrinsic.program_id() {params=(0)} : i64", "program_id is not expanded for interp"),
    ],
)
def test_what_a_pass_left_over_is_named(target: str, op: str, reason: str) -> None:
    fn = parse_function(f"func @f(%n: i64, %x: f32, %h: f16, %go: bool) {{ {op} yield() }}", by_name)

    verify(fn)
    with pytest.raises(VerifyError, match=reason):
        verify(fn, legal(PassContext(target, 75, fastmath=False, debug=False)))


# -- refusals ---------------------------------------------------------------------------------------------------------

LOC = Loc("kernel.py", 3, 4, 3, 20, "kernel")
F32 = Scalar(float32)


def record(name: str, lower: Lowering, **more: Any) -> Intrinsic:
    """A record that only these tests know."""
    given = {"effects": PURE, "doc": "doc", "source": "source", "lower": dict.fromkeys(TARGETS, lower)}
    return Intrinsic(name=name, args=("x",), sigs=(Sig((F32,), (F32,)),), **given | more)


def calling(spec: Intrinsic) -> Function:
    x = Value(F32)
    b = Builder(LOC, (x,))
    b.call(spec, (x,))
    b.yield_()
    return Function("f", b.current.done())


def test_what_a_target_cannot_do_is_refused_at_the_users_line() -> None:
    with pytest.raises(StagekitError) as caught:
        expand(calling(record("wonder", Unsupported("no unit for wonders"))), CPU)

    assert ("UNSUPPORTED_ON_TARGET", LOC) == (caught.value.id, caught.value.loc)
    assert "`wonder` on cpu: no unit for wonders" in str(caught.value)


def test_a_newer_gpu_is_asked_for_by_its_number() -> None:
    fn = calling(record("wonder", Extern("wonder"), min_capability=90))

    assert expand(fn, PassContext("cuda", 90, fastmath=False, debug=False)) is fn
    assert expand(fn, CPU) is fn
    with pytest.raises(StagekitError, match=r"needs compute capability 9\.0, this kernel is for 7\.5"):
        expand(fn, CUDA)


def test_asm_without_a_meaning_runs_on_cuda_only() -> None:
    text = 'func @f() { asm() {text="bar.sync 0;", constraints="", has_side_effects=true} yield() }'
    fn = parse_function(text, by_name)

    assert expand(fn, CUDA) is fn
    with pytest.raises(StagekitError, match="it is PTX, and no `host=` function"):
        expand(fn, CPU)


def test_an_expansion_is_expanded_in_turn_and_keeps_the_place() -> None:
    inner = record("inner", Expand(lambda b, args, params: (b.neg(args[0]),)))
    outer = record("outer", Expand(lambda b, args, params: b.call(inner, args)))

    expanded = expand(calling(outer), CPU)

    assert ["unary", "yield"] == [op.mnemonic for op in walk(expanded.body)]
    assert LOC == expanded.body.ops[0].loc


def test_what_asm_means_elsewhere_is_not_refused_on_cuda() -> None:
    text = """func @f(%x: f32) {
      %0 = asm(%x) {text="", constraints="=f,f", has_side_effects=false} : f32 host(%y: f32) {
        %1 = intrinsic.sqrt(%y) : f32
        yield(%1)
      }
      yield()
    }"""
    fn = parse_function(text, lambda name: record(name, Unsupported("never")))

    assert 2 == len(expand(fn, CUDA).body.ops)


# -- intrinsics in fold and cse ---------------------------------------------------------------------------------------


def test_a_fixed_block_is_a_constant() -> None:
    text = 'func @f() {block=(64, 2, 1)} { %0 = intrinsic.block_dim() {params=("y")} : i64 yield() }'
    fn = parse_function(text, by_name)

    (found, _) = fold(fn, CPU).body.ops
    (unknown, _) = fold(parse_function(text.replace("{block=(64, 2, 1)}", ""), by_name), CPU).body.ops

    assert ("const", "intrinsic") == (found.mnemonic, unknown.mnemonic)
    assert 2 == found.value


def test_what_a_target_only_approximates_is_not_computed() -> None:
    exact = {"evaluate": lambda x: x, "effects": PURE}
    fast = {"lower_fast": {"cuda": Extern("fast")}, "fast_tolerance": 2.0}
    loose = {"tolerance": {"cpu": 1.0}}
    with_fastmath = PassContext("cuda", 75, fastmath=True, debug=False)

    assert is_computed(record("f", Extern("f"), **exact), CPU)
    assert not is_computed(record("f", Extern("f"), **exact, **loose), CPU)
    assert is_computed(record("f", Extern("f"), **exact, **loose), CUDA)
    assert is_computed(record("f", Extern("f"), **exact, **fast), CUDA)
    assert not is_computed(record("f", Extern("f"), **exact, **fast), with_fastmath)
    assert not is_computed(record("f", Extern("f"), **exact | {"effects": frozenset({Effect.COLLECTIVE})}), CPU)
    assert not is_computed(record("f", Extern("f")), CPU)


def is_computed(spec: Intrinsic, context: PassContext) -> bool:
    text = "func @f() { %0 = const 2.0 : f32 %1 = intrinsic.f(%0) : f32 yield() }"
    return fold(parse_function(text, lambda name: spec), context).body.ops[1].mnemonic == "const"


@pytest.mark.parametrize(
    "call",
    [
        "ballot_sync(%m, %go) : u32",
        'atomic_add(%A, %n) {params=("relaxed", "gpu")} : i64',
        'atomic_load(%A) {params=("relaxed", "gpu")} : i64',
        "any_sync(%m, %go) : bool",
        "activemask() : u32",
    ],
)
def test_what_looks_at_others_is_not_reused(call: str) -> None:
    twice = f"%0 = intrinsic.{call} %1 = intrinsic.{call}"
    fn = parse_function(f"func @f(%A: ptr<i64, global>, %n: i64, %m: u32, %go: bool) {{ {twice} yield() }}", by_name)

    verify(fn)
    assert cse(fn, CPU) is fn


# -- rewriting --------------------------------------------------------------------------------------------------------


def test_rewriting_nothing_gives_the_same_function() -> None:
    fn = parse_function(PROGRAM, by_name)

    assert rewrite(fn, {}) is fn


# -- cost -------------------------------------------------------------------------------------------------------------


def long_program(op_count: int, seed: int) -> Function:
    """Straight code and branches over float16 and float32, of about `op_count` ops, and a vector."""
    random_ = random.Random(seed)
    a, n = Value(Pointer(float32, Space.GLOBAL), "A"), Value(INDEX, "n")
    b = Builder(UNKNOWN, (a, n))
    i = n
    b.splat(n, 2)
    while b.op_count < op_count:
        i = b.add(i, b.index(random_.randrange(100)))
        x = b.load(b.offset(a, i))
        y = b.binary(random_.choice((BinaryKind.ADD, BinaryKind.MUL)), x, x)
        if b.op_count % 10 == 0:
            y = b.cast(b.add(b.cast(y, float16), b.cast(x, float16)), float32)
        with b.block() as then_body:
            b.yield_(b.mul(y, y))
        with b.block() as else_body:
            b.yield_(y)
        b.store(
            b.offset(a, i), *b.if_(b.binary(BinaryKind.AND, b.true(), b.true()), then_body.done(), else_body.done())
        )
    b.yield_()
    return Function("long", b.current.done(), (("block", (64, 1, 1)),))


@pytest.mark.parametrize("each", PASSES["cuda"], ids=lambda p: p.__name__)
def test_a_pass_is_linear(each: Pass) -> None:
    """Counted in calls of Python functions, not in seconds: twice the ops, hardly more than twice the calls."""
    small, large = (calls_of(each, long_program(op_count, 1)) for op_count in (200, 400))

    assert large < 2.2 * small


def calls_of(each: Pass, fn: Function) -> int:
    count = 0

    def tick(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(tick)
    try:
        each(fn, CPU)
    finally:
        sys.setprofile(None)
    return count
