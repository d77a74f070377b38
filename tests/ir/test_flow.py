"""Where values go by control flow: every analysis of loops and joins reads these edges, so none may be missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagekit.intrinsics import by_name
from stagekit.ir import Op, Value, flow, ops, walk
from stagekit.ir.core import OP_CLASSES
from tools.ir_parser import parse_function

GOLDENS = sorted((Path(__file__).parents[1] / "golden").rglob("*.ir"))
PROGRAMS = [parse_function(path.read_text(encoding="utf-8"), by_name) for path in GOLDENS]
CONTROL = [op for fn in PROGRAMS for op in walk(fn.body) if flow.deciders(op)]


def defined_by(op: Op) -> set[Value]:
    """The results and the parameters of bodies; the index of a `for` is counted, and no value becomes it."""
    params = [p for body in op.bodies() for p in body.params]
    return {*op.results, *params} - set(op.loop_body.params[:1] if isinstance(op, ops.For) else ())


@pytest.mark.parametrize("kind", [c for c in OP_CLASSES.values() if c.BODY_FIELDS], ids=lambda c: c.mnemonic)
def test_every_op_with_bodies_has_edges(kind: type[Op]) -> None:
    """A new op of control flow has its row. Inline assembly decides nothing, and what its `host` does is its own affair; `once`
    is gone when a trace ends.
    """
    assert kind in (ops.InlineAsm, ops.ActOnce) or kind in {type(op) for op in CONTROL}


@pytest.mark.parametrize("op", CONTROL, ids=lambda op: op.mnemonic)
def test_edges_lead_to_all_that_control_flow_defines(op: Op) -> None:
    edges = list(flow.edges(op))

    assert defined_by(op) == {target for _, target in edges}
    assert all(source.type == target.type for source, target in edges)


@pytest.mark.parametrize("op", CONTROL, ids=lambda op: op.mnemonic)
def test_what_takes_a_body_s_values_is_one_end_of_an_edge(op: Op) -> None:
    bodies = zip(op.bodies(), flow.takers(op), strict=True)
    taken = [pair for body, takers in bodies for pair in zip(flow.end_of(body), takers, strict=True)]

    assert {(value, taker) for value, taker in taken if taker is not None} <= set(flow.edges(op))
    assert set(flow.deciders(op)) >= {value for value, taker in taken if taker is None}


def test_a_value_comes_from_what_loops_and_joins_hand_on() -> None:
    fn = parse_function(
        """\
func @f(%A: ptr<f32, global>, %B: ptr<f32, global>, %n: i64, %x: f32, %flag: bool) {
  %C = alloc.local {dtype=f32, count=1, align=4} : ptr<f32, local>
  %q = if %flag : ptr<f32, global> then {
    %p = offset %A, %n : ptr<f32, global>
    yield(%p)
  } else {
    yield(%A)
  }
  %r = for %n, %n, %n, (%q) : ptr<f32, global> loop(%i: i64, %walks: ptr<f32, global>) {
    %next = offset %walks, %i : ptr<f32, global>
    yield(%next)
  }
  store %r, %x
  %1 = load %B : f32
  store %C, %1
  yield()
}
""",
        by_name,
    )
    written = flow.written(fn.body, flow.sources(fn.body))

    assert {"A"} == {p.name for p in fn.params if p in written}
    assert {"A", "C", "p", "q", "r", "walks", "next"} == {value.name for value in written}
