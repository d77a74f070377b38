"""Where intrinsic records are declared and found: `define` checks and registers a record, `by_name` finds it.

    popcount = define(name="popcount", args=("x",), sigs=each_dtype(INTEGER_DTYPES, 1), ...)

Every record is bound to a module variable of its own name. Each family is a file, which `intrinsics/__init__.py` imports.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Iterable
from typing import ParamSpec

from stagekit.diagnostics import InternalError
from stagekit.dtypes import DType
from stagekit.ir.core import PURE
from stagekit.ir.intrinsic import TARGETS, Intrinsic, Native, Sig, Unsupported
from stagekit.ir.types import Scalar, Type

_Fields = ParamSpec("_Fields")

_REGISTRY: dict[str, Intrinsic] = {}


def _checked(make: Callable[_Fields, Intrinsic]) -> Callable[_Fields, Intrinsic]:
    def define(*args: _Fields.args, **kwargs: _Fields.kwargs) -> Intrinsic:
        record = make(*args, **kwargs)
        for holds, sentence in _RULES:
            if not holds(record):
                raise InternalError(f"intrinsic `{record.name}`: {sentence}")
        _REGISTRY[record.name] = record
        return record

    return define


define = _checked(Intrinsic)
"""Make a record, check it, and register it under its name."""


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
    return Scalar(given) if isinstance(given, DType) else given


# -- what every record must satisfy -----------------------------------------------------------------------------------


def _is_native(record: Intrinsic) -> bool:
    return not record.args or isinstance(record.lower.get("interp"), Native)


_RULES: tuple[tuple[Callable[[Intrinsic], bool], str], ...] = (
    (lambda r: r.name.isidentifier(), "the name is not an identifier"),
    (lambda r: r.name not in _REGISTRY, "defined twice"),
    (lambda r: bool(r.doc and r.source), "needs a doc and a source"),
    (lambda r: bool(r.sigs) and all(len(s.args) == len(r.args) for s in r.sigs), "signatures do not match `args`"),
    (lambda r: len({s.args for s in r.sigs}) == len(r.sigs), "two overloads with the same argument types"),
    (lambda r: len(r.defaults) <= len(r.args), "more defaults than arguments"),
    (lambda r: {"cuda", "cpu"} <= r.lower.keys(), "needs a lowering for cuda and cpu (`Unsupported` with a reason)"),
    (lambda r: {*r.lower, *r.lower_fast, *r.tolerance} <= set(TARGETS), "names an unknown target"),
    # What each target knows by itself has nothing to evaluate: `block_idx` is pure, and so is a tensor map.
    (lambda r: r.effects != PURE or r.evaluate is not None or _is_native(r), "a pure intrinsic needs `evaluate`"),
    (  # one that has a level is called by the front end
        lambda r: bool(r.public_in or r.level) or all(isinstance(h, Native | Unsupported) for h in r.lower.values()),
        "nobody finds it",
    ),
    (lambda r: r.evaluate is not None or "interp" in r.lower, "needs `evaluate` or a lowering for interp"),
)
