"""What brackets mean, and which sizes are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit.artifact import Style
from stagekit.runtime.errors import LaunchError
from stagekit.runtime.launch_config import LaunchConfig, LaunchSize, launch_size, missing_brackets, read_brackets
from stagekit.signature import PLAIN_LAUNCH

BLOCK = (256, 1, 1)
GRID_LIMITS = (2**31 - 1, 65535, 65535)
BLOCK_LIMITS = (1024, 1024, 64)


def size_of(key: Any, style: Style, fixed: tuple[int, int, int] | None = None) -> LaunchSize:
    size = read_brackets(key, style, "k", fixed).size
    assert isinstance(size, LaunchSize)
    return size


@pytest.mark.parametrize(
    ("key", "grid"),
    [
        (4, (4, 1, 1)),
        ((4,), (4, 1, 1)),
        ((4, 5), (4, 5, 1)),
        ((4, 5, 6), (4, 5, 6)),
        ([4, 5], (4, 5, 1)),
        (np.int64(4), (4, 1, 1)),
        ((np.int32(4), 5), (4, 5, 1)),
        (0, (0, 1, 1)),
    ],
)
def test_brackets_of_a_block_level_kernel_hold_a_grid(key: Any, grid: tuple[int, int, int]) -> None:
    assert size_of(key, "block", BLOCK)[:3] == (grid, BLOCK, 0)


@pytest.mark.parametrize(
    ("key", "size"),
    [
        ((4, 5), ((4, 1, 1), (5, 1, 1), 0)),
        (((4, 2), 5), ((4, 2, 1), (5, 1, 1), 0)),
        (((1, 2, 3), (4, 5, 6)), ((1, 2, 3), (4, 5, 6), 0)),
        ((4, 5, 128), ((4, 1, 1), (5, 1, 1), 128)),
        ((4, 5, 128, 77), ((4, 1, 1), (5, 1, 1), 128)),
    ],
)
def test_brackets_of_a_thread_level_kernel_hold_grid_and_block(key: Any, size: Any) -> None:
    assert size_of(key, "thread")[:3] == size


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"cluster": 9}, "LAUNCH_LIMIT.*cluster x is 9"),
        ({"cluster": (4, 4)}, "BAD_CLUSTER.*16 blocks"),
        ({"cluster": (2, 0)}, "BAD_CLUSTER.*0 blocks"),
        ({"cluster": 2.0}, "LAUNCH_SIZE_TYPE"),
        ({"cooperative": 1}, "LAUNCH_SIZE_TYPE.*cooperative"),
        ({"programmatic": None}, "LAUNCH_SIZE_TYPE.*programmatic"),
    ],
)
def test_attributes_that_no_launch_can_have_are_refused_where_they_are_written(changes: Any, text: str) -> None:
    with pytest.raises(LaunchError, match=f"(?s){text}"):
        LaunchConfig(4, 32, **changes)


def test_clusters_divide_the_grid_along_each_axis() -> None:
    def request(grid: Any, cluster: Any) -> Any:
        return read_brackets(LaunchConfig(grid, 32, cluster=cluster), "thread", "k", None)

    for grid in ((4, 6), (3, 0), (8, 2, 1)):
        assert request(grid, (4, 2)).attributes.cluster == (4, 2, 1)
    with pytest.raises(LaunchError, match=r"(?s)CLUSTER_MISFIT.*2 does not divide 3 along axis y"):
        request((4, 3), (1, 2))
    assert request(4, 1).attributes is PLAIN_LAUNCH


def test_the_fourth_thing_in_the_brackets_is_the_stream() -> None:
    assert read_brackets((4, 5, 0, 77), "thread", "k", None).stream == 77


@pytest.mark.parametrize("style", ["block", "thread"])
def test_a_launch_config_is_never_ambiguous(style: Style) -> None:
    config = LaunchConfig(grid=(4, 5), block=256, shared_bytes=64)

    assert size_of(config, style, BLOCK) == ((4, 5, 1), BLOCK, 64, 20)


@pytest.mark.parametrize(
    ("style", "key"),
    [
        ("block", ((4,), 256)),
        ("block", (4, 5, 6, 7)),
        ("block", ()),
        ("thread", 4),
        ("thread", (4,)),
        ("thread", ()),
        ("thread", (1, 2, 3, 4, 5)),
        ("entry", 4),
        ("entry", (4, 5)),
        ("entry", LaunchConfig(4, 5)),
    ],
)
def test_brackets_that_do_not_fit_are_refused_with_both_readings(style: Style, key: Any) -> None:
    with pytest.raises(LaunchError, match="BRACKETS_MISFIT") as caught:
        read_brackets(key, style, "k", BLOCK)

    text = str(caught.value)
    if not isinstance(key, LaunchConfig):
        assert "read as block-level: " in text
        assert "read as thread-level: " in text


@pytest.mark.parametrize(("style", "how"), [("block", "k[grid](...)"), ("thread", "k[grid, block](...)")])
def test_missing_brackets_are_spelt_out(style: Style, how: str) -> None:
    assert how in str(missing_brackets(style, "k"))


@given(st.integers(0, 2), st.sampled_from(["grid", "block"]), st.integers(-3, 2**33))
@settings(max_examples=100, deadline=None)
def test_each_axis_has_its_limit_and_is_named(axis: int, what: str, size: int) -> None:
    high = {"grid": GRID_LIMITS, "block": BLOCK_LIMITS}[what]
    axes = tuple(size if i == axis else 1 for i in range(3))
    given_axes = {"grid": 1, "block": 1, what: axes}

    if 0 <= size <= high[axis]:
        found = launch_size(**given_axes)
        assert found[what == "block"] == axes
        assert found.blocks == (size if what == "grid" else int(size != 0))
        assert getattr(LaunchConfig(**given_axes), what) == axes
        return
    words = f"{what} {'xyz'[axis]} is {size}, it must lie between 0 and {high[axis]}"
    for make in (launch_size, LaunchConfig):
        with pytest.raises(LaunchError, match=words):
            make(**given_axes)


@pytest.mark.parametrize("make", [launch_size, LaunchConfig])
def test_shared_bytes_that_no_device_has_are_refused(make: Any) -> None:
    make(1, 1, 232448)
    with pytest.raises(LaunchError, match="shared_bytes is 232449, it must lie between 0 and 232448"):
        make(1, 1, 232449)


class _Stream:
    cuda_stream = 7


@pytest.mark.parametrize("stream", [None, 0, 7, _Stream()])
def test_a_stream_is_kept_as_it_is(stream: Any) -> None:
    assert read_brackets((1, 4, 0, stream), "thread", "k", None).stream is stream


class _Protocol:
    """What a stream answers when it is asked by the protocol of cuda.core."""

    def __init__(self, *answer: Any) -> None:
        self.answer = answer

    def __cuda_stream__(self) -> Any:
        return self.answer


@pytest.mark.parametrize("version", [1, "0", None])
def test_a_stream_of_another_version_of_the_protocol_is_refused(version: Any) -> None:
    """What such a tuple holds is not known: a handle taken from it could be anything."""
    with pytest.raises(
        LaunchError, match=f"expected version 0 of the protocol `__cuda_stream__`, got version {version!r}"
    ):
        read_brackets((1, 4, 0, _Protocol(version, 7)), "thread", "k", None)


@pytest.mark.parametrize(
    "stream", ["s", 1.0, object(), -1, 1 << 64, _Protocol(), _Protocol(0), _Protocol(0, None), _Protocol(0, -5)]
)
def test_what_is_no_stream_is_refused_before_there_is_a_device(stream: Any) -> None:
    with pytest.raises(LaunchError, match="stream"):
        read_brackets((1, 4, 0, stream), "thread", "k", None)


@pytest.mark.parametrize("make", [launch_size, LaunchConfig])
def test_a_block_has_at_most_1024_threads(make: Any) -> None:
    make(1, (32, 32))
    with pytest.raises(LaunchError, match="is 1056, it must lie between 0 and 1024"):
        make(1, (33, 32))


@pytest.mark.parametrize("make", [launch_size, LaunchConfig])
@pytest.mark.parametrize("size", [4.0, "4", None, (1, 2, 3, 4), ()])
def test_what_is_no_size_is_refused(make: Any, size: Any) -> None:
    with pytest.raises(LaunchError, match="grid"):
        make(size, 1)


@pytest.mark.parametrize("make", [launch_size, LaunchConfig])
@pytest.mark.parametrize("shared_bytes", [-1, 2**31, 1.5])
def test_shared_memory_has_a_size(make: Any, shared_bytes: Any) -> None:
    with pytest.raises(LaunchError, match="shared_bytes"):
        make(1, 1, shared_bytes)


def test_a_config_may_hold_values_that_are_not_known_yet() -> None:
    """Inside a kernel a grid is computed from sizes: an object that is no number."""
    size = object()

    config = LaunchConfig(grid=(size, 2), block=64)

    assert (config.grid, config.block) == ((size, 2, 1), (64, 1, 1))
    with pytest.raises(LaunchError, match="grid x: expected an integer"):
        read_brackets(config, "thread", "k", None)


def test_replace_changes_some_fields() -> None:
    assert LaunchConfig(4, 64).replace(block=(8, 8)) == LaunchConfig((4, 1, 1), (8, 8, 1), 0)


def test_another_block_than_the_compiled_one_is_refused() -> None:
    with pytest.raises(LaunchError, match=r"compiled for blocks of \(256, 1, 1\) threads, .* \(128, 1, 1\)"):
        read_brackets(LaunchConfig(4, 128), "block", "k", BLOCK)
