"""A kernel before its constexprs are fixed.

It checks before each use that everything the tracer read outside the kernel is as it was; otherwise it specialises anew.
"""

from __future__ import annotations

import functools
import inspect
import threading
import types
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stagekit.diagnostics import Loc, hide_frames
from stagekit.dtypes import DType
from stagekit.frontend.calls import keep_snapshot
from stagekit.frontend.captures import freeze, is_immutable
from stagekit.frontend.errors import BadConstexpr, MissingConstexpr, NotConstexpr, SpecializeError, UnknownParameter
from stagekit.frontend.markers import Optional, Pointer, Tensor
from stagekit.frontend.parameters import Parameter, Parameters
from stagekit.frontend.source import Snapshot
from stagekit.frontend.tracer import suggest
from stagekit.jit import native, reasons
from stagekit.jit.guards import Guards
from stagekit.jit.history import History
from stagekit.jit.launcher import General
from stagekit.jit.native import CallShape, NativeLaunchers, NativelyLaunchable
from stagekit.jit.options import Options
from stagekit.jit.specialization import Specialization
from stagekit.jit.variant import Variant
from stagekit.runtime.args import read_array
from stagekit.signature import ArraySpec

MAX_SPECIALIZATIONS = 1024  # per JitFunction; the least recently used one goes


class JitFunction(NativelyLaunchable):
    """A kernel before its constexprs are fixed. `.specialize(...)` fixes them; brackets and call do so from the arguments."""

    def __init__(
        self,
        fn: types.FunctionType,
        options: Options,
        outer: Mapping[str, Any],
        fixed: Mapping[str, Any] | None = None,
        whole: JitFunction | None = None,
    ) -> None:
        self.function = fn
        self._whole = whole or self  # the kernel with nothing fixed: the same values give the same object, in any order
        self.options = options
        self._outer = dict(outer)
        self._fixed = dict(fixed or {})
        self._snapshot = Snapshot.take(fn)
        keep_snapshot(self._snapshot)
        self._lock = threading.RLock()
        self._made: OrderedDict[Any, Specialization] = OrderedDict()
        self._partials: dict[Any, JitFunction] = {}
        self.history = History()
        self._native = NativeLaunchers(self.name, functools.partial(General, lambda: self))
        functools.update_wrapper(self, fn)

    @property
    def loc(self) -> Loc:
        """Where it is defined."""
        return self._snapshot.loc

    @property
    def __stagekit_fragment__(self) -> types.FunctionType:
        """A kernel called inside another kernel is a fragment."""
        return self.function

    @functools.cached_property
    def parameters(self) -> Parameters:
        parameters = Parameters(self._snapshot, self._outer)
        for parameter in parameters.constexprs:
            if parameter.default is not ...:
                self._check_constexpr(parameter, parameter.default)
        return parameters

    @property
    def name(self) -> str:
        return self.options.name or self.function.__name__

    def __repr__(self) -> str:
        fixed = ", ".join(f"{k}={v!r}" for k, v in self._fixed.items())
        with_fixed = f" with {fixed}" if fixed else ""
        return f"<stagekit jit {self.function.__qualname__}{inspect.signature(self.function)}{with_fixed}>"

    # -- specialising -------------------------------------------------------------------------------------------

    @hide_frames
    def specialize(self, **values: Any) -> Any:
        """Fix constexprs by name; also the types of unannotated parameters, as `x=Tensor((None,), float32)`, a dtype, or None.

        With all of them fixed (or defaulted, or to be inferred from arrays) a `Specialization`, the same object every time; with
        some, a `JitFunction` that waits for the rest.
        """
        fixed = {**self._fixed, **values}
        for name, value in values.items():
            self._check_value(name, value)
            self._refuse_change(name, value)
        missing = self._missing(fixed)
        if not missing:
            return self.with_values(fixed)
        given = {k: v for k, v in fixed.items() if k in self._constexpr_names()}
        if not given and not values:
            raise self._missing_error(missing)
        key = self._key(fixed)
        with self._lock:
            partial = JitFunction(self.function, self.options, self._outer, fixed, self._whole)
            return self._whole._partials.setdefault(key, partial)

    def _refuse_change(self, name: str, value: Any) -> None:
        if name in self._fixed and freeze(self._fixed[name]) != freeze(value):
            why = f"it is fixed to {self._fixed[name]!r} already"
            hint = "specialise the kernel in which it is open"
            raise SpecializeError(BadConstexpr(name, repr(value), type(value).__name__, why, hint), self.loc)

    def _constexpr_names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters.constexprs)

    def _missing(self, fixed: Mapping[str, Any]) -> list[str]:
        return [p.name for p in self.parameters.constexprs if p.name not in fixed and p.default is ...]

    def _missing_error(self, missing: list[str]) -> SpecializeError:
        names = ", ".join(f"`{n}`" for n in missing)
        example = ", ".join(f"{n}=..." for n in missing)
        return SpecializeError(MissingConstexpr(self.name, names, f".specialize({example})"), self.loc)

    def _check_value(self, name: str, value: Any) -> None:
        parameters = self.parameters
        if name not in parameters.names:
            known = ", ".join(f"{p.name}{': constexpr' if p.is_constexpr else ''}" for p in parameters.all)
            raise SpecializeError(UnknownParameter(self.name, name, suggest(name, parameters.names), known), self.loc)
        parameter = next(p for p in parameters.all if p.name == name)
        if not parameter.is_constexpr:
            if value is not None and not isinstance(value, Tensor | Pointer | DType | Optional):
                raise SpecializeError(NotConstexpr(self.name, name, repr(value)), self.loc)
            return
        self._check_constexpr(parameter, value)

    def _check_constexpr(self, parameter: Parameter, value: Any) -> None:
        name, shown, kind = parameter.name, repr(value), type(value).__name__
        if not _is_one_of(value, parameter.types):
            wanted = " | ".join("None" if t is type(None) else t.__name__ for t in parameter.types)
            why = f"the parameter is constexpr[{wanted}]"
            raise SpecializeError(BadConstexpr(name, shown, kind, why, f"give a value of type {wanted}"), self.loc)
        if read_array(value) is not None and not isinstance(value, np.generic):
            raise SpecializeError(
                BadConstexpr(
                    name,
                    kind,
                    kind,
                    "an array cannot be a compile-time value",
                    "make the parameter run-time, or pass a tuple",
                ),
                self._snapshot.loc,
            )
        try:
            hash(value)
        except Exception:  # a `__hash__` of the user's may raise anything
            hint = "use a tuple, a frozen dataclass or another hashable value"
            raise SpecializeError(BadConstexpr(name, shown, kind, "it is not hashable", hint), self.loc) from None

    def _key(self, fixed: Mapping[str, Any]) -> Any:
        return tuple(sorted(((k, freeze(v)) for k, v in fixed.items()), key=lambda item: item[0]))

    def with_values(self, fixed: Mapping[str, Any]) -> Specialization:
        """The specialisation with these values; a new one where something captured has changed since it was traced."""
        if self._whole is not self:
            return self._whole.with_values(fixed)
        values = {p.name: fixed.get(p.name, p.default) for p in self.parameters.constexprs}
        types_given = {k: v for k, v in fixed.items() if k not in values}
        key = self._key({**values, **types_given})
        with self._lock:
            found = self._made.get(key)
            if found is not None and found.is_current():
                self._made.move_to_end(key)
                return found
            why = reasons.why_new(found, self._last_used(), values)
            made = self._made[key] = Specialization(self, values, types_given, why)
            self._made.move_to_end(key)
            while len(self._made) > MAX_SPECIALIZATIONS:
                self._made.popitem(last=False)
            return made

    def _last_used(self) -> Specialization | None:
        return next(reversed(self._made.values()), None)

    @hide_frames
    def explain(self) -> str:
        """Why the last call, or the last look, compiled: one line per step."""
        return self.history.text()

    # -- launching ----------------------------------------------------------------------------------------------

    def _launch(self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        kernel, run_time, named = self._split(args, kwargs)
        launched = kernel.launch_generally(key, run_time, named, None)
        if launched is not None:
            variant, machine = launched
            self._native.offer(key, machine, lambda: self._call_shape(kernel, variant))

    def _prepare(self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[[], None]:
        kernel, run_time, named = self._split(args, kwargs)
        return kernel._prepare(key, run_time, named)

    def _call_shape(self, kernel: Specialization, variant: Variant) -> CallShape | None:
        """How this function is called when it launches `variant`; None where a constexpr can change inside."""
        run_time = {p.name: p for p in kernel.native_parameters()}
        rows: list[native.Parameter] = []
        for p in self.parameters.all:
            if p.name in run_time:
                rows.append(run_time[p.name])
            elif p.name not in self._fixed:
                value = kernel.constexprs[p.name]
                if not is_immutable(value):
                    return None
                default = value if p.default is ... and self._is_inferred(p.name, kernel, variant) else p.default
                rows.append(native.Parameter(p.name, default, None, expected=value))
        keyword_only = sum(row.name not in self._positional for row in rows)
        return CallShape(tuple(rows), keyword_only, Guards.of(variant.captures))

    def _is_inferred(self, name: str, kernel: Specialization, variant: Variant) -> bool:
        """Does an array of the variant have this constexpr as a size, so that it need not be given?"""
        place = self.parameters.sizes_named(name, [name], kernel.constexprs)
        if place is None:
            return False
        spec = next(s for s in variant.facts.signature.specs if s.name == place[0])
        return isinstance(spec, ArraySpec) and spec.shape[place[1]] == kernel.constexprs[name]

    def _split(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Specialization, tuple[Any, ...], dict[str, Any]]:
        """Separate constexprs from run-time arguments, by Python's binding rules."""
        constexprs = dict(self._fixed)
        positional = [n for n in self._positional if n not in self._fixed]
        run_time: list[Any] = []
        for name, value in zip(positional, args):
            if name in self._constexpr_set:
                constexprs[name] = value
            else:
                run_time.append(value)
        run_time.extend(args[len(positional) :])
        named = {}
        for name, value in kwargs.items():
            if name in self._constexpr_set and name not in constexprs:
                constexprs[name] = value
            else:
                named[name] = value
        for name in constexprs.keys() - self._fixed.keys():
            self._check_value(name, constexprs[name])
        missing = self._missing(constexprs)
        if missing:
            self._refuse_unknown(named)
            self._infer(missing, constexprs, run_time, named)
        return self.with_values(constexprs), tuple(run_time), named

    @functools.cached_property
    def _positional(self) -> list[str]:
        kinds = self.parameters.signature.parameters.values()
        return [p.name for p in kinds if p.kind is not p.KEYWORD_ONLY]

    @functools.cached_property
    def _constexpr_set(self) -> frozenset[str]:
        return frozenset(self._constexpr_names())

    def _refuse_unknown(self, named: Mapping[str, Any]) -> None:
        """A constexpr that is missing may have been given by a name that is misspelt."""
        for name in named.keys() - set(self.parameters.names):
            self._check_value(name, named[name])

    def _infer(
        self, missing: list[str], constexprs: dict[str, Any], run_time: list[Any], named: dict[str, Any]
    ) -> None:
        """Take constexpr sizes from the arrays whose shapes name them."""
        names = [p.name for p in self.parameters.run_time if p.name not in self._fixed]
        given = {**dict(zip(names, run_time)), **named}
        for name in missing:
            place = self.parameters.sizes_named(name, missing, constexprs)
            view = read_array(given[place[0]]) if place and place[0] in given else None
            if place is None or view is None or place[1] >= len(view.shape):
                raise self._missing_error(missing)
            constexprs[name] = view.shape[place[1]]

    @property
    def cache_size(self) -> int:
        """Number of specialisations kept."""
        return len(self._made)


def _is_one_of(value: Any, types: tuple[type, ...]) -> bool:
    """`isinstance`, but a bool is no int."""
    return isinstance(value, tuple(t for t in types if not (t is int and isinstance(value, bool))))
