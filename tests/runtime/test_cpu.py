"""A CPU launch from brackets to results (cases P21, P40, T11, Y7, Y8)."""

from __future__ import annotations

import ast
import gc
import inspect
import sys
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stagekit.diagnostics import InternalError
from stagekit.runtime.errors import ArgumentError, LaunchError
from stagekit.runtime.launch_config import LaunchConfig
from stagekit.signature import LaunchSpec
from tests.runtime.handmade import OUT, SAXPY, SAXPY_LAUNCH, VISIT, MakeKernel, binder

fixture_is_shared = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@given(n=st.integers(0, 2000), k=st.floats(-4, 4, width=32), offset=st.integers(0, 3))
@fixture_is_shared
def test_a_kernel_that_computes_its_own_grid(make_kernel: MakeKernel, n: int, k: float, offset: int) -> None:
    kernel = make_kernel("saxpy", SAXPY, style="entry", launch=SAXPY_LAUNCH)
    x, y = np.arange(n + offset, dtype=np.float32)[offset:], np.ones(n, np.float32)

    kernel.launch((x, y, k))

    np.testing.assert_array_equal(y, 1 + np.float32(k) * x)


def test_positional_keyword_and_mixed_arguments_are_the_same_launch(make_kernel: MakeKernel) -> None:
    kernel, bind = make_kernel("saxpy", SAXPY), binder("saxpy", SAXPY)
    x, y = np.ones(100, np.float32), np.zeros(100, np.float32)

    kernel.launch(bind((x, y, 1.0), {}), kernel.request(1))
    kernel.launch(bind((x,), {"k": 1.0, "y": y}), kernel.request((1,)))
    kernel.launch(bind((), {"x": x, "y": y, "k": 1}), kernel.request(LaunchConfig(1, 256)))

    np.testing.assert_array_equal(y, 3)


def test_y7_one_array_as_input_and_output_works_in_place(make_kernel: MakeKernel) -> None:
    kernel = make_kernel("saxpy", SAXPY)
    x = np.arange(100, dtype=np.float32)

    kernel.launch((x, x, 1.0), kernel.request(1))

    np.testing.assert_array_equal(x, 2 * np.arange(100))


@pytest.mark.parametrize("grid", [0, (0, 5), (5, 0), (5, 5, 0)])
def test_an_empty_grid_does_nothing_but_is_checked(make_kernel: MakeKernel, grid: Any) -> None:
    kernel = make_kernel("saxpy", SAXPY)
    x, y = np.ones(10, np.float32), np.zeros(10, np.float32)

    kernel.launch((x, y, 1.0), kernel.request(grid))

    assert not y.any()
    with pytest.raises(ArgumentError):
        kernel.launch((x, y.astype(float), 1.0), kernel.request(grid))


def test_the_kernel_sees_the_grid(make_kernel: MakeKernel) -> None:
    kernel = make_kernel("show_grid", OUT)
    out = np.zeros(3, np.int64)

    kernel.launch((out,), kernel.request((4, 3, 2)))

    assert out.tolist() == [4, 3, 2]


def test_a_grid_may_be_a_function_of_constexprs_and_arguments(make_kernel: MakeKernel) -> None:
    kernel = make_kernel("saxpy", SAXPY, values={"BLOCK": 256})
    x, y = np.ones(1000, np.float32), np.zeros(1000, np.float32)

    kernel.launch((x, y, 1.0), kernel.request(lambda a: -(-len(a["x"]) // a["BLOCK"])))

    assert (y == 1).all()
    with pytest.raises(LaunchError, match="grid x: expected an integer"):
        kernel.launch((x, y, 1.0), kernel.request(lambda a: len(a["x"]) / a["BLOCK"]))


def test_missing_brackets_are_told(make_kernel: MakeKernel) -> None:
    kernel = make_kernel("saxpy", SAXPY)
    x = np.ones(10, np.float32)

    with pytest.raises(LaunchError, match=r"saxpy\[grid\]\(...\)"):
        kernel.launch((x, x, 1.0))


def test_a_computed_launch_has_the_compiled_block(make_kernel: MakeKernel) -> None:
    other = LaunchSpec(SAXPY_LAUNCH.grid, (128, 1, 1), 0)
    kernel = make_kernel("saxpy", SAXPY, style="entry", launch=other)
    x = np.ones(10, np.float32)

    with pytest.raises(LaunchError, match="compiled for blocks of"):
        kernel.launch((x, x, 1.0))
    with pytest.raises(InternalError):
        make_kernel("saxpy", SAXPY, block=None)


def test_dynamic_shared_memory_follows_the_scratch(make_kernel: MakeKernel) -> None:
    kernel = make_kernel("scribble", OUT, style="thread", block=(32, 1, 1), scratch_bytes=256)
    out = np.full(4, -1, np.int64)

    kernel.launch((out,), kernel.request((4, 32, 256)))

    assert out.tolist() == [0, 0, 0, 0]


def test_p21_a_launch_keeps_no_reference_to_its_arguments(make_kernel: MakeKernel) -> None:
    kernel = make_kernel("saxpy", SAXPY)

    class Owner(np.ndarray):
        pass

    for n in (10, 100_000):
        x, y = (np.ones(n, np.float32).view(Owner) for _ in "xy")
        kernel._cost.value = 1e9  # through the pool, where there are two blocks
        kernel.launch((x, y, 1.0), kernel.request(-(-n // 256)))
        watch = weakref.ref(x), weakref.ref(y)
        del x, y
        gc.collect()

        assert [ref() for ref in watch] == [None, None]


def test_p21_dropping_a_kernel_frees_its_code(make_kernel: MakeKernel) -> None:
    freed = []
    kernel = make_kernel("saxpy", SAXPY, closer=lambda: freed.append(True))
    x = np.ones(10, np.float32)
    kernel.launch((x, x, 1.0), kernel.request(1))

    assert freed == []
    del kernel
    gc.collect()
    assert freed == [True]


def test_a_refused_launch_leaves_the_kernel_usable(make_kernel: MakeKernel) -> None:
    kernel, bind = make_kernel("visit", VISIT), binder("visit", VISIT)
    out = np.zeros(4, np.int64)

    for wrong in [(out,), (out, 2**70), (out, 0.5), (out[::2], 0), (out, 0, 0)]:
        with pytest.raises(ArgumentError):
            kernel.launch(bind(wrong, {}), kernel.request(4))
    kernel.launch((out, 0), kernel.request(4))

    assert out.tolist() == [1, 1, 1, 1]


def test_a_launch_asks_nothing_of_the_source(make_kernel: MakeKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Source, AST and signatures are matters of compilation: a launch that looks at them pays every time (P40)."""
    kernel = make_kernel("saxpy", SAXPY)
    x, y, brackets = np.ones(200, np.float32), np.zeros(200, np.float32), kernel.request(1)
    asked: list[str] = []
    with monkeypatch.context() as patch:  # pytest itself asks them when a test fails
        for module, name in [(ast, "parse"), (inspect, "signature"), (inspect, "getsource")]:
            patch.setattr(module, name, lambda *_, name=name, **__: asked.append(name))
        kernel.launch((x, y, 1.0), brackets)

    assert asked == []
    assert (y == 1).all()


def test_a_launch_leaves_no_garbage(make_kernel: MakeKernel) -> None:
    kernel = make_kernel("saxpy", SAXPY)
    x, y, brackets = np.ones(1000, np.float32), np.zeros(1000, np.float32), kernel.request(4)
    kernel.launch((x, y, 1.0), brackets)
    gc.collect()
    before = sys.getallocatedblocks()

    for _ in range(1000):
        kernel.launch((x, y, 1.0), brackets)

    assert sys.getallocatedblocks() - before < 300  # what CPython keeps for the next lists and tuples
