"""Fixing constexprs: in steps, in any order, by values of the declared kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest

import stagekit as sk


@sk.jit
def digits(out, A: sk.constexpr, B: sk.constexpr, C: sk.constexpr = 1):
    out[0] = A * 100 + B * 10 + C


@pytest.mark.parametrize("order", ["CAB", "ACB", "CBA", "BCA"])
def test_the_same_values_give_the_same_object_in_any_order(order):
    values = {"A": 1, "B": 2, "C": 3}

    kernel = digits
    for name in order:
        kernel = kernel.specialize(**{name: values[name]})

    assert kernel is digits.specialize(**values)


def test_a_call_of_a_partial_shares_the_kernels_of_the_whole():
    out = np.zeros(1, np.int32)

    digits.specialize(A=4)[1, 1](out, 5)
    before = digits.cache_size
    digits[1, 1](out, 4, 5)

    assert (out[0], digits.cache_size) == (451, before)


def test_what_is_fixed_stays_fixed():
    partial = digits.specialize(A=1)

    assert partial.specialize(A=1, B=2) is digits.specialize(A=1, B=2)
    with pytest.raises(sk.SpecializeError, match="it is fixed to 1 already"):
        partial.specialize(A=2)


def test_a_misspelt_constexpr_of_a_call_is_named():
    with pytest.raises(sk.ArgumentError, match="no parameter `BB`(.|\n)*did you mean `B`"):
        digits[1, 1](np.zeros(1, np.int32), A=1, BB=2)


CLASSES = {
    "int": (int, (1, -(2**70)), (True, 1.0, "1", None, np.int32(1))),
    "bool": (bool, (True,), (1, np.True_)),
    "union": (int | None, (3, None), (True, "x")),
    "generic": (tuple[int, ...], ((), (1, 2)), (1, None)),
    "callable": (Callable[[int], int], (abs, lambda v: v), (1,)),
    "dtype": (sk.DType, (sk.float32,), ("float32", np.float32)),
    "object": (object, (1, True, None, "x"), ()),
}


@pytest.mark.parametrize(("wanted", "good", "bad"), CLASSES.values(), ids=CLASSES)
def test_a_constexpr_with_a_type_takes_values_of_that_type_only(wanted, good, bad):
    @sk.jit
    def kernel(out, VALUE: sk.constexpr[wanted]):
        out[0] = 1

    for value in good:
        kernel[1, 1](np.zeros(1, np.int32), value)
    for value in bad:
        with pytest.raises(sk.SpecializeError, match="BAD_CONSTEXPR"):
            kernel.specialize(VALUE=value)


@pytest.mark.parametrize("annotation", [3, "int", Literal["a"], int | Literal["a"]])
def test_the_brackets_of_constexpr_hold_classes(annotation):
    @sk.jit
    def kernel(out, VALUE: sk.constexpr[annotation]):
        out[0] = 1

    with pytest.raises(sk.SpecializeError, match="BAD_ANNOTATION"):
        kernel.specialize(VALUE="a")


def test_a_default_is_checked_like_a_value():
    @sk.jit
    def kernel(out, VALUE: sk.constexpr[int] = "a"):
        out[0] = 1

    with pytest.raises(sk.SpecializeError, match="BAD_CONSTEXPR"):
        kernel[1, 1](np.zeros(1, np.int32))


class _Unhashable:
    def __hash__(self) -> int:
        raise ValueError("never")


@pytest.mark.parametrize("value", [[1], {1: 2}, {1}, (1, [2]), _Unhashable()], ids=lambda v: type(v).__name__)
def test_a_value_that_can_change_is_no_constexpr(value):
    @sk.jit
    def kernel(out, VALUE: sk.constexpr):
        out[0] = 1

    with pytest.raises(sk.SpecializeError, match="it is not hashable"):
        kernel.specialize(VALUE=value)
