"""Where intrinsic records are declared and found: `define` checks a record once, `by_name` finds it.

    popcount = define(name="popcount", args=("x",), sigs=each_dtype(INTEGER_DTYPES, 1), ...)

Every record is bound to a module variable of its own name; a family is a file, imported by `intrinsics/__init__.py`.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stagekit.diagnostics import InternalError
from stagekit.dtypes import DType
from stagekit.ir.core import PURE, Effects
from stagekit.ir.intrinsic import EXACT, TARGETS, Intrinsic, Lowering, Param, Sig, Tolerance
from stagekit.ir.types import Scalar, Type

Lowerings = Mapping[str, Lowering | Mapping[DType, Lowering]]

_REGISTRY: dict[str, Intrinsic] = {}


def define(
    *,
    name: str,
    args: tuple[str, ...],
    sigs: tuple[Sig, ...],
    lower: Lowerings,
    doc: str,
    source: str,
    effects: Effects = PURE,
    params: tuple[Param, ...] = (),
    defaults: tuple[Any, ...] = (),
    lower_fast: Lowerings | None = None,
    evaluate: Callable[..., Any] | None = None,
    tolerance: Mapping[str, Tolerance] | None = None,
    fast_tolerance: Tolerance = EXACT,
    integers_as_float: bool = False,
    bounds: tuple[int, int] | None = None,
    min_capability: int = 75,
) -> Intrinsic:
    """Make a record, check it, and register it under its name. Fields: see `ir.intrinsic.Intrinsic`."""
    record = Intrinsic(
        name=name,
        args=args,
        sigs=sigs,
        effects=effects,
        lower=lower,
        doc=doc,
        source=source,
        params=params,
        defaults=defaults,
        lower_fast=lower_fast or {},
        evaluate=evaluate,
        tolerance=tolerance or {},
        fast_tolerance=fast_tolerance,
        integers_as_float=integers_as_float,
        bounds=bounds,
        min_capability=min_capability,
    )
    for holds, sentence in _RULES:
        if not holds(record):
            raise InternalError(f"intrinsic `{name}`: {sentence}")
    _REGISTRY[name] = record
    return record


def by_name(name: str) -> Intrinsic:
    """The record with this name. Raises KeyError."""
    return _REGISTRY[name]


copyreg.pickle(Intrinsic, lambda record: (by_name, (record.name,)))  # there is one of each, in copies and pickles too


def all_intrinsics() -> tuple[Intrinsic, ...]:
    """Every registered record, in the order of definition."""
    return tuple(_REGISTRY.values())


# -- signatures -------------------------------------------------------------------------------------------------------


def sig(args: Iterable[DType | Type], *results: DType | Type) -> Sig:
    """One overload; a dtype stands for its scalar type: `sig([float32, int32], float32)`."""
    return Sig(tuple(map(_as_type, args)), tuple(map(_as_type, results)))


def each_dtype(dtypes: Iterable[DType], arity: int, result: DType | None = None) -> tuple[Sig, ...]:
    """For each dtype the overload of `arity` arguments of it, giving it, or always `result`."""
    return tuple(sig([dtype] * arity, result or dtype) for dtype in dtypes)


def _as_type(given: DType | Type) -> Type:
    return Scalar(given) if isinstance(given, DType) else given


# -- what every record must satisfy -----------------------------------------------------------------------------------


def _has_interp_meaning(record: Intrinsic) -> bool:
    return record.evaluate is not None or "interp" in record.lower


_RULES: tuple[tuple[Callable[[Intrinsic], bool], str], ...] = (
    (lambda r: r.name.isidentifier(), "the name is not an identifier"),
    (lambda r: r.name not in _REGISTRY, "defined twice"),
    (lambda r: bool(r.doc and r.source), "needs a doc and a source"),
    (lambda r: bool(r.sigs) and all(len(s.args) == len(r.args) for s in r.sigs), "signatures do not match `args`"),
    (lambda r: len({s.args for s in r.sigs}) == len(r.sigs), "two overloads with the same argument types"),
    (lambda r: len(r.defaults) <= len(r.args), "more defaults than arguments"),
    (lambda r: {"cuda", "cpu"} <= r.lower.keys(), "needs a lowering for cuda and cpu (`Unsupported` with a reason)"),
    (lambda r: {*r.lower, *r.lower_fast, *r.tolerance} <= set(TARGETS), "names an unknown target"),
    # Without arguments there is nothing to evaluate: `block_idx` is pure, and only the target knows it.
    (lambda r: r.effects != PURE or r.evaluate is not None or not r.args, "a pure intrinsic needs `evaluate`"),
    (_has_interp_meaning, "needs `evaluate` or a lowering for interp"),
)
