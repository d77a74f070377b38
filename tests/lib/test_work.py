"""Programs that work on several tiles: each tile once, by the program whose turn it is or by the next that is free."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import stagekit as sk
from tests.places import on_cpu, on_gpu, run

WAYS = ["cpu", "interp", "sanitized", pytest.param("gpu", marks=pytest.mark.gpu)]


@sk.jit(threads="THREADS")
def doubled(x, out, programs, counter, THREADS: sk.constexpr):
    """Rows, each of which notes its program; the rounds that a program has had are carried."""
    rounds = 0
    for row in sk.persistent(x.shape[0], counter):
        rounds += 1
        if rounds == 100:
            continue
        sk.store(out.tile((row, 0), (1, 48)), sk.load(x.tile((row, 0), (1, 48))) * 2)
        programs[row] += sk.program_id(0) + 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [None, np.uint32, np.int64])
@pytest.mark.parametrize(("rows", "programs", "threads"), [(0, 3, 32), (1, 3, 64), (7, 3, 64), (7, 1, 1), (3, 5, 128)])
def test_each_tile_is_worked_on_once(way, rows, programs, threads, dtype, monkeypatch):
    if way in ("cpu", "interp"):
        monkeypatch.setenv("STAGEKIT_TARGET", way)
    x = np.arange(rows * 48, dtype=np.float32).reshape(rows, 48)
    arrays = [x, np.zeros_like(x), np.zeros(rows, np.int64)] + ([np.zeros(2, dtype)] if dtype else [])

    def launch(*placed):
        for _ in range(2):  # the counter is ready for the second launch
            doubled[programs](*placed[:3], placed[3] if dtype else None, threads)

    with sk.sanitize() if way == "sanitized" else contextlib.nullcontext():
        _, out, who, *counter = run(on_gpu if way == "gpu" else on_cpu, launch, arrays)

    np.testing.assert_array_equal(out, 2 * x)
    np.testing.assert_array_equal(np.concatenate([np.zeros(2), *counter]), 0)
    if dtype:
        assert ((who >= 2) & (who <= 2 * programs)).all()
    else:
        np.testing.assert_array_equal(who, 2 * (np.arange(rows) % programs + 1))


@sk.jit(threads=32)
def misused(out, mistake: sk.constexpr):
    for tile in sk.persistent(3, mistake):
        out[tile] = 1


@sk.jit(threads=32)
def left_early(out, counter):
    for tile in sk.persistent(3, counter):
        if tile == 1:
            break
        out[tile] = 1


def test_mistakes_are_refused():
    out = np.zeros(4, np.int32)

    with pytest.raises(sk.StagekitError, match="the counter is an array of int32"):
        misused[1](out, 3)
    with pytest.raises(sk.StagekitError, match="the counter is an array of int32"):
        left_early[1](out, out.astype(np.float32))
    with pytest.raises(sk.StagekitError, match="never says that there is no more"):
        left_early[1](out, out)
