"""Races are found exactly: random sequences of accesses and barriers, against all pairs of accesses looked at one by one.

The fuzzer `races` compares richer kernels with a reference that watches the same run (`tools/fuzz/races_exact.py`). Here are that
reference's own rules, and its verdict on the planted faults.
"""

from __future__ import annotations

from itertools import combinations
from types import ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit import dtypes
from stagekit.backends.interp import Checks, Options, Schedule, run
from stagekit.ir import Space
from tests.backends.interp.kernels import Kernel, pointer
from tests.cells import cell
from tests.testing.planted import CASES, GROUPS, Planted
from tools.fuzz.races_run import Compared, compared

SIZE = 24
WARP = 32

Kind = Literal["read", "write", "atomic", "barrier", "syncwarp"]


class Statement(NamedTuple):
    """One line of the kernel: all threads with `thread % parts == 0` access element (a * thread + b * block + c) % SIZE."""

    kind: Kind
    space: Space
    a: int
    b: int
    c: int
    parts: int

    def index(self, thread: int, block: int) -> int:
        return (self.a * thread + self.b * block + self.c) % SIZE


class Touch(NamedTuple):
    """One access by one thread. place: memory and element. epoch, sync: barriers and warp synchronisations passed."""

    place: tuple[Any, ...]
    block: int
    thread: int
    kind: Kind
    epoch: int
    sync: int


_STATEMENTS = st.builds(
    Statement,
    kind=st.sampled_from(["read", "write", "atomic", "barrier", "syncwarp"]),
    space=st.sampled_from([Space.SHARED, Space.GLOBAL]),
    a=st.sampled_from([0, 1, 1, 5, SIZE // 2]),
    b=st.sampled_from([0, 1, 7]),
    c=st.integers(0, SIZE - 1),
    parts=st.sampled_from([1, 2, 40]),
)


def kernel_of(statements: list[Statement]) -> Kernel:
    """Every store writes a value of its own, so that no two writes agree."""
    k = Kernel(G=pointer(dtypes.int64))
    memory = {Space.SHARED: k.shared(dtypes.int64, SIZE), Space.GLOBAL: k.G}
    for number, each in enumerate(statements):
        if each.kind in ("barrier", "syncwarp"):
            getattr(k, each.kind)()
            continue
        total = k.add(k.mul(k.tid(), k.i64(each.a)), k.add(k.mul(k.bid(), k.i64(each.b)), k.i64(each.c)))
        with k.when(k.eq(k.mod(k.tid(), k.i64(each.parts)), k.i64(0))):
            place, index = memory[each.space], k.mod(total, k.i64(SIZE))
            value = k.add(k.mul(k.global_id(), k.i64(100)), k.i64(number + 1))
            if each.kind == "read":
                k.load(place, index)
            elif each.kind == "write":
                k.store(place, index, value)
            else:
                k.call("atomic_add", k.at(place, index), value)
    return k


def touches(statements: list[Statement], threads: int, blocks: int) -> list[Touch]:
    found, epoch, sync = [], 0, 0
    for each in statements:
        epoch += each.kind == "barrier"
        sync = 0 if each.kind == "barrier" else sync + (each.kind == "syncwarp")
        if each.kind in ("barrier", "syncwarp"):
            continue
        for block in range(blocks):
            memory = (each.space, block if each.space is Space.SHARED else 0)
            found += [
                Touch((*memory, each.index(thread, block)), block, thread, each.kind, epoch, sync)
                for thread in range(0, threads, each.parts)
            ]
    return found


def conflict(x: Touch, y: Touch) -> bool:
    if (x.block, x.thread) == (y.block, y.thread) or x.kind == y.kind != "write":
        return False
    if x.block != y.block:
        return True
    same_warp = x.thread // WARP == y.thread // WARP
    return x.epoch == y.epoch and not (same_warp and x.sync != y.sync)


def has_race(statements: list[Statement], threads: int, blocks: int) -> bool:
    by_place: dict[tuple[Any, ...], list[Touch]] = {}
    for touch in touches(statements, threads, blocks):
        by_place.setdefault(touch.place, []).append(touch)
    return any(conflict(x, y) for group in by_place.values() for x, y in combinations(group, 2))


@settings(max_examples=150, deadline=None)
@given(
    statements=st.lists(_STATEMENTS, min_size=1, max_size=8),
    threads=st.sampled_from([1, 5, 32, 40]),
    blocks=st.sampled_from([1, 2, 3]),
    schedule=st.sampled_from([None, None, Schedule("backward"), Schedule("random", 4)]),
)
def test_a_race_is_reported_if_and_only_if_there_is_one(
    statements: list[Statement], threads: int, blocks: int, schedule: Schedule | None
) -> None:
    options = Options(checks=Checks(races=True), schedule=schedule)

    report = run(
        kernel_of(statements).done(), [np.zeros(SIZE, np.int64)], (blocks, 1, 1), (threads, 1, 1), options=options
    )

    assert {f.id for f in report.findings} <= {"WARP_RACE", "BLOCK_RACE", "GRID_RACE"}
    assert has_race(statements, threads, blocks) == bool(report.findings)


@pytest.mark.stagekit_unchecked(reason="faults are what it is about")
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)], ids=["every fifth", "all"])
@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.__name__.rpartition(".")[2])
def test_the_exact_reference_judges_planted_faults_alike(group: ModuleType, step: int) -> None:
    cases = [case for case in CASES if case.kernel.function.__module__ == group.__name__]
    assert cases
    for case in cases[::step]:
        with cell(case.name):
            judge(case)


def judge(case: Planted) -> None:
    watch = sk.sanitize(case.kernel, collect=True, **{"seed": 1, **case.options, "races": True})
    Compared.made = None

    with compared():
        try:
            watch[case.brackets](**case.fresh_arguments())
        except sk.StagekitError:
            return  # it is refused before anything runs

    assert Compared.made is not None
    assert Compared.made.exact.racy == Compared.made.found
