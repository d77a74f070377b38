"""Native launches of torch tensors on a real GPU: values, streams, graphs, and what must go the general way."""

from __future__ import annotations

import gc
import importlib.util
import threading
from typing import Any

import numpy as np
import pytest

import stagekit as sk

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]

n = sk.dynamic("n")


@sk.function
def add_one(x: sk.Tensor((n,), sk.float32), out: sk.Tensor((n,), sk.float32)):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(n, 128), block=128))
    i = sk.cuda.block_idx("x") * 128 + sk.cuda.thread_idx("x")
    if i < n:
        out[i] = x[i] + 1


@sk.jit
def scale(x, out, factor, count, BLOCK: sk.constexpr):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    sk.store(out + i, sk.load(x + i, mask=i < count) * factor, mask=i < count)


def warm(torch: Any) -> None:
    for count in (1000, 999) * 3:  # 1000 elements move 16 bytes at a time, 999 have code of their own
        x = torch.arange(count, dtype=torch.float32, device="cuda")
        add_one(x, torch.empty_like(x))
        scale[(4,)](x, torch.empty_like(x), 2.0, count, 256)
    assert add_one._native.without_brackets is not None
    assert scale._native.find((4,)) is not None


@pytest.fixture
def torch() -> Any:
    import torch as module

    warm(module)
    return module


@pytest.fixture
def only_native(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for kernel in (add_one, scale):
        monkeypatch.setattr(type(kernel), "_launch", lambda *_: pytest.fail("the general way"))


@pytest.mark.usefixtures("only_native")
@pytest.mark.parametrize("count", [1, 2, 127, 1000, 100_000])
def test_values(count: int, torch: Any) -> None:
    x = torch.rand(count, device="cuda")
    out, scaled = torch.zeros_like(x), torch.zeros_like(x)

    add_one(x, out=out)
    scale[(sk.ceildiv(count, 256),)](x, scaled, 3.0, count, BLOCK=256)

    assert torch.equal(out, x + 1)
    assert torch.equal(scaled, x * 3)


@pytest.mark.usefixtures("only_native")
def test_the_current_stream_is_used(torch: Any) -> None:
    stream, x = torch.cuda.Stream(), torch.zeros(1 << 20, device="cuda")
    out = torch.empty_like(x)
    torch.cuda.synchronize()

    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x += 1
        add_one(x, out)
    torch.cuda.current_stream().synchronize()
    stream.synchronize()

    assert out.min() == out.max() == 2


@pytest.mark.usefixtures("only_native")
def test_parameters_and_their_gradients_flags_do_not_matter(torch: Any) -> None:
    x = torch.ones(5, device="cuda", requires_grad=True)
    out = torch.empty(5, device="cuda")

    add_one(x, out)

    assert out.tolist() == [2.0] * 5


def test_a_prepared_launch_is_captured_in_a_graph(torch: Any) -> None:
    x, out = torch.ones(300, device="cuda"), torch.zeros(300, device="cuda")
    launch = add_one.prepare(x, out)
    graph = torch.cuda.CUDAGraph()

    with torch.cuda.graph(graph):
        launch()
    x.fill_(41)
    graph.replay()

    assert out.min() == out.max() == 42


def test_a_tensor_that_stands_for_its_negative_is_not_read_as_it_lies(torch: Any) -> None:
    """The imaginary part of a conjugate: memory holds the other sign."""
    negated = torch.tensor([1 + 2j], device="cuda").conj().imag
    out = torch.zeros(1, device="cuda")
    assert negated.is_neg()

    with pytest.raises(sk.ArgumentError, match="resolve_neg"):
        add_one(negated, out)
    add_one(negated.resolve_neg(), out)

    assert out.item() == -1


@pytest.mark.parametrize("wrong", ["double", "cpu", "short", "strided", "numpy", "list"])
def test_wrong_tensors_are_refused_in_the_words_of_the_general_way(wrong: str, torch: Any) -> None:
    x = torch.ones(10, device="cuda")
    value = {
        "double": x.double(),
        "cpu": x.cpu(),
        "short": x[1:],
        "strided": torch.ones(20, device="cuda")[::2],
        "numpy": x.cpu().numpy(),
        "list": [1.0],
    }[wrong]
    if wrong == "strided":
        add_one(x, value)
        assert value.tolist() == [2.0] * 10
        return

    with pytest.raises(sk.ArgumentError) as native:
        add_one(x, value)
    with pytest.raises(sk.ArgumentError) as general:
        add_one._launch(None, (x, value), {})

    assert str(native.value) == str(general.value)


def test_threads_launch_one_kernel_at_a_time_each_its_own(torch: Any) -> None:
    results: list[bool] = []

    def work(value: int) -> None:
        x = torch.full((1000,), float(value), device="cuda")
        out = torch.zeros_like(x)
        for _ in range(200):
            add_one(x, out)
        torch.cuda.synchronize()
        results.append(bool((out == value + 1).all()))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == [True] * 6


def test_launches_keep_nothing(torch: Any) -> None:
    x, out = torch.ones(1 << 20, device="cuda"), torch.empty(1 << 20, device="cuda")
    add_one(x, out)
    torch.cuda.synchronize()
    gc.collect()
    before = torch.cuda.memory_allocated()

    for _ in range(1000):
        add_one(torch.ones(1 << 20, device="cuda"), out)
    torch.cuda.synchronize()
    gc.collect()

    assert torch.cuda.memory_allocated() == before


def test_the_entry_is_chosen_by_tensors_and_kept_by_a_graph(torch: Any) -> None:
    @sk.jit
    def turned(x: sk.Pointer(sk.float32), out: sk.Pointer(sk.float32), n, BLOCK: sk.constexpr):  # type: ignore[no-untyped-def, valid-type]
        i = sk.arange(0, BLOCK)
        entry = 1 if sk.speculate(x, multiple_of=16) and sk.speculate(n % 4 == 0) else 2
        sk.store(out + i, sk.load(x + (BLOCK - 1 - i)) * entry)

    x, out = torch.arange(40, dtype=torch.float32, device="cuda"), torch.zeros(32, device="cuda")
    order = np.random.default_rng(2).integers(0, 3, 30)
    for which in order:
        start, n = ((0, 8), (1, 8), (0, 9))[which]
        turned[1](x[start:], out, n, 32)
        assert torch.equal(out, x[start : start + 32].flip(0) * (1 if which == 0 else 2))

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        turned[1](x, out, 8, 32)
        turned[1](x[1:], out, 8, 32)
    out.zero_()
    graph.replay()
    assert torch.equal(out, x[1:33].flip(0) * 2)
