"""A little of `stress.py` at each run, all of it on demand: `pytest -m slow tests/cache/test_stress.py`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.cache import stress

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.stagekit_unchecked(reason="what is compiled and kept; checked launches compile nothing"),
]

LITTLE: dict[str, Callable[[], Any]] = {
    "killed": lambda: stress.kills(6),
    "killed at random": lambda: stress.kills_at_random(3),
    "damaged": lambda: stress.damages(4),
    "full": stress.full_disk,
    "read-only": stress.read_only_folder,
}


@pytest.fixture(autouse=True)
def is_warm() -> None:
    """Whatever is imported later is imported before children are forked, which may not be allowed to read it."""
    stress.judge()


@pytest.mark.parametrize("name", LITTLE)
def test_a_little(name: str) -> None:
    found = LITTLE[name]()

    assert stress.is_well(found), found


def test_a_kill_in_each_step_is_a_kill() -> None:
    total = stress.steps_of_publishing()

    assert total > 10
    assert {"child: SIGKILL": 1, "after it: right": 1} == stress.kills(1)


@pytest.mark.slow
@pytest.mark.parametrize("check", [stress.sick_disks, lambda: stress.kills(200), lambda: stress.damages(200)])
def test_all(check: Callable[[], Any]) -> None:
    found = check()

    assert stress.is_well(found), found
