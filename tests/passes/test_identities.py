"""The tables of identities against `semantics`: all numbers of 8 bits, and all ways to cast through a dtype."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from stagekit.diagnostics import UNKNOWN
from stagekit.dtypes import ALL_DTYPES, DType, bool_, float32, float64, int8, int64, uint8, uint64
from stagekit.intrinsics import registry
from stagekit.ir import BinaryKind, Builder, CompareKind, Scalar, UnaryKind, Value, ops, semantics
from stagekit.ir.types import Type
from stagekit.passes import identities
from stagekit.passes.identities import SAME, Identity

Array = np.ndarray[Any, Any]

SMALL = (bool_, int8, uint8)
KINDS = [k for k in BinaryKind if k is not BinaryKind.DIV]
SPECIAL = (0, 1, -1, 2, 127, 128, 255, 256, 2**31 - 1, 2**31, 2**53 + 1, 2**63, -(2**63), 2**64 - 1)
SPECIAL_FLOATS = (
    0.0,
    -0.0,
    0.5,
    -1.5,
    1e-45,
    1e-310,
    448.0,
    65504.0,
    3e38,
    1e300,
    float("inf"),
    float("-inf"),
    float("nan"),
)


def all_of(dtype: DType) -> Array:
    return np.arange(dtype.min, dtype.max + 1).astype(dtype.numpy)


def is_defined(kind: BinaryKind, dtype: DType) -> bool:
    return dtype is not bool_ or kind in (BinaryKind.AND, BinaryKind.OR, BinaryKind.XOR)


OPS = [(k, d) for k, d in product(KINDS, SMALL) if is_defined(k, d)]


def check(rule: Identity, left: Array, expected: Array) -> None:
    if rule is None:
        return
    result = left if rule is SAME else np.full_like(left, rule)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(("kind", "dtype"), OPS, ids=str)
def test_identities_hold_for_every_operand_and_constant(kind: BinaryKind, dtype: DType) -> None:
    x = all_of(dtype)
    for constant in x:
        rule = identities.with_constant(kind, dtype, semantics.to_python(constant, dtype))
        right = np.full_like(x, constant)
        check(rule, x, semantics.binary(kind, dtype, x, right))
        if kind in identities.COMMUTATIVE:
            check(rule, x, semantics.binary(kind, dtype, right, x))


@pytest.mark.parametrize("dtype", [int8, uint8], ids=str)
@pytest.mark.parametrize("name", ["minimum", "maximum", "fmin", "fmax"])
def test_limits_decide_or_yield(name: str, dtype: DType) -> None:
    x = all_of(dtype)
    for constant in x:
        rule = identities.of_extremum(registry.by_name(name).extreme, dtype, int(constant))
        assert (rule is None) == (constant not in (dtype.min, dtype.max))
        check(rule, x, registry.by_name(name).evaluate(x, np.full_like(x, constant)))


def test_other_functions_and_floats_have_no_limits() -> None:
    assert identities.of_extremum(registry.by_name("mulhi").extreme, uint8, 0) is None
    assert identities.of_extremum("min", float32, float("-inf")) is None


@pytest.mark.parametrize(("kind", "dtype"), OPS, ids=str)
def test_identities_of_zero_and_of_equals_hold(kind: BinaryKind, dtype: DType) -> None:
    x = all_of(dtype)
    zero = np.zeros_like(x)

    check(identities.of_zero(kind), zero, semantics.binary(kind, dtype, zero, x))
    check(identities.of_equals(kind, dtype), x, semantics.binary(kind, dtype, x, x))


def test_the_tables_find_what_they_are_for() -> None:
    """A rule that never fires would pass the tests above."""
    found = {(k, identities.with_constant(k, int8, c)) for k in KINDS for c in (0, 1, -1)}
    kinds = {k for k, rule in found if rule is not None}

    assert set(KINDS) == kinds
    assert {(BinaryKind.MUL, 0), (BinaryKind.MUL, SAME), (BinaryKind.OR, -1), (BinaryKind.AND, SAME)} <= found


# -- comparisons ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [int8, uint8], ids=str)
@pytest.mark.parametrize("kind", CompareKind)
def test_comparisons_with_a_bound_are_known(kind: CompareKind, dtype: DType) -> None:
    x = all_of(dtype)
    known = set()
    for constant in x:
        rule = identities.of_bound(kind, dtype, int(constant))
        if rule is not None:
            known.add(rule)
            assert (semantics.compare(kind, dtype, x, np.full_like(x, constant)) == rule).all()
    assert known == {
        CompareKind.GE: {True},
        CompareKind.LE: {True},
        CompareKind.LT: {False},
        CompareKind.GT: {False},
    }.get(kind, set())


def values_of(dtype: DType) -> Array:
    numbers = SPECIAL_FLOATS if dtype.is_float else SPECIAL
    return np.array([semantics.typed(n, dtype) for n in numbers])


def made(cls: type[ops.Op], result: Type, **given: Any) -> Any:
    return cls(loc=UNKNOWN, results=(Value(result),), **given)


@pytest.mark.parametrize("dtype", [bool_, int8, uint64, float32, float64], ids=str)
@pytest.mark.parametrize("kind", CompareKind)
def test_the_opposite_comparison_is_the_negation(kind: CompareKind, dtype: DType) -> None:
    operand = Value(Scalar(dtype))
    left, right = (grid.ravel() for grid in np.meshgrid(values_of(dtype), values_of(dtype)))
    opposite = semantics.compare(kind.opposite, dtype, left, right)
    negation = semantics.unary(UnaryKind.NOT, bool_, semantics.compare(kind, dtype, left, right))

    is_equal = np.array_equal(opposite, negation)
    assert is_equal == identities.has_opposite(made(ops.Compare, Scalar(bool_), kind=kind, lhs=operand, rhs=operand))


@pytest.mark.parametrize("kind", CompareKind)
def test_a_comparison_of_equals_is_known(kind: CompareKind) -> None:
    x = values_of(int64)

    assert [kind in identities.TRUE_OF_EQUALS] * len(x) == semantics.compare(kind, int64, x, x).tolist()


# -- casts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ALL_DTYPES, ids=str)
def test_a_step_that_is_left_out_changed_nothing(source: DType) -> None:
    x = values_of(source)
    b = Builder(UNKNOWN, (Value(Scalar(source)),))
    for middle, target in product(ALL_DTYPES, ALL_DTYPES):
        first = made(ops.Cast, Scalar(middle), operand=b.current.params[0])
        if middle is not source and identities.needs_no_step(first, target):
            through = semantics.cast(semantics.cast(x, source, middle), middle, target)
            assert repr(semantics.cast(x, source, target).tolist()) == repr(through.tolist()), f"{middle} to {target}"
