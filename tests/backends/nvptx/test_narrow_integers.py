"""Narrow integers wrap before they are widened, whatever the version of ptxas."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import stagekit as sk
from tests.places import each_place, run

NARROW = {"int8": sk.int8, "int16": sk.int16}
WRAPPING = {
    "-x": operator.neg,
    "0 - x": lambda x: 0 - x,
    "x * -1": lambda x: x * -1,
    "abs(x)": abs,
    "-abs(x)": lambda x: -abs(x),
    "-(x + 1) - x": lambda x: -(x + 1) - x,
    "~x + 1": lambda x: ~x + 1,
    "max(x, -x)": lambda x: sk.maximum(x, -x),
    "x + x": lambda x: x + x,
    "x - 3 * x": lambda x: x - 3 * x,
    "x << 1": lambda x: x << 1,
}
READING = {
    "widened": sk.int64,
    "shifted": lambda x: sk.int64(x >> 1),
    "divided": lambda x: sk.int64(x // 3),
    "as a float": lambda x: sk.int64(sk.float64(x)),
    "compared": lambda x: sk.int64(x < 0),
}


@sk.jit
def kernel(source, out, n, F: sk.constexpr, READ: sk.constexpr):
    i = sk.cuda.block_idx("x") * 256 + sk.cuda.thread_idx("x")
    if i < n:
        out[i] = READ(F(source[i]))


def in_numpy(f, read, x):
    with np.errstate(over="ignore"):
        value = f(x) if f is not WRAPPING["max(x, -x)"] else np.maximum(x, -x)
    readers = {"widened": np.int64, "shifted": lambda v: np.int64(v >> 1), "divided": lambda v: np.int64(v // 3)}
    readers |= {"as a float": lambda v: np.int64(np.float64(v)), "compared": lambda v: np.int64(v < 0)}
    return readers[read](value.astype(x.dtype))


@each_place
@pytest.mark.parametrize("read", READING)
@pytest.mark.parametrize("how", WRAPPING)
@pytest.mark.parametrize("dtype", NARROW)
def test_every_narrow_integer_wraps_before_it_is_read(place, dtype, how, read):
    info = np.iinfo(dtype)
    x = np.arange(info.min, info.max + 1).astype(dtype)
    f = WRAPPING[how]

    _, out = run(
        place, kernel[-(-x.size // 256), 256], [x, np.zeros(x.size, np.int64)], x.size, F=f, READ=READING[read]
    )

    np.testing.assert_array_equal(out, in_numpy(f, read, x))


@pytest.mark.parametrize("how", WRAPPING)
@pytest.mark.parametrize("dtype", NARROW)
def test_what_ptxas_translates_wrongly_is_not_written(dtype, how):
    """`neg.s16` and `abs.s16`: see `backends.nvptx.ptxas_faults`."""
    types = {"source": sk.Tensor((None,), NARROW[dtype]), "out": sk.Tensor((None,), sk.int64), "n": sk.int32}

    ptx = kernel.specialize(F=WRAPPING[how], READ=sk.int64, **types).ptx

    assert "neg.s16" not in ptx
    assert "abs.s16" not in ptx
