"""A room has a budget of lines: what it carries must be read by whoever carries it on.

A change that needs more raises the row here, and its commit message says what for. What has got shorter takes its row along.
The idea is tinygrad's, whose CI counts lines. `lib` and `kernels` are written in the language: they are no part of its compiler.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "stagekit"

GROUND = "the ground"  # the modules that stand beside the rooms
BUDGETS = {  # rounded up to the next 50
    GROUND: 3_150,
    "backends": 19_650,
    "commands": 450,
    "exporting": 1_550,  # C for programs, for Python without stagekit, and for tvm-ffi
    "frontend": 15_150,
    "intrinsics": 4_750,
    "ir": 4_000,
    "jit": 3_450,
    "jax": 700,  # functions of JAX: what JAX asks of one, and what XLA calls
    "kernels": 6_200,
    "layouts": 500,
    "lib": 7_650,
    "operators": 500,  # what operators of PyTorch and of JAX share, and launches that are written down
    "passes": 1_900,
    "runtime": 4_500,
    "testing": 2_650,
    "torch": 950,  # operators of PyTorch: what torch asks of one, and the shelf's seven with their gradients
    "tuning": 2_000,
    "viewing": 350,  # the page of `kernel.view()`
}


def lines_of_rooms() -> Counter[str]:
    """Lines of Python by room, docstrings and comments included; the generated stubs are none. The plugin counts as testing."""
    lines: Counter[str] = Counter(testing=_lines(PACKAGE.parent / "pytest_stagekit.py"))
    for path in PACKAGE.rglob("*.py"):
        room, *inner = path.relative_to(PACKAGE).parts
        lines[room if inner else GROUND] += _lines(path)
    return lines


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


LINES = lines_of_rooms()


def test_every_room_has_a_budget() -> None:
    assert BUDGETS.keys() == LINES.keys()


@pytest.mark.parametrize("room", BUDGETS)
def test_a_room_keeps_to_its_budget(room: str) -> None:
    lines, budget = LINES[room], BUDGETS[room]

    assert lines <= budget, (
        f"{room}: {lines} lines, {budget} allowed: shorten it, or raise the row and say why in the commit message"
    )
