"""Two real GPUs: the arguments say which one, its modules and streams are its own, and a mixture is refused."""

from __future__ import annotations

import importlib.util
import threading
from typing import Any

import numpy as np
import pytest

import stagekit as sk

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(sk.cuda.device_count() < 2, reason="fewer than two GPUs"),
]
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

n = sk.dynamic("n")
COUNT = 1000


@sk.function
def add_one(x: sk.Tensor((n,), sk.float32), out: sk.Tensor((n,), sk.float32)):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(n, 128), block=128))
    i = sk.cuda.block_idx("x") * 128 + sk.cuda.thread_idx("x")
    if i < n:
        out[i] = x[i] + 1


@sk.jit
def fill(out, value, BLOCK: sk.constexpr):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    sk.store(out + i, value, mask=i < out.size)


def ours(device: int, value: float = 0.0) -> Any:
    return sk.cuda.to_device(np.full(COUNT, value, np.float32), device)


def warm() -> None:
    for _ in range(3):
        for device in (0, 1):
            add_one(ours(device), ours(device))
            fill[(4,)](ours(device), 1.0, 256)
    assert add_one._native.without_brackets is not None


def test_the_arguments_say_which_gpu() -> None:
    warm()
    for device in (1, 0, 0, 1):
        x, out = ours(device, 41 + device), ours(device)
        add_one(x, out)
        assert (out.to_host() == 42 + device).all()
        fill[(4,)](out, 5.0, 256)
        assert (out.to_host() == 5).all()


def test_both_have_a_module_of_their_own() -> None:
    warm()
    kernel = next(k for k in add_one._native._known if k.artifact.target == "cuda")

    assert {0, 1} <= set(kernel._modules)
    assert kernel._modules[0].handle != kernel._modules[1].handle


@pytest.mark.parametrize("is_warm", [False, True])
def test_arrays_of_both_are_refused(is_warm: bool) -> None:
    if is_warm:
        warm()
    with pytest.raises(sk.ArgumentError, match="cuda:") as native:
        add_one(ours(0), ours(1))
    with pytest.raises(sk.ArgumentError) as general:
        add_one._launch(None, (ours(0), ours(1)), {})

    assert str(native.value) == str(general.value)


def test_a_prepared_launch_stays_on_its_gpu() -> None:
    launches = []
    for device in (0, 1):
        x, out = ours(device, device), ours(device)
        launches.append((device, out, add_one.prepare(x, out)))
    for device, out, launch in reversed(launches):
        launch()
        assert (out.to_host() == device + 1).all()


def test_threads_launch_on_both_at_once() -> None:
    warm()
    wrong: list[int] = []

    def work(device: int) -> None:
        for value in range(100):
            x, out = ours(device, value), ours(device)
            add_one(x, out)
            wrong.extend([value] * (not (out.to_host() == value + 1).all()))

    threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


@needs_torch
def test_each_gpu_has_a_current_stream_and_the_callers_device_stays() -> None:
    import torch

    warm()
    x = [torch.zeros(1 << 20, device=f"cuda:{d}") for d in (0, 1)]
    out = [torch.empty_like(t) for t in x]
    streams = [torch.cuda.Stream(device=d) for d in (0, 1)]
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)
    torch.cuda.set_device(0)

    for device in (1, 0):
        with torch.cuda.stream(streams[device]):
            torch.cuda._sleep(50_000_000)
            x[device] += 1
            with torch.cuda.device(1 - device):  # what is current decides nothing
                add_one(x[device], out[device])
    for stream in streams:
        stream.synchronize()

    assert torch.cuda.current_device() == 0
    assert [o.min().item() for o in out] == [o.max().item() for o in out] == [2.0, 2.0]
    with pytest.raises(sk.ArgumentError, match="cuda:"):
        add_one(x[0], out[1])
