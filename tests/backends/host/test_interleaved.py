"""Vectors of one thread, whose groups lie interleaved in memory: as the interpreter loads, computes and stores them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.backends.host import memory


def _kernel(width: int, dtype, body):
    vector = sk.Tensor((None,), dtype)

    @sk.jit
    def kernel(x: vector, y: vector, z: vector, a: dtype):
        i = sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")
        if i * width + width <= z.shape[0]:
            body(x.vector(width), y.vector(width), z.vector(width), z, a, i)

    return kernel


def by_element(x, y, z, elements, a, i):
    z[i] = a * x[i] + y[i] - 2


def in_place(x, y, z, elements, a, i):
    z[i] = z[i] * x[i]
    z[i] = z[i] + y[i]


def with_what_lanes_have(x, y, z, elements, a, i):
    lanes = y[i]
    z[i] = x[i] * lanes[1]


def across(x, y, z, elements, a, i):
    v, total = x[i], y[i]
    z[i] = v + total[0]
    elements[i * len(v)] = v[len(v) - 1]


def as_they_are(x, y, z, elements, a, i):
    z[i] = x[i]


def converted(x, y, z, elements, a, i):
    z[i] = (x[i].to(sk.float32) * 0.5 + 1).to(elements.dtype)


BODIES = (by_element, in_place, with_what_lanes_have, across, as_they_are, converted)
DTYPES = (sk.float32, sk.float64, sk.int32, sk.int16, sk.uint8)
KERNELS = {
    (width, dtype.name, body.__name__): _kernel(width, dtype, body)
    for width in (2, 4, 8)
    for dtype in DTYPES
    for body in BODIES
}


@settings(max_examples=60, deadline=None)
@given(
    key=st.sampled_from(sorted(KERNELS)),
    block=st.sampled_from((1, 31, 32, 64, 96)),
    more=st.integers(0, 9),
    is_in_place=st.booleans(),
)
def test_groups_are_what_the_interpreter_makes_of_them(key, block: int, more: int, is_in_place: bool) -> None:
    width, name, _ = key
    size = 2 * block * width + more
    results = [_run(sk.compile(KERNELS[key], target), name, block, size, is_in_place) for target in ("cpu", "interp")]
    np.testing.assert_array_equal(*results)


def _run(kernel, name: str, block: int, size: int, is_in_place: bool) -> np.ndarray:
    x, y, z = np.random.default_rng(0).integers(0, 9, (3, size)).astype(name)
    out = x if is_in_place else z
    kernel[3, block](x, y, out, 3)
    return out


@pytest.mark.parametrize("width", [2, 4])
def test_what_is_done_by_element_picks_no_elements(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGEKIT_CACHE", "0")
    monkeypatch.setattr(memory, "_chunk", lambda *_: pytest.fail("a chunk was put together"))
    _run(sk.compile(KERNELS[width, "float32", "by_element"], "cpu"), "float32", 64, 200 * width, is_in_place=False)
