"""A kernel with its constexprs fixed: compiled per argument types and target, when first needed."""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from stagekit import config
from stagekit.diagnostics import InternalError, StagekitError, hide_frames
from stagekit.dtypes import DType
from stagekit.forks import new_lock
from stagekit.frontend.captures import Captures
from stagekit.frontend.errors import FLATTEN, HeldChanged, NestingBudget, SpecializeError, StagingError, TypesUnknown
from stagekit.frontend.kernel import KernelRequest, Traced, trace
from stagekit.frontend.markers import Optional, Pointer, Tensor
from stagekit.frontend.parameters import ArgType, ArrayArg, NoneArg, ScalarArg
from stagekit.frontend.state import TooLarge
from stagekit.jit import reasons, sanitizing
from stagekit.jit.argtypes import ArgumentTypes, target_of
from stagekit.jit.history import Stopwatch
from stagekit.jit.launchable import Launchable, fixed_text
from stagekit.jit.variant import Variant, symbol_of
from stagekit.recursion import repeated_deeply
from stagekit.runtime.kernel import Kernel
from stagekit.runtime.native_process import CallShape, LaunchParameter
from stagekit.runtime.records import show

if TYPE_CHECKING:
    from stagekit.jit.jitfunction import JitFunction


class Specialization(Launchable):
    """A kernel with its constexprs fixed. Compiled per argument types and target, when first needed."""

    def __init__(
        self,
        owner: JitFunction,
        constexprs: Mapping[str, Any],
        types_given: Mapping[str, Any],
        why: str = reasons.FIRST_USE,
    ) -> None:
        super().__init__(owner.name, owner.function)
        self._owner = owner
        self.history = owner.history
        self._why = why
        self.constexprs = types.MappingProxyType(dict(constexprs))
        self._types_given = dict(types_given)
        self._lock = new_lock()
        self._variants: dict[tuple[ArgType, ...], Variant] = {}
        self._last: Variant | None = None

    @property
    def __stagekit_fixed__(self) -> Mapping[str, Any]:
        return {name: value for name, value in self.constexprs.items() if value is not ...}

    def __repr__(self) -> str:
        names = ", ".join(p.name for p in self._owner.parameters.run_time)
        return f"<stagekit kernel {self.name}({names}){fixed_text(self.constexprs)}>"

    def __reduce__(self) -> Any:
        """Pickled by name where it has one (`@function`), else as its kernel and what is fixed."""
        module, name = sys.modules.get(self.__module__), self.function.__qualname__
        if getattr(module, name, None) is self:
            return name
        return restored, (self._owner, self.specialized_with)

    @property
    def specialized_with(self) -> dict[str, Any]:
        """What `.specialize(...)` of the kernel takes to give this."""
        return {**self.constexprs, **self._types_given}

    @hide_frames
    def specialize(self, /, **values: Any) -> Any:
        """Specialise again, starting from these constexprs."""
        return self._owner.specialize(**{**self.specialized_with, **values})

    # -- argument types -----------------------------------------------------------------------------------------

    @functools.cached_property
    def _meanings(self) -> dict[str, Any]:
        """What annotates each run-time parameter, or was said of it in `.specialize(...)`."""
        parameters = self._owner.parameters
        said = self._types_given
        return {
            p.name: parameters.said(p.name, said[p.name], self.constexprs)
            if p.name in said
            else parameters.meaning(p.name, self.constexprs)
            for p in parameters.run_time
        }

    def check_annotations(self) -> None:
        """Refuse constexprs with which an annotation means nothing."""
        _ = self._meanings

    @functools.cached_property
    def _argument_types(self) -> ArgumentTypes:
        absent = {name for name, said in self._types_given.items() if said is None}
        return ArgumentTypes(self.name, self._owner.parameters, self._meanings, absent)

    @property
    def has_known_types(self) -> bool:
        """Do annotations, `.specialize(...)` or an earlier call say what types the arguments have?"""
        return self._last is not None or all(self._default_type(n, m) is not None for n, m in self._meanings.items())

    def _default_types(self) -> tuple[ArgType, ...]:
        """The types that annotations alone give: arrays are taken to be contiguous."""
        found = [self._default_type(name, meaning) for name, meaning in self._meanings.items()]
        if unknown := self.untyped_parameters():
            example = ", ".join(f"{n}=sk.Tensor((None,), sk.float32)" for n in unknown[:2])
            raise self.types_unknown(f"call it, or name their types: `.specialize({example})`")
        return tuple(kind for kind in found if kind is not None)

    def untyped_parameters(self) -> list[str]:
        """The parameters whose types neither annotations nor `.specialize(...)` say."""
        return [name for name, meaning in self._meanings.items() if self._default_type(name, meaning) is None]

    def types_unknown(self, hint: str) -> SpecializeError:
        names = ", ".join(f"`{n}`" for n in self.untyped_parameters())
        return SpecializeError(TypesUnknown(self.name, names, hint), self._owner.loc)

    def _default_type(self, name: str, meaning: Any) -> ArgType | None:
        inner = meaning.inner if isinstance(meaning, Optional) else meaning
        if isinstance(inner, Tensor | Pointer):
            rank, is_packed = (len(inner.shape), inner.strides is None) if isinstance(inner, Tensor) else (1, True)
            return ArrayArg(inner.dtype, rank, is_packed)
        if isinstance(inner, DType):
            return ScalarArg(inner)
        return NoneArg() if name in self._types_given else None

    # -- variants -----------------------------------------------------------------------------------------------

    def _variant(self, arg_types: tuple[ArgType, ...], target: str = "cuda") -> Variant:
        """The variant for these types. A new one is traced as `target` needs it."""
        found = self._variants.get(arg_types)
        if found is None:
            with self._lock:
                found = self._variants.get(arg_types)
                if found is None:
                    found = self._variants[arg_types] = self._new_variant(arg_types, target)
        self._last = found
        return found

    def _new_variant(self, arg_types: tuple[ArgType, ...], target: str) -> Variant:
        config.check_switches()
        watch = Stopwatch()
        why = reasons.why_types(self._types_before(), arg_types, self._owner.parameters) or self._why
        traced = self._trace(arg_types, has_hosts=target != "cuda")
        self.history.note("traced", "", why, watch.elapsed_s)
        for line in traced.printed:
            show(line + "\n")
        whole = functools.partial(self._trace_whole, arg_types, traced.captures)
        return Variant(self.name, self.constexprs, traced, whole, self._explained, self.history, why)

    def _types_before(self) -> tuple[ArgType, ...] | None:
        """Those of the variant made last."""
        return next(reversed(self._variants), None)

    def _trace_whole(self, arg_types: tuple[ArgType, ...], captures: Captures) -> Traced:
        """Trace for all targets what was traced for cuda alone. What was read must still be so: it is the same specialisation."""
        if not captures.is_current():
            raise SpecializeError(HeldChanged(self.name, "; ".join(captures.changes())), self._owner.loc)
        return self._trace(arg_types, has_hosts=True)

    def _trace(self, arg_types: tuple[ArgType, ...], *, has_hosts: bool) -> Traced:
        symbol, options = symbol_of(self.name, self.constexprs), self._owner.options.trace
        request = KernelRequest(self._owner.parameters, self.constexprs, arg_types, options, symbol, has_hosts)
        with self._explained():
            return repeated_deeply(trace)(request, self._meanings.__getitem__)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Tell a user's error which specialisation it belongs to; wrap what is our own fault."""
        try:
            yield
        except StagekitError as error:
            error.context = (f"while specialising `{self.name}`{fixed_text(self.constexprs)}",)
            raise
        except (InternalError, Warning):  # a warning is raised under `-W error`, as its user wants it
            raise
        except TooLarge as error:  # in a constexpr
            raise StagingError(error.diagnostic, self._owner.loc) from None
        except RecursionError:  # with the largest stack that there is
            raise StagingError(
                NestingBudget(f"`{self.name}` nests", "more deeply than it can be compiled", FLATTEN), self._owner.loc
            ) from None
        except Exception as error:
            raise InternalError(
                f"stagekit failed on `{self.name}` ({type(error).__name__}: {error}); please report it"
            ) from error

    def changes(self) -> list[str]:
        """What was read outside the kernel and is no longer so, in words."""
        return [change for v in self._variants.values() for change in v.traced.captures.changes()]

    def is_current(self) -> bool:
        """Is everything that the traced variants read outside the kernel as it was?"""
        return all(v.is_current() for v in self._variants.values())

    # -- launching ----------------------------------------------------------------------------------------------

    def _resolve(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Self, tuple[Any, ...], str | None]:
        return self, tuple(self._argument_types.bind(args, kwargs)), None

    def kernel_for(self, key: Any, values: tuple[Any, ...], target: str | None) -> tuple[Variant, Kernel]:
        """The variant for these arguments, and what a launch with them runs: in a checked session the interpreter."""
        arg_types, device = self._argument_types.of(values)
        session = sanitizing.current()
        if session is not None:
            variant = self._variant(arg_types, "interp")
            return variant, session.kernel(variant)
        where = target or config.TARGET.get() or self._owner.options.target or target_of(device)
        variant = self._variant(arg_types, where)
        return variant, variant.kernel(key, values, where, device)

    def call_shape(self) -> CallShape:
        """How the kernel is called, for native launchers."""
        return CallShape(self.native_parameters(), self._argument_types.keyword_only)

    def native_parameters(self) -> tuple[LaunchParameter, ...]:
        """The run-time parameters, as native launchers read them."""
        rows = enumerate(self._owner.parameters.run_time)
        return tuple(LaunchParameter(p.name, p.default, place, self._fixes_dtype(p.name)) for place, p in rows)

    def _fixes_dtype(self, name: str) -> bool:
        meaning = self._meanings[name]
        return isinstance(meaning.inner if isinstance(meaning, Optional) else meaning, DType)

    # -- inspection ---------------------------------------------------------------------------------------------

    def _shown(self) -> Variant:
        return self._last or self._variant(self._default_types())


def restored(kernel: Any, values: Mapping[str, Any]) -> Any:
    """`kernel` with these values, where a pickle is read."""
    return kernel.specialize(**values)
