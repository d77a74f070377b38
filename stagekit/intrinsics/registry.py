"""Where intrinsic records are declared and found: `define` registers a record, `by_name` finds it.

    popcount = define(name="popcount", args=("x",), sigs=each_dtype(INTEGER_DTYPES, 1), ...)

Every record is bound to a module variable of its own name. Each family is a file, which `intrinsics/__init__.py` imports.
`tests/numerics/test_records.py` has the rules that a record keeps: to check them at each import took a twentieth of it.
"""

from __future__ import annotations

import copyreg
import functools
from collections.abc import Callable, Iterable
from typing import ParamSpec

from stagekit.diagnostics import InternalError
from stagekit.dtypes import DType
from stagekit.ir.intrinsic import Intrinsic, Sig
from stagekit.ir.types import Scalar, Type

_Fields = ParamSpec("_Fields")

_REGISTRY: dict[str, Intrinsic] = {}


def _registered(make: Callable[_Fields, Intrinsic]) -> Callable[_Fields, Intrinsic]:
    def define(*args: _Fields.args, **kwargs: _Fields.kwargs) -> Intrinsic:
        record = make(*args, **kwargs)
        if record.name in _REGISTRY:
            raise InternalError(f"intrinsic `{record.name}`: defined twice")
        _REGISTRY[record.name] = record
        return record

    return define


define = _registered(Intrinsic)
"""Make a record, and register it under its name."""


def by_name(name: str) -> Intrinsic:
    """Return the record with this name. Raises KeyError."""
    return _REGISTRY[name]


# A copy, and an unpickled record, is the registered one.
copyreg.pickle(Intrinsic, lambda record: (by_name, (record.name,)))


def all_intrinsics() -> tuple[Intrinsic, ...]:
    """Return every registered record, in the order of definition."""
    return tuple(_REGISTRY.values())


def public_in(module: str) -> dict[str, Intrinsic]:
    """Return the records that users find in `stagekit` or `stagekit.cuda`, by name."""
    return {name: record for name, record in _REGISTRY.items() if module in record.public_in}


# -- signatures -------------------------------------------------------------------------------------------------------


def sig(args: Iterable[DType | Type], *results: DType | Type) -> Sig:
    """Return one overload; a dtype stands for its scalar type: `sig([float32, int32], float32)`."""
    return Sig(tuple(map(_as_type, args)), tuple(map(_as_type, results)))


def each_dtype(dtypes: Iterable[DType], arity: int, result: DType | None = None) -> tuple[Sig, ...]:
    """Return, for each dtype, the overload of `arity` arguments of it whose result has it too, or is `result`."""
    return tuple(sig([dtype] * arity, result or dtype) for dtype in dtypes)


def _as_type(given: DType | Type) -> Type:
    return _scalar(given) if isinstance(given, DType) else given


_scalar = functools.cache(Scalar)  # of two thousand in signatures, some twenty differ
