"""No operand value ends the process: division by zero, INT_MIN / -1, shifts, conversions, in lanes on and off."""

from __future__ import annotations

import numpy as np
import pytest

from stagekit import dtypes
from stagekit.dtypes import DType
from stagekit.ir import BinaryKind, Builder, CompareKind, Value, semantics
from tests.backends.host.kernels import array, kernel, number, thread, when
from tests.backends.host.running import compiled, run

DIVISIONS = (BinaryKind.FLOORDIV, BinaryKind.MOD)
SHIFTS = (BinaryKind.SHL, BinaryKind.SHR)


def _edges(dtype: DType) -> list[int]:
    return [0, 1, 2, 3, 7, dtype.max, dtype.min, dtype.max - 1, *([-1, -2, -7] if dtype.is_signed else [])]


@pytest.mark.parametrize("dtype", dtypes.INTEGER_DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("kind", [*DIVISIONS, *SHIFTS], ids=lambda k: k.value)
def test_p29_every_pair_of_edges_divides_and_shifts_alike(dtype: DType, kind: BinaryKind) -> None:
    """As vectors, and with one operand the same for the whole block."""

    def body(b: Builder, x: Value, y: Value, vector: Value, fixed: Value, both: Value, one: Value) -> None:
        t = thread(b)
        left, right = b.load(b.offset(x, t)), b.load(b.offset(y, t))
        b.store(b.offset(vector, t), b.binary(kind, left, right))
        b.store(b.offset(fixed, t), b.binary(kind, left, one))
        b.store(b.offset(both, t), b.binary(kind, one, one))

    pairs = [(a, c) for a in _edges(dtype) for c in _edges(dtype)]
    x, y = (np.array(side, dtype.numpy) for side in zip(*pairs, strict=True))
    runner = compiled(kernel(*[array(dtype)] * 5, number(dtype), body=body), (len(pairs), 1, 1))
    for fixed in _edges(dtype):
        outputs = [np.zeros_like(x) for _ in range(3)]
        one = np.array([fixed], dtype.numpy)[0]
        assert runner([x, y, *outputs, one], (1, 1, 1)) == 0
        np.testing.assert_array_equal(outputs[0], semantics.binary(kind, dtype, x, y))
        np.testing.assert_array_equal(outputs[1], semantics.binary(kind, dtype, x, np.full_like(x, one)))
        np.testing.assert_array_equal(outputs[2], np.full_like(x, semantics.binary(kind, dtype, one, one)))
    runner.close()


@pytest.mark.parametrize("block", [1, 7, 32, 50])
@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.int64], ids=lambda d: d.name)
def test_a_lane_that_is_off_does_not_divide(block: int, dtype: DType) -> None:
    """The divisor is zero exactly where the guard is false, and in the lanes behind the block."""

    def body(b: Builder, x: Value, y: Value) -> None:
        t = thread(b)
        divisor = b.load(b.offset(x, t))
        with when(b, b.compare(CompareKind.NE, divisor, b.constant(0, dtype))):
            b.store(b.offset(y, t), b.binary(BinaryKind.FLOORDIV, b.constant(100, dtype), divisor))

    x = (np.arange(block) % 3).astype(dtype.numpy)
    y = np.full(block, -1, dtype.numpy)
    run(kernel(array(dtype), array(dtype), body=body), [x, y], (1, 1, 1), (block, 1, 1))

    assert [100 // d if d else -1 for d in x.tolist()] == y.tolist()


@pytest.mark.parametrize("target", dtypes.INTEGER_DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("source", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
def test_floats_become_integers_by_saturation(source: DType, target: DType) -> None:
    values = np.array([0.0, -0.0, 0.9, -0.9, 1e30, -1e30, np.inf, -np.inf, np.nan, 2**31, -(2**31), 2**63, 200, -1])
    x = values.astype(source.numpy)

    def body(b: Builder, x: Value, y: Value) -> None:
        t = thread(b)
        b.store(b.offset(y, t), b.cast(b.load(b.offset(x, t)), target))

    y = np.zeros(len(x), target.numpy)
    run(kernel(array(source), array(target), body=body), [x, y], (1, 1, 1), (len(x), 1, 1))

    np.testing.assert_array_equal(y, semantics.cast(x, source, target))
