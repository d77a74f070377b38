"""Streams and graphs of cuda.core on a real GPU: both may stand in the brackets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stagekit as sk

core = pytest.importorskip("cuda.core", reason="cuda-python has no cuda.core")
if not hasattr(core, "Device"):
    pytest.skip("cuda.core is older than 1.0", allow_module_level=True)

pytestmark = pytest.mark.gpu
N = sk.dynamic("n")


@sk.jit
def scale(x: sk.Tensor((N,), sk.float32), out: sk.Tensor((N,), sk.float32), factor: sk.float32):
    i = sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")
    if i < x.shape[0]:
        out[i] = x[i] * factor


@pytest.fixture
def stream() -> Any:
    device = core.Device(0)
    device.set_current()
    return device.create_stream()


def numbers(size: int) -> tuple[Any, Any]:
    host = np.arange(size, dtype=np.float32)
    return host, sk.cuda.to_device(host)


@pytest.mark.parametrize("size", [1, 1000])
def test_a_launch_is_in_the_stream_in_the_brackets(stream: Any, size: int) -> None:
    host, x = numbers(size)
    out = sk.cuda.empty(size, sk.float32)
    for factor in (2.0, 3.0, 4.0, 5.0):  # the general way, and machine code
        scale[4, 256, 0, stream](x, out, factor)
        stream.sync()
        np.testing.assert_array_equal(out.to_host(), factor * host)


@pytest.mark.parametrize("is_prepared", [False, True])
def test_launches_in_a_graph_builder_are_in_its_graph(stream: Any, is_prepared: bool) -> None:
    host, x = numbers(1000)
    between, out = sk.cuda.empty(1000, sk.float32), sk.cuda.empty(1000, sk.float32)
    scale[4, 256](x, out, 1.0)  # it is compiled and loaded, which no capture allows
    builder = stream.create_graph_builder()
    launch = scale.prepare[4, 256, 0, builder] if is_prepared else scale[4, 256, 0, builder]
    made = [launch(x, between, 2.0), launch(between, out, 3.0)] if is_prepared else []

    builder.begin_building()
    if is_prepared:
        for each in made:
            each()
    else:
        launch(x, between, 2.0)
        launch(between, out, 3.0)
    graph = builder.end_building().complete()
    np.testing.assert_array_equal(out.to_host(), host)  # nothing has run yet

    graph.launch(stream)
    stream.sync()
    np.testing.assert_array_equal(out.to_host(), 6 * host)
    scale[4, 256, 0, stream](out, x, 1.0)  # new numbers in the same memory
    graph.launch(stream)
    stream.sync()
    np.testing.assert_array_equal(out.to_host(), 36 * host)
