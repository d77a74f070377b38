"""What an operator is told by its user, and what the kernel's own annotations say.

shape, dtype = declared_output("demo::pairs", kernel, ("x", "known"), "out")
shape(lambda name, axis: arrays[name].shape[axis])       the sizes of `out`, in those that the inputs bind
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stagekit.diagnostics import shown
from stagekit.dtypes import DType
from stagekit.frontend.markers import Dynamic, SizeExpr, SizeOp, Tensor
from stagekit.jit.launchable import Launchable
from stagekit.operators.errors import BadOperand, OperatorError, refused

SizeOf = Callable[[str, int], Any]
"""From an input and an axis to its size: a number, or a symbol of the library."""


def names_of(name: str, option: str, given: str | Iterable[str]) -> tuple[str, ...]:
    """Return the name or names that an option of the operator `name` gives, as a tuple."""
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (given,)
    if not all(isinstance(each, str) for each in names):
        raise refused(name, f"`{option}` is {shown(given)}", "give a name, or several names")
    return names


def parameters_of(name: str, function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a function, each of which must have a name."""
    if not callable(function):
        raise refused(name, f"{shown(function)} is no function", "give a function that launches a kernel, or a kernel")
    parameters = dict(inspect.signature(function).parameters)
    for each in parameters.values():
        if each.kind not in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
            raise refused(name, f"the parameter `{each}` has no name of its own", "name each parameter")
    return parameters


def asked_of(name: str, output: str, how: Callable[..., Any], inputs: tuple[str, ...]) -> list[str]:
    """Return the inputs that a function which makes an output asks for, by the names of its parameters."""
    asked = list(inspect.signature(how).parameters)
    if unknown := [each for each in asked if each not in inputs]:
        problem = f"what makes `{output}` asks for `{unknown[0]}`, which is no input"
        raise refused(name, problem, f"the inputs are {', '.join(inputs)}")
    return asked


def require_input(name: str, output: str, how: str, inputs: tuple[str, ...]) -> None:
    """Refuse an output that is to be like what is no input."""
    if how not in inputs:
        problem = f"`{output}` is to be like `{how}`, which is no input"
        raise refused(name, problem, f"the inputs are {', '.join(inputs)}")


def shape_of(name: str, given: str, array: Any, axis: int = -1) -> tuple[Any, ...]:
    """Return the shape of an input by which an output is made: it must be there, and have this axis. given: its name."""
    if array is None or len(array.shape) <= axis:
        problem = "is None" if array is None else f"of shape {tuple(array.shape)} has no axis {axis}"
        raise OperatorError(BadOperand(name, given, f"{problem}, and an output is made by it", "pass an array"))
    return tuple(array.shape)


def known_constexprs(kernel: Launchable) -> dict[str, Any]:
    """Return the constexprs of a kernel that are known before a call."""
    defaults = {each.name: each.default for each in kernel.parameters.constexprs if each.default is not ...}
    return {**defaults, **kernel.__stagekit_fixed__}


# -- outputs by annotation ----------------------------------------------------------------------------------------------


def declared_output(
    name: str, function: Callable[..., Any], inputs: tuple[str, ...], output: str
) -> tuple[Callable[[SizeOf], list[Any]], DType, str]:
    """Return what a kernel's annotation says of an output: its sizes, its dtype, and the first input that is an array."""
    advice = f'say what makes it: `outputs={{"{output}": "x"}}`, or a function of the inputs'
    if not isinstance(function, Launchable):
        raise refused(name, f"nothing says what `{output}` is", advice)
    arrays = {each: _tensor_of(function, each) for each in (*inputs, output)}
    wanted = arrays[output]
    if wanted is None:
        raise refused(name, f"`{output}` is not annotated as an `sk.Tensor`", advice)
    places = {
        size: (each, axis)
        for each in inputs
        if (array := arrays[each]) is not None
        for axis, size in enumerate(array.shape)
        if isinstance(size, Dynamic)
    }
    unbound = {size for each in wanted.shape if isinstance(each, SizeExpr) for size in each.symbols()} - places.keys()
    if unbound or None in wanted.shape:
        which = f"`{min(map(repr, unbound))}`" if unbound else "None"
        raise refused(name, f"the size {which} of `{output}` is that of no input", advice)
    first = next(each for each in inputs if arrays[each] is not None)
    sizes = wanted.shape
    return lambda size_of: [_value(size, places, size_of) for size in sizes], wanted.dtype, first


def _value(size: Any, places: Mapping[Dynamic, tuple[str, int]], size_of: SizeOf) -> Any:
    if isinstance(size, SizeOp):
        return getattr(operator, size.kind)(*[_value(each, places, size_of) for each in size.args])
    return size_of(*places[size]) if isinstance(size, Dynamic) else size


def _tensor_of(kernel: Launchable, name: str) -> Tensor | None:
    """Return the annotation of an array parameter that is always there."""
    if name not in {each.name for each in kernel.parameters.run_time}:
        return None
    meaning = kernel.parameters.meaning(name, known_constexprs(kernel))
    return meaning if isinstance(meaning, Tensor) else None
