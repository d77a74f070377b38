"""`sk.autotune`: what a call runs, what a search compares and rejects, and what is recorded."""

from __future__ import annotations

import json
import pickle
import re
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from stagekit.testing import strided
from stagekit.tuning import TuningError, records
from stagekit.tuning.results import Trial
from stagekit.tuning.search import halving


@sk.jit
def add_one(x: sk.Tensor((None,), sk.float32, (None,)), BLOCK: sk.constexpr, STEP: sk.constexpr = 1):
    """Adds STEP; as its candidates should, whatever their BLOCK."""
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(x.shape[0], BLOCK), block=BLOCK))
    i = sk.cuda.block_idx("x") * BLOCK + sk.cuda.thread_idx("x")
    if i < x.shape[0]:
        x[i] = x[i] + STEP


@sk.jit
def tiled(x, out, n, BLOCK: sk.constexpr):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    sk.store(out + i, sk.load(x + i, mask=i < n) * 2, mask=i < n)


def factory(width: int, wrong: bool = False) -> Any:
    """A factory whose kernel is wrong on demand."""
    if width == 3:
        raise ValueError("no kernel of width 3")
    factor = 3 if wrong else 2

    @sk.jit
    def scaled(x, out, n):
        i = sk.program_id(0) * width + sk.arange(0, width)
        sk.store(out + i, sk.load(x + i, mask=i < n) * factor, mask=i < n)

    return scaled


def quick(tuned: Any, **options: Any) -> Any:
    return tuned.tune.using(rounds=1, progress=False, **options)


@pytest.fixture
def x() -> np.ndarray:
    return np.arange(10, dtype=np.float32)


def test_a_call_never_searches_and_a_search_changes_nothing_but_the_choice(x: np.ndarray) -> None:
    tuned = sk.autotune(add_one, {"BLOCK": (32, 64)})

    assert {"BLOCK": 32} == tuned.config_for(x)
    found = quick(tuned)(x)
    assert np.array_equal(x, np.arange(10))
    assert {"BLOCK": 32} == found.trials[0].config
    assert ["timed", "timed"] == [each.outcome for each in found.trials]
    assert found.best == tuned.config_for(x)
    tuned(x)
    tuned.prepare(x)()
    assert np.array_equal(x, np.arange(10) + 2)


@pytest.mark.parametrize("layout", ["negative", "gaps", "empty", "overlapping"])
def test_outputs_are_restored_whatever_their_layout(layout: str, x: np.ndarray) -> None:
    y = {"negative": x[::-1], "gaps": strided(x, (3,)), "empty": x[:0], "overlapping": x[2:8]}[layout]
    before, whole = y.copy(), x.copy()

    quick(sk.autotune(add_one, {"BLOCK": (32, 64)}))(y)

    assert np.array_equal(before, y)
    assert np.array_equal(whole, x)


def test_wrong_candidates_are_rejected_and_refused_ones_are_told(x: np.ndarray) -> None:
    out = np.zeros_like(x)
    space = {"width": (16, 3, 32), "wrong": (False, True)}
    tuned = sk.autotune(factory, space, key=["n"])

    found = quick(tuned)[lambda meta: (sk.cdiv(meta["n"], meta["width"]),)](x, out, 10)

    assert ["timed", "wrong", "refused", "refused", "timed", "wrong"] == [each.outcome for each in found.trials]
    assert "ValueError: no kernel of width 3" == found.trials[2].why
    assert "`out`: 9 of 10 elements differ" in found.trials[1].why
    assert found.best["wrong"] is False
    assert "wrong  width=16, wrong=True" in str(found)
    tuned[lambda meta: (sk.cdiv(meta["n"], meta["width"]),)](x, out, 10)
    assert np.array_equal(out, 2 * x)


@pytest.mark.parametrize("returns", [True, False])
def test_a_reference_judges_the_first_candidate_too(returns: bool, x: np.ndarray) -> None:
    def reference(x, out, n):
        if returns:
            return 2 * x
        out[:] = 2 * x
        return None

    tuned = sk.autotune(factory, {"width": (16,), "wrong": (True, False)}, reference=reference)

    found = quick(tuned)[1](x, np.zeros_like(x), 10)

    assert ["wrong", "timed"] == [each.outcome for each in found.trials]


@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 1e-5), (np.float16, 1e-3), (np.int32, 0)])
def test_a_difference_of_roundings_is_none(dtype: Any, error: float) -> None:
    x = np.arange(1, 11).astype(dtype)
    tuned = sk.autotune(tiled, {"BLOCK": (16,)}, reference=lambda x, out, n: (2 * x * (1 + error)).astype(dtype))

    assert "timed" == quick(tuned)[1](x, np.zeros_like(x), 10).trials[0].outcome
    with pytest.raises(TuningError, match="NO_CANDIDATE"):
        quick(sk.autotune(tiled, {"BLOCK": (16,)}, reference=lambda x, out, n: x + x + x))[1](x, x.copy(), 10)


def test_a_call_is_looked_up_by_its_key_its_types_and_its_other_constexprs(x: np.ndarray) -> None:
    """Also what a constraint allows depends on the arguments."""
    tuned = sk.autotune(add_one, {"BLOCK": (64, 32)}, key=["x"], where=lambda meta: meta["BLOCK"] < 8 * meta["x"].size)

    def chosen(*args, **kwargs):
        return tuned.config_for(*args, **kwargs)["BLOCK"]

    assert [32, 64, 32] == [chosen(x[:5]), chosen(x), chosen(x[:5])]
    assert 64 == chosen(x, STEP=2)
    assert tuned.kernel_for(x)._fixed == {"BLOCK": 64}
    by_function = sk.autotune(add_one, [{"BLOCK": 32}], key=lambda meta: meta["x"].size > 7)
    assert {"key": True} == quick(by_function)(x).key


def test_a_record_is_found_by_another_process_and_holds_for_this_kernel_only(tmp_path: Path, x: np.ndarray) -> None:
    path = tmp_path / "deep" / "tuning.json"
    first = sk.autotune(add_one, {"BLOCK": (32, 64)}, key=["x"], record=path)
    quick(first)(x)
    content = json.loads(path.read_text())
    (entry,) = content["entries"]
    assert {"x": [10]} == entry["key"]
    entry["best"] = {"BLOCK": 64}
    path.write_text(json.dumps(content))

    again = sk.autotune(add_one, {"BLOCK": (32, 64)}, key=["x"], record=path, untuned="raise")

    assert {"BLOCK": 64} == again.config_for(x)
    for other in (lambda: again.config_for(x[:9]), lambda: again.config_for(x, STEP=5)):
        with pytest.raises(TuningError, match="NOT_TUNED"):
            other()
    quick(again)(x)
    assert 1 == len(json.loads(path.read_text())["entries"])
    without_64 = sk.autotune(add_one, {"BLOCK": (96,)}, key=["x"], record=path)
    assert {"BLOCK": 96} == without_64.config_for(x)


@pytest.mark.parametrize(
    ("key", "recorded"),
    [
        (((1, 2), [3, (4,)]), [[1, 2], [3, [4]]]),
        (np.int64(3), 3),
        ({"b", "a", "c"}, ["a", "b", "c"]),
        (sk.float16, "float16"),
        ((None, True, 0.5, "x"), [None, True, 0.5, "x"]),
    ],
)
def test_a_key_is_the_same_in_every_process(key: Any, recorded: Any, x: np.ndarray) -> None:
    tuned = sk.autotune(add_one, {"BLOCK": (32,)}, key=lambda meta: key, untuned="raise")

    found = quick(tuned)(x)

    assert {"key": recorded} == json.loads(json.dumps(found.key)) == found.key
    assert {"BLOCK": 32} == tuned.config_for(x)


def test_processes_that_write_one_record_lose_nothing(tmp_path: Path, x: np.ndarray) -> None:
    quick(sk.autotune(add_one, {"BLOCK": (32,)}, record=tmp_path / "one.json"))(x)
    (entry,) = json.loads((tmp_path / "one.json").read_text())["entries"]
    best = Trial({"BLOCK": 32}, "timed", "", None, (1e-6,))

    def write(who: int) -> None:
        for each in range(20):
            records.note(tmp_path / "all.json", {**entry, "key": [who, each]}, best, [best])

    with ThreadPoolExecutor(8) as pool:  # the lock is one of open files, so threads stand for processes
        list(pool.map(write, range(8)))

    assert 160 == len(json.loads((tmp_path / "all.json").read_text())["entries"])
    assert {"one.json", "all.json"} == {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"stagekit tuning": 2, "entries": []}', "[" * 100_000, "\xff"])
def test_a_file_of_another_form_is_refused(text: str, tmp_path: Path, x: np.ndarray) -> None:
    (tmp_path / "r.json").write_text(text, encoding="latin-1")

    with pytest.raises(TuningError, match="BAD_RECORD"):
        sk.autotune(add_one, {"BLOCK": (32,)}, record=tmp_path / "r.json").config_for(x)


class Elsewhere(Executor):
    """Runs what survives a pickle, in this thread; as processes do, it compiles into the disk cache."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(pickle.loads(pickle.dumps(fn))(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Dying(Elsewhere):
    """Its workers die, from the second job on."""

    jobs = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.jobs += 1
        if self.jobs == 1:
            return super().submit(fn, *args, **kwargs)
        if self.jobs > 2:
            raise BrokenProcessPool("a worker died")
        future: Future[Any] = Future()
        future.set_exception(BrokenProcessPool("a worker died"))
        return future


@pytest.mark.parametrize("make", [lambda: ThreadPoolExecutor(2), Elsewhere, Dying])
def test_any_executor_compiles_and_one_that_dies_costs_nothing(
    make: Callable[[], Executor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, x: np.ndarray
) -> None:
    monkeypatch.setenv("STAGEKIT_CACHE", str(tmp_path))
    told: list[tuple[str, int, int]] = []
    tuned = sk.autotune(add_one, {"BLOCK": (32, 64, 96)})

    found = tuned.tune.using(executor=make(), rounds=1, progress=lambda *step: told.append(step))(x)

    assert ["timed"] * 3 == [each.outcome for each in found.trials]
    assert [("compile", n, 3) for n in (1, 2, 3)] == [step for step in told if step[0] == "compile"]
    assert {"compile", "check", "time"} == {stage for stage, _, _ in told}
    assert tuned.record is not None
    assert tuned.record.is_relative_to(tmp_path)


def test_without_a_disk_cache_workers_are_not_asked(x: np.ndarray) -> None:
    with pytest.warns(UserWarning, match="no disk cache"):
        found = quick(sk.autotune(add_one, {"BLOCK": (32,)}), executor=Elsewhere())(x)

    assert "timed" == found.trials[0].outcome


def test_the_time_for_compiling_has_an_end(x: np.ndarray) -> None:
    with pytest.raises(TuningError, match=r"not compiled within 1e-09 s"):
        quick(sk.autotune(add_one, {"BLOCK": (32, 64)}), compile_seconds=1e-9)(x)


def test_the_better_half_goes_on() -> None:
    assert [(20, 3), (10, 6), (5, 12), (4, 24), (4, 25)][:3] == [*halving(20, 25, is_exhaustive=False)][:3]
    assert (4, 25) == [*halving(20, 25, is_exhaustive=False)][-1]
    assert [(3, 25)] == [*halving(3, 25, is_exhaustive=False)]
    assert [(20, 25)] == [*halving(20, 25, is_exhaustive=True)]


def test_on_the_interpreter_the_first_candidate_runs(x: np.ndarray) -> None:
    tuned = sk.autotune(add_one, {"BLOCK": (32, 64)}, untuned="raise")

    with sk.sanitize():
        tuned(x)
        with pytest.raises(TuningError, match="NOT_TIMED"):
            tuned.tune(x)
    assert np.array_equal(x, np.arange(10) + 1)


def refers_to(answer: Any) -> None:
    sk.autotune(add_one, {"BLOCK": (32,)}, reference=lambda x: answer).tune.using(rounds=1)(np.ones(32, np.float32))


NO_SPACE: list[tuple[Callable[[], Any], str]] = [
    (lambda: sk.autotune(add_one, 3), "`space` is 3"),
    (lambda: sk.autotune(add_one, {"BLOCK": (32,)}, where=3), "`where` is 3"),
    (lambda: sk.autotune(add_one, {"BLOCK": (32,)}, reference=3), "`reference` is 3"),
    (lambda: sk.autotune(add_one, {"BLOCK": (32,)}, tolerance=-1), "`tolerance` is -1"),
    (lambda: sk.autotune(add_one, {}), "no candidate"),
    (lambda: sk.autotune(add_one, []), "no candidate"),
    (lambda: sk.autotune(add_one, {"BLOCK": 64}), r"`space\['BLOCK'\]` is 64"),
    (lambda: sk.autotune(add_one, [{"BLOCK": 64}, {"STEP": 2}]), "different names"),
    (lambda: sk.autotune(add_one, [{"BLOCK": 64}, 3]), "holds 3"),
    (lambda: sk.autotune(add_one, {"BLOK": (32,)}), "did you mean"),
    (lambda: sk.autotune(add_one, {1: (32, 64)}), "has the names"),
    (lambda: sk.autotune(add_one, {"BLOCK": (32,)}, key=3), "`key` is 3"),
    (lambda: sk.autotune(add_one, {"BLOCK": (32,)}, key=None), "`key` is None"),
    (lambda: sk.autotune(add_one, {"BLOCK": (32,)}, record=3), "`record` is 3"),
    (lambda: sk.autotune(add_one, {"BLOCK": (32,)}, tolerance=True), "`tolerance` is True"),
    (lambda: sk.autotune(add_one, {"BLOCK": (32,)}).tune.using(seed="x"), "`seed` is 'x'"),
    (lambda: sk.autotune(add_one, {"BLOCK": (32,)}).tune.using(executor=ThreadPoolExecutor), "not an executor"),
    (
        lambda: sk.autotune(add_one, {"BLOCK": (32,)}, where=lambda m: np.ones(3))[1](np.ones(32, np.float32)),
        "True or False",
    ),
    (lambda: refers_to(np.ones(3, np.float32)), "return numbers of shape"),
    (lambda: refers_to(np.array([None] * 32)), "return numbers of shape"),
    (lambda: sk.autotune(add_one, {"BLOCK": (32, 32)}), "written alike"),
    (lambda: sk.autotune(factory, {"width": range(400), "wrong": range(400)}), "160000 candidates"),
    (lambda: sk.autotune(add_one.specialize(BLOCK=32), {"BLOCK": (32,)}), "fixed"),
    (lambda: sk.autotune(lambda w: w, {"w": (1,)}).config_for(), "factory gives 1"),
    (lambda: sk.autotune(add_one, {"BLOCK": (32,)}, key=["n"]).config_for(np.zeros(3, np.float32)), "names `n`"),
    (
        lambda: sk.autotune(add_one, {"BLOCK": (32,)}, where=lambda m: False).config_for(np.zeros(3, np.float32)),
        "where",
    ),
    (
        lambda: sk.autotune(add_one, {"BLOCK": (32,)}, key=lambda m: [object()]).config_for(np.zeros(3, np.float32)),
        "known by its address only",
    ),
    (lambda: sk.autotune(3, {"BLOCK": (32,)}), "not a kernel or a factory"),
    (lambda: sk.autotune(add_one, {"BLOCK": (32,)}, key="x"), "not a list of names"),
    (lambda: sk.autotune(add_one, {"BLOCK": (32,)}, untuned="search"), "'default' or 'raise'"),
    (lambda: sk.autotune(add_one, {"BLOCK": (32,)}).tune.using(method="best"), "not one of"),
    (lambda: sk.autotune(add_one, {"BLOCK": (32,)}).tune.using(executor=3), "not an executor"),
    (lambda: sk.autotune(add_one, {"BLOCK": (32,)}).tune.using(rounds=0), "rounds"),
    (lambda: sk.autotune(add_one, {"BLOCK": (32,)}).tune.using(compile_seconds=0), "compile_seconds"),
    (lambda: sk.autotune(add_one, {"BLOCK": (32,)}).tune.using(progress=3), "progress"),
]


@pytest.mark.parametrize(("make", "word"), NO_SPACE)
def test_what_cannot_be_searched_is_refused(make: Callable[[], Any], word: str) -> None:
    with pytest.raises(sk.StagekitError, match=word):
        make()


def test_it_decorates_a_kernel(x: np.ndarray) -> None:
    @sk.autotune(space={"BLOCK": (32,)})
    @sk.jit
    def kernel(x: sk.Tensor((None,), sk.float32), BLOCK: sk.constexpr):
        """Doubles."""
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=BLOCK))
        x[sk.cuda.thread_idx("x") % 10] = 1

    kernel(x)
    assert np.array_equal(x, np.ones(10))
    assert ("Doubles.", "<stagekit tuned kernel, 1 candidates>") == (kernel.__doc__, repr(kernel))


def test_a_terminal_without_tqdm_has_no_bar(monkeypatch: pytest.MonkeyPatch, x: np.ndarray) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    assert "timed" == sk.autotune(add_one, {"BLOCK": (32,)}).tune.using(rounds=1)(x).trials[0].outcome


def test_a_bar_is_shown_where_it_is_asked_for_and_none_in_a_pipe(
    capfd: pytest.CaptureFixture[str], x: np.ndarray
) -> None:
    pytest.importorskip("tqdm", reason="a progress bar needs tqdm, the extra `tune`")
    tuned = sk.autotune(add_one, {"BLOCK": (32, 64)})

    tuned.tune.using(rounds=1)(x)
    assert ("", "") == capfd.readouterr()
    tuned.tune.using(rounds=1, progress=True)(x)
    shown = capfd.readouterr()
    assert "" == shown.out
    assert all(f"{stage}:" in shown.err for stage in ("compile", "check", "time"))
    assert re.search(r"\d+/\d+ \[\d\d:\d\d<", shown.err)  # the time that has passed, and what is left


def test_optuna_chooses_what_to_try(x: np.ndarray) -> None:
    pytest.importorskip("optuna", reason="the method needs Optuna, the extra `tune`")
    tuned = sk.autotune(add_one, {"BLOCK": (32, 64, 96), "STEP": (1, 2)}, where=lambda meta: meta["BLOCK"] != 96)

    found = quick(tuned, method="optuna", trials=12)(x)

    assert {"timed", "wrong"} >= {each.outcome for each in found.trials}
    assert all(each.config["BLOCK"] != 96 for each in found.trials)


def test_a_chart_shows_the_candidates(tmp_path: Path, x: np.ndarray) -> None:
    pytest.importorskip("matplotlib", reason="charts need matplotlib, the extra `bench`")

    figure = quick(sk.autotune(add_one, {"BLOCK": (32, 64)}))(x).plot(tmp_path / "trials.svg")

    assert {"BLOCK=32", "BLOCK=64"} == {label.get_text() for label in figure.axes[0].get_yticklabels()}


@pytest.mark.gpu
def test_candidates_on_a_gpu_are_compared_and_restored() -> None:
    n = 1 << 20
    x, out = sk.cuda.to_device(np.arange(n, dtype=np.float32)), sk.cuda.to_device(np.zeros(n, np.float32))
    tuned = sk.autotune(factory, {"width": (256, 1024), "wrong": (False, True)}, key=["n"])

    def grid(meta):
        return (sk.cdiv(meta["n"], meta["width"]),)

    found = tuned.tune.using(rounds=5, progress=False)[grid](x, out, n)

    assert ["timed", "wrong", "timed", "wrong"] == [each.outcome for each in found.trials]
    assert not out.to_host().any()
    tuned[grid](x, out, n)
    assert np.array_equal(out.to_host(), 2 * np.arange(n, dtype=np.float32))
