"""Complex numbers: which values are some, and what kernels see of them, objects of the library that hold two floats.

    in_parts(2j)                  ComplexNumber(0.0, 2.0)
    in_parts(np.complex64(1))     ComplexNumber(np.float32(1), np.float32(0))
    in_parts(x)                   x, where it is no complex number that is known

Python computes with its own complex numbers as long as all operands are known. `lib/complexes.py` does everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stagekit.frontend.numbers import is_numeric
from stagekit.frontend.values import mapper_of

KINDS: set[Any] = {complex, np.complex64, np.complex128}  # and the library's own
PYTHONS_NUMBERS = frozenset({complex, bool, int, float})  # with which Python itself computes where all are known


class ComplexLibrary:
    """What the library makes: a number of its two parts; an array of one whose last axis are the parts; a number of a complex
    dtype and of what is converted to it.
    """

    number: Callable[[Any, Any], Any]
    array: Callable[[Any], Any]
    converted: Any


def complex_values(number: Any, array: Any, converted: Any) -> None:
    """Have kernels see complex numbers and arrays of them as objects of these classes of the library."""
    ComplexLibrary.number, ComplexLibrary.array, ComplexLibrary.converted = (
        staticmethod(number),
        staticmethod(array),
        staticmethod(converted),
    )
    KINDS.add(number)


def is_complex(value: Any) -> bool:
    """Return whether this is a complex number that is known."""
    return issubclass(type(value), (complex, np.complexfloating))  # `isinstance` would ask the object


def in_parts(value: Any) -> Any:
    """Return a complex number that is known as kernels see one; any other value unchanged."""
    return ComplexLibrary.number(value.real, value.imag) if is_complex(value) else value


def are_apart(left: Any, right: Any) -> bool:
    """Return whether an operand beside a complex one holds many numbers, as tiles and vectors do: real ones."""
    return any(mapper_of(each) and type(each) not in KINDS for each in (left, right))


def operands(left: Any, right: Any) -> tuple[Any, Any]:
    """Return operands, of which one is complex, as they meet: known ones by their parts, unless Python computes with both."""
    if {type(left), type(right)} <= PYTHONS_NUMBERS:
        return left, right
    are_numbers = all(is_numeric(each) or type(each) in KINDS for each in (left, right))
    return (in_parts(left), in_parts(right)) if are_numbers else (left, right)
