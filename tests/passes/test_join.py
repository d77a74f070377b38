"""Pieces of inline PTX become one where they work on the same registers, and stay apart where that might give something else."""

from __future__ import annotations

import pytest

from stagekit.intrinsics import by_name
from stagekit.ir import walk
from stagekit.ir.ops import InlineAsm
from stagekit.ir.verifier import verify
from stagekit.passes import PassContext
from stagekit.passes.join import join
from tools.ir_parser import parse_function

CUDA = PassContext("cuda", 90, fastmath=False, debug=False)
TIED = "=f,=f,0,1"


def asm(text: str, constraints: str, args: str = "", results: str = "") -> str:
    """Return a line of IR. results: names and types."""
    names, types = [", ".join(part) for part in zip(*(each.split() for each in results.split(",")))] or ("", "")
    given = f'{{text="{text}", constraints="{constraints}", has_side_effects=true}}'
    return f"{names} = asm({args}) {given} : {types}" if results else f"asm({args}) {given}"


def begin(args: str, results: str, more: str = "", letters: str = "") -> str:
    types = ",".join(f"{each} f32" for each in results.split(", "))
    text = "add $0, $1" + ", $4" * bool(more)
    return asm(text, f"{TIED}{letters},~{{memory}}", f"{args}{more}", types)


COMMIT = asm("commit", "~{memory}")


def joined(*lines: str) -> list[InlineAsm]:
    """Return what is left of inline PTX in a function of these lines."""
    params = "%x: f32, %y: f32, %a: u64, %b: u64, %w: u32, %p: ptr<f32, global>"
    fn = parse_function(f"func @f({params}) {{\n" + "\n".join([*lines, "yield()"]) + "\n}", by_name)
    result = join(fn, CUDA)
    verify(result)
    return [op for op in walk(result.body) if isinstance(op, InlineAsm)]


def test_pieces_become_one() -> None:
    (op,) = joined(
        begin("%x, %y", "%0, %1", ", %a", ",l"),
        "%2 = binary.add %b, %a : u64",
        begin("%0, %1", "%3, %4", ", %2", ",l"),
        COMMIT,
        begin("%3, %4", "%5, %6"),
        "store %p, %5",
        "store %p, %6",
    )

    assert op.text == "add $0, $1, $4\n\tadd $0, $1, $5\n\tcommit\n\tadd $0, $1"
    assert op.constraints == f"{TIED},l,l,~{{memory}}"
    assert [each.name for each in op.args[:3]] == ["x", "y", "a"]


APART = {
    "a store between them": ("store %p, %x", begin("%0, %1", "%2, %3")),
    "what reads a result between them": ("%9 = binary.add %0, %x : f32", begin("%0, %1", "%2, %3")),
    "what reads a result behind them": (begin("%0, %1", "%2, %3"), "store %p, %0"),
    "sums in another order": (begin("%1, %0", "%2, %3"),),
    "an operand in registers of the same kind": (begin("%0, %1", "%2, %3", ", %x", ",f"),),
    "sums that may not share a register with an operand": (
        asm("add $0, $1, $4", "=&f,=&f,0,1,l,~{memory}", "%0, %1, %a", "%2 f32,%3 f32"),
    ),
    "fewer sums": (asm("add $0", "=f,0,~{memory}", "%0", "%2 f32"), "store %p, %1"),
    "results that are not where operands were": (asm("add $0", "=f,=f,f,f,~{memory}", "%0, %1", "%2 f32,%3 f32"),),
    "a text with other marks": (asm("add $$0", f"{TIED},~{{memory}}", "%0, %1", "%2 f32,%3 f32"),),
    "PTX that may be moved": (
        '%2, %3 = asm(%0, %1) {text="", constraints="=f,=f,0,1", has_side_effects=false} : f32, f32',
    ),
}


@pytest.mark.parametrize("lines", APART.values(), ids=APART)
def test_pieces_that_stay_apart(lines: tuple[str, ...]) -> None:
    assert len(joined(begin("%x, %y", "%0, %1"), *lines)) == 2


def test_what_stays_apart_keeps_its_order() -> None:
    first, commit, last = joined(begin("%x, %y", "%0, %1"), COMMIT, "store %p, %0", begin("%0, %1", "%2, %3"))

    assert [first.text, commit.text, last.text] == ["add $0, $1", "commit", "add $0, $1"]


def test_pieces_in_a_branch() -> None:
    branch = [begin("%x, %y", "%0, %1"), begin("%0, %1", "%2, %3"), "store %p, %2", "yield()"]

    (op,) = joined("%9 = compare.lt %x, %y : bool", "if %9 then {", *branch, "} else {", "yield()", "}")

    assert op.text == "add $0, $1\n\tadd $0, $1"
