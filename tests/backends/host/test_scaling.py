"""What formulas multiply by powers of two in two steps is one instruction with AVX-512, and the bits are the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from stagekit import dtypes
from stagekit.backends.host import scaling
from stagekit.backends.host.compiler import compile_for
from stagekit.backends.host.target import this_processor
from stagekit.dtypes import DType
from stagekit.intrinsics.expansions import power_of_two
from stagekit.intrinsics.terms import Term
from stagekit.ir import Builder, Function, Scalar, Value, ops, walk
from tests.backends.host.kernels import array, call, global_thread, kernel
from tests.backends.host.running import CPU, Runner, lower

FLOATS = pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
BLOCK = (64, 1, 1)


def mapped(dtype: DType, function: Callable[[Builder, Value], Value]) -> Function:
    """A kernel that stores `function` of each number, and of one number that all threads share."""

    def body(b: Builder, x: Value, y: Value, shared: Value, of_shared: Value) -> None:
        i = global_thread(b)
        b.store(b.offset(y, i), function(b, b.load(b.offset(x, i))))
        b.store(of_shared, function(b, shared))

    fn = kernel(array(dtype), array(dtype), Scalar(dtype), array(dtype), body=body)
    return lower(fn, CPU, ())


def numbers(dtype: DType) -> np.ndarray:
    """Numbers of all sizes, close together where results are subnormal, begin to be infinite, or are near 1."""
    edges = [-1080, -1022, -746, -745, -709, 709, 710, 1024, -150, -149, -126, -104, -103, -87, 88, 89, 128, 0]
    near = np.concatenate([np.linspace(edge - 1, edge + 1, 257) for edge in edges])
    wide = np.random.default_rng(0).integers(0, 1 << 63, 1 << 12, np.int64).astype(f"i{dtype.itemsize}")
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan])
    with np.errstate(over="ignore"):
        found = np.concatenate([near.astype(dtype.numpy), wide.view(dtype.numpy), special.astype(dtype.numpy)])
    return np.resize(found, -(-found.size // 64) * 64)


def run(fn: Function, x: np.ndarray, shared: np.generic) -> list[np.ndarray]:
    runner = Runner(compile_for(fn, BLOCK, this_processor()))
    found = [np.zeros_like(x), np.zeros(1, x.dtype)]
    runner([x, found[0], shared, found[1]], (x.size // 64, 1, 1))
    runner.close()
    return found


def count(fn: Function) -> int:
    return sum(isinstance(op, ops.IntrinsicOp) and op.spec is scaling.LDEXP for op in walk(fn.body))


@FLOATS
@pytest.mark.parametrize("name", ["exp", "exp2", "sigmoid"])
def test_exponentials_end_by_scaling_with_the_same_bits(
    name: str, dtype: DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    fn = mapped(dtype, lambda b, x: call(b, name, x))
    assert 2 == count(scaling.with_scaling(fn))
    if not this_processor().host_features.has_avx512:
        pytest.skip("this machine has no AVX-512")
    x = numbers(dtype)

    for shared in x[[3, 700, 2000, -1]]:
        scaled = run(fn, x, shared)
        with monkeypatch.context() as patch:
            patch.setattr("stagekit.backends.host.compiler.with_scaling", lambda fn: fn)
            plain = run(fn, x, shared)
        for one, other in zip(scaled, plain, strict=True):
            np.testing.assert_array_equal(one.view(f"u{dtype.itemsize}"), other.view(f"u{dtype.itemsize}"))


def product(kept: float = 1.0, shift: int = 1, *, is_whole: bool = True) -> Callable[[Builder, Value], Value]:
    """What a formula ends with. is_whole: whether both powers together are that of `n`."""

    def build(b: Builder, x: Value) -> Value:
        y = Term(b, x)
        n = y.cast(dtypes.int32)
        half = n >> shift
        rest = n - half if is_whole else half - n
        return ((y + kept) * power_of_two(half, y.dtype) * power_of_two(rest, y.dtype)).value

    return build


@FLOATS
def test_only_the_whole_pattern_is_replaced(dtype: DType) -> None:
    assert 2 == count(scaling.with_scaling(mapped(dtype, product())))
    for other in (product(kept=0.5), product(shift=2), product(is_whole=False)):
        fn = mapped(dtype, other)
        assert scaling.with_scaling(fn) is fn
