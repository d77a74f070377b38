"""Passes keep meaning: random programs do the same before and after, by an evaluator that knows `semantics` and nothing else."""

from __future__ import annotations

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit.intrinsics import by_name
from stagekit.ir import Function, flow
from stagekit.ir.printer import print_function
from stagekit.ir.verifier import verify
from stagekit.passes import PassContext
from stagekit.passes.pipeline import PASSES, lower
from stagekit.passes.sink import sink
from tests.passes.evaluator import behaviour
from tests.passes.programs import programs
from tests.same_ir import same_ir
from tools.ir_parser import parse_function

CPU = PassContext("cpu", 0, fastmath=False, debug=False)
CUDA = PassContext("cuda", 90, fastmath=False, debug=False)


def parsed(text: str) -> Function:
    return parse_function(text, by_name)


@given(text=programs())
@settings(max_examples=50, deadline=None)
def test_programs_are_valid_and_read_back(text: str) -> None:
    fn = parsed(text)

    verify(fn)
    assert text == print_function(fn)
    assert same_ir(fn, parsed(text))


@given(text=programs(), seed=st.integers(0, 3))
@settings(max_examples=100, deadline=None)
def test_every_pass_keeps_meaning(text: str, seed: int) -> None:
    fn = parsed(text)
    expected = behaviour(fn, seed)
    for each in PASSES["cpu"]:
        fn = each(fn, CPU)
        verify(fn)
        assert expected == behaviour(fn, seed), f"after {each.__name__}"


@given(text=programs(), seed=st.integers(0, 3))
@settings(max_examples=50, deadline=None)
def test_cuda_keeps_meaning_but_for_asserts(text: str, seed: int) -> None:
    fn = parsed(text)
    expected = behaviour(fn, seed)
    expected.reports = [r for r in expected.reports if r[0] == "print"]

    assert expected == behaviour(lower(fn, CUDA, hooks=()), seed)


@given(text=programs(), seed=st.integers(0, 3))
@settings(max_examples=50, deadline=None)
def test_sinking_keeps_meaning_where_nothing_writes_to_some_arguments(text: str, seed: int) -> None:
    fn = parsed(text)
    written = flow.written(fn.body, flow.sources(fn.body))
    known = dataclasses.replace(fn, attributes=(("constant", tuple([p not in written for p in fn.params])),))

    moved = sink(known, CUDA)
    verify(moved)
    assert behaviour(fn, seed) == behaviour(moved, seed)


@given(text=programs(), order=st.permutations(["fold", "cse", "dce"]))
@settings(max_examples=50, deadline=None)
def test_simplifying_passes_keep_meaning_in_any_order(text: str, order: list[str]) -> None:
    """On IR as traced as well, narrow floats and all."""
    fn = parsed(text)
    expected = behaviour(fn, 1)
    for each in sorted(PASSES["cpu"], key=lambda p: order.index(p.__name__) if p.__name__ in order else -1)[-3:]:
        fn = each(fn, CPU)
        verify(fn)
        assert expected == behaviour(fn, 1), f"after {each.__name__}"
