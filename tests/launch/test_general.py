"""The general way remembers what brackets ask for only where the same object must mean the same."""

from __future__ import annotations

import weakref
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


class Stream:
    """One of another library, by the protocol that all have."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 77


@pytest.mark.parametrize(
    ("key", "numbers"),
    [
        ((np.int64(2), np.uint8(4)), (2, 4)),
        (((np.int32(2), 1), 4, np.int64(0)), ((2, 1), 4, 0)),
        ((2, 4, 0, None), (2, 4, 0, None)),
        ((2, 4, 0, Stream()), (2, 4, 0, 77)),
        ((np.int64(2), 4, 0, 77), (2, 4, 0, 77)),
    ],
)
def test_brackets_that_mean_numbers_find_machine_code(key: Any, numbers: Any) -> None:
    kernel, x = sk.jit(count.function), np.zeros(1, np.int32)
    for _ in range(4):
        kernel[key](x)

    assert x[0] == 4 * 8
    assert [*kernel._native.entries] == [numbers]


def test_kept_brackets_keep_their_stream() -> None:
    stream = Stream()
    alive = weakref.ref(stream)
    kept = [count[2, 4, 0, stream] for _ in range(4)]
    kept[0](np.zeros(1, np.int32))
    del stream

    assert alive() is not None
    kept.clear()
    assert alive() is None


@pytest.mark.parametrize("stream", ["a", True, -1, object()])
def test_what_is_no_stream_is_refused_by_the_call(stream: Any) -> None:
    launch = count[2, 4, 0, stream]
    with pytest.raises(sk.LaunchError, match="NOT_A_STREAM"):
        launch(np.zeros(1, np.int32))


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
