"""A zero in any axis of the grid or of the block: the arguments are checked, nothing runs, no code is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk

LaunchConfig = sk.cuda.LaunchConfig
TARGETS = ["cpu", "interp"]


@sk.jit
def mark(x):
    x[sk.cuda.thread_idx("x")] = 1


@sk.jit
def mark_own(x, gx: sk.int32, gy: sk.int32, gz: sk.int32, bx: sk.int32, by: sk.int32, bz: sk.int32):
    sk.device_entry(launch=LaunchConfig(grid=(gx, gy, gz), block=(bx, by, bz)))
    x[sk.cuda.thread_idx("x")] = 1


@sk.jit
def mark_fixed(x, grid: sk.constexpr, block: sk.constexpr):
    sk.device_entry(launch=LaunchConfig(grid=grid, block=block))
    x[sk.cuda.thread_idx("x")] = 1


@sk.jit
def mark_tile(x):
    sk.store(x + sk.arange(0, 64), 1.0)


Axes = tuple[int, int, int]
WAYS: dict[str, Callable[[Any, Axes, Axes], None]] = {
    "brackets": lambda x, grid, block: mark[grid, block](x),
    "a grid function": lambda x, grid, block: mark[lambda _: grid, block](x),
    "LaunchConfig": lambda x, grid, block: mark[LaunchConfig(grid, block)](x),
    "LaunchConfig of a tile kernel": lambda x, grid, block: mark_tile[LaunchConfig(grid, block if 0 in block else 64)](
        x
    ),
    "device_entry": lambda x, grid, block: mark_own(x, *grid, *block),
    "a constant device_entry": lambda x, grid, block: mark_fixed(x, grid, block),
    "prepare": lambda x, grid, block: mark.prepare[grid, block](x)(),
    "prepare of a device_entry": lambda x, grid, block: mark_own.prepare(x, *grid, *block)(),
}


@st.composite
def sizes_with_a_zero(draw: st.DrawFn) -> tuple[Axes, Axes]:
    axes = [draw(st.integers(0, 3)) for _ in range(6)]
    axes[draw(st.integers(0, 5))] = 0
    return tuple(axes[:3]), tuple(axes[3:])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("way", WAYS)
@given(sizes=sizes_with_a_zero())
@settings(max_examples=15, deadline=None)
def test_a_zero_in_any_axis_launches_nothing(way: str, target: str, sizes: tuple[Axes, Axes]) -> None:
    x = np.zeros(64, np.float32)
    with pytest.MonkeyPatch.context() as patch:
        if target != "cpu":
            patch.setenv("STAGEKIT_TARGET", target)
        for _ in range(3):  # the later ones natively
            WAYS[way](x, *sizes)
    assert not x.any()


@pytest.mark.parametrize("way", [way for way in WAYS if "tile" not in way])
@given(st.integers(0, 5), st.integers(0, 5), st.integers(-(2**31), -1))
@settings(max_examples=15, deadline=None)
def test_a_negative_axis_is_refused_beside_a_zero_too(way: str, negative: int, zero: int, size: int) -> None:
    axes = [1] * 6
    axes[zero], axes[negative] = 0, size
    with pytest.raises(sk.StagekitError) as caught:
        WAYS[way](np.zeros(64, np.float32), tuple(axes[:3]), tuple(axes[3:]))
    assert caught.value.id in ("LAUNCH_LIMIT", "BAD_BLOCK_SIZE")


@pytest.mark.parametrize("target", TARGETS)
def test_its_arguments_are_checked(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGEKIT_TARGET", target)
    readonly = np.zeros(64, np.float32)
    readonly.flags.writeable = False
    for _ in range(3):
        with pytest.raises(sk.ArgumentError, match="READ_ONLY_OUTPUT"):
            mark[1, 0](readonly)


@pytest.mark.stagekit_unchecked(reason="which machine code there is")
def test_no_code_is_made_for_a_block_without_threads() -> None:
    kernel = sk.jit(mark.function).specialize()
    kernel[4, 0](np.zeros(64, np.float32))
    assert not kernel._shown("cpu")._kernels
    assert "compiled" not in kernel.explain()


def test_launches_of_nothing_and_of_something_alternate() -> None:
    for block in (0, 64, 0, 64, 3, 0, 0, 0, 64):
        for launch in (lambda x, b=block: mark[1, b](x), lambda x, b=block: mark_own(x, 1, 1, 1, b, 1, 1)):
            x = np.zeros(64, np.float32)
            launch(x)
            assert x.sum() == block


def test_the_sanitizer_sees_nothing() -> None:
    x = np.zeros(64, np.float32)
    with sk.sanitize() as watch:
        mark[1, 0](x)
        mark_own(x, 1, 1, 1, 4, 0, 1)
    assert not watch.findings
    assert not x.any()


def test_the_ptx_of_a_block_without_threads_requires_no_block() -> None:
    kernel = mark_fixed.specialize(grid=1, block=0, x=sk.Tensor((None,), sk.float32))
    assert ".entry" in kernel.ptx
    assert ".reqntid" not in kernel.ptx


@pytest.mark.gpu
def test_a_gpu_launches_nothing_either() -> None:
    x = sk.cuda.to_device(np.zeros(64, np.float32))
    for way in WAYS.values():
        for grid, block in (((1, 1, 1), (0, 1, 1)), ((1, 1, 1), (4, 1, 0)), ((1, 0, 1), (4, 1, 1))):
            for _ in range(3):
                way(x, grid, block)
    sk.cuda.synchronize()
    assert not x.to_host().any()
