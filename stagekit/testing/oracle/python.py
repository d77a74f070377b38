"""Python's own functions as a kernel that CPython runs finds them: `range`, `min`, `int`, `math.exp`, ...

`counterpart(function)` is a copy of a user's function whose globals, builtins and closure lead to them, as do those of the
functions that it calls, under any name. Methods of the user's classes are not copied.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from stagekit import dtypes
from stagekit.diagnostics import UNKNOWN
from stagekit.dtypes import INDEX
from stagekit.frontend.errors import StagingError
from stagekit.frontend.familiar import familiar
from stagekit.frontend.values import is_fixed
from stagekit.testing.oracle.memory import OracleArray
from stagekit.testing.oracle.values import (
    NotOfBlocks,
    OracleScalar,
    OracleValue,
    as_float,
    as_int,
    call_intrinsic,
    choose,
    extreme,
    plain,
    value_of,
)  # fmt: skip


class _Range:
    """`range(...)`: its numbers are int64, uint64 where a bound is one."""

    def __init__(self, *bounds: Any, unroll: int | None = None) -> None:
        is_unsigned = any(isinstance(b, OracleScalar) and b.dtype is dtypes.uint64 for b in bounds)
        self.dtype = dtypes.uint64 if is_unsigned else INDEX
        self.values = range(*(plain(bound) for bound in bounds))

    def __iter__(self) -> Iterator[OracleValue]:
        return (value_of(value, self.dtype) for value in self.values)

    def __reversed__(self) -> Iterator[OracleValue]:
        return (value_of(value, self.dtype) for value in reversed(self.values))

    def __contains__(self, value: Any) -> bool:
        return plain(value) in self.values

    def __len__(self) -> int:
        return len(self.values)


class _Exchanged(type):
    """The metaclass of a class that stands for one of Python's own, as `int`.

    A call of the class runs `make`; `isinstance(value, cls)` asks whether `value` is a `python`.
    """

    python: type
    make: Callable[..., Any]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.make(*args, **kwargs)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.python)


def _exchanged(python: type, make: Callable[..., Any]) -> Any:
    return _Exchanged(python.__name__, (), {"python": python, "make": staticmethod(make)})


def _for_values(python: Callable[..., Any], run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does `run` if an argument is a value of the kernel, else what Python's does."""

    def either(*args: Any, **kwargs: Any) -> Any:
        has_values = any(isinstance(each, OracleValue | OracleArray) for each in args)
        return run(*args, **kwargs) if has_values else python(*args, **kwargs)

    return either


_OTHERS: dict[Any, Any] = {
    builtins.range: _exchanged(range, _Range),
    builtins.int: _exchanged(int, _for_values(int, as_int)),
    builtins.float: _exchanged(float, _for_values(float, as_float)),
    builtins.min: _for_values(min, functools.partial(extreme, ast.Lt)),
    builtins.max: _for_values(max, functools.partial(extreme, ast.Gt)),
    builtins.len: _for_values(len, lambda value: value.shape[0]),
    np.where: _for_values(np.where, choose),
}
_BUILTINS = {name: _OTHERS.get(value, value) if callable(value) else value for name, value in vars(builtins).items()}


class _ModuleInPython:
    """A module as kernels see it."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return counterpart(getattr(self._module, name))


def counterpart(value: Any, made: dict[int, Any] | None = None) -> Any:
    """Return what stands for an object that a kernel reaches; itself, unless it is or holds a function. made: copies, by id."""
    made = {} if made is None else made
    if isinstance(value, types.ModuleType):
        return value if is_ours(value.__name__) else _ModuleInPython(value)
    if type(value) in (tuple, list):
        return type(value)(counterpart(item, made) for item in value)
    if type(value) is dict:
        return {key: counterpart(item, made) for key, item in value.items()}
    if isinstance(value, functools.partial):
        return functools.partial(counterpart(value.func, made), *value.args, **value.keywords)
    if isinstance(value, types.MethodType):
        return types.MethodType(counterpart(value.__func__, made), value.__self__)
    if not callable(value) or is_fixed(getattr(value, "__module__", None)):
        return _known_counterpart(value)
    fragment = getattr(value, "__stagekit_fragment__", value)
    if not isinstance(fragment, types.FunctionType):
        return value
    if getattr(value, "__stagekit_per_thread__", False):
        return functools.partial(_refuse, fragment.__name__)
    function = made[id(fragment)] if id(fragment) in made else _copy(fragment, made)
    fixed = getattr(value, "__stagekit_fixed__", None)  # of a kernel that is called as a fragment
    return functools.partial(function, **fixed) if fixed else function


def _refuse(name: str, *_: Any, **__: Any) -> None:
    raise StagingError(NotOfBlocks(name), UNKNOWN)


def is_ours(module: str) -> bool:
    return module.partition(".")[0] == "stagekit"


def _known_counterpart(value: Any) -> Any:
    """Return what stands for an object of Python's own, NumPy's or ours."""
    spec = familiar(value)
    if spec is not None:
        return _for_values(value, functools.partial(call_intrinsic, spec))
    return _OTHERS.get(value, value) if isinstance(value, type | types.BuiltinFunctionType) else value


def _copy(fn: types.FunctionType, made: dict[int, Any]) -> types.FunctionType:
    """Return a copy of a function that reaches counterparts by its globals, its closure and its defaults."""
    namespace: dict[str, Any] = {"__builtins__": _BUILTINS, "__name__": fn.__module__}
    cells = tuple(types.CellType() for _ in fn.__closure__ or ())
    copied = types.FunctionType(fn.__code__, namespace, fn.__name__, counterpart(fn.__defaults__, made), cells)
    made[id(fn)] = copied
    copied.__kwdefaults__ = {name: counterpart(value, made) for name, value in (fn.__kwdefaults__ or {}).items()}
    for name in _names_of(fn.__code__) & fn.__globals__.keys():
        is_own = name.isidentifier()  # pytest puts other names into the asserts of tests
        namespace[name] = counterpart(fn.__globals__[name], made) if is_own else fn.__globals__[name]
    for cell, outer in zip(cells, fn.__closure__ or ()):
        with contextlib.suppress(ValueError):  # it is empty yet
            cell.cell_contents = counterpart(outer.cell_contents, made)
    return copied


def _names_of(code: types.CodeType) -> set[str]:
    """Return the names that a function and those inside it use as globals and attributes."""
    inner = (const for const in code.co_consts if isinstance(const, types.CodeType))
    return set(code.co_names).union(*map(_names_of, inner))
