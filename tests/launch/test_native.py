"""What a native launcher must honour beside its arguments: brackets, switches, what was captured, threads, lifetimes."""

from __future__ import annotations

import gc
import inspect
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import BuiltinFunctionType
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from stagekit.runtime import native_process
from tests.launch.calls import Exporter, OldExporter

pytestmark = [
    pytest.mark.skipif(not native_process.is_available(), reason="no native launchers here"),
    pytest.mark.stagekit_unchecked(reason="what native launchers do; checked launches never are"),
]

STEP = 1
n = sk.dynamic("n")


@sk.jit
def add_step(x, out, BLOCK: sk.constexpr):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    sk.store(out + i, sk.load(x + i, mask=i < x.size) + STEP, mask=i < x.size)


def make_fill(value: float) -> Any:
    @sk.function
    def fill(out: sk.Tensor((n,), sk.float32)):
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(n, 64), block=64))
        i = sk.cuda.block_idx("x") * 64 + sk.cuda.thread_idx("x")
        if i < n:
            out[i] = value

    return fill


def launched(kernel: Any, count: int = 100) -> Any:
    out = np.zeros(count, np.float32)
    kernel(out)
    return out


def warm_fill(value: float) -> Any:
    kernel = make_fill(value)
    for _ in range(3):
        launched(kernel)
    assert kernel._native.without_brackets is not None
    return kernel


def test_a_launch_gives_none_and_takes_no_reference() -> None:
    kernel, out = warm_fill(3), np.zeros(10, np.float32)
    before = sys.getrefcount(out), sys.getrefcount(None)

    for _ in range(1000):
        assert kernel(out) is None

    assert sys.getrefcount(out) == before[0]
    assert abs(sys.getrefcount(None) - before[1]) < 100


def test_a_changed_global_gives_a_new_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    x, out = np.zeros(64, np.float32), np.zeros(64, np.float32)
    for _ in range(3):
        add_step[(1,)](x, out, 64)
    assert out[0] == 1

    for value in (5, 7, 1):
        monkeypatch.setitem(globals(), "STEP", value)
        for _ in range(3):
            add_step[(1,)](x, out, 64)
            assert out[0] == value


def test_dtypes_and_constexprs_alternate_behind_the_same_brackets() -> None:
    for _ in range(4):
        for dtype in (np.float32, np.int32, np.float64):
            for block in (64, 128):
                x, out = np.arange(64, dtype=dtype), np.zeros(64, dtype)
                add_step[(1,)](x, out, block)
                assert (out == x + STEP).all()


LATER_DTYPES = """
import sys
import numpy as np
import stagekit as sk
from stagekit.runtime.native_process import process

@sk.jit(target="cpu")
def double(x, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    sk.store(x + i, sk.load(x + i) + sk.load(x + i))

def launch(x):
    for _ in range(4):
        double[1,](x, 8)
    return float(x[1])

assert launch(np.ones(8, np.float32)) == 16
assert "ml_dtypes" not in sys.modules, "nothing needed it so far"
import ml_dtypes
assert launch(np.ones(8, ml_dtypes.bfloat16)) == 16
known = process().get("dtype_bfloat16"), process().get("scalar_bfloat16")
assert known == (id(np.dtype(ml_dtypes.bfloat16)), id(ml_dtypes.bfloat16)), known
"""


def test_launchers_know_dtypes_of_a_library_that_is_imported_later(tmp_path: Path) -> None:
    program = tmp_path / "later.py"
    program.write_text(LATER_DTYPES)

    subprocess.run([sys.executable, str(program)], check=True)


def test_more_specialisations_than_one_callable_knows_do_not_make_it_anew_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @sk.jit
    def fill(out, VALUE: sk.constexpr):
        out[0] = VALUE

    made, make = [], native_process.make_callable
    monkeypatch.setattr(native_process, "make_callable", lambda *given: made.append(given) or make(*given))
    out = np.zeros(1, np.int32)
    for _ in range(60):
        for value in range(12):
            fill[1, 1](out, VALUE=value)
            assert out[0] == value

    assert 8 <= len(made) <= 12


def test_native_code_keeps_the_signature_and_the_doc() -> None:
    @sk.jit
    def documented(x, n: sk.int32 = 4, *, SCALE: sk.constexpr = 2.5, FLAG: sk.constexpr = None):
        """Scale each element."""
        x[sk.cuda.thread_idx("x")] *= SCALE * n

    for _ in range(3):
        documented[1, 8](np.ones(8, np.float32))

    launch = documented[1, 8]
    assert type(launch) is BuiltinFunctionType
    assert launch.__doc__ == "Scale each element."
    assert str(inspect.signature(launch)) == "(x, n=4, *, SCALE=Ellipsis, FLAG=None)"
    assert repr(launch).startswith("<built-in method documented[1, 8] of stagekit launch object")


def test_brackets_that_are_new_need_no_launch_the_general_way(monkeypatch: pytest.MonkeyPatch) -> None:
    x, out = np.zeros(640, np.float32), np.zeros(640, np.float32)
    for _ in range(3):
        add_step[(1,)](x, out, 64)
    monkeypatch.setattr(type(add_step), "_launch", lambda *_: pytest.fail("the general way"))

    add_step[(10,)](x, out, 64)

    assert out.min() == 1


@pytest.mark.parametrize("key", [1.0, (1.0,), (None,), "1", (1, 2, 3, 4), -1, (-1,)])
def test_wrong_brackets_are_refused_however_often_the_right_ones_were_launched(key: Any) -> None:
    kernel, x, out = add_step.specialize(BLOCK=64), np.zeros(64, np.float32), np.zeros(64, np.float32)
    for _ in range(3):
        kernel[(1,)](x, out)
        kernel[1](x, out)

    with pytest.raises(sk.LaunchError):
        kernel[key](x, out)


def test_a_switch_of_the_environment_is_seen_at_the_next_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, targets = warm_fill(2), []
    general = type(kernel).kernel_for
    monkeypatch.setattr(type(kernel), "kernel_for", lambda *a: targets.append(1) or general(*a))
    launched(kernel)
    assert not targets

    monkeypatch.setenv("STAGEKIT_TARGET", "interp")
    assert launched(kernel).max() == 2
    monkeypatch.delenv("STAGEKIT_TARGET")
    launched(kernel)

    assert len(targets) == 1


def test_a_sanitizer_gets_the_launches_of_its_own_thread() -> None:
    kernel = warm_fill(2)

    with sk.sanitize() as watch:
        launched(kernel)
        other = threading.Thread(target=launched, args=(kernel,))
        other.start()
        other.join()
    launched(kernel)

    assert len(watch.reports) == 1


@pytest.mark.parametrize("kind", [Exporter, OldExporter])
def test_arrays_that_only_speak_dlpack_are_launched_natively(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, out = warm_fill(2), np.zeros(10, np.float32)
    kernel(kind(out))
    monkeypatch.setattr(type(kernel), "_launch", lambda *_: pytest.fail("the general way"))
    out[:] = 0
    before = sys.getrefcount(out)

    for _ in range(100):
        assert kernel(kind(out)) is None

    assert (out == 2).all()
    assert sys.getrefcount(out) == before


def test_threads_launch_at_the_same_time() -> None:
    kernel, wrong = warm_fill(4), []

    def work() -> None:
        wrong.extend(1 for _ in range(300) if not (launched(kernel, 1000) == 4).all())

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_a_fork_launches() -> None:
    kernel = warm_fill(4)
    launched(kernel, 1_000_000)

    child = os.fork()
    if not child:
        os._exit(0 if (launched(kernel, 1_000_000) == 4).all() else 1)
    _, status = os.waitpid(child, 0)

    assert status == 0


def test_a_large_grid_is_run_whole() -> None:
    assert (launched(warm_fill(4), 3_000_000) == 4).all()


def test_dropping_a_kernel_drops_its_launchers() -> None:
    kernel = warm_fill(9)
    machine = weakref.ref(next(iter(kernel._native._known)))

    del kernel
    gc.collect()

    assert machine() is None


def test_a_launcher_in_hand_outlives_its_kernel() -> None:
    kernel = warm_fill(9)
    launch = kernel._native.without_brackets

    del kernel
    gc.collect()

    assert (launched(launch) == 9).all()
    with pytest.raises(sk.ArgumentError, match="`out`"):
        launch([1.0])


def test_a_prepared_launch_reads_the_arrays_as_they_are_then_and_keeps_them() -> None:
    x, out = np.zeros(64, np.float32), np.zeros(64, np.float32)
    launch = add_step.prepare[(1,)](x, out, BLOCK=64)
    x += 10
    seen = weakref.ref(x)
    del x
    gc.collect()

    assert launch() is None

    assert seen() is not None
    assert out.min() == out.max() == 10 + STEP


KINDS: dict[str, Callable[[Any], Any]] = {
    "jit": lambda kernel: kernel,
    "specialised": lambda kernel: kernel.specialize(),
    "bound": lambda kernel: sk.compile(kernel, "cpu"),
    "interpreted": lambda kernel: sk.compile(kernel, "interp"),
    "checked": sk.sanitize,
    "checked and bound": lambda kernel: sk.sanitize(sk.compile(kernel, "cpu")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_preparing_checks_like_launching(kind: str) -> None:
    """Whatever kind of kernel it is, a prepared launch has read its arguments."""

    @sk.jit
    def fill(out: sk.Tensor((None,), sk.float32)):
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=1))
        out[0] = 4

    kernel, out = KINDS[kind](fill), np.zeros(1, np.float32)
    with pytest.raises(sk.ArgumentError, match="`out`"):
        kernel.prepare([1.0])
    with pytest.raises(sk.ArgumentError, match="TOO_MANY_ARGUMENTS"):
        kernel.prepare(out, out)

    kernel.prepare(out)()

    assert out[0] == 4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("args", "kwargs"), [((1,), {}), ((), {"out": 1}), ((1, 2), {"x": 3})])
def test_a_prepared_launch_refuses_arguments_in_words(kind: str, args: Any, kwargs: Any) -> None:
    """R25: native or not."""

    @sk.jit
    def fill(out: sk.Tensor((None,), sk.float32)):
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=1))
        out[0] = out[0] + 1

    out = np.zeros(1, np.float32)
    launch = KINDS[kind](fill).prepare(out)
    launch()
    with pytest.raises(sk.StagekitError) as caught:
        launch(*args, **kwargs)
    assert caught.value.id == "WRONG_ARGUMENTS"
    launch()
    assert out[0] == 2


def test_a_launch_prepared_of_a_checked_kernel_is_one_of_its_session() -> None:
    kernel, x, out = sk.sanitize(add_step, nan=False), np.zeros(64, np.float32), np.zeros(64, np.float32)
    launch = kernel.prepare[(1,)](x, out, BLOCK=64)
    assert not kernel.sanitizer.reports

    launch()
    launch()

    assert len(kernel.sanitizer.reports) == 2
    assert kernel.report is kernel.sanitizer.reports[-1]
