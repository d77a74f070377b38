"""What a user holds: a `JitFunction`, nothing parsed; a `Specialization`, constexprs fixed; and launches of it.

    @jit                                       JitFunction
    def k(A: Tensor((n,), float32), *, BLOCK: constexpr): ...

    k64 = k.specialize(BLOCK=64)               Specialization: the same object for the same values, while captures are unchanged
    k64[grid, 64](a)                           traced and compiled for the types and target of its arguments at the first launch
    k[grid, 64](a, BLOCK=64)                   the same kernel, by the first call

A specialisation keeps the captured values that it was traced with. The `JitFunction` checks before each use that everything the
tracer read outside is as it was; otherwise it makes a new specialisation.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import sys
import threading
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import numpy as np

from stagekit import compilation, config, dtypes
from stagekit.artifact import Artifact, Style
from stagekit.backends import ptxas
from stagekit.backends.interp import UNCHECKED
from stagekit.backends.report import Report, report
from stagekit.diagnostics import InternalError, StagekitError, hide_frames
from stagekit.dtypes import DType
from stagekit.frontend.calls import keep_snapshot
from stagekit.frontend.captures import freeze
from stagekit.frontend.errors import (
    BadConstexpr,
    MissingConstexpr,
    NotConstexpr,
    SpecializeError,
    TypesUnknown,
    UnknownParameter,
    UnsupportedArgument,
    UnsupportedSyntax,
)
from stagekit.frontend.kernel import KernelRequest, Traced, trace
from stagekit.frontend.markers import Optional, Pointer, Tensor
from stagekit.frontend.parameters import ArgType, ArrayArg, NoneArg, Parameters, ScalarArg, outer_names
from stagekit.frontend.source import Snapshot
from stagekit.frontend.tracer import OP_BUDGET, UNROLL_BUDGET, TraceOptions, suggest
from stagekit.ir.printer import print_function
from stagekit.runtime import driver
from stagekit.runtime.args import describe as describe_argument
from stagekit.runtime.args import read_array
from stagekit.runtime.errors import ArgumentError
from stagekit.runtime.kernel import Kernel, block_of
from stagekit.runtime.launch_config import NO_BRACKETS
from stagekit.signature import Signature

P = ParamSpec("P")
R = TypeVar("R")

MAX_SPECIALIZATIONS = 1024  # per JitFunction; the least recently used one goes
_RECURSION_LIMIT = 12_000  # the tracer walks the tree of nested calls; budgets stop it long before


@dataclass(frozen=True)
class Options:
    """Options of `@jit` and `@function`. name: what profilers show; left out, the function's own name."""

    trace: TraceOptions
    name: str | None
    target: str | None


# -- decorators -----------------------------------------------------------------------------------------------------------


def _options(
    fastmath: bool, debug: bool, max_registers: int | None, name: str | None, target: str | None, unroll: int, ops: int
) -> Options:
    trace_options = TraceOptions(fastmath, debug, max_registers, unroll, ops)
    return Options(trace_options, name, target)


def jit(
    fn: Callable[..., Any] | None = None,
    *,
    fastmath: bool = False,
    debug: bool = False,
    max_registers: int | None = None,
    name: str | None = None,
    target: str | None = None,
    unroll_budget: int = UNROLL_BUDGET,
    op_budget: int = OP_BUDGET,
) -> Any:
    """Make a kernel that is not parsed until `.specialize(...)` or its first call fixes its constexprs.

    fastmath: allow contraction, approximate division and functions. debug: keep `assert` on the GPU. max_registers: per thread.
    name: the symbol that profilers show. target: "cpu" or "cuda" whatever the arrays. unroll_budget: iterations of static loops
    in all. op_budget: operations in all.
    """
    options = _options(fastmath, debug, max_registers, name, target, unroll_budget, op_budget)
    frame = sys._getframe(1)
    if fn is None:
        return lambda function: JitFunction(function, options, outer_names(function, frame))
    return JitFunction(_checked(fn, "jit"), options, outer_names(_checked(fn, "jit"), frame))


def function(
    fn: Callable[..., Any] | None = None,
    *,
    fastmath: bool = False,
    debug: bool = False,
    max_registers: int | None = None,
    name: str | None = None,
    target: str | None = None,
    unroll_budget: int = UNROLL_BUDGET,
    op_budget: int = OP_BUDGET,
) -> Any:
    """Make a kernel that is traced at once: everything it captures is fixed now, and errors show at the definition.

    Options as for `jit`. Every parameter is annotated, none is constexpr.
    """
    options = _options(fastmath, debug, max_registers, name, target, unroll_budget, op_budget)
    frame = sys._getframe(1)

    @hide_frames
    def define(given: Callable[..., Any]) -> Specialization:
        made = JitFunction(_checked(given, "function"), options, outer_names(_checked(given, "function"), frame))
        kernel = made._specialization({})
        kernel.trace()
        return kernel

    return define if fn is None else define(fn)


class InlineFunction:
    """A fragment: in a kernel its body is expanded at every call; outside, it is the Python function it was made from."""

    def __init__(self, fn: types.FunctionType) -> None:
        self.__stagekit_fragment__ = fn
        keep_snapshot(Snapshot.take(fn))
        functools.update_wrapper(self, fn)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__stagekit_fragment__(*args, **kwargs)

    def __get__(self, owner: Any, cls: type | None = None) -> Any:
        return self if owner is None else types.MethodType(self, owner)

    def __repr__(self) -> str:
        return f"<stagekit inline {self.__stagekit_fragment__.__qualname__}>"


def inline(fn: Callable[P, R]) -> Callable[P, R]:
    """Mark a fragment. Plain functions called from a kernel are staged the same; `inline` says so and keeps the source text."""
    return InlineFunction(_checked(fn, "inline"))  # type: ignore[return-value]


def _checked(fn: Any, decorator: str) -> types.FunctionType:
    if not isinstance(fn, types.FunctionType):
        hint = f"decorate a Python function: `@{decorator}` above its `def`"
        raise SpecializeError(UnsupportedSyntax(f"`{decorator}` of a {type(fn).__name__}", hint))
    return fn


# -- the unspecialised kernel ---------------------------------------------------------------------------------------------


class JitFunction:
    """A kernel before its constexprs are fixed. `.specialize(...)` fixes them; brackets and call do so from the arguments."""

    def __init__(
        self, fn: types.FunctionType, options: Options, outer: Mapping[str, Any], fixed: Mapping[str, Any] | None = None
    ) -> None:
        self._function = fn
        self._options = options
        self._outer = dict(outer)
        self._fixed = dict(fixed or {})
        self._snapshot = Snapshot.take(fn)
        keep_snapshot(self._snapshot)
        self._lock = threading.RLock()
        self._made: OrderedDict[Any, Specialization] = OrderedDict()
        self._partials: dict[Any, JitFunction] = {}
        functools.update_wrapper(self, fn)

    @property
    def __stagekit_fragment__(self) -> types.FunctionType:
        """A kernel called inside another kernel is a fragment."""
        return self._function

    @functools.cached_property
    def parameters(self) -> Parameters:
        return Parameters(self._snapshot, self._outer)

    @property
    def name(self) -> str:
        return self._options.name or self._function.__name__

    def __repr__(self) -> str:
        fixed = ", ".join(f"{k}={v!r}" for k, v in self._fixed.items())
        return f"<stagekit jit {self._function.__qualname__}{inspect.signature(self._function)}{' with ' + fixed if fixed else ''}>"

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
        missing = self._missing(fixed)
        if not missing:
            return self._specialization(fixed)
        given = {k: v for k, v in fixed.items() if k in self._constexpr_names()}
        if not given and not values:
            raise self._missing_error(missing)
        key = self._key(fixed)
        with self._lock:
            return self._partials.setdefault(key, JitFunction(self._function, self._options, self._outer, fixed))

    def _constexpr_names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters.constexprs)

    def _missing(self, fixed: Mapping[str, Any]) -> list[str]:
        return [p.name for p in self.parameters.constexprs if p.name not in fixed and p.default is ...]

    def _missing_error(self, missing: list[str]) -> SpecializeError:
        names = ", ".join(f"`{n}`" for n in missing)
        example = ", ".join(f"{n}=..." for n in missing)
        return SpecializeError(MissingConstexpr(self.name, names, f".specialize({example})"), self._snapshot.loc)

    def _check_value(self, name: str, value: Any) -> None:
        parameters = self.parameters
        if name not in parameters.names:
            known = ", ".join(f"{p.name}{': constexpr' if p.is_constexpr else ''}" for p in parameters.all)
            raise SpecializeError(
                UnknownParameter(self.name, name, suggest(name, parameters.names), known), self._snapshot.loc
            )
        parameter = next(p for p in parameters.all if p.name == name)
        if not parameter.is_constexpr:
            if value is not None and not isinstance(value, Tensor | Pointer | DType | Optional):
                raise SpecializeError(NotConstexpr(name, self.name, repr(value)), self._snapshot.loc)
            return
        self._check_constexpr(name, parameter.type, value)

    def _check_constexpr(self, name: str, wanted: type | None, value: Any) -> None:
        shown, kind = repr(value), type(value).__name__
        if (
            wanted is not None
            and type(value) is not wanted
            and not (isinstance(value, wanted) and not isinstance(value, bool))
        ):
            why = f"the parameter is constexpr[{wanted.__name__}]"
            raise SpecializeError(BadConstexpr(name, shown, kind, why, f"give a {wanted.__name__}"), self._snapshot.loc)
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
            hash(freeze(value))
        except TypeError:
            hint = "use a tuple, a frozen dataclass or another hashable value"
            raise SpecializeError(
                BadConstexpr(name, shown, kind, "it is not hashable", hint), self._snapshot.loc
            ) from None

    def _key(self, fixed: Mapping[str, Any]) -> Any:
        return tuple(sorted(((k, freeze(v)) for k, v in fixed.items()), key=lambda item: item[0]))

    def _specialization(self, fixed: Mapping[str, Any]) -> Specialization:
        """The specialisation with these values; a new one where something captured has changed since it was traced."""
        values = {p.name: fixed.get(p.name, p.default) for p in self.parameters.constexprs}
        types_given = {k: v for k, v in fixed.items() if k not in values}
        key = self._key({**values, **types_given})
        with self._lock:
            found = self._made.get(key)
            if found is not None and found._is_current():
                self._made.move_to_end(key)
                return found
            made = self._made[key] = Specialization(self, values, types_given)
            self._made.move_to_end(key)
            while len(self._made) > MAX_SPECIALIZATIONS:
                self._made.popitem(last=False)
            return made

    # -- launching ----------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Callable[..., None]:
        """`k[grid]`, `k[grid, block]`, ...: what the brackets mean follows the kernel's style."""
        return _Launcher(self._launch, key)

    @hide_frames
    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Launch a kernel that computes its own grid (`device_entry`)."""
        self._launch(None, args, kwargs)

    def _launch(self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        kernel, run_time, named = self._split(args, kwargs)
        kernel._launch(key, run_time, named)

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
            self._infer(missing, constexprs, run_time, named)
        return self._specialization(constexprs), tuple(run_time), named

    @functools.cached_property
    def _positional(self) -> list[str]:
        kinds = self.parameters.signature.parameters.values()
        return [p.name for p in kinds if p.kind is not p.KEYWORD_ONLY]

    @functools.cached_property
    def _constexpr_set(self) -> frozenset[str]:
        return frozenset(self._constexpr_names())

    def _infer(
        self, missing: list[str], constexprs: dict[str, Any], run_time: list[Any], named: dict[str, Any]
    ) -> None:
        """Take constexpr sizes from the arrays whose shapes name them."""
        names = [p.name for p in self.parameters.run_time if p.name not in self._fixed]
        given = {**dict(zip(names, run_time)), **named}
        for name in missing:
            place = self.parameters.sizes_named(name, constexprs)
            view = read_array(given[place[0]]) if place and place[0] in given else None
            if place is None or view is None or place[1] >= len(view.shape):
                raise self._missing_error(missing)
            constexprs[name] = view.shape[place[1]]

    @property
    def cache_size(self) -> int:
        """Number of specialisations kept."""
        return len(self._made)


class _Launcher:
    """`kernel[brackets]`: called with the arguments, it launches."""

    def __init__(self, launch: Callable[[Any, tuple[Any, ...], Mapping[str, Any]], None], key: Any) -> None:
        self._launch = launch
        self._key = key

    @hide_frames
    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self._launch(self._key, args, kwargs)


# -- the specialised kernel -----------------------------------------------------------------------------------------------


class Specialization:
    """A kernel with its constexprs fixed. Compiled per argument types and target, when first needed.

    `ir`, `llvm`, `ptx`, `sass`, `signature`, `launch` and `report()` show the variant that was used last, or the one for contiguous
    arrays of the annotated types; no GPU is needed for them.
    """

    def __init__(self, owner: JitFunction, constexprs: Mapping[str, Any], types_given: Mapping[str, Any]) -> None:
        self._owner = owner
        self.constexprs = types.MappingProxyType(dict(constexprs))
        self._types_given = dict(types_given)
        self._lock = threading.RLock()
        self._variants: dict[tuple[ArgType, ...], _Variant] = {}
        self._last: _Variant | None = None
        functools.update_wrapper(self, owner._function)
        self._run_time = owner.parameters.run_time
        self._meanings: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        return self._owner.name

    @property
    def __stagekit_fragment__(self) -> types.FunctionType:
        return self._owner._function

    def __repr__(self) -> str:
        fixed = ", ".join(f"{k}={v!r}" for k, v in self.constexprs.items())
        return f"<stagekit kernel {self.name}({', '.join(p.name for p in self._run_time)}){' with ' + fixed if fixed else ''}>"

    @hide_frames
    def specialize(self, **values: Any) -> Any:
        """Specialise again, starting from these constexprs."""
        return self._owner.specialize(**{**self.constexprs, **self._types_given, **values})

    # -- argument types -----------------------------------------------------------------------------------------

    def _meaning(self, name: str) -> Any:
        if self._meanings is None:
            given = self._types_given
            meanings = {p.name: self._owner.parameters.meaning(p.name, self.constexprs) for p in self._run_time}
            self._meanings = {
                n: given.get(n, m) if given.get(n) is not None or n not in given else None for n, m in meanings.items()
            }
        return self._meanings[name]

    def _default_types(self) -> tuple[ArgType, ...]:
        """The types that annotations alone give."""
        found: list[ArgType] = []
        unknown: list[str] = []
        for p in self._run_time:
            meaning = self._meaning(p.name)
            if p.name in self._types_given and self._types_given[p.name] is None:
                found.append(NoneArg())
                continue
            inner = meaning.inner if isinstance(meaning, Optional) else meaning
            if isinstance(inner, Tensor):
                found.append(ArrayArg(inner.dtype, len(inner.shape), True))
            elif isinstance(inner, Pointer):
                found.append(ArrayArg(inner.dtype, 1, True))
            elif isinstance(inner, DType):
                found.append(ScalarArg(inner))
            else:
                unknown.append(p.name)
        if unknown:
            example = ", ".join(f"{n}=sk.Tensor((None,), sk.float32)" for n in unknown[:2])
            names = ", ".join(f"`{n}`" for n in unknown)
            raise SpecializeError(TypesUnknown(self.name, names, example), self._owner._snapshot.loc)
        return tuple(found)

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """Arguments in parameter order, as far as they are given; the launch itself reports what does not fit."""
        names = [p.name for p in self._run_time]
        if not kwargs and len(args) == len(names):
            return list(args)
        given = {**dict(zip(names, args)), **kwargs}
        return [given.get(p.name, None if p.default is ... else p.default) for p in self._run_time]

    def _arg_type(self, name: str, value: Any) -> ArgType:
        meaning = self._meaning(name)
        inner = meaning.inner if isinstance(meaning, Optional) else meaning
        if value is None and (isinstance(meaning, Optional) or meaning is None):
            return NoneArg()
        if isinstance(inner, DType):
            return ScalarArg(inner)
        if isinstance(inner, Pointer):
            return ArrayArg(inner.dtype, 1, True)
        view = read_array(value) if not isinstance(value, int | float | bool | np.generic) else None
        if isinstance(inner, Tensor):
            is_contiguous = view is None or view.is_contiguous
            return ArrayArg(inner.dtype, len(inner.shape), is_contiguous)
        if view is None:
            return ScalarArg(self._scalar_dtype(name, value))
        if not isinstance(view.dtype, DType):
            raise ArgumentError(UnsupportedArgument(name, describe_argument(value), "convert it to a supported dtype"))
        return ArrayArg(view.dtype, len(view.shape), view.is_contiguous)

    def _scalar_dtype(self, name: str, value: Any) -> DType:
        if type(value) in (bool, int, float):
            return {bool: dtypes.bool_, int: dtypes.int32, float: dtypes.float32}[type(value)]
        found = dtypes.dtype_from_numpy(value.dtype) if isinstance(value, np.generic) else None
        if found is None:
            hint = "pass arrays, numbers, or make it a constexpr parameter"
            raise ArgumentError(UnsupportedArgument(name, describe_argument(value), hint))
        return found

    # -- variants -----------------------------------------------------------------------------------------------

    def _variant(self, arg_types: tuple[ArgType, ...]) -> _Variant:
        found = self._variants.get(arg_types)
        if found is None:
            with self._lock:
                found = self._variants.get(arg_types)
                if found is None:
                    found = self._variants[arg_types] = _Variant(self, self._trace(arg_types))
        self._last = found
        return found

    def _trace(self, arg_types: tuple[ArgType, ...]) -> Traced:
        symbol = symbol_of(self.name, self.constexprs)
        request = KernelRequest(self._owner.parameters, self.constexprs, arg_types, self._owner._options.trace, symbol)
        with self._explained(), _deep_recursion():
            traced = trace(request, self._meaning)
        for line in traced.printed:
            sys.stdout.write(line + "\n")
        return traced

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Tell a user's error which specialisation it belongs to; wrap what is our own fault."""
        try:
            yield
        except StagekitError as error:
            fixed = ", ".join(f"{k}={v!r}" for k, v in self.constexprs.items())
            error.context = (f"while specialising `{self.name}`{' with ' + fixed if fixed else ''}",)
            raise
        except InternalError:
            raise
        except Exception as error:
            raise InternalError(
                f"stagekit failed on `{self.name}` ({type(error).__name__}: {error}); please report it"
            ) from error

    def _is_current(self) -> bool:
        return all(v.traced.captures.is_current() for v in self._variants.values())

    # -- launching ----------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Callable[..., None]:
        """`k[grid]`, `k[grid, block]`, ...: what the brackets mean follows the kernel's style."""
        return _Launcher(self._launch, key)

    @hide_frames
    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Launch a kernel that computes its own grid (`device_entry`)."""
        self._launch(None, args, kwargs)

    def _launch(self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], target: str | None = None) -> None:
        values = self._bind(args, kwargs)
        arg_types = tuple([self._arg_type(p.name, v) for p, v in zip(self._run_time, values)])
        variant = self._variant(arg_types)
        variant.launch(key, args, kwargs, target or self._target(values), values)

    def _target(self, values: list[Any]) -> str:
        """Where to run: as asked for, else where the first array lives."""
        asked = config.TARGET.get() or self._owner._options.target
        if asked:
            return asked
        for value in values:
            if isinstance(value, np.ndarray):
                return "cpu"
            view = None if isinstance(value, int | float | bool | np.generic | None) else read_array(value)
            if view is not None:
                return view.device.kind
        return "cpu"

    # -- inspection ---------------------------------------------------------------------------------------------

    def trace(self) -> Traced:
        """The traced kernel of the variant that the inspection properties show."""
        return self._shown().traced

    def _shown(self) -> _Variant:
        return self._last or self._variant(self._default_types())

    @hide_frames
    def compile(
        self, target: str = "cuda", *, capability: int | None = None, block: int | tuple[int, ...] | None = None
    ) -> Artifact:
        """Compile without launching. capability: cuda, ten times the version (90). block: cpu, where the kernel does not fix it."""
        return self._shown().artifact(target, capability, block)

    @property
    @hide_frames
    def ir(self) -> str:
        """The traced IR as text."""
        return self._shown().ir

    @property
    @hide_frames
    def llvm(self) -> str:
        """LLVM IR for the GPU, before optimisation."""
        return self.compile("cuda").stages["llvm"]

    @property
    @hide_frames
    def ptx(self) -> str:
        """PTX for the GPU that is present, else for compute capability 9.0."""
        return self.compile("cuda").stages["ptx"]

    @property
    @hide_frames
    def sass(self) -> str:
        """Machine code of the GPU as text; needs ptxas and a disassembler (`stagekit[cuda]`)."""
        return ptxas.disassemble(ptxas.assemble(self.ptx).cubin)

    @property
    @hide_frames
    def signature(self) -> Signature:
        """What a launch accepts."""
        return self._shown().traced.signature

    @property
    @hide_frames
    def launch(self) -> Any:
        """The launch that the kernel computes itself (`LaunchSpec`), or None."""
        return self._shown().traced.launch

    @property
    @hide_frames
    def style(self) -> Style:
        """What stands in the brackets: "block", "thread" or "entry"."""
        return self._shown().traced.style

    @hide_frames
    def report(self) -> Report:
        """Registers, spills, shared memory and instruction counts, from ptxas."""
        return report(self.ptx)


def symbol_of(name: str, constexprs: Mapping[str, Any]) -> str:
    """The symbol of a kernel in machine code: `softmax__BLOCK_64`."""
    parts = [f"{k}_{_short(v)}" for k, v in constexprs.items()]
    return re.sub(r"\W", "_", "__".join([name, *parts]))[:200]


def _short(value: Any) -> str:
    if isinstance(value, DType):
        return value.name
    if callable(value):
        return str(getattr(value, "__name__", type(value).__name__))
    return str(value)[:40]


_recursion_lock = threading.Lock()
_recursion_users = 0
_recursion_before = 0


@contextlib.contextmanager
def _deep_recursion() -> Iterator[None]:
    """Raise Python's recursion limit while any thread traces; nested calls of a kernel are nested calls of the tracer."""
    global _recursion_users, _recursion_before
    with _recursion_lock:
        if _recursion_users == 0:
            _recursion_before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_RECURSION_LIMIT, _recursion_before))
        _recursion_users += 1
    try:
        yield
    finally:
        with _recursion_lock:
            _recursion_users -= 1
            if _recursion_users == 0:
                sys.setrecursionlimit(_recursion_before)


class _Variant:
    """A specialisation for certain argument types: the traced kernel, and what it was compiled to."""

    def __init__(self, owner: Specialization, traced: Traced) -> None:
        self.owner = owner
        self.traced = traced
        self._artifacts: dict[Any, Artifact] = {}
        self._kernels: dict[Any, Kernel] = {}
        fixed = tuple((k, repr(v)) for k, v in owner.constexprs.items())
        self._naming = compilation.Naming(owner.name, fixed)

    @functools.cached_property
    def ir(self) -> str:
        return print_function(self.traced.function)

    def launch(
        self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], target: str, values: list[Any]
    ) -> None:
        if target == "cuda":
            kernel = self._cuda_kernel(values)
        elif target == "interp":
            kernel = self._interp_kernel()
        else:
            kernel = self._cpu_kernel(key, args, kwargs)
        kernel.launch(args, kwargs, kernel.request(key) if key is not None else NO_BRACKETS)

    def _cpu_kernel(self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Kernel:
        block = self.traced.block or block_of(self._unbuilt, key, args, kwargs)
        found = self._kernels.get(block)
        if found is None:
            with self.owner._lock, self.owner._explained():
                found = self._kernels.get(block)
                if found is None:
                    found = self._kernels[block] = compilation.load_cpu(
                        self.artifact("cpu", None, block), dict(self.owner.constexprs)
                    )
        return found

    @functools.cached_property
    def _unbuilt(self) -> Kernel:
        """The launch side of a kernel whose block size is not known yet."""
        traced = self.traced
        artifact = Artifact("cpu", self.owner.name, "", b"", traced.signature, traced.style, traced.launch, None, 0)
        return Kernel(artifact, dict(self.owner.constexprs))

    def _cuda_kernel(self, values: list[Any]) -> Kernel:
        device = next(
            (v.device.ordinal for x in values if (v := read_array(x)) is not None and v.device.kind == "cuda"), None
        )
        capability = driver.capability(driver.current_device() if device is None else device)
        key = ("cuda", capability)
        found = self._kernels.get(key)
        if found is None:
            with self.owner._lock, self.owner._explained():
                found = self._kernels.get(key)
                if found is None:
                    artifact = self.artifact("cuda", capability, None)
                    found = self._kernels[key] = compilation.load_cuda(artifact, dict(self.owner.constexprs))
        return found

    def _interp_kernel(self) -> Kernel:
        found = self._kernels.get("interp")
        if found is None:
            with self.owner._lock, self.owner._explained():
                fixed = dict(self.owner.constexprs)
                found = self._kernels["interp"] = compilation.load_interp(self.traced, self._naming, fixed, UNCHECKED)
        return found

    def artifact(self, target: str, capability: int | None, block: int | tuple[int, ...] | None) -> Artifact:
        if target == "cuda":
            capability = capability or driver.capability_if_present() or compilation.DEFAULT_CAPABILITY
            return self._artifact(
                ("cuda", capability), lambda: compilation.cuda_artifact(self.traced, self._naming, capability)
            )
        axes = block if isinstance(block, tuple) else (block or 1,)
        whole = self.traced.block or (*axes, 1, 1)[:3]
        exact = (int(whole[0]), int(whole[1]), int(whole[2]))
        return self._artifact(exact, lambda: compilation.cpu_artifact(self.traced, self._naming, exact))

    def _artifact(self, key: Any, make: Callable[[], Artifact]) -> Artifact:
        with self.owner._lock:
            found = self._artifacts.get(key)
            if found is None:
                with self.owner._explained():
                    found = self._artifacts[key] = make()
            return found


# -- compile, as a function -----------------------------------------------------------------------------------------------


class BoundKernel:
    """A kernel tied to one target, compiled as far as its types are known. Launched like the kernel itself."""

    def __init__(self, kernel: Specialization, target: str) -> None:
        self._kernel = kernel
        self.target = target
        functools.update_wrapper(self, kernel._owner._function)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    def __getitem__(self, key: Any) -> Callable[..., None]:
        return _Launcher(self._launch, key)

    @hide_frames
    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self._launch(None, args, kwargs)

    def _launch(self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._kernel._launch(key, args, kwargs, self.target)

    def __repr__(self) -> str:
        return f"{self._kernel!r} on {self.target}"


TARGETS = ("cpu", "cuda", "interp")


@hide_frames
def compile(kernel: Any, target: str | None = None) -> Any:
    """Compile a specialised kernel for `target` ("cpu", "cuda"; left out: where its arrays live) and return it, callable."""
    if isinstance(kernel, JitFunction):
        kernel = kernel.specialize()
    if not isinstance(kernel, Specialization):
        what = f"`compile` of a {type(kernel).__name__}"
        raise SpecializeError(UnsupportedSyntax(what, "give a kernel made with @function or by `.specialize(...)`"))
    if target is None:
        kernel.trace()
        return kernel
    if target not in TARGETS:
        raise SpecializeError(
            UnsupportedSyntax(f"target {target!r}", f"{suggest(str(target), TARGETS)}targets are: {', '.join(TARGETS)}")
        )
    if target == "cuda" or (target == "cpu" and kernel.trace().block):
        kernel.compile(target)
    return BoundKernel(kernel, target)


__all__ = [
    "BoundKernel",
    "InlineFunction",
    "JitFunction",
    "Specialization",
    "compile",
    "function",
    "inline",
    "jit",
]
