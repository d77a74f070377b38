"""Arrays of rows for tests of the shelf: of any length and dtype, apart or not, on the CPU, a GPU or the checking interpreter."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.kernels import host, normalizing
from tests.places import fetch

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(np.float32), np.dtype(np.float16), BFLOAT16]
EPS = {np.dtype(np.float32): 2**-24, np.dtype(np.float16): 2**-11, BFLOAT16: 2**-8}  # of one rounding, relative

lengths = st.sampled_from([1, 2, 31, 32, 33, 100, 255, 256, 257, 1000, 1024, 1025, 3000]) | st.integers(1, 600)
few = settings(max_examples=settings.default.max_examples // 16, deadline=None)  # 6, or as many as the profile asks for


def each_place(test: Any) -> Any:
    """Run the test on the CPU, under the sanitizer, and on a GPU where there is one."""
    places = ["cpu", "sanitizer", pytest.param("gpu", marks=pytest.mark.gpu)]
    return pytest.mark.parametrize("place", places)(test)


def run(place: str, function: Any, *arrays: Any, **named: Any) -> Any:
    """Return what `function` of these gives, as NumPy arrays; what it writes into arrays of a GPU is copied to those given."""
    if place == "sanitizer":
        with sk.sanitize():
            return function(*arrays, **named)
    if place == "cpu":
        return function(*arrays, **named)
    on_gpu = {id(a): sk.cuda.to_device(a) for a in (*arrays, *named.values()) if isinstance(a, np.ndarray)}
    found = function(
        *[on_gpu.get(id(a), a) for a in arrays], **{name: on_gpu.get(id(a), a) for name, a in named.items()}
    )
    for array in (*arrays, *named.values()):
        if id(array) in on_gpu:
            array[...] = fetch(on_gpu[id(array)])
    if found is None:  # it works in place
        return None
    return tuple(each if each is None else fetch(each) for each in found) if isinstance(found, tuple) else fetch(found)


@contextlib.contextmanager
def tiles(data: Any) -> Iterator[None]:
    """Draw whether a row fits a tile, or whether tiles are so small that most rows take several, as on a GPU or on the CPU."""
    with pytest.MonkeyPatch.context() as patched:
        small = data.draw(st.sampled_from([None, 16, 64, 200]))
        if small is not None:
            patched.setattr(host, "MAX_TILE", 16)
            patched.setattr(host, "STREAMED_TILE", small)
            patched.setattr(host, "REREAD_TILE", small)
            for kept in ("KEPT_OF_SOFTMAX", "KEPT_OF_NORMS"):
                patched.setattr(normalizing, kept, data.draw(st.sampled_from([(16, 16), (1000, 1000)])))
        yield


@st.composite
def rows(draw: Any, columns: int, dtype: np.dtype, place: str = "cpu", count: int | None = None) -> np.ndarray:
    """Draw an array of rows, apart or not; a GPU's own arrays have no gaps."""
    count = draw(st.integers(1, 4)) if count is None else count
    gap = 0 if place == "gpu" else draw(st.integers(0, 3))
    scale = draw(st.sampled_from([1.0, 30.0, 1e-3]))
    values = np.random.default_rng(draw(st.integers(0, 2**31))).normal(size=(count, columns + gap)) * scale
    return values.astype(dtype)[:, :columns]


def assert_near(found: np.ndarray, exact: np.ndarray, *, ulps: float, absolute: float = 0.0) -> None:
    """Compare with the exact result: `ulps` roundings of the dtype, and `absolute` beside them."""
    assert found.shape == exact.shape
    bound = np.abs(exact) * (ulps * EPS[found.dtype]) + absolute + float(np.finfo(np.float32).tiny)
    smallest = 2.0**-24 if found.dtype == np.float16 else 0.0
    error = np.abs(found.astype(np.float64) - exact)
    assert (error <= bound + smallest).all(), f"{error.max()} at {np.unravel_index(error.argmax(), error.shape)}"
