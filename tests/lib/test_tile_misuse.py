"""What NumPy's habits make of tiles: it works on every element, or the error names what does."""

from __future__ import annotations

import numpy as np
import pytest

import stagekit as sk
from tests.places import each_place, run

ELEMENTWISE = {  # and what NumPy makes of the same
    "abs": (lambda v, w: abs(v), np.abs),
    "round": (lambda v, w: round(v), np.rint),
    "int": (lambda v, w: int(v), np.trunc),
    "float": (lambda v, w: float(v), lambda v: v),
    "min": (lambda v, w: min(v, w, 1.5), lambda v: np.minimum(np.minimum(v, -v), 1.5)),
    "max": (lambda v, w: max(0.5, v, w), lambda v: np.maximum(np.maximum(0.5, v), -v)),
    "len": (lambda v, w: v * 0 + len(v), lambda v: v * 0 + len(v)),
}


@sk.jit
def applied(src, dst, BLOCK: sk.constexpr, FUNCTION: sk.constexpr):
    i = sk.arange(0, BLOCK)
    v = sk.load(src + i)
    sk.store(dst + i, FUNCTION(v, -v))


@each_place
@pytest.mark.parametrize(("function", "in_numpy"), ELEMENTWISE.values(), ids=ELEMENTWISE)
@pytest.mark.parametrize("block", [1, 37, 1500])
def test_functions_of_python_take_tiles_element_by_element(place, function, in_numpy, block):
    x = ((np.arange(block) % 23) / 4 - 3).astype(np.float32)

    _, out = run(place, applied[(1,)], [x, np.zeros_like(x)], block, function)

    np.testing.assert_array_equal(out, in_numpy(x))


@sk.jit
def misused(p, q, n, PROGRAM: sk.constexpr):
    i = sk.arange(0, 8)
    PROGRAM(p, q, n, i, sk.load(p + i))


def put(p, i, value):
    p[i] = value


def summing(start):
    def program(p, q, n, i, v):
        acc = start
        for _ in range(n):
            acc = acc + v
        sk.store(p + i, acc)

    return program


REFUSED = {
    "index": (lambda p, q, n, i, v: p[i], "BAD_INDEX", "read `sk.load(p + i)`"),
    "index to store": (lambda p, q, n, i, v: put(p, i, 1), "BAD_INDEX", "write `sk.store(p + i, value)`"),
    "tile into an element": (lambda p, q, n, i, v: put(p, 0, v), "BAD_OPERANDS", "`sk.store(p + i, v)`"),
    "index of a tile": (lambda p, q, n, i, v: v[0, 0], "BAD_INDEX", "an integer for each axis"),
    "items": (lambda p, q, n, i, v: list(v), "NOT_ITERABLE", "`sk.reduce_sum(v)`"),
    "sum": (lambda p, q, n, i, v: sum(v), "NOT_ITERABLE", "`sk.reduce_sum(v)`"),
    "max of one": (lambda p, q, n, i, v: max(v), "NOT_ITERABLE", "`sk.reduce_max(v)`"),
    ".sum": (lambda p, q, n, i, v: v.sum(), "NO_ATTRIBUTE", "here it is `sk.reduce_sum(v)`"),
    ".max": (lambda p, q, n, i, v: v.max(), "NO_ATTRIBUTE", "here it is `sk.reduce_max(v)`"),
    ".min": (lambda p, q, n, i, v: v.min(), "NO_ATTRIBUTE", "here it is `sk.reduce_min(v)`"),
    ".mean": (lambda p, q, n, i, v: v.mean(), "NO_ATTRIBUTE", "here it is `sk.reduce_sum(v) / len(v)`"),
    ".dot": (lambda p, q, n, i, v: v.dot(v), "NO_ATTRIBUTE", "here it is `sk.dot(v, w)` of matrices"),
    "np.mean": (lambda p, q, n, i, v: np.mean(v), "NOT_CALLABLE", "here it is `sk.reduce_sum(v) / len(v)`"),
    "round to digits": (lambda p, q, n, i, v: round(v, 1), "BAD_CALL", "takes no digits"),
    "reduction in a combiner": (
        lambda p, q, n, i, v: sk.reduce(v, lambda a, b: a + b * sk.reduce_max(v)),
        "BAD_CALL",
        "the combiner of `reduce` needs other threads",
    ),
    "barrier in a combiner": (
        lambda p, q, n, i, v: sk.scan((v, v), lambda a, b: (sk.syncthreads(), a)[1], identity=(0, 0)),
        "BAD_CALL",
        "the combiner of `scan` needs other threads",
    ),
    "tile from a combiner": (
        lambda p, q, n, i, v: sk.reduce(v, lambda a, b: a + b * v),
        "STATIC_ASSERTION",
        "the combiner gives a tile",
    ),
    "dtype by name": (
        lambda p, q, n, i, v: sk.full(8, 1, "float32"),
        "STATIC_ASSERTION",
        "full: dtype must be one of real numbers",
    ),
    "zeros by name": (lambda p, q, n, i, v: sk.zeros(8, "float32"), "STATIC_ASSERTION", "zeros: dtype must be a dtype"),
    "to by name": (lambda p, q, n, i, v: v.to("int32"), "STATIC_ASSERTION", ".to: dtype must be a dtype"),
    "shape of zeros": (lambda p, q, n, i, v: sk.zeros("8", sk.int8), "STATIC_ASSERTION", "zeros: shape must be"),
    "shape of full": (lambda p, q, n, i, v: sk.full((8, 2.0), 1, sk.int8), "STATIC_ASSERTION", "full: shape must be"),
    "run-time shape": (lambda p, q, n, i, v: sk.zeros((n,), sk.int8), "RUN_TIME_VALUE", "the extent of zeros"),
    "sum from 0.0": (summing(0.0), "LOOP_TYPE_CHANGE", "`acc = sk.zeros(8, sk.float32)`"),
    "sum from 2": (summing(2), "LOOP_TYPE_CHANGE", "`acc = sk.full(8, 2, sk.float32)`"),
    "sum from -inf": (summing(-float("inf")), "LOOP_TYPE_CHANGE", '`acc = sk.full(8, float("-inf"), sk.float32)`'),
    "a path": (lambda p, q, n, i, v: sk.store(p + i, v if n > 3 else 0), "JOIN_MISMATCH", "`sk.zeros(8, sk.float32)`"),
    "fill with a fraction": (lambda p, q, n, i, v: sk.load(q + i, mask=i < n, other=0.5), "BAD_OPERANDS", "`sk.int32("),
    "fill with a float": (lambda p, q, n, i, v: sk.load(q + i, mask=i < n, other=v), "BAD_OPERANDS", "`sk.int32("),
    "fill with infinity": (
        lambda p, q, n, i, v: sk.load(q, mask=n > 3, other=np.float32(-np.inf)),
        "BAD_OPERANDS",
        "`sk.int32(",
    ),
    "a count that is known late": (lambda p, q, n, i, v: sk.topk(v, n), "STATIC_ASSERTION", "got a run-time number"),
    "an offset of floats": (
        lambda p, q, n, i, v: p.tile(p[0], 8),
        "BAD_INDEX",
        "the offset of a tile along axis 0: a run-time number",
    ),
    "fill too large": (lambda p, q, n, i, v: sk.load(q, mask=n > 3, other=3e9), "BAD_OPERANDS", "`sk.int32("),
}


@pytest.mark.parametrize(("program", "name", "hint"), REFUSED.values(), ids=REFUSED)
def test_the_error_names_what_is_meant(program, name, hint):
    with pytest.raises(sk.StagekitError) as caught:
        misused.specialize(
            p=sk.Tensor((None,), sk.float32), q=sk.Pointer(sk.int32), n=sk.int32, PROGRAM=program
        ).trace()

    assert caught.value.id == name
    assert hint in str(caught.value)


@each_place
@pytest.mark.parametrize("other", [-3, -3.0, np.float64(-3)])
def test_a_whole_float_fills_integers(place, other):
    @sk.jit
    def kernel(src, dst):
        i = sk.arange(0, 8)
        sk.store(dst + i, sk.load(src + i, mask=i < 5, other=other))

    _, out = run(place, kernel[(1,)], [np.arange(8, dtype=np.int32), np.zeros(8, np.int32)])

    np.testing.assert_array_equal(out, [0, 1, 2, 3, 4, -3, -3, -3])
