"""The general way remembers what brackets ask for only where the same object must mean the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stagekit as sk
from stagekit.jit.launchable import Launcher
from stagekit.runtime.launch_config import is_exact


@sk.jit
def count(x: sk.Pointer(sk.int32)):
    sk.atomic_add(x + 0 * sk.cuda.thread_idx("x"), 1)


def launched(key: Any) -> int:
    x = np.zeros(1, np.int32)
    Launcher(count._launch, key)(x)
    return int(x[0])


def test_brackets_that_change_between_launches_are_read_anew() -> None:
    grid = [2]
    key = grid, 4
    assert not is_exact(key)
    assert launched(key) == 8
    grid[0] = 3
    assert launched(key) == 12


def test_brackets_of_the_same_object_mean_the_same() -> None:
    for key, blocks in (((2, 4), 8), (((1, 2), (2, 2)), 8), (sk.cuda.LaunchConfig(3, 4), 12)):
        assert is_exact(key)
        for _ in range(4):
            assert launched(key) == blocks


@pytest.mark.parametrize("key", [(1.0, 1), ("1", 1), (1, None)])
def test_equal_brackets_of_other_types_are_refused_each_time(key: Any) -> None:
    assert launched((1, 1)) == 1
    for _ in range(3):
        with pytest.raises(sk.LaunchError):
            launched(key)


def test_a_grid_function_is_asked_at_each_launch() -> None:
    sizes = iter((1, 5, 0, 2))
    key = (lambda _: next(sizes)), 2
    assert [launched(key) for _ in range(4)] == [2, 10, 0, 4]
