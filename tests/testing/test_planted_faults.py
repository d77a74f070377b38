"""Every planted fault is found where it is, and nothing else is; look-alikes give no finding in any order."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

import stagekit as sk
from tests.cells import cell
from tests.testing.planted import CASES, FAULTS, LOOK_ALIKES, Planted

REFUSED = {"MISALIGNED", "READ_ONLY_OUTPUT"}  # before anything runs: these name the array


def findings_of(case: Planted) -> list[tuple[str, str]]:
    """Id and text of everything that a launch gives: findings, or the refusal."""
    watch = sk.sanitize(case.kernel, collect=True, **{"seed": 1, **case.options})
    try:
        watch[case.brackets](**case.fresh_arguments())
    except sk.StagekitError as refused:
        return [(refused.id, str(refused))]
    return [(f.id, str(f)) for f in watch.report.findings]


@pytest.mark.stagekit_unchecked(reason="faults are what it is about")
@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case.name)
def test_a_planted_fault_is_found_where_it_is_and_brings_no_other_finding(case: Planted) -> None:
    """What is reported is the fault, not what follows from it."""
    found = findings_of(case)

    assert case.id in [id for id, _ in found]
    text = next(text for id, text in found if id == case.id)
    assert case.fragment in text
    assert case.name in text or case.id in REFUSED
    assert {case.id} == {id for id, _ in found} - case.also


@pytest.mark.stagekit_unchecked(reason="faults are what it is about")
@pytest.mark.parametrize("case", LOOK_ALIKES, ids=lambda case: case.name)
def test_a_look_alike_gives_no_finding(case: Planted) -> None:
    for order in (None, "forward", "backward", "random"):
        with cell(order):
            assert [] == findings_of(dataclasses.replace(case, options={**case.options, "order": order}))


def test_the_table_is_large_enough() -> None:
    assert len(FAULTS) >= 60
    assert len({c.id for c in FAULTS}) >= 15
    assert len({c.name for c in CASES}) == len(CASES)
    assert all(inspect.unwrap(c.kernel).__name__ == c.name for c in CASES)
