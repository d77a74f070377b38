"""A kernel before its constexprs are fixed.

It checks before each use that everything the tracer read outside the kernel is as it was; otherwise it specialises anew.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from stagekit.diagnostics import Loc, shown
from stagekit.forks import cached_property, new_lock
from stagekit.frontend.annotations import is_instance
from stagekit.frontend.calls import keep_snapshot
from stagekit.frontend.errors import BadConstexpr, MissingConstexpr, NotConstexpr, SpecializeError, UnknownParameter
from stagekit.frontend.parameters import Parameter, Parameters
from stagekit.frontend.source import Snapshot
from stagekit.frontend.state import TooLarge, freeze
from stagekit.frontend.tracer import suggest
from stagekit.jit import history
from stagekit.jit.argtypes import binder_of, type_of_example, view_of
from stagekit.jit.history import fixed_text
from stagekit.jit.launchable import Launchable, Resolved, Specialized, specializes
from stagekit.jit.options import KernelSettings
from stagekit.jit.specialization import Specialization
from stagekit.jit.variant import Variant
from stagekit.runtime.args import Binder, Unreadable, read_array
from stagekit.runtime.kernel import Kernel
from stagekit.runtime.native_process import CallShape, LaunchParameter
from stagekit.signature import ArraySpec, Choice

_LEFT_OUT = object()  # a constexpr that a call does not give: it may follow from an array
_SHOWN = 5  # specialisations in a notebook
MAX_SPECIALIZATIONS = 1024  # per JitFunction; the least recently used one goes


class JitFunction(Launchable):
    """A kernel before its constexprs are fixed. `.specialize(...)` fixes them; brackets and call do so from the arguments."""

    def __init__(
        self,
        fn: types.FunctionType,
        options: KernelSettings,
        outer: Mapping[str, Any],
        fixed: Mapping[str, Any] | None = None,
        origin: JitFunction | None = None,
    ) -> None:
        super().__init__(options.name or fn.__name__, fn)
        # The kernel with nothing fixed: the same values give the same object, in any order.
        self._origin = origin or self
        self.options = options
        self._outer = dict(outer)
        self._fixed = dict(fixed or {})
        self._snapshot = Snapshot.take(fn)
        keep_snapshot(self._snapshot)
        self._lock = new_lock()
        self._specializations: OrderedDict[Any, Specialization] = OrderedDict()
        self._partials: dict[Any, JitFunction] = {}
        self.history = history.History()

    @property
    def loc(self) -> Loc:
        """Where it is defined."""
        return self._snapshot.loc

    @property
    def __stagekit_fixed__(self) -> Mapping[str, Any]:
        return self._constexprs_of(self._fixed) if self._fixed else {}

    def _named_target(self, switch: str) -> str:
        return switch or self.options.target or ""

    @cached_property
    def parameters(self) -> Parameters:
        parameters = Parameters(self._snapshot, self._outer)
        for parameter in parameters.constexprs:
            if parameter.default is not ...:
                self._check_constexpr(parameter, parameter.default)
        return parameters

    def __reduce__(self) -> Any:
        """Pickled by name, as functions are; what is fixed goes with it."""
        if self._origin is self:
            return self.function.__qualname__
        return functools.partial(self._origin.specialize, **self._fixed), ()

    def __repr__(self) -> str:
        return f"<stagekit jit {self.function.__qualname__}{self.takes}{fixed_text(self._fixed)}>"

    def summary(self) -> dict[str, str]:
        """Return what a notebook shows, also the specialisations there are: the newest, and how many more."""
        with self._lock:
            newest = [each.constexprs for each in reversed(self._origin._specializations.values())]
        lines = [fixed_text(each).strip() for each in newest[:_SHOWN] if each]
        more = [f"and {len(newest) - _SHOWN} more"] if len(newest) > _SHOWN else []
        return {**super().summary(), "specialised": "\n".join([*lines, *more])}

    # -- specialising -------------------------------------------------------------------------------------------

    @specializes
    def specialize(self, /, **values: Any) -> Any:
        """Fix constexprs by name; also the types of unannotated parameters, as `x=Tensor((None,), float32)`, a dtype, or None.

        With all of them fixed (or defaulted, or to be inferred from arrays) a `Specialization`, the same object every time; with
        some, a `JitFunction` that waits for the rest.
        """
        values = {name: self._checked(name, value) for name, value in values.items()}
        fixed = {**self._fixed, **values}
        for name, value in values.items():
            if name in self._fixed and freeze(self._fixed[name]) != freeze(value):
                why = f"it is fixed to {shown(self._fixed[name])} already"
                raise self._refused(name, value, why, "specialise the kernel in which it is open")
        missing = self._missing(fixed)
        if not missing:
            kernel = self.with_values(fixed)
            _ = kernel.meanings  # refuses what annotations cannot mean
            return kernel
        given = self._constexprs_of(fixed)
        if not given and not values:
            raise self._missing_error(missing)
        self.parameters.check_known(given)
        return self._waiting(fixed)

    def fixing(self, values: Mapping[str, Any]) -> JitFunction:
        """Return the kernel with these constexprs fixed. Unlike `specialize`, a call may still give those that have defaults."""
        return self._waiting({**self._fixed, **{name: self._checked(name, value) for name, value in values.items()}})

    def _waiting(self, fixed: Mapping[str, Any]) -> JitFunction:
        """Return the kernel that waits for the rest, the same object every time."""
        key = self._key(fixed)
        with self._lock:
            partial = JitFunction(self.function, self.options, self._outer, fixed, self._origin)
            return self._origin._partials.setdefault(key, partial)

    def _constexprs_of(self, fixed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the constexprs among what is fixed; the rest says what types run-time parameters have."""
        names = {p.name for p in self.parameters.constexprs}
        return {name: value for name, value in fixed.items() if name in names}

    def _missing(self, fixed: Mapping[str, Any]) -> list[str]:
        return [p.name for p in self.parameters.constexprs if p.name not in fixed and p.default is ...]

    def _missing_error(self, missing: list[str]) -> SpecializeError:
        names = ", ".join(f"`{n}`" for n in missing)
        example = ", ".join(f"{n}=..." for n in missing)
        hint = f"give it to `.specialize(...)` or to the call: .specialize({example})"
        return SpecializeError(MissingConstexpr(self.name, names, hint), self.loc)

    def _checked(self, name: str, value: Any) -> Any:
        """Return what is fixed: the value of a constexpr, or what is said of the type of a run-time parameter."""
        parameters = self.parameters
        if name not in parameters.names:
            known = ", ".join(f"{p.name}{': constexpr' if p.is_constexpr else ''}" for p in parameters.all)
            raise SpecializeError(UnknownParameter(self.name, name, suggest(name, parameters.names), known), self.loc)
        parameter = next(p for p in parameters.all if p.name == name)
        if parameter.is_constexpr:
            self._check_constexpr(parameter, value)
            return value
        said = None if value is None else type_of_example(name, value)
        if value is not None and said is None:
            raise SpecializeError(NotConstexpr(name, self.name, shown(value)), self.loc)
        return said

    def _check_constexpr(self, parameter: Parameter, value: Any) -> None:
        name, kind = parameter.name, type(value).__name__
        if not is_instance(value, parameter.types):
            wanted = " | ".join("None" if t is type(None) else t.__name__ for t in parameter.types)
            raise self._refused(name, value, f"the parameter is constexpr[{wanted}]", f"give a value of type {wanted}")
        try:
            is_array = read_array(value) is not None
        except Unreadable:
            is_array = True
        if is_array:
            why, hint = "an array cannot be a compile-time value", "make the parameter run-time, or pass a tuple"
            raise SpecializeError(BadConstexpr(name, kind, kind, why, hint), self.loc)
        try:
            hash(value)
        except Exception:  # a `__hash__` of the user's may raise anything
            hint = "use a tuple, a frozen dataclass or another hashable value"
            raise self._refused(name, value, "it is not hashable", hint) from None
        try:
            freeze(value)
        except TooLarge as error:
            raise SpecializeError(error.diagnostic, self.loc) from None
        except Exception as error:  # what a `__stagekit_key__` raises
            why = f"its `__stagekit_key__` raised {type(error).__name__}: {error}"
            hint = "return a number, a text or a tuple of such that says what the object holds"
            raise self._refused(name, value, why, hint) from None

    def _refused(self, name: str, value: Any, why: str, hint: str) -> SpecializeError:
        """Return the error for a value that cannot be this constexpr."""
        return SpecializeError(BadConstexpr(name, shown(value), type(value).__name__, why, hint), self.loc)

    def _key(self, fixed: Mapping[str, Any]) -> Any:
        return tuple((name, freeze(fixed[name])) for name in sorted(fixed))

    def with_values(self, fixed: Mapping[str, Any]) -> Specialization:
        """Return the specialisation with these values; a new one where something captured has changed since it was traced."""
        if self._origin is not self:
            return self._origin.with_values(fixed)
        values = {p.name: fixed.get(p.name, p.default) for p in self.parameters.constexprs}
        types_given = {k: v for k, v in fixed.items() if k not in values}
        key = (tuple(map(freeze, values.values())), self._key(types_given))
        with self._lock:
            found = self._specializations.get(key)
            if found is not None and found.is_current():
                self._specializations.move_to_end(key)
                return found
            last = self._last_used()
            changes, before = found.changes() if found else None, last.constexprs if last else None
            why = history.why_new(changes, before, values)
            found = self._specializations[key] = Specialization(self, values, types_given, why)
            self._specializations.move_to_end(key)
            while len(self._specializations) > MAX_SPECIALIZATIONS:
                self._specializations.popitem(last=False)
            return found

    def specialization(self) -> Specialization:
        """Return the specialisation that needs no more values, or raise the error that says which are missing."""
        missing = self._missing(self._fixed)
        if missing:
            raise self._missing_error(missing)
        return self.with_values(self._fixed)

    def _last_used(self) -> Specialization | None:
        """Return the one used last of the specialisations that agree with what is fixed here."""
        fixed = {name: freeze(value) for name, value in self._fixed.items()}
        for each in reversed(self._origin._specializations.values()):
            has = each.specialized_with
            if all(name in has and freeze(has[name]) == value for name, value in fixed.items()):
                return each
        return None

    def _shown(self, target: str = "cuda", choice: Choice | None = None) -> Variant:
        return (self._last_used() or self.specialization())._shown(target, choice)

    # -- launching ----------------------------------------------------------------------------------------------

    def _offer(self, key: Any, specialization: Specialized, variant: Variant, kernel: Kernel) -> None:
        """Have native code that also checks what the variant captured, since a change means another specialisation."""
        self._native.offer(
            key, kernel, lambda: self._call_shape(specialization, variant), variant.guards, variant.member(kernel)
        )

    def _call_shape(self, kernel: Specialized, variant: Variant) -> CallShape:
        """Return how this function is called when it launches `variant`."""
        run_time = {p.name: p for p in kernel.call_shape(variant).parameters}
        rows: list[LaunchParameter] = []
        for p in self.parameters.all:
            if p.name in run_time:
                rows.append(run_time[p.name])
            elif p.name not in self._fixed:
                value = kernel.constexprs[p.name]
                default = value if p.default is ... and self._is_inferred(p.name, kernel, variant) else p.default
                rows.append(LaunchParameter(p.name, default, None, expected=value))
        kinds = self.parameters.signature.parameters
        keyword_only = sum(kinds[row.name].kind is inspect.Parameter.KEYWORD_ONLY for row in rows)
        return CallShape(tuple(rows), keyword_only, variant.guards)

    def _is_inferred(self, name: str, kernel: Specialized, variant: Variant) -> bool:
        """Return whether an array of the variant has this constexpr as a size, so that it need not be given."""
        specs = {s.name: s for s in variant.traced.signature.specs}
        places = self.parameters.sizes_named(name, [name], kernel.constexprs)
        found = ((specs[array], axis) for array, axis in places)
        sizes = [spec.shape[axis] for spec, axis in found if isinstance(spec, ArraySpec)]
        return sizes[:1] == [kernel.constexprs[name]]

    def _resolve(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Resolved:
        constexprs, run_time = dict(self._fixed), []
        for parameter, value in zip(self._open, self._bind(args, kwargs)):
            if not parameter.is_constexpr:
                run_time.append(value)
            elif value is not _LEFT_OUT:
                self._check_constexpr(parameter, value)
                constexprs[parameter.name] = value
        missing = self._missing(constexprs)
        given = {p.name: value for p, value in zip(self.parameters.run_time, run_time)} if missing else {}
        for name in missing:  # sizes of arrays whose shapes name them
            places = self.parameters.sizes_named(name, missing, constexprs)
            views = ((view_of(given[array]), axis) for array, axis in places)
            sizes = [view.shape[axis] for view, axis in views if view is not None and axis < len(view.shape)]
            if not sizes:
                raise self._missing_error(missing)
            constexprs[name] = sizes[0]
        return self.with_values(constexprs), tuple(run_time), None

    @cached_property
    def _open(self) -> tuple[Parameter, ...]:
        """The parameters of a call: all run-time ones, and the constexprs that are not fixed."""
        return tuple(p for p in self.parameters.all if not (p.is_constexpr and p.name in self._fixed))

    @cached_property
    def _bind(self) -> Binder:
        return binder_of(self.name, self._open, self.parameters, left_out=_LEFT_OUT)

    @property
    def cache_size(self) -> int:
        """Number of specialisations kept."""
        return len(self._specializations)
