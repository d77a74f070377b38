"""More shared memory than 48 KiB, beside what the launch gives, by every way of launching; more than any GPU has is refused."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from tests.places import Place, each_place, fetch

THREADS = 256
LARGE = 20_480  # float32: 80 KiB, and half as much beside it


def kernel(x, out, N: sk.constexpr):
    """out[i] = 2 * x[N - 1 - i] + x[THREADS - 1 - i % THREADS], by way of three arrays that are in use together."""
    all_of_it, half = sk.alloc_shared((N,), sk.float32), sk.alloc_shared((N // 2,), sk.float32)
    given = sk.dynamic_shared(sk.float32, (THREADS,))
    t = sk.cuda.thread_idx("x")
    given[t] = x[t]
    for i in range(t, N, THREADS):
        all_of_it[i] = x[i]
        half[i // 2] = x[i // 2]
    sk.syncthreads()
    for i in range(t, N, THREADS):
        place = N - 1 - i
        out[i] = all_of_it[place] + (half[place] if place < N // 2 else all_of_it[place]) + given[THREADS - 1 - t]


@sk.jit
def turned(x, out, N: sk.constexpr):
    kernel(x, out, N)


@sk.jit
def turned_of_its_own(x, out, given: sk.int32, N: sk.constexpr):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=THREADS, shared_bytes=given))
    kernel(x, out, N)


GIVEN = 4 * THREADS
WAYS: dict[str, Callable[[Any, Any, int], None]] = {
    "brackets": lambda x, out, given: turned[1, THREADS, given](x, out, LARGE),
    "a kernel from a pickle": lambda x, out, given: pickle.loads(pickle.dumps(turned))[1, THREADS, given](
        x, out, LARGE
    ),
    "device_entry": lambda x, out, given: turned_of_its_own(x, out, given, LARGE),
    "prepare": lambda x, out, given: turned.prepare[1, THREADS, given](x, out, LARGE)(),
}


@pytest.mark.parametrize("sanitized", [False, True], ids=["plain", "sanitized"])
@pytest.mark.parametrize("way", WAYS)
@each_place
def test_large_arrays_lie_beside_what_the_launch_gives(place: Place, way: str, sanitized: bool) -> None:
    x = np.arange(LARGE, dtype=np.float32) % 1000
    expected = 2 * x[::-1] + np.tile(x[:THREADS][::-1], LARGE // THREADS)
    source, out = place(x), place(np.zeros_like(x))

    for _ in range(1 if sanitized else 3):  # the later ones natively
        if sanitized:
            with sk.sanitize():
                WAYS[way](source, out, GIVEN)
        else:
            WAYS[way](source, out, GIVEN)

    np.testing.assert_array_equal(fetch(out), expected)


@pytest.mark.parametrize("sanitized", [False, True], ids=["plain", "sanitized"])
@pytest.mark.parametrize("way", WAYS)
@each_place
def test_more_than_any_gpu_has_in_all_is_refused(place: Place, way: str, sanitized: bool) -> None:
    x = place(np.zeros(LARGE, np.float32))

    for given in (GIVEN, 200_000, 200_000):  # the later ones natively, if at all
        if given == GIVEN and not sanitized:
            WAYS[way](x, x, given)
            continue
        with (
            sk.sanitize() if sanitized else contextlib.nullcontext(),
            pytest.raises(sk.LaunchError, match="SHARED_MEMORY_LIMIT"),
        ):
            WAYS[way](x, x, 200_000)


@pytest.mark.gpu
def test_a_graph_keeps_the_shared_memory_of_its_launches() -> None:
    torch = pytest.importorskip("torch")
    x, out = torch.ones(LARGE, device="cuda"), torch.zeros(LARGE, device="cuda")
    launch = turned.prepare[1, THREADS, GIVEN](x, out, LARGE)
    graph = torch.cuda.CUDAGraph()

    with torch.cuda.graph(graph):
        launch()
    x.fill_(5)
    graph.replay()

    assert out.min() == out.max() == 15
