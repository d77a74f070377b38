"""`Specialization`: from the arguments of a call to the variant for their types, and to the kernel that it launches."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import sys
import time
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from stagekit import config, ranges
from stagekit.diagnostics import InternalError, Loc, StagekitError, shown
from stagekit.forks import Once, cached_property
from stagekit.frontend.captures import Captures
from stagekit.frontend.errors import (
    FLATTEN,
    BadOption,
    HeldChanged,
    NestingBudget,
    SpecializeError,
    StagingError,
    TypesUnknown,
)
from stagekit.frontend.kernel import trace
from stagekit.frontend.parameters import ArgType, NoneArg, Parameters
from stagekit.frontend.state import TooLarge
from stagekit.frontend.traced import KernelRequest, Traced, trace_target
from stagekit.frontend.tracer import suggest
from stagekit.jit import history, sanitizing
from stagekit.jit.argtypes import ArgumentTypes, default_type, launch_parameter, target_of
from stagekit.jit.history import History, fixed_text
from stagekit.jit.launchable import Launchable, Resolved, specializes
from stagekit.jit.options import THREAD_COUNTS, KernelSettings, is_thread_count
from stagekit.jit.variant import Variant, symbol_of
from stagekit.recursion import repeated_deeply
from stagekit.runtime import driver
from stagekit.runtime.kernel import Kernel
from stagekit.runtime.native_process import CallShape
from stagekit.runtime.records import show
from stagekit.runtime.views import Device
from stagekit.signature import QUICK, Choice, KernelEntry


class Owner(Protocol):
    """What a specialisation needs of the `JitFunction` that it belongs to."""

    name: str
    function: types.FunctionType
    history: History
    options: KernelSettings

    @property
    def parameters(self) -> Parameters: ...
    @property
    def loc(self) -> Loc: ...
    def specialize(self, /, **values: Any) -> Any: ...


class Specialization(Launchable):
    """A kernel with its constexprs fixed. Compiled per argument types and target, when first needed."""

    def __init__(self, owner: Owner, constexprs: Mapping[str, Any], types_given: Mapping[str, Any], why: str) -> None:
        super().__init__(owner.name, owner.function)
        self._owner = owner
        self.history = owner.history
        self._why = why
        self.constexprs = types.MappingProxyType(dict(constexprs))
        self._types_given = dict(types_given)
        self._variants: Once[tuple[tuple[ArgType, ...], KernelEntry, str], Variant] = Once()
        self._last: tuple[tuple[ArgType, ...], Choice] | None = None

    @property
    def __stagekit_fixed__(self) -> Mapping[str, Any]:
        return {name: value for name, value in self.constexprs.items() if value is not ...}

    def _named_target(self, switch: str) -> str:
        return switch or self._owner.options.target or ""

    @property
    def parameters(self) -> Parameters:
        return self._owner.parameters

    def __repr__(self) -> str:
        names = ", ".join(p.name for p in self.parameters.run_time)
        return f"<stagekit kernel {self.name}({names}){fixed_text(self.constexprs)}>"

    def summary(self) -> dict[str, str]:
        """Return what a notebook shows, also what the kernel is compiled for."""
        variants = self._distinct_variants()
        compiled = [f"{each.traced.signature}: {text}" for each in variants for text in each.compiled_for]
        return {**super().summary(), "compiled": "\n".join(compiled)}

    def __reduce__(self) -> Any:
        """Pickled by name where it has one (`@function`), else as its kernel and what is fixed."""
        module, name = sys.modules.get(self.__module__), self.function.__qualname__
        if getattr(module, name, None) is self:
            return name
        return functools.partial(self._owner.specialize, **self.specialized_with), ()

    @property
    def specialized_with(self) -> dict[str, Any]:
        """The keywords with which `.specialize(...)` of the kernel gives this."""
        return {**self.constexprs, **self._types_given}

    @specializes
    def specialize(self, /, **values: Any) -> Any:
        """Specialise again, starting from these constexprs."""
        return self._owner.specialize(**{**self.specialized_with, **values})

    # -- argument types -----------------------------------------------------------------------------------------

    @cached_property
    def meanings(self) -> dict[str, Any]:
        """What annotates each run-time parameter, or was said of it in `.specialize(...)`.

        Raises SpecializeError where an annotation means nothing with these constexprs.
        """
        parameters, said = self.parameters, self._types_given
        return {
            p.name: parameters.resolve(p.name, said[p.name], said[p.name], self.constexprs)
            if p.name in said
            else parameters.meaning(p.name, self.constexprs)
            for p in parameters.run_time
        }

    @cached_property
    def _argument_types(self) -> ArgumentTypes:
        absent = {name for name, said in self._types_given.items() if said is None}
        return ArgumentTypes(self.name, self.parameters, self.meanings, absent)

    @property
    def has_known_types(self) -> bool:
        """Whether annotations, `.specialize(...)` or an earlier call say what types the arguments have."""
        return self._last is not None or not self.untyped_parameters()

    def untyped_parameters(self) -> list[str]:
        """Return the parameters whose types neither annotations nor `.specialize(...)` say."""
        return [name for name in self.meanings if self._default_type(name) is None]

    def types_unknown(self, hint: str) -> SpecializeError:
        """Return the error for parameters whose types are not known."""
        names = ", ".join(f"`{n}`" for n in self.untyped_parameters())
        return SpecializeError(TypesUnknown(self.name, names, hint), self._owner.loc)

    def _default_type(self, name: str) -> ArgType | None:
        """Return the type that its annotation alone gives a parameter: arrays are taken to be contiguous."""
        return default_type(self.meanings[name]) or (NoneArg() if name in self._types_given else None)

    # -- variants -----------------------------------------------------------------------------------------------

    def _shown(self, target: str = "cuda", choice: Choice | None = None) -> Variant:
        if self._last is not None:
            return self._variant(self._last[0], target, choice or self._last[1])
        found = [self._default_type(name) for name in self.meanings]
        if unknown := self.untyped_parameters():
            example = ", ".join(f"{n}=sk.Tensor((None,), sk.float32)" for n in unknown[:2])
            raise self.types_unknown(f"call it, or name their types: `.specialize({example})`")
        return self._variant(tuple(kind for kind in found if kind is not None), target, choice or QUICK)

    def _variant(self, arg_types: tuple[ArgType, ...], target: str = "cuda", choice: Choice = QUICK) -> Variant:
        """Return the variant for these types, which targets share where one trace serves them all."""
        entry = choice.entry
        quick = None if entry is KernelEntry.QUICK else self._variant(arg_types, target)

        def make() -> Variant:
            others = [each for key, each in self._variants.items() if key[:2] == (arg_types, entry)]
            for each in others:
                if each.traced.serves(target) and each.quick is quick:
                    return each
            config.check_switches()
            began_s = time.perf_counter()
            types_before, *_ = next(reversed(self._variants), (None,))
            why = choice.why or history.why_types(types_before, arg_types, self.parameters) or self._why
            for each in others:
                self._require_same(each.traced.captures)
                why = f"{target} has a trace of its own"
            with ranges.span(f"trace {self.name}"):
                traced = self._trace(arg_types, target, choice)
            self.history.note("traced", "", why, began_s)
            for line in () if others else traced.printed:
                show(line + "\n")
            explained = functools.partial(self.explained, choice)
            by_name = {p.name: kind for p, kind in zip(self.parameters.run_time, arg_types)}
            return Variant(self.name, entry, quick, self.constexprs, by_name, self.history, traced, why, explained)

        key = arg_types, entry, target
        found = self._variants.get(key) or self._variants.of(key, make)
        self._last = arg_types, choice
        return found

    def every_entry(self, target: str) -> list[Variant]:
        """Return the variants of all entries that launches with the types of the shown one may need."""
        self._shown(target)
        assert self._last is not None
        last = arg_types, _ = self._last
        quick = self._variant(arg_types, target)
        others = dict.fromkeys(fact.otherwise for fact in quick.traced.signature.facts)
        found = [
            self._variant(arg_types, target, Choice(other, f"the {other} entry, ahead of a launch")) for other in others
        ]
        self._last = last
        return [quick, *found]

    def _require_same(self, captures: Captures) -> None:
        """Raise SpecializeError where what an earlier trace read has changed since."""
        if not captures.is_current():
            raise SpecializeError(HeldChanged(self.name, "; ".join(captures.changes())), self._owner.loc)

    def _trace(self, arg_types: tuple[ArgType, ...], target: str, choice: Choice) -> Traced:
        symbol, options = symbol_of(self.name, self.constexprs, choice.entry), self._owner.options.trace
        is_general = choice.entry is KernelEntry.GENERAL
        apart = self._variants[arg_types, KernelEntry.QUICK, target].traced.apart if is_general else ()
        with self.explained(choice):
            options = dataclasses.replace(options, threads=self._threads(options.threads))
            facts = self.parameters, self.constexprs, arg_types, options, symbol
            request = KernelRequest(*facts, target, choice.entry, apart)
            return repeated_deeply(trace)(request, self.meanings.__getitem__)

    def _threads(self, option: int | str | None) -> int | None:
        """Return what the option `threads` says, which may be the name of a constexpr. None: the tiles decide."""
        if not isinstance(option, str):
            return option
        if option not in self.constexprs:
            names = tuple(p.name for p in self.parameters.constexprs)
            hint = f"{suggest(option, names)}give the name of a constexpr parameter, or an int"
            raise SpecializeError(
                BadOption("threads", f"there is no constexpr parameter `{option}`", hint), self._owner.loc
            )
        value = self.constexprs[option]
        if value is not None and not is_thread_count(value):
            hint = f"give {THREAD_COUNTS}, or None"
            raise SpecializeError(BadOption("threads", f"`{option}` is {shown(value)}", hint), self._owner.loc)
        return int(value) if value is not None else None

    @contextlib.contextmanager
    def explained(self, choice: Choice = QUICK) -> Iterator[None]:
        """Tell a user's error which specialisation it belongs to, and which entry; wrap what is our own fault."""
        try:
            yield
        except StagekitError as error:
            of_entry = f": {choice.why}" if choice.why else ""
            error.context = (f"while specialising `{self.name}`{fixed_text(self.constexprs)}{of_entry}",)
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

    def _distinct_variants(self) -> Iterable[Variant]:
        """Return the variants, each once: several targets may share one."""
        return dict.fromkeys(self._variants.values())

    def changes(self) -> list[str]:
        """Describe what was read outside the kernel and has changed since."""
        return [change for v in self._distinct_variants() for change in v.traced.captures.changes()]

    def is_current(self) -> bool:
        """Return whether every object that the traced variants read outside the kernel is still the same object."""
        return all(v.traced.captures.is_current() for v in self._distinct_variants())

    # -- launching ----------------------------------------------------------------------------------------------

    def _resolve(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Resolved:
        return self, tuple(self._argument_types.bind(args, kwargs)), None

    def kernel_for(
        self, key: Any, values: tuple[Any, ...], target: str | None, choice: Choice | None = None
    ) -> tuple[Variant, Kernel]:
        """Return the variant for these arguments, and what a launch with them runs: in a checked session the interpreter.

        choice: the entry, if it is known already.
        """
        arg_types, device = self._argument_types.of(values)
        session = sanitizing.current()
        where = self.target_for(device, target)
        trace_for = _trace_target(where, device)
        variant = self._variant(arg_types, trace_for)
        leaves = variant.leaves(values)
        choice = choice or variant.choose(leaves)
        if choice.entry is not KernelEntry.QUICK:
            variant = self._variant(arg_types, trace_for, choice)
        if isinstance(session, sanitizing.Sanitizer):
            return variant, variant.checked(session.options).in_session(session)
        kernel = variant.kernel(key, leaves, where, device)
        return variant, kernel if session is None else session.recording(kernel)

    def target_for(self, device: Device, target: str | None) -> str:
        """Return where a launch on arrays of this device runs. target: the one that the kernel is bound to."""
        session = sanitizing.current()
        if session is not None:
            return session.target
        return target or self._named_target(config.TARGET.get()) or target_of(device)

    def call_shape(self, variant: Variant) -> CallShape:
        """Return how a variant is called, for native launchers: with its run-time parameters."""
        leaf = itertools.count()
        kinds = variant.arg_types
        rows = [launch_parameter(p.name, kinds[p.name], self.meanings[p.name], leaf) for p in self.parameters.run_time]
        given = [dataclasses.replace(row, default=p.default) for row, p in zip(rows, self.parameters.run_time)]
        return CallShape(tuple(given), self._argument_types.bind.keyword_only)


def _trace_target(target: str, device: Device) -> str:
    """Return what a launch on arrays of this device is traced for. Without a GPU an error says so later."""
    if target != "cuda" or not driver.is_available():
        return target
    return trace_target(target, driver.capability(device.ordinal if device.kind == "cuda" else driver.current_device()))
