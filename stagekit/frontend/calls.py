"""Calls. Intrinsics and the language's own functions emit IR; Python functions are interpreted in a new frame, decorated with
`@inline` or not; classes are constructed; CPython calls everything else, if its arguments are known at compile time.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import operator
import types
import typing
import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from stagekit.diagnostics import PACKAGE, StagekitError, shown
from stagekit.dtypes import DType, element_dtype
from stagekit.frontend import builtins, effects, language, launches, objects, overloads, stamps
from stagekit.frontend.assignments import binding_scope
from stagekit.frontend.complexes import KINDS as COMPLEX
from stagekit.frontend.complexes import ComplexLibrary, in_parts
from stagekit.frontend.direct import run as run_direct
from stagekit.frontend.errors import BadCall, NotCallable, ReturnOnSomePaths, StagingError
from stagekit.frontend.evaluation import ROUTES, Site, evaluate
from stagekit.frontend.familiar import counterpart, familiar, of_tiles
from stagekit.frontend.journal import Location
from stagekit.frontend.language import bind
from stagekit.frontend.markers import constexpr
from stagekit.frontend.numbers import is_numeric
from stagekit.frontend.parts import describe
from stagekit.frontend.python_calls import HandedOut, carry_out
from stagekit.frontend.source import Snapshot, Source, all_nodes, bare_signature, names_of, remembered
from stagekit.frontend.state import lookup, own_attributes
from stagekit.frontend.statements import RUNNERS, run_body
from stagekit.frontend.tracer import RETURN, VALUE, Frame, Tracer
from stagekit.frontend.values import (
    BoundMethod,
    Closure,
    Partial,
    Poison,
    Scope,
    holds_run_time,
    is_fixed,
    is_generated,
    is_native,
    mapper_of,
)
from stagekit.frozen import write_init
from stagekit.ir import Intrinsic
from stagekit.native_tables import ABSENT

DEEP = 16  # calls nested deeper have a budget: those of a recursion may double at each level


def _by_identity(site: Site, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call something whose type has no route: a function or class of Python, NumPy or the user, or an object with `__call__`."""
    spec = familiar(fn)
    if spec is not None:
        is_known = not any(map(mapper_of, (*args, *kwargs.values()))) and not holds_run_time([args, kwargs])
        return _native(site, fn, args, kwargs) if is_known else _intrinsic(site, spec, args, kwargs)
    if isinstance(fn, type) and issubclass(fn, np.generic) and holds_run_time(args):
        dtype = element_dtype(np.dtype(fn))  # `np.float32` of a run-time value
        if dtype is not None:
            return _convert(site, dtype, args, kwargs)
    if isinstance(fn, functools.partial):
        return site.invoke(fn.func, [*fn.args, *args], {**fn.keywords, **kwargs})
    fragment = _package_attribute(fn, "__stagekit_fragment__")
    if fragment is not None and not isinstance(fn, type):
        fixed = _package_attribute(fn, "__stagekit_fixed__") or {}
        if _package_attribute(fn, "__stagekit_per_thread__"):
            site = effects.per_thread(site)
        return _interpreted(site, fragment, *_with_fixed(site, fragment, fixed, args, kwargs))
    if (builtin := builtins.find(fn)) is not None:
        return _builtin(site, fn, builtin, args, kwargs)
    if (wrapper := builtins.wrapper(fn, args, kwargs)) is not None:
        return wrapper(site, fn, args, kwargs)
    if isinstance(fn, types.FunctionType):
        return _python_function(site, fn, args, kwargs)
    if isinstance(fn, type):
        return _construct(site, fn, args, kwargs)
    method = lookup(type(fn), "__call__")
    if isinstance(method, types.FunctionType):
        return site.invoke(method, [fn, *args], kwargs)
    if isinstance(fn, types.MethodWrapperType) and fn.__name__ == "__call__" and isinstance(fn.__self__, type):
        return _construct_plainly(site, fn.__self__, args, kwargs)  # `super().__call__` of a metaclass
    return _native(site, fn, args, kwargs)


def _package_attribute(fn: Any, name: str) -> Any:
    """Return an attribute that this package gives to callables, or None, also where a user's `__getattr__` would make one up."""
    is_stored = lookup(type(fn), name) is not ABSENT or name in own_attributes(fn)
    return getattr(fn, name) if is_stored else None


# -- the language's own ---------------------------------------------------------------------------------------------------


def _elementwise(site: Site, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Apply `fn` to each element, by the method of the first tile among the arguments; NotImplemented where there is no tile."""
    for value in (*args, *kwargs.values()):
        if type(value) in COMPLEX:
            value = in_parts(value)
        if (mapper := mapper_of(value)) is not None:
            return site.invoke(mapper, [value, fn, tuple(args), kwargs and site.tracer.journal.born(kwargs)])
    return NotImplemented


def _intrinsic(site: Site, spec: Intrinsic, args: list[Any], kwargs: dict[str, Any]) -> Any:
    answer = _elementwise(site, spec, args, kwargs)
    return overloads.call_intrinsic(site, spec, args, kwargs) if answer is NotImplemented else answer


def _staged(site: Site, fn: language.Staged, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if fn.is_elementwise and (answer := _elementwise(site, fn, args, kwargs)) is not NotImplemented:
        return answer
    site.at()
    if not kwargs and fn.least <= len(args) <= fn.most:
        return fn.run(site, *args)
    bound = bind(site, fn.name, fn.signature, args, kwargs)
    return fn.run(site, *bound.args, **bound.kwargs)


def _convert(site: Site, dtype: DType, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if len(args) == 1 and not kwargs:
        if dtype.part is not None and (is_numeric(args[0]) or mapper_of(in_parts(args[0])) is not None):
            return site.invoke(ComplexLibrary.converted, [dtype, args[0]])
        if is_numeric(args[0]):
            return site.tracer.arithmetic.convert(args[0], dtype)
        if (answer := _elementwise(site, dtype, args, kwargs)) is not NotImplemented:
            return answer
    shown = ", ".join([*map(describe, args), *(f"{k}=" for k in kwargs)]) or "nothing"
    raise site.error(BadCall(f"`{dtype.name}({shown})`", f"{dtype.name}(number)"))


def _method(site: Site, fn: types.MethodType, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if _moves_a_tuple(fn):
        return _native(site, fn, args, kwargs)
    return site.invoke(fn.__func__, [fn.__self__, *args], kwargs)


def _builtin(site: Site, fn: Any, staged: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call a function of Python's by its staged meaning."""
    code = staged.__code__
    least = code.co_argcount - len(staged.__defaults__ or ())
    if kwargs or code.co_kwonlyargcount or not least <= len(args) + 1 <= code.co_argcount:
        bind(site, fn.__name__, _signature(staged), (site, *args), kwargs, "as in Python")
    if fn in language.ELEMENTWISE and args and (mapper := mapper_of(args[0])) is not None:
        return site.invoke(mapper, [args[0], fn, tuple(args), kwargs])
    return staged(site, *args, **kwargs)


# -- Python functions -----------------------------------------------------------------------------------------------------

_snapshots: weakref.WeakKeyDictionary[types.FunctionType, Snapshot] = weakref.WeakKeyDictionary()
_signatures: weakref.WeakKeyDictionary[types.FunctionType, tuple[tuple[Any, ...], inspect.Signature]] = (
    weakref.WeakKeyDictionary()
)


def keep_snapshot(snapshot: Snapshot) -> None:
    """Use this source for its function from now on. Decorators take it when the function is defined."""
    _snapshots[snapshot.function] = snapshot


def snapshot_of(function: types.FunctionType) -> Snapshot:
    found = _snapshots.get(function)
    if found is None or found.code is not function.__code__:  # reloading tools put new code into old functions
        found = _snapshots[function] = Snapshot.take(function)
    return found


def _signature(function: types.FunctionType) -> inspect.Signature:
    now = (function.__code__, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    found = _signatures.get(function)
    if found is None or len(found[0]) != len(now) or not all(map(operator.is_, found[0], now)):
        found = _signatures[function] = now, inspect.signature(function, follow_wrapped=False)
    return found[1]


def _python_function(site: Site, fn: types.FunctionType, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Interpret a plain function. CPython runs it where it is native, or where it has no source and all arguments are known."""
    if args:
        _note_method(site.tracer, fn, args[0])
    if _runs_natively(fn) or hasattr(fn, "__stagekit_host__"):
        return _native(site, fn, args, kwargs)
    try:
        _ = snapshot_of(fn).source
    except StagekitError:
        if holds_run_time(args) or holds_run_time(kwargs):
            raise
        return _native(site, fn, args, kwargs)
    return _interpreted(site, fn, args, kwargs)


def _runs_natively(fn: types.FunctionType) -> bool:
    """Return whether `fn` is Python's own or ours, by its globals: its `__module__` may be that of a function it wraps."""
    module = str(fn.__globals__.get("__name__"))
    return is_native(module) or (module.startswith("stagekit.") and not module.startswith("stagekit.lib."))


def _note_method(tracer: Tracer, fn: types.FunctionType, owner: Any) -> None:
    """Note that a class stores `fn` for its objects, under whatever name, since another may be put in its place."""
    cls = owner if isinstance(owner, type) else type(owner)
    if is_fixed(cls.__module__):
        return
    if not tracer.is_settled(owner):
        tracer.captures.note_type(owner)
    if tracer.captures.has(cls, f".{fn.__name__}") or (id(cls), id(fn)) in tracer.sought:
        return
    tracer.sought[id(cls), id(fn)] = cls, fn
    for base in cls.__mro__:
        for name, member in vars(base).items():
            parts = (member, *(getattr(member, part, None) for part in ("fget", "fset", "func", "__func__")))
            if any(part is fn for part in parts) and lookup(cls, name) is member:
                tracer.captures.note_member(cls, name)


def _function(site: Site, fn: types.FunctionType, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call what `def` made. CPython runs those functions of the library that are marked by `direct`."""
    if "__stagekit_direct__" not in fn.__dict__:
        return _by_identity(site, fn, args, kwargs)
    fn = getattr(fn, "__stagekit_fragment__", fn)  # of an entry point
    if "__stagekit_stamped__" in fn.__dict__:
        return stamps.stamped(site, fn, args, kwargs, _by_cpython)
    return _by_cpython(site, fn, args, kwargs)


def _by_cpython(site: Site, fn: types.FunctionType, args: list[Any], kwargs: dict[str, Any]) -> Any:
    _variables(site, fn, args, kwargs)  # raises where the arguments do not fit
    return run_direct(site, fn, args, kwargs)


def _interpreted(site: Site, fn: types.FunctionType, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Interpret `fn` in a frame of its own. The arguments are evaluated already, so each is evaluated once."""
    source = snapshot_of(fn).source
    site.tracer.captures.note_function(fn)
    try:
        variables = _variables(site, fn, args, kwargs)
    except StagingError as error:
        if site.frame.source.file.startswith(PACKAGE) and not source.file.startswith(PACKAGE):
            error.loc = snapshot_of(fn).loc  # the user has given it to a kernel of ours, whose lines are not at fault
        raise
    return run_call(site, source, fn, None, variables)


def _with_fixed(
    site: Site, fn: types.FunctionType, fixed: Mapping[str, Any], args: list[Any], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments for `fn` when a kernel with fixed constexprs is called: it takes the other parameters, in order."""
    if not fixed:
        return args, kwargs
    signature = _signature(fn)
    open_ = signature.replace(parameters=[p for name, p in signature.parameters.items() if name not in fixed])
    return [], {**bind(site, fn.__name__, open_, args, kwargs).arguments, **fixed}


def _variables(site: Site, fn: types.FunctionType, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the variables that a call begins with: its parameters, bound as Python binds them."""
    code = fn.__code__
    if not kwargs and len(args) == code.co_argcount and not (code.co_kwonlyargcount or code.co_flags & _VARIADIC):
        return dict(zip(code.co_varnames, args))  # what `Signature.bind` gives, much faster, for the commonest call
    bound = bind(site, fn.__name__, _signature(fn), args, kwargs)
    bound.apply_defaults()
    for value in bound.arguments.values():
        if isinstance(value, dict):  # **kwargs is a new dict, made by the call
            site.tracer.journal.born(value)
    return dict(bound.arguments)


_VARIADIC = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def run_call(
    site: Site, source: Source, function: types.FunctionType | None, outer: Scope | None, variables: dict[str, Any]
) -> Any:
    """Run a function body in a new frame and return what it returns."""
    tracer = site.tracer
    if site.frame.depth >= DEEP:
        site.frame.count_deep_call(site.node, source)
    scope = Scope(source.names, tracer.journal.born(variables), outer)
    inner = Frame(tracer, source, scope, function, site.loc, site.frame.depth + 1)
    effects.enter(site, inner)
    inner.control = tracer.journal.born({RETURN: False})
    if isinstance(source.node, ast.Lambda):
        return evaluate(inner, source.node.body)
    # the calling statement may still hold what it has made so far
    tracer.waiting.append((tracer.statement_began, tracer.journal.tick()))
    try:
        run_body(inner, source.node.body)
    finally:
        tracer.waiting.pop()
    _forget_exits(inner)
    site.at()
    tracer.journal.bury(inner.control)
    if not _has_inner_scopes(source.node):
        tracer.journal.bury(variables)
    taken, value = inner.control[RETURN], inner.control.get(VALUE)
    if taken is not True and taken is not False and value is not None:
        raise inner.error(ReturnOnSomePaths(source.name), source.node)
    return None if taken is False else value


@remembered
def _has_inner_scopes(node: ast.AST) -> bool:
    """Return whether functions made in this one may read its variables after it has returned."""
    return not {ast.FunctionDef, ast.Lambda, ast.GeneratorExp}.isdisjoint(map(type, all_nodes(node)[1:]))


def _forget_exits(frame: Frame) -> None:
    """Poison the outer variables that some exit of a finished call leaves without a value: after it, all exits meet."""
    for name in frame.source.names.nonlocal_:
        owner = frame.scope.owner_of(name)
        variables = owner.variables if owner is not None else {}
        value = variables.get(name)
        if isinstance(value, Partial):
            frame.tracer.journal.assign(Location(variables, name, False), Poison(value.diagnostic, value.notes))


def make_closure(frame: Frame, node: ast.FunctionDef | ast.Lambda) -> Closure:
    """Make the value of a nested `def` or `lambda`. Its defaults are evaluated now; its free names are read when it is called."""
    name = node.name if isinstance(node, ast.FunctionDef) else "<lambda>"
    source = Source(frame.source.file, name, node, names_of(node))
    defaults = tuple(evaluate(frame, d) for d in node.args.defaults)
    named = zip(node.args.kwonlyargs, node.args.kw_defaults)
    kw_defaults = {a.arg: evaluate(frame, d) for a, d in named if d is not None}
    stub = types.FunctionType(_code_of_stub(node), {}, name, defaults or None)
    stub.__kwdefaults__ = kw_defaults or None
    return Closure(source, frame.function, frame.scope, stub)


@remembered
def _code_of_stub(node: ast.FunctionDef | ast.Lambda) -> types.CodeType:
    """Return the code of a function with these parameters that does nothing."""
    made = compile(f"lambda {bare_signature(node.args)}: None", "<stub>", "eval")
    return next(each for each in made.co_consts if isinstance(each, types.CodeType))


def trace_define(frame: Frame, node: ast.FunctionDef) -> None:
    function: Any = make_closure(frame, node)
    for decorator in reversed(node.decorator_list):
        function = Site(frame, decorator).invoke(evaluate(frame, decorator), [function])
    frame.tracer.assign(binding_scope(frame, node.name).variables, node.name, function)


RUNNERS[ast.FunctionDef] = trace_define


# -- classes and the rest -------------------------------------------------------------------------------------------------


def _construct(site: Site, cls: type, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Make an object, by the `__call__` of the metaclass where a user defines one."""
    write_init(lookup(cls, "__init__"))
    site.tracer.note_lookup(cls, "__call__")
    for name in ("__new__", "__init__", "__post_init__"):
        site.tracer.captures.note_member(cls, name)
    meta = lookup(type(cls), "__call__")
    if not isinstance(meta, types.FunctionType) or is_fixed(type(cls).__module__):
        return _construct_plainly(site, cls, args, kwargs)
    return site.invoke(meta, [cls, *args], kwargs)


def _construct_plainly(site: Site, cls: type, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Make an object as `type.__call__` does. A user's `__init__` is interpreted; a dataclass's is staged field by field."""
    if getattr(cls, "__stagekit_launch__", False):
        return launches.staged_launch(site, cls, args, kwargs)
    generated = lookup(cls, "__init__")
    if dataclasses.is_dataclass(cls) and isinstance(generated, types.FunctionType) and is_generated(generated):
        return _dataclass(site, cls, args, kwargs)
    init = cls.__dict__.get("__init__") or getattr(cls, "__init__", None)
    is_own = isinstance(init, types.FunctionType) and not is_generated(init)
    is_plain_new = getattr(cls, "__new__", None) is object.__new__
    if is_own and is_plain_new and not is_native(cls.__module__):
        made = site.tracer.journal.born(object.__new__(cls))
        site.invoke(init, [made, *args], kwargs)
        return made
    if cls.__module__ == "builtins" and cls is not dict:
        return _native(site, cls, args, kwargs)
    return carry_out(site, cls, args, kwargs)


def _dataclass(site: Site, cls: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Make an object as the `__init__` of a dataclass does, with default factories and `__post_init__` staged."""
    signature = inspect.signature(cls)
    bound = bind(site, cls.__name__, signature, args, kwargs, cls.__name__)
    made = site.tracer.journal.born(object.__new__(cls))
    fields = dataclasses.fields(cls)
    for field in fields:
        if field.name in bound.arguments:
            value = bound.arguments[field.name]
        elif field.default_factory is not dataclasses.MISSING:
            value = site.invoke(field.default_factory, [])
        elif field.default is not dataclasses.MISSING:
            value = field.default
        else:
            continue
        if cls.__dataclass_params__.frozen:
            object.__setattr__(made, field.name, value)
        else:
            objects.put(site, made, field.name, value)
    if "__post_init__" in cls.__init__.__code__.co_names:
        names = {field.name for field in fields}
        init_only = [p for name, p in signature.parameters.items() if name not in names]
        site.invoke(cls.__post_init__, [made, *(bound.arguments.get(p.name, p.default) for p in init_only)])
    return made


_CONTAINERS = (list, tuple, dict, set, deque)
_MOVERS = (vars, slice, itertools.tee)
_OF_THE_CALLER = (globals, locals, eval, exec)
_AS_TEXT = (str, repr, format, ascii, bin, hex, oct, chr)


def _moves_a_tuple(fn: Any) -> bool:
    """Return whether `fn` is a method of a namedtuple that only moves its items."""
    if not isinstance(fn, types.MethodType):
        return False
    kind = fn.__self__ if isinstance(fn.__self__, type) else type(fn.__self__)
    return hasattr(kind, "_fields") and fn.__name__ in ("_replace", "_asdict", "_make")


def _moves_only(fn: Any) -> bool:
    """Return whether CPython's `fn` moves values without looking at them, as methods of containers do."""
    owner = getattr(fn, "__self__", None)
    return owner in _CONTAINERS if isinstance(owner, type) else isinstance(owner, _CONTAINERS) or _moves_a_tuple(fn)


def _native(site: Site, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Let CPython call `fn`, which must get compile-time values only, unless it merely moves them."""
    if not callable(fn):
        hint = "only functions, classes and objects with `__call__` can be called"
        raise site.error(NotCallable(f"{describe(fn)} is not callable", hint))
    if fn in _OF_THE_CALLER or (fn in (vars, dir) and not args):
        hint = "write the name itself, or pass what it stands for"
        raise site.error(NotCallable(f"`{fn.__name__}()` would see the compiler's names", hint))
    if (holds_run_time(args) or holds_run_time(kwargs)) and fn not in _MOVERS and not _moves_only(fn):
        name = getattr(fn, "__qualname__", None) or shown(fn)
        raise site.error(NotCallable(f"`{name}` cannot take run-time values", _way_out(fn, args)))
    return carry_out(site, fn, args, kwargs)


def _way_out(fn: Any, args: list[Any]) -> str:
    """Return a hint for a function that cannot take run-time values."""
    if fn in _AS_TEXT or isinstance(getattr(fn, "__self__", None), str):
        return "the digits are known at run time only: use `print`, or an f-string in `print` or `assert`"
    name = getattr(fn, "__name__", "")
    tile = next((a for a in args if mapper_of(a) is not None), None)
    way = (tile is not None and of_tiles(name)) or counterpart(name)
    return f"it runs at compile time only{f'; {way}' if way else ''}"


ROUTES.update(
    {
        Intrinsic: _intrinsic,
        language.Staged: _staged,
        type(constexpr): lambda site, _, args, kwargs: _staged(site, language.constexpr_value, args, kwargs),
        DType: _convert,
        Closure: lambda site, fn, args, kwargs: run_call(
            site, fn.source, fn.function, fn.scope, _variables(site, fn.stub, args, kwargs)
        ),
        BoundMethod: lambda site, fn, args, kwargs: site.static(fn.run, *args, **kwargs),
        types.MethodType: _method,
        types.FunctionType: _function,
        object: _by_identity,
        HandedOut: builtins.leads_to("closure"),
        staticmethod: builtins.leads_to("__func__"),
        types.GenericAlias: builtins.leads_to("__origin__"),  # `Class[int](...)` makes what `Class(...)` does
        type(typing.Iterable[int]): builtins.leads_to("__origin__"),
    }
)
