"""Kernels that print and assert launch natively too, and say the same as by the general way."""

from __future__ import annotations

import contextlib
import io
import threading
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.jit import native_launchers
from stagekit.jit.launchable import Launcher
from stagekit.runtime import native_process

pytestmark = [
    pytest.mark.skipif(not native_process.is_available(), reason="no native launchers here"),
    pytest.mark.stagekit_unchecked(reason="what native launchers do; checked launches never are"),
]

PACKAGE = str(Path(sk.__file__).parent)


@sk.jit
def told(x, limit: sk.int32, shared: sk.constexpr):
    i = sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")
    if shared:
        row = sk.alloc_shared((64,), sk.float32)
        row[sk.cuda.thread_idx("x")] = x[i]
    if x[i] > 90:
        print(f"{i}: {x[i]}")  # noqa: T201  at run time
    assert x[i] < limit, f"{x[i]} is too much"
    x[i] = x[i] + 1


@sk.jit
def waits(x, n: sk.int32):
    i = sk.cuda.thread_idx("x")
    if i < n:
        sk.syncthreads()
    x[i] = 1


def warm() -> Any:
    for _ in range(3):
        told[1, 64](np.zeros(64, np.float32), 1000, False)
    assert told[1, 64] is told._native.entries[1, 64][1]
    return told[1, 64]


def frames_of_ours(error: BaseException) -> list[str]:
    frames = traceback.extract_tb(error.__traceback__)
    return [str(f) for f in frames if f.filename.startswith(PACKAGE)]


def outcome(launch: Any, x: Any, limit: int) -> tuple[Any, ...]:
    out, raised = io.StringIO(), None
    with contextlib.redirect_stdout(out):
        try:
            launch(x, limit, False)
        except sk.KernelAssertionError as error:
            raised = error.message, error.block, error.thread, frames_of_ours(error)
    return out.getvalue(), raised, x.tolist()


@given(st.lists(st.integers(0, 100), min_size=64, max_size=64), st.integers(50, 200))
@settings(max_examples=40, deadline=None)
def test_native_launches_say_what_general_ones_say(values: list[int], limit: int) -> None:
    launches = warm(), Launcher(told._launch, (1, 64))
    fast, slow = (outcome(launch, np.array(values, np.float32), limit) for launch in launches)
    assert fast == slow
    assert fast[1] is None or not fast[1][-1]


def test_a_prepared_launch_says_it_too() -> None:
    x = np.full(64, 91, np.float32)
    warm()
    launch = told.prepare[1, 64](x, 92, False)
    assert outcome(lambda *_: launch(), x, 92)[0].startswith("0: 91.0\n1: 91.0\n")
    text, raised, _ = outcome(lambda *_: launch(), x, 92)
    assert text.startswith("0: 92.0\n")
    assert raised == ("92.0 is too much", (0, 0, 0), (0, 0, 0), [])


def test_threads_do_not_mix_their_records() -> None:
    launch, found = warm(), []

    def work(value: int) -> None:
        for _ in range(20):
            try:
                launch(np.full(64, value, np.float32), value, False)
            except sk.KernelAssertionError as error:
                found.append((value, error.message))

    jobs = [threading.Thread(target=work, args=(value,)) for value in range(10, 18)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert len(found) == 8 * 20
    assert all(message == f"{value}.0 is too much" for value, message in found)


def test_many_blocks_and_shared_memory() -> None:
    x = np.zeros(64 * 500, np.float32)
    for count in range(1, 5):
        told[500, 64](x, 1000, True)
        assert (x == count).all()


def test_no_code_is_made_again_for_brackets_that_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel whose brackets cannot be native is not asked for them at every launch."""

    @sk.jit
    def kernel(x):
        x[0] = 1

    x, asked = np.zeros(1, np.float32), []
    monkeypatch.setattr(native_launchers, "code_for", lambda *_: asked.append(1))
    for _ in range(6):
        kernel[1, 1](x)
    assert len(asked) == 1


def test_brackets_without_a_hash_launch_any_number_of_times() -> None:
    x = np.zeros(4, np.float32)
    for count in range(1, 5):
        waits[[1], [4]](x, 4)
        assert (x == 1).all(), count


def one_of_two() -> tuple[Any, int]:
    @sk.jit
    def parts(x):
        if x[sk.cuda.thread_idx("x")] > 0:
            sk.syncthreads()

    return parts, parts.loc.line + 2


def the_other() -> tuple[Any, int]:
    @sk.jit
    def parts(x):
        if x[sk.cuda.thread_idx("x")] > 0:
            sk.syncthreads()

    return parts, parts.loc.line + 2


def test_a_missed_barrier_has_the_line_of_the_kernel_that_was_launched() -> None:
    """Kernels of equal IR share their code on disk."""
    x, lines = np.arange(256, dtype=np.float32) % 2, set()
    for kernel, line in (one_of_two(), the_other()):
        for _ in range(3):
            kernel[4, 64](np.ones(64, np.float32))
        for launch in (kernel[4, 64], Launcher(kernel._launch, (4, 64))):
            with pytest.raises(sk.BarrierError) as caught:
                launch(x)
            assert caught.value.loc is not None
            assert caught.value.loc.line == line
        lines.add(line)
    assert len(lines) == 2


def test_a_barrier_missed_in_a_native_launch_shows_the_users_frames_only() -> None:
    x = np.zeros(64, np.float32)
    for _ in range(3):
        waits[1, 64](x, 64)
    with pytest.raises(sk.BarrierError) as caught:
        waits[1, 64](x, 3)
    assert not frames_of_ours(caught.value)
