"""Calling an intrinsic: bind arguments, find the overload, fold where everything is known.

An argument whose type is the same in every signature (a mask, a lane) is converted to it. The others *meet* in one dtype like
operands of an operator; beside a pointer they are converted to its element dtype, as in a store.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from stagekit import dtypes
from stagekit.diagnostics import counted, shown
from stagekit.dtypes import DType, dtype_from_numpy, true_divide_dtype
from stagekit.frontend import arrays, effects
from stagekit.frontend.errors import BadCall, BadOperands, NoOverload
from stagekit.frontend.evaluation import Site
from stagekit.frontend.numbers import converted, default_dtype, is_literal, is_numeric, meet, out_of_range
from stagekit.frontend.parts import describe
from stagekit.frontend.tracer import suggest
from stagekit.frontend.values import Address, Array, Number, holds_run_time
from stagekit.ir import PURE, Effect, Intrinsic, Param, Pointer, Scalar, Sig, Type, Value


def call_intrinsic(site: Site, spec: Intrinsic, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Return the results of `spec(*args, **kwargs)`: None, one value, or a tuple."""
    values, params = bind(site, spec, args, kwargs)
    site.at()
    key = (spec, *[_overload_key(site, v) for v in values])
    sig = _RESOLVED.get(key)
    if sig is None:
        for value in values:
            if not is_numeric(value) and not isinstance(value, (Address, Array)):
                raise no_overload(site, spec, values)
        if values and spec.effects == PURE and spec.evaluate is not None and not holds_run_time(values):
            return fold(site, spec, values, params)
        sig = _RESOLVED[key] = resolve(site, spec, values)
    for name, limits in spec.limits.items():
        value = values[spec.args.index(name)]
        if isinstance(value, int | float | np.integer | np.floating) and not limits.allow(value):
            raise site.error(BadCall(f"`{name}` of `{spec.name}` is {shown(value)}", f"it is {limits}"))
    if why := spec.misfit(sig.args, params):
        raise site.error(BadCall(f"`{spec.name}` cannot be called so", why))
    if spec.level and not site.frame.is_per_thread:
        site.tracer.uses[spec.name] = spec.level
        if spec.level == "block":
            site.tracer.become_block_level()
    if Effect.COLLECTIVE in spec.effects and (spec.args or sig.results) and not site.frame.is_per_thread:
        site.tracer.note_among_threads(spec.name, site.loc)
    operands = [_operand(site, value, type_) for value, type_ in zip(values, sig.args, strict=True)]
    if spec.is_elementwise:
        operands = list(site.tracer.builder.broadcast(*operands))
    emitted = _emitted(site, spec, operands, params)
    results = tuple([Address(v) if isinstance(v.type, Pointer) else Number(v) for v in emitted])
    if len(results) > 1:
        return results
    return results[0] if results else None


def _emitted(site: Site, spec: Intrinsic, operands: list[Value], params: tuple[Any, ...]) -> Sequence[Value]:
    call = site.tracer.builder.call
    acts = not _ACTING.isdisjoint(spec.effects)
    pointers = [v for v in operands if isinstance(v.type, Pointer)] if acts else []
    if pointers:
        return effects.act(site, lambda: call(spec, operands, params), pointers)
    if acts and Effect.COLLECTIVE not in spec.effects:  # a fence, of every thread
        effects.begin_statement(site)
    return call(spec, operands, params)


_ACTING = frozenset({Effect.WRITE, Effect.ORDER})


# -- binding ------------------------------------------------------------------------------------------------------------


def bind(site: Site, spec: Intrinsic, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], tuple[Any, ...]]:
    """Return the run-time arguments and the compile-time parameters, each in order. By position, parameters come last."""
    count = len(spec.args)
    if not kwargs and count <= len(args) <= count + len(spec.params):
        extra, rest = args[count:], [param.default for param in spec.params[len(args) - count :]]
        if ... not in rest:
            checked = [checked_param(site, spec.name, spec.call, p, value) for p, value in zip(spec.params, extra)]
            return args[:count], (*checked, *rest)
    names = [*spec.args, *(p.name for p in spec.params)]
    elsewhere = {other: name for param in spec.params for other, name in param.elsewhere.items() if name in names}
    given = dict(zip(names, args))
    count = len(spec.args) - len(spec.defaults)
    defaults = dict(zip(spec.args[count:], spec.defaults))
    defaults.update({p.name: p.default for p in spec.params if p.default is not ...})
    bound = {**defaults, **given, **kwargs}
    problem = _binding_problem(names, len(args), kwargs, bound, elsewhere)
    if problem:
        raise site.error(BadCall(f"`{spec.name}` {problem}", spec.call))
    params = tuple(checked_param(site, spec.name, spec.call, p, bound[p.name]) for p in spec.params)
    return [bound[name] for name in spec.args], params


def _binding_problem(
    names: list[str], count: int, kwargs: dict[str, Any], bound: dict[str, Any], elsewhere: Mapping[str, str]
) -> str | None:
    """Return what is wrong with a call that gives `count` arguments by position; None where nothing is."""
    if count > len(names):
        return f"takes {counted(len(names), 'argument')}, got {count}"
    for name in kwargs:
        if name not in names:
            nearest = f"(it is called `{elsewhere[name]}` here)" if name in elsewhere else suggest(name, names)
            return f"has no argument `{name}` {nearest}".rstrip()
        if name in names[:count]:
            return f"got `{name}` twice"
    missing = [name for name in names if name not in bound]
    return f"needs {', '.join(f'`{n}`' for n in missing)}" if missing else None


def checked_param(site: Site, name: str, call: str, param: Param, value: Any) -> Any:
    """Return the value of a compile-time parameter, which must be one of its choices. call: how it is called, for the error."""
    what = f"`{param.name}` of `{name}`"
    if holds_run_time(value):
        raise site.needs_static(what, value, "give a Python value")
    if not param.allows(value):
        choices = ", ".join(map(repr, param.choices)) if isinstance(param.choices, tuple) else param.choices.__name__
        message = f"{what} is {shown(value)}, it must be one of: {choices}"
        if isinstance(value, str) and value in param.elsewhere:
            message += f"; {value!r} is called {param.elsewhere[value]!r} here"
        raise site.error(BadCall(message, call))
    return value


# -- overloads ----------------------------------------------------------------------------------------------------------


def resolve(site: Site, spec: Intrinsic, values: list[Any]) -> Sig:
    """Return the signature that fits `values`, after the conversions that an operator would make."""
    as_given = spec.overload(tuple([_own_type(site, v) for v in values]))
    return as_given or _fitting(site, spec, values, _candidates(site, spec, values))


_RESOLVED: dict[tuple[Any, ...], Sig] = {}  # by an intrinsic and the keys of its arguments, unless all are known


def _overload_key(site: Site, value: Any) -> Any:
    """Return everything about a value that decides which signature fits."""
    if isinstance(value, Number):
        return value.value.type, value.is_weak
    return _own_type(site, value), type(value)


def _own_type(site: Site, value: Any) -> Type:
    return arrays.base_of(site, value).type if isinstance(value, (Address, Array)) else Scalar(default_dtype(value))


def _fitting(
    site: Site, spec: Intrinsic, values: list[Any], candidates: Iterable[DType], otherwise: Sig | None = None
) -> Sig:
    """Return the first signature that fits when the free scalar positions have one of these dtypes, else `otherwise`."""
    fixed = _fixed_types(spec)
    for dtype in candidates:
        wanted = [
            _own_type(site, value) if isinstance(value, (Address, Array)) else fixed.get(place, Scalar(dtype))
            for place, value in enumerate(values)
        ]
        sig = spec.overload(tuple(wanted))
        if sig is not None:
            return sig
    if otherwise is not None:
        return otherwise
    raise no_overload(site, spec, values)


@functools.cache
def _fixed_types(spec: Intrinsic) -> Mapping[int, Type]:
    """Return the positions at which all signatures have the same type, each with that type; the other positions are free."""
    columns = [set(column) for column in zip(*(s.args for s in spec.sigs))]
    has_choice = any(len(column) > 1 for column in columns)
    return {i: next(iter(c)) for i, c in enumerate(columns) if len(c) == 1 and (has_choice or len(spec.sigs) == 1)}


def _candidates(site: Site, spec: Intrinsic, values: list[Any]) -> list[DType]:
    """Return dtypes to try for the free scalar positions, in order: a pointer's own, else the one in which they meet."""
    pointer = next((v for v in values if isinstance(v, (Address, Array))), None)
    if pointer is not None:
        return [pointer.dtype]
    free = [v for i, v in enumerate(values) if i not in _fixed_types(spec)]
    if not free:
        return [dtypes.float32]
    met = default_dtype(free[0])
    carrier: Any = free[0]
    for value in free[1:]:
        met, _ = meet(carrier, value, site.loc)
        carrier = np.zeros((), met.numpy)[()] if not is_literal(carrier) or not is_literal(value) else carrier
    tries = [met]
    if met is dtypes.bool_:
        tries.append(dtypes.int32)
    if spec.integers_as_float and not met.is_float:
        tries.append(true_divide_dtype(met))
    return tries


def _operand(site: Site, value: Any, type_: Type) -> Value:
    if isinstance(value, (Address, Array)):
        return arrays.base_of(site, value).value
    return site.tracer.arithmetic.to_value(value, type_.dtype)


def no_overload(site: Site, spec: Intrinsic, values: list[Any]) -> Exception:
    types = ", ".join(map(describe, values))
    for place, value in enumerate(values):
        if is_numeric(value) and all(isinstance(sig.args[place], Pointer) for sig in spec.sigs):
            hint = f"`{spec.args[place]}` is a pointer: `A + i`, not the element `A[i]`"
            return site.error(BadOperands(spec.name, types, hint))
    shown = [str(s) for s in spec.sigs[:6]]
    more = f", and {len(spec.sigs) - 6} more" if len(spec.sigs) > 6 else ""
    return site.error(NoOverload(spec.name, types, ", ".join(shown) + more))


# -- folding ------------------------------------------------------------------------------------------------------------


def fold(site: Site, spec: Intrinsic, values: list[Any], params: tuple[Any, ...]) -> Any:
    """Return the result of numbers that are known, or of arrays. Literals give literals, computed in float64 or int64."""
    is_weak = all(map(is_literal, values))
    samples = [sample(value) for value in values]
    sig = _resolve_literals(site, spec, samples) if is_weak else resolve(site, spec, samples)
    typed = same_shape(site, spec.name, [known(site, v, t.dtype) for v, t in zip(values, sig.args, strict=True)])
    assert spec.evaluate is not None
    with np.errstate(all="ignore"):
        results = spec.evaluate(*typed, *params)
    unpacked = results if isinstance(results, tuple) else (results,)
    # copies, since a function that changes nothing returns its argument
    found = [np.array(r, t.dtype.numpy)[()] for r, t in zip(unpacked, sig.results, strict=True)]
    folded = [r.item() if is_weak else r for r in found]
    return folded[0] if len(folded) == 1 else tuple(folded)


def _resolve_literals(site: Site, spec: Intrinsic, values: list[Any]) -> Sig:
    """Return the signature in which literals are computed: all of 64 bits, or where there is none, each in its own dtype."""
    wide = [dtypes.float64] if any(isinstance(value, float) for value in values) else [dtypes.int64, dtypes.float64]
    own = spec.overload(tuple([_own_type(site, value) for value in values]))
    return _fitting(site, spec, values, wide, own)


def sample(value: Any) -> Any:
    """Return a number of the type of a number, or of the elements of a NumPy array; None for anything else."""
    if type(value) is np.ndarray and dtype_from_numpy(value.dtype) is not None:
        return np.zeros((), value.dtype)[()]
    return value if is_numeric(value) else None


def known(site: Site, value: Any, dtype: DType) -> Any:
    """Return a number that is known, or an array, as an operand of `dtype`: an integer literal must fit."""
    if problem := out_of_range(value, dtype):
        raise site.error(problem)
    return converted(value, dtype)


def chosen(site: Site, value: Any, other: Any) -> Any:
    """Return the number `value`, known to be taken and not `other`, in the dtype that a choice at run time gives; of two literals
    as it is.
    """
    if is_literal(value) and is_literal(other):
        return value
    dtype, is_weak = meet(value, other, site.loc)
    if is_weak or isinstance(value, Number):
        return Number(site.tracer.arithmetic.to_value(value, dtype), is_weak)
    return known(site, value, dtype)


def same_shape(site: Site, name: str, values: list[Any]) -> list[Any]:
    """Return operands of one shape: numbers stay as they are, arrays are broadcast."""
    if not any(isinstance(value, np.ndarray) for value in values):
        return values
    try:
        return list(np.broadcast_arrays(*values))
    except ValueError:
        shapes = " and ".join(str(np.shape(value)) for value in values)
        hint = "arrays of several shapes are broadcast as in NumPy, where each axis is equal or 1"
        raise site.error(BadOperands(name, f"arrays of the shapes {shapes}", hint)) from None
