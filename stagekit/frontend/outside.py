"""The language outside kernels, so that a fragment can be tried in plain Python: what is pure computes, as a kernel folds it.

    sk.maximum(2, 3.5)                      3.5
    sk.exp(np.zeros(3, np.float32))         an array, element by element
    sk.int32(3e9)                           np.int32(2147483647)

Memory, barriers and indices mean something only inside a kernel: they have no result here, and are refused.
"""

from __future__ import annotations

import itertools
import linecache
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from stagekit.diagnostics import OUTSIDE, CallError, Loc, frame_of_user, shown
from stagekit.dtypes import DType, NotConvertible, bool_, dtype_from_numpy, float64
from stagekit.frontend import language
from stagekit.frontend.errors import BadOperands
from stagekit.frontend.evaluation import Site
from stagekit.frontend.numbers import converted, is_literal, meet
from stagekit.frontend.overloads import bind, fold, known, no_overload, same_shape, sample
from stagekit.frontend.parts import describe
from stagekit.frontend.source import characters
from stagekit.frontend.values import STAND_INS
from stagekit.ir import Intrinsic


class Outside(Site):
    """The place of a call in ordinary Python, looked up where an error needs it. It has no frame and no tracer."""

    __slots__ = ()

    def __init__(self) -> None:
        pass

    @property
    def loc(self) -> Loc:
        caller = frame_of_user()
        return place_in(caller.f_code, caller.f_lasti, caller.f_lineno)

    def static(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return self.by_python(fn, args, kwargs)


def place_in(code: types.CodeType, lasti: int, line: int) -> Loc:
    """Return the place of an instruction of CPython's. line: that of the frame, where the code tells no span."""
    first, last, start, end = (
        n or 0 for n in next(itertools.islice(code.co_positions(), lasti // 2, None), (0, 0, 0, 0))
    )
    first, last = first or line, last or line
    start, end = (characters(linecache.getline(code.co_filename, n), at) for n, at in ((first, start), (last, end)))
    return Loc(code.co_filename, first, start, last, end, code.co_name)


def _has_run_time(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether an argument is a stand-in: a function that CPython runs in a trace may hold some."""
    return any(issubclass(type(value), STAND_INS) for value in (*args, *kwargs.values()))


def _intrinsic(spec: Intrinsic, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not spec.is_elementwise or _has_run_time(args, kwargs):
        return NotImplemented
    site = Outside()
    values, params = bind(site, spec, list(args), kwargs)
    if any(sample(value) is None for value in values):
        raise no_overload(site, spec, values)
    return fold(site, spec, values, params)


# -- the language's own functions -----------------------------------------------------------------------------------------


def _staged(function: language.Staged, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    run = _STAGED.get(function)
    if run is None or _has_run_time(args, kwargs):
        return NotImplemented
    site = Outside()
    bound = language.bind(site, function.name, function.signature, args, kwargs)
    return site.by_python(run, (site, *bound.args), bound.kwargs)


def _where(site: Site, condition: Any, if_true: Any, if_false: Any) -> Any:
    """Carry out `where`, of arrays element by element. Unlike `numpy.where` it takes dtypes that meet as operands do."""
    given = condition, if_true, if_false
    if np.ndarray not in map(type, given):
        return language.where.run(site, *given)
    if any(sample(value) is None for value in given):
        raise site.error(BadOperands("where", ", ".join(map(describe, given)), "give numbers and arrays of them"))
    dtype, _ = meet(sample(if_true), sample(if_false), site.loc)
    typed = [known(site, value, to) for value, to in zip(given, (bool_, dtype, dtype), strict=True)]
    return np.where(*same_shape(site, "where", typed))


_STAGED: dict[language.Staged, Callable[..., Any]] = {
    language.where: _where,
    language.static_range: lambda site, *bounds: language.static_range.run(site, *bounds).values,
    language.static_assert: language.static_assert.run,
    language.static_print: lambda site, *values: print(*values),  # noqa: T201
}


# -- conversions ----------------------------------------------------------------------------------------------------------


def _convert(dtype: DType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Carry out `dtype(value)` of a number, an array, or a sequence of numbers."""
    (value,) = args
    try:
        if dtype.part is not None:
            return np.array(value, dtype.numpy)[()]
        if is_literal(value):
            return converted(value, dtype)
        return np.array(_converted_array(np.asarray(value), dtype))[()]
    except Exception:  # the methods of a user's object may raise anything
        raise CallError(NotConvertible(dtype.name, shown(value))) from None


def _converted_array(array: Any, dtype: DType) -> Any:
    """Return an array as one of `dtype`. Objects, such as fractions or large ints, are converted one by one."""
    if array.dtype.kind == "O":
        each = np.frompyfunc(lambda item: converted(item if isinstance(item, int) else float(item), dtype), 1, 1)
        return np.asarray(each(array), dtype.numpy)
    is_wide = array.dtype.kind == "f" and array.dtype.itemsize > float64.itemsize
    source = float64 if is_wide else dtype_from_numpy(array.dtype.newbyteorder("="))
    if source is None:
        raise TypeError(f"{array.dtype} holds no numbers")
    return converted(array.astype(source.numpy), dtype)


OUTSIDE.update({Intrinsic: _intrinsic, language.Staged: _staged, DType: _convert})
