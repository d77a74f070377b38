"""One launch as a value: what stands in the brackets, and every argument by name. It can be run, copied, and shown as code."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stagekit import cuda
from stagekit.dtypes import DType, dtype_from_numpy

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Launch:
    """One launch. brackets: None for a kernel that computes its own. arguments: constexprs too, in the order of the call.

    helpers: arguments from which others were made; a kernel without a parameter of that name is not given it.
    """

    brackets: Any
    arguments: Mapping[str, Any]
    helpers: frozenset[str] = frozenset()

    @property
    def arrays(self) -> dict[str, Array]:
        return {name: value for name, value in self.arguments.items() if isinstance(value, np.ndarray)}

    def fresh(self) -> Launch:
        """Return the same launch with copies of the arrays, of the same strides."""

        def copied(value: Any) -> Any:
            if isinstance(value, np.ndarray) and not value.flags.c_contiguous:
                return strided(value, element_strides(value))
            return copy.copy(value)

        copies = {name: copied(value) for name, value in self.arguments.items()}
        return Launch(self.brackets, copies, self.helpers)

    def of(self, kernel: Any) -> Launch:
        """Return the same launch without the helpers that `kernel` does not take."""
        known = inspect.signature(kernel).parameters
        taken = {n: v for n, v in self.arguments.items() if n in known or n not in self.helpers}
        return Launch(self.brackets, taken)

    def run(self, kernel: Any) -> None:
        """Launch `kernel`; its outputs are in `arrays` afterwards."""
        self._call(kernel, self.of(kernel).arguments)

    def run_on_gpu(self, kernel: Any) -> None:
        """Launch `kernel` on copies of the arrays on the GPU, in C order, and copy them back."""
        there = {name: cuda.to_device(array) for name, array in self.arrays.items()}
        self._call(kernel, {**self.of(kernel).arguments, **there})
        for name, array in self.arrays.items():
            array[...] = there[name].to_host()

    def _call(self, kernel: Any, arguments: Mapping[str, Any]) -> None:
        launcher = kernel if self.brackets is None else kernel[self.brackets]
        launcher(**arguments)

    def code(self, name: str) -> str:
        """Return Python code that launches the kernel called `name` this way."""
        lines = [f"{argument} = {array_code(array)}" for argument, array in self.arrays.items()]
        if any(not array.flags.c_contiguous for array in self.arrays.values()):
            lines.insert(0, "from stagekit.testing import strided")
        brackets = "" if self.brackets is None else repr(self.brackets)
        if isinstance(self.brackets, tuple) and len(self.brackets) > 1:
            brackets = brackets[1:-1]
        given = (f"{n}={n if n in self.arrays else _value_code(v)}" for n, v in self.arguments.items())
        return "\n".join([*lines, f"{name}{brackets and f'[{brackets}]'}({', '.join(given)})"])

    def __repr__(self) -> str:
        return f"Launch({self.code('kernel')})"


def strided(array: Array, strides: Sequence[int]) -> Array:
    """Return the contents of `array` in memory of its own with these strides, in elements; they may be negative."""
    steps = [(size - 1) * stride for size, stride in zip(array.shape, strides)] if array.size else []
    low = sum(step for step in steps if step < 0)
    length = sum(abs(step) for step in steps) + 1
    memory = np.zeros(length * array.itemsize, np.uint8)
    bytes_ = [stride * array.itemsize for stride in strides]
    view: Array = np.ndarray(array.shape, array.dtype, memory.data, -low * array.itemsize, bytes_)
    view[...] = array
    return view


def element_strides(array: Array) -> list[int]:
    return [step // array.itemsize for step in array.strides]


# -- as code ----------------------------------------------------------------------------------------------------------


def _value_code(value: Any) -> str:
    if isinstance(value, DType):
        return f"sk.{value.name}"
    if isinstance(value, np.generic):
        return f"{_dtype_code(value.dtype)}({_number(value.item())})"
    if isinstance(value, float):
        return _number(value)
    return str(getattr(value, "__name__", None) or repr(value))


def array_code(array: Array) -> str:
    """Return an expression that makes this array."""
    plain = _plain_code(np.ascontiguousarray(array).reshape(array.shape))
    return plain if array.flags.c_contiguous else f"strided({plain}, {tuple(element_strides(array))})"


def _plain_code(array: Array) -> str:
    dtype = _dtype_code(array.dtype)
    shape = repr(array.shape[0] if array.ndim == 1 else array.shape)
    numbers = [x.item() for x in array.reshape(-1)]
    if not numbers:
        return f"np.zeros({shape}, {dtype})"
    if len(numbers) > 1 and len(set(map(repr, numbers))) == 1:
        return f"np.full({shape}, {_number(numbers[0])}, {dtype})"
    reshape = "" if array.ndim == 1 else f".reshape({shape})"
    first = numbers[0]
    if len(numbers) > 2 and _is_counting(numbers):
        return f"np.arange({int(first)}, {int(first) + len(numbers)}).astype({dtype}){reshape}"
    return f"np.array([{', '.join(map(_number, numbers))}], {dtype}){reshape}"


def _is_counting(numbers: Sequence[Any]) -> bool:
    first = numbers[0]
    is_whole = not isinstance(first, bool) and math.isfinite(first) and first == int(first)
    return is_whole and all(x == first + i for i, x in enumerate(numbers))


def _number(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": "np.nan", "inf": "np.inf", "-inf": "-np.inf"}[repr(value)]
    return repr(value)


def _dtype_code(dtype: np.dtype[Any]) -> str:
    """Return an expression for a dtype: those of ml_dtypes are reached through ours."""
    known = dtype_from_numpy(dtype)
    if known is not None and (known.is_float and not hasattr(np, known.name)):
        return f"sk.{known.name}.numpy"
    return f"np.{dtype.name}"
