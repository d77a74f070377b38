"""NVTX ranges: which there are, that each ends, and that there is nothing of them while they are off."""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import stagekit as sk
from stagekit import ranges
from stagekit.runtime.errors import ArgumentError

PACKAGE = str(Path(sk.__file__).parent)


class Tool:
    """Listens to ranges, as a profiler does. ended: texts, `a > b` for `b` inside `a`."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.ended: list[str] = []

    def get_event_attributes(self, message: str) -> str:
        return message

    def push_range(self, attributes: str) -> None:
        self.open.append(attributes)

    def pop_range(self) -> None:
        self.ended.append(" > ".join(self.open))
        self.open.pop()

    def heard(self) -> list[str]:
        """What has ended since it was asked last, when nothing is open."""
        assert not self.open
        found, self.ended = self.ended, []
        return found


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tool]:
    listening = Tool()
    domains = {"stagekit": listening}
    monkeypatch.setitem(sys.modules, "nvtx", SimpleNamespace(get_domain=domains.__getitem__))
    monkeypatch.setenv("STAGEKIT_NVTX", "1")
    ranges._domain.cache_clear()
    yield listening
    ranges._domain.cache_clear()


def scale(x, n, BLOCK: sk.constexpr = 32):
    i = sk.arange(0, BLOCK)
    sk.store(x + i, sk.load(x + i, mask=i < n) * 2, mask=i < n)


def test_steps_and_launches_are_ranges(tool: Tool) -> None:
    kernel, x = sk.jit(scale), np.ones(32, np.float32)
    python = "scale, launched by Python"

    kernel[1](x, 32)
    assert tool.heard() == [f"{python} > trace scale", f"{python} > compile scale for cpu", python]
    kernel[1](x, 32)
    assert tool.heard() == [python]
    for _ in range(3):
        kernel[1](x, 32)
    assert tool.heard() == ["scale"] * 3, "by machine code"
    kernel[1](x, np.int64(32))
    assert tool.heard()[-2:] == [f"scale > {python}", "scale"], "what machine code leaves to Python"
    for _ in range(4):
        kernel[1](x, np.int64(32))
    assert tool.heard()[-1] == "scale", "each once, whichever specialisation it is of"

    prepared = kernel.prepare[1](x, 32)
    tool.heard()
    prepared()
    assert tool.heard() == ["scale"]


def test_a_launch_without_brackets_and_a_checked_one_are_ranges(tool: Tool) -> None:
    @sk.function
    def entry(A: sk.Tensor((8,), sk.float32)):
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=8))
        A[sk.cuda.thread_idx("x")] = 1

    x = np.zeros(8, np.float32)
    for _ in range(3):
        entry(x)
    assert tool.heard()[-1] == "entry"
    sk.sanitize(entry)(x)
    assert tool.heard()[-1] == "entry, launched by Python"


def test_a_range_ends_with_an_error_and_adds_no_frame(tool: Tool) -> None:
    kernel, x = sk.jit(scale), np.ones(32, np.float32)
    for _ in range(3):
        kernel[1](x, 32)

    for launch in (kernel[1], kernel[2], kernel.prepare[1]):
        with pytest.raises(ArgumentError) as raised:
            launch(x, "many")
        frames = traceback.extract_tb(raised.value.__traceback__)
        assert not [frame for frame in frames if frame.filename.startswith(PACKAGE)]
    tool.heard()


def test_kernels_look_as_without_ranges(tool: Tool) -> None:
    kernel, x = sk.jit(scale), np.ones(32, np.float32)
    before = repr(kernel[1]), repr(kernel.prepare[1])
    for _ in range(3):
        kernel[1](x, 32)

    assert list(inspect.signature(kernel[1]).parameters) == ["x", "n", "BLOCK"]
    assert before == (f"{kernel!r}[1]", f"{kernel!r}.prepare[1]")


def test_without_the_switch_a_kernel_holds_nothing_of_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch costs what it did: machine code is called directly, and methods are the class's."""
    monkeypatch.delitem(sys.modules, "nvtx", raising=False)
    kernel, x = sk.jit(scale), np.ones(32, np.float32)
    for _ in range(3):
        kernel[1](x, 32)

    assert not vars(kernel).keys() & {"_launch", "_prepare"}
    assert inspect.isbuiltin(kernel[1])
    assert "nvtx" not in sys.modules
