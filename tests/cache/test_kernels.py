"""Kernels and their caches within one process: one compile per key, nothing kept of what is dropped, words for why."""

from __future__ import annotations

import concurrent.futures
import gc
import multiprocessing
import os
import pickle
import threading
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from stagekit.__main__ import main
from stagekit.backends.host.target import LoadedCode
from stagekit.cache import open_store
from stagekit.jit import history, native_launchers

pytestmark = pytest.mark.stagekit_unchecked(reason="what is compiled and kept; checked launches compile nothing")

EPS = 1e-5


@sk.inline
def half(x: Any) -> Any:
    return x * 0.5


def new_kernel() -> Any:
    @sk.jit
    def fill(out: sk.Tensor((None,), sk.float32), V: sk.constexpr):  # type: ignore[no-untyped-def, valid-type]
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=4))
        out[sk.cuda.thread_idx("x")] = half(V) + EPS

    return fill


@sk.jit
def importable(out: sk.Tensor((None,), sk.float32), V: sk.constexpr):  # type: ignore[no-untyped-def, valid-type]
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=4))
    out[sk.cuda.thread_idx("x")] = half(V)


def counted_since(before: dict[str, int]) -> Counter[str]:
    return Counter(history.counts()) - Counter(before)


def launch(kernel: Any, value: int) -> float:
    out = np.zeros(4, np.float32)
    kernel.specialize(V=value)(out)
    return float(out[0])


# -- threads --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [[6] * 8, list(range(8))], ids=["one key", "eight keys"])
@pytest.mark.parametrize("is_cached", [False, True], ids=["without disk", "with disk"])
def test_eight_threads_compile_each_key_once(  # P23
    values: list[int], is_cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_cached:
        monkeypatch.setenv("STAGEKIT_CACHE", "0")
    kernel, barrier, before = new_kernel(), threading.Barrier(8), history.counts()

    def work(value: int) -> float:
        barrier.wait()
        return launch(kernel, value)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, values))

    keys = len(set(values))
    assert [v * 0.5 for v in values] == pytest.approx(found, abs=1e-4)
    assert {"traced": keys, "compiled": keys} == counted_since(before)


def test_eight_processes_on_one_cold_cache_agree(new_process: Any, folder: Path, tmp_path: Path) -> None:
    text = """
from concurrent.futures import ProcessPoolExecutor
import multiprocessing

@sk.jit
def fill(out: sk.Tensor((None,), sk.float32), V: sk.constexpr):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=4))
    out[sk.cuda.thread_idx("x")] = V

def work(place):
    found = []
    for value in (place % 2, 2, 3):
        out = np.zeros(4, np.float32); fill.specialize(V=value)(out); found.append(out[0].item())
    return found

RESULT = None
if __name__ == "__main__":
    with ProcessPoolExecutor(8, mp_context=multiprocessing.get_context("fork")) as pool:
        RESULT = list(pool.map(work, range(8)))
"""
    assert [[p % 2, 2, 3] for p in range(8)] == new_process(text)["result"]


# -- entries that are damaged ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "folder"])
def test_a_damaged_entry_is_compiled_again_silently(folder: Path, damage: str) -> None:
    assert launch(new_kernel(), 3) == pytest.approx(1.5, abs=1e-4)
    for path in folder.glob("*/*.entry"):
        content = path.read_bytes()
        if damage == "folder":
            path.unlink()
            path.mkdir()
        else:
            changed = {"cut": content[:-7], "flip": content[:-1] + bytes([content[-1] ^ 1]), "empty": b""}
            path.write_bytes(changed[damage])
    before = history.counts()

    assert launch(new_kernel(), 3) == pytest.approx(1.5, abs=1e-4)
    assert {"traced": 1, "compiled": 1} == counted_since(before)


def test_a_failure_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    from stagekit.jit import compilation

    kernel, really = new_kernel(), compilation.cpu_artifact

    def fail(*args: Any) -> Any:
        raise OSError("no memory")

    monkeypatch.setattr(compilation, "cpu_artifact", fail)
    for _ in range(2):
        with pytest.raises(Exception, match="no memory"):
            launch(kernel, 5)
    monkeypatch.setattr(compilation, "cpu_artifact", really)

    assert launch(kernel, 5) == pytest.approx(2.5, abs=1e-4)


# -- lifetimes ------------------------------------------------------------------------------------------------------------


def test_dropping_a_kernel_frees_its_code_and_a_launch_keeps_no_argument(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # P21
    closed = []
    really = LoadedCode.close
    monkeypatch.setattr(LoadedCode, "close", lambda self: (closed.append(1), really(self))[1])
    kernel = new_kernel()
    for value in range(20):
        argument = np.zeros(4, np.float32)
        kernel.specialize(V=value)(argument)
    dies = weakref.ref(argument)
    del argument
    gc.collect()
    assert dies() is None
    assert 0 == len(closed)
    gone = weakref.ref(kernel)

    del kernel
    gc.collect()

    assert gone() is None
    assert 20 == len(closed)


def test_native_launchers_go_with_their_kernel_and_keep_no_argument() -> None:  # P21
    kernel, argument = new_kernel(), np.zeros(4, np.float32)
    before = len(native_launchers._codes)
    for value in (1, 2, 1, 2, 1, 2):
        kernel.specialize(V=value)(argument)
        kernel(argument, value)
    assert len(native_launchers._codes) > before
    gone, dies = weakref.ref(kernel), weakref.ref(argument)

    del argument
    gc.collect()
    assert dies() is None
    del kernel
    gc.collect()
    assert gone() is None
    assert len(native_launchers._codes) == before


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_P21_10_000_specialisations_made_and_dropped_keep_little(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGEKIT_CACHE", "0")
    kernel = new_kernel()

    def make(values: range) -> None:
        for value in values:
            kernel.specialize(V=value).compile(target)
            kernel._specializations.clear()

    make(range(300))
    gc.collect()
    before = resident_bytes()
    make(range(300, 10_300))
    gc.collect()

    assert (resident_bytes() - before) / 10_000 < 20_000


# -- compile_all ----------------------------------------------------------------------------------------------------------


class LikeDask(concurrent.futures.Executor):
    """What `Client.get_executor()` gives: work and answers go through pickles, and no thread pool is seen from outside."""

    def __init__(self) -> None:
        self._threads = concurrent.futures.ThreadPoolExecutor(2)

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        sent = pickle.dumps((fn, args, kwargs))

        def work() -> bytes:
            function, positional, named = pickle.loads(sent)
            return pickle.dumps(function(*positional, **named))

        return self._threads.submit(work)


def executors() -> dict[str, Any]:
    spawn = multiprocessing.get_context("spawn")
    return {
        "none": lambda: None,
        "threads": lambda: concurrent.futures.ThreadPoolExecutor(2),
        "processes": lambda: concurrent.futures.ProcessPoolExecutor(2, mp_context=spawn),
        "like Dask's": LikeDask,
    }


@pytest.mark.parametrize("kind", executors())
def test_many_kernels_are_compiled_by_any_executor(kind: str) -> None:
    executor = executors()[kind]()
    progress: list[tuple[int, int]] = []
    kernels = [importable.specialize(V=100 + v) for v in range(4)]

    made = sk.compile_all(kernels, "cpu", executor=executor, progress=lambda *seen: progress.append(seen))

    if executor:
        executor.shutdown()
    assert kernels == made
    assert [(done, 4) for done in (1, 2, 3, 4)] == progress
    before = history.counts()
    assert 51.0 == launch(importable, 102)
    assert not counted_since(before)


def test_kernels_that_processes_cannot_find_are_compiled_here() -> None:
    kernel = new_kernel().specialize(V=1)
    with concurrent.futures.ProcessPoolExecutor(1) as executor:
        assert [kernel] == sk.compile_all([kernel], "cpu", executor=executor)


def die() -> None:
    os._exit(1)


def broken_executors() -> dict[str, Any]:
    shut_down = concurrent.futures.ThreadPoolExecutor(1)
    shut_down.shutdown()
    spawn = multiprocessing.get_context("spawn")
    return {
        "shut down": lambda: shut_down,
        "its processes die": lambda: concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn, initializer=die),
    }


@pytest.mark.parametrize("kind", broken_executors())
def test_what_a_broken_executor_does_not_do_is_done_here(kind: str) -> None:
    progress: list[tuple[int, int]] = []
    kernels = [importable.specialize(V=200 + v) for v in range(3)]

    made = sk.compile_all(kernels, "cpu", executor=broken_executors()[kind](), progress=lambda *p: progress.append(p))

    assert kernels == made
    assert [(done, 3) for done in (1, 2, 3)] == progress
    before = history.counts()
    assert 100.5 == launch(importable, 201)
    assert not counted_since(before)


def test_progress_counts_those_that_processes_cannot_find() -> None:
    progress: list[tuple[int, int]] = []
    kernels = [importable.specialize(V=301), new_kernel().specialize(V=1), importable.specialize(V=302)]

    sk.compile_all(kernels, "cpu", executor=LikeDask(), progress=lambda *p: progress.append(p))

    assert [(1, 3), (2, 3), (3, 3)] == progress


def test_the_first_error_is_raised_when_all_are_done() -> None:
    @sk.jit
    def bad(out: sk.Tensor((None,), sk.float32)):  # type: ignore[no-untyped-def, valid-type]
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=4))
        out[0] = not_there  # type: ignore[name-defined]  # noqa: F821

    good = new_kernel().specialize(V=8)
    with concurrent.futures.ThreadPoolExecutor(2) as executor, pytest.raises(sk.StagekitError, match="not_there"):
        sk.compile_all([bad.specialize(), good], "cpu", executor=executor)

    before = history.counts()
    good.compile("cpu")
    assert not counted_since(before)


def test_a_bar_shows_progress(capsys: pytest.CaptureFixture[str]) -> None:
    sk.compile_all([new_kernel().specialize(V=1)], "cpu", progress=True)

    assert capsys.readouterr().err.endswith("] 1/1\n")


# -- words ----------------------------------------------------------------------------------------------------------------


def reason(kernel: Any) -> str:
    """What `explain` says, without the times."""
    return str(kernel.explain().splitlines()[-1].split(": ", 1)[1].rsplit(" (", 1)[0])


def test_a_kernel_says_why_it_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = new_kernel()
    assert "nothing was compiled yet" == kernel.explain()
    launch(kernel, 64)
    assert "first use" == reason(kernel)
    launch(kernel, 128)
    assert "V 64 -> 128" == reason(kernel)
    launch(kernel, 64)
    assert "V 64 -> 128" == reason(kernel), "a call that compiles nothing changes nothing"
    monkeypatch.setitem(globals(), "EPS", 1e-6)
    launch(kernel, 64)
    assert "global `EPS` changed 1e-05 -> 1e-06" == reason(kernel)


STEPS = {0: 1, 1: 2}


def twice(x: Any) -> Any:
    return 2 * x


@sk.inline
def fragment(x: Any) -> Any:
    return x + 1


def another_fragment() -> Any:
    def fragment(x: Any) -> Any:
        return x + 2

    fragment.__qualname__ = "fragment"
    return sk.inline(fragment)


class Settings:
    SCALE = 3


CHANGES: dict[str, tuple[Any, str]] = {
    "a dict's item": (lambda patch: patch.setitem(STEPS, 0, 9), "global `STEPS` changed {0: 1, 1: 2} -> {0: 9, 1: 2}"),
    "a dict": (lambda patch: patch.setitem(globals(), "STEPS", {0: 3}), "global `STEPS` changed {0: 1, 1: 2} -> {0: 3}"),
    "a class's attribute": (lambda patch: patch.setattr(Settings, "SCALE", 4), "`Settings.SCALE` changed 3 -> 4"),
    "a helper": (lambda patch: patch.setitem(globals(), "twice", lambda x: x), "global `twice` was redefined"),
    "a fragment": (
        lambda patch: patch.setitem(globals(), "fragment", another_fragment()), "global `fragment` was redefined"
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_outside_is_named(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @sk.jit
    def fill(out: sk.Tensor((None,), sk.float32)):  # type: ignore[no-untyped-def, valid-type]
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=4))
        out[sk.cuda.thread_idx("x")] = fragment(twice(STEPS[0])) + Settings.SCALE

    out = np.zeros(4, np.float32)
    change, words = CHANGES[kind]
    for _ in range(3):
        fill(out)
    assert 6 == out[0]

    change(monkeypatch)
    fill(out)

    assert words == reason(fill)
    assert 6 != out[0]


def test_other_types_of_arguments_are_named() -> None:
    @sk.jit
    def copy(x, out, n):  # type: ignore[no-untyped-def]
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=4))
        if sk.cuda.thread_idx("x") < n:
            out[sk.cuda.thread_idx("x")] = x[sk.cuda.thread_idx("x")]

    out = np.zeros(4, np.float32)
    copy(np.ones(4, np.float32), out, 4)
    copy(np.ones(4, np.float64), out, 4)

    assert "`x` an array of float64, was an array of float32" == reason(copy)


def test_another_block_is_named() -> None:
    @sk.jit
    def mark(out: sk.Tensor((None,), sk.float32)):  # type: ignore[no-untyped-def, valid-type]
        out[sk.cuda.thread_idx("x")] = 1

    out = np.zeros(64, np.float32)
    mark[1, 32](out)
    mark[1, 64](out)

    assert "block 32 -> 64" == reason(mark)


# -- the command line -----------------------------------------------------------------------------------------------------


def test_the_command_line_lists_explains_and_clears(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    launch(new_kernel(), 3)

    assert 0 == main(["cache", "list"])
    listed = capsys.readouterr().out
    assert "fill V=3: cpu, block (4, 1, 1)" in listed
    assert f"1 entry, 0.0 of 512 MB, in {folder}" in listed
    assert 0 == main(["cache", "explain", "fill"])
    explained = capsys.readouterr().out
    assert "signature (out: Tensor((?,), float32))" in explained
    assert 0 == main(["cache", "clear"])
    assert capsys.readouterr().out.startswith("1 entry removed")
    store = open_store()
    assert store is not None
    assert [] == store.entries()


def test_the_command_line_says_why_there_is_no_cache(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAGEKIT_CACHE", "0")

    assert 1 == main(["cache", "list"])
    assert "no disk cache: switched off by STAGEKIT_CACHE=0\n" == capsys.readouterr().out


# -- entries ------------------------------------------------------------------------------------------------------------------


def test_every_entry_of_a_kernel_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGEKIT_CACHE", str(tmp_path))

    def new() -> Any:
        @sk.jit
        def turned(x: sk.Tensor((None,), sk.float32), out: sk.Tensor((None,), sk.float32), n, BLOCK: sk.constexpr):  # type: ignore[no-untyped-def, valid-type]
            i = sk.arange(0, BLOCK)
            factor = 2 if sk.speculate(n % 2 == 0) else 3
            sk.store(out + i, sk.load(x + (BLOCK - 1 - i)) * factor)
            sk.store(x + i, sk.load(out + i))

        return turned

    for step in ("compiled", "read"):
        kernel, before = new(), history.counts()
        for n, start in ((4, 8), (5, 8), (4, 3)):
            x = np.zeros(16, np.float32)
            kernel[1](x[:8], x[start : start + 8], n, 8)
        assert counted_since(before) == {"traced": 3, step: 3}
