"""Functions of the library that CPython runs on run-time values, since interpreting them for each element would take most of
the time of a trace.

    @sk._direct
    def each(self, function, *args):
        return self.like([function(*row) for row in zip(*map(self.elements_of, args))])

What such a function calls of the language (`load`, an intrinsic, `_operation("+")`, a function that it was given) appends IR as
it would anywhere in a kernel. It must not use operators or `if` on values that may be known only at run time, nor change its
arguments. Its ops have the place of its `def`, expanded at the user's call.

Functions that are called again and again are carried out once, after which their ops are copied:

    sk.reduce(x, lambda a, b: a * b + a + b)     of 18 calls of the user's function one is interpreted
    sk.reduce_sum(x)                             of all in a process with a tile like this one is carried out

That is done where nothing can matter of run-time numbers but their types. A function that does more than compute with them (it
assigns outside, prints while it is specialised, asks about arguments) is carried out at each call.
"""

from __future__ import annotations

import ast
import functools
import operator
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from stagekit.diagnostics import Loc, call_in_language, language_call
from stagekit.dtypes import DType
from stagekit.frontend import effects
from stagekit.frontend.builtins import STAGED
from stagekit.frontend.evaluation import Site
from stagekit.frontend.forms import Keyed, ValueParts, is_one_of_a_kind, make_room, parts_of, taken_apart
from stagekit.frontend.journal import Journal
from stagekit.frontend.language import Staged
from stagekit.frontend.numbers import COMPARISONS, SYMBOLS, is_numeric
from stagekit.frontend.overloads import call_intrinsic
from stagekit.frontend.source import Names, Source
from stagekit.frontend.stamps import settings
from stagekit.frontend.state import is_atomic
from stagekit.frontend.tracer import Frame, Tracer
from stagekit.frontend.values import STAND_INS, Address, Array, Number, Scope, is_of_library, is_open, mapper_of
from stagekit.ir import Block, Intrinsic, Value, ops
from stagekit.ir.repeats import Reuser
from stagekit.ir.stamps import BlockCopy, copy_of

F = TypeVar("F", bound=Callable[..., Any])


def direct(function: F) -> F:
    """Mark a function of the library that CPython runs."""
    function.__stagekit_direct__ = True  # type: ignore[attr-defined]
    return function


def stamped(function: F) -> F:
    """Mark one whose calls may be stamped: it reads nothing but its arguments and what `stamps` looks at."""
    function.__stagekit_stamped__ = True  # type: ignore[attr-defined]
    return direct(function)


def run(site: Site, fn: types.FunctionType, args: list[Any], kwargs: Any) -> Any:
    """Return `fn(*args, **kwargs)`, computed by CPython."""
    source, place, scope = _source_of(fn.__code__)
    builder, outside = site.tracer.builder, site.loc
    inner = Frame(site.tracer, source, scope, fn, outside, site.frame.depth + 1)
    effects.enter(site, inner)
    inside = Site(inner, place)
    here = inside.at()

    def in_language(function: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if type(function) is Staged or type(function) is Template:
            return function.run(inside, *given, **named)
        if isinstance(function, Intrinsic):
            return call_intrinsic(inside, function, list(given), named)
        if type(function) is DType and len(given) == 1 and is_numeric(given[0]):
            return site.tracer.arithmetic.convert(given[0], function)
        token = language_call.set(None)
        try:
            return function(given) if type(function) is Recorded else inside.invoke(function, list(given), named)
        finally:
            language_call.reset(token)
            builder.loc = here

    def argument(value: Any) -> Any:
        if type(value) in _OF_LANGUAGE or is_of_library(value):
            return value

        recorded = Recorded(inside, value)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return in_language(recorded if not kwargs else value, args, kwargs)

        wrapper.__wrapped__ = value  # type: ignore[attr-defined]
        return wrapper

    captures, journal = site.tracer.captures, site.tracer.journal
    for value in (*args, *kwargs.values()):
        if not _reads_no_state(value, journal):
            captures.note_given(value, journal.is_born)
    named = kwargs and {name: argument(value) if callable(value) else value for name, value in kwargs.items()}
    token = language_call.set(in_language)
    try:
        made = site.by_python(fn, [argument(value) if callable(value) else value for value in args], named)
    finally:
        language_call.reset(token)
    builder.loc = outside
    return site.tracer.journal.born(made) if isinstance(made, list) or is_open(made) else made


def _reads_no_state(value: Any, journal: Journal) -> bool:
    """Return whether a value has nothing that may change between traces: the tracer, the library or the language made it."""
    kind = type(value)
    if kind is tuple:
        return all(_reads_no_state(each, journal) for each in value)
    if kind is dict and (not value or journal.is_born(value)):
        return all(_reads_no_state(each, journal) for each in value.values())
    return kind in _WITHOUT_STATE or is_of_library(value) or is_atomic(value)


_OF_LANGUAGE = frozenset({Intrinsic, Staged, DType})
_WITHOUT_STATE = frozenset({*STAND_INS, *_OF_LANGUAGE})


def run_at(tracer: Tracer, loc: Loc, fn: types.FunctionType, *args: Any) -> Any:
    """Return `fn(*args)`, computed by CPython for the line `loc` where no expression calls it: where paths meet."""
    source, place, scope = _source_of(fn.__code__)
    frame = Frame(tracer, source, scope, fn, loc, 0, is_per_thread=True)
    return run(Site(frame, place), fn, list(args), {})


@functools.cache
def _source_of(code: types.CodeType) -> tuple[Source, ast.stmt, Scope]:
    """Return a source for the place of a function, none of which is parsed, a node at its first line, and its empty scope."""
    nothing: frozenset[str] = frozenset()
    place = ast.Pass(lineno=code.co_firstlineno, col_offset=0, end_lineno=code.co_firstlineno, end_col_offset=0)
    node = ast.Lambda(ast.arguments([], [], None, [], [], None, []), ast.Constant(None), lineno=code.co_firstlineno)
    source = Source(code.co_filename, code.co_name, node, Names(nothing, nothing))
    return source, place, Scope(source.names, {}, None)


@functools.cache
def operation(symbol: str) -> Staged:
    """Return an operator as a function of one or two values: `operation("+")(a, b)`, `operation("neg")(a)`."""
    return Staged(STAGED[_PYTHONS[symbol]], is_elementwise=True)


_PYTHONS: dict[str, Callable[..., Any]] = {
    **{symbol: each.python for symbol, each in SYMBOLS.items()},
    **{symbol: python for symbol, _, python in COMPARISONS.values()},
    "neg": operator.neg,
    "~": operator.invert,
}


# -- functions that are carried out once -------------------------------------------------------------------------------------


class _Recording(NamedTuple):
    """What a function emits, each thing once, and what it returns, the run-time numbers in which are those that the block yields.

    is_placed, is_of_hopper, acts: what the kernel was found to be when it was made, at the latest by it.
    """

    copy: BlockCopy
    result: Any
    is_placed: bool
    is_of_hopper: bool
    acts: bool


class Recorded:
    """A function that is called in one place. recordings: by what its arguments are; None where it must be interpreted."""

    def __init__(self, site: Site, function: Any) -> None:
        self.site = site
        self.function = function
        self.recordings: dict[Any, _Recording | None] = {}

    def __call__(self, args: tuple[Any, ...]) -> Any:
        key, numbers = _key_of(args, self.site.tracer.forms)
        if key is None or not {Number}.issuperset(map(type, numbers)) or not numbers:
            return self.site.invoke(self.function, list(args))
        return _repeated(self.site, self.function, args, numbers, self.recordings, key, None)


def copied(site: Site, function: Any, args: tuple[Any, ...]) -> Any:
    """Return `function(*args)`. function: of the library, which reads nothing but its arguments and what `_settings` says."""
    key, numbers = _key_of(args, site.tracer.forms)
    if key is None:
        return site.invoke(function, list(args))
    return _repeated(site, function, args, numbers, _OF_LIBRARY, (function, key, settings(site)), site.at())


_OF_LIBRARY: dict[Any, _Recording | None] = {}
_MOST = 1024  # recordings that are kept


def _repeated(
    site: Site, function: Any, args: tuple[Any, ...], numbers: list[Number], recordings: Any, key: Any, loc: Loc | None
) -> Any:
    """Return `function(*args)`, by a copy of what was recorded under `key` if that was of use. loc: of the copy's ops."""
    recording, tracer = recordings.get(key, ...), site.tracer
    if recording is ...:
        make_room(recordings, _MOST)
        recording = recordings[key] = _record(site, function, args, numbers)
    if recording is None:
        return site.invoke(function, list(args))
    tracer.is_placed |= recording.is_placed
    tracer.is_of_hopper |= recording.is_of_hopper
    tracer.has_acted |= recording.acts
    values = recording.copy.copy(tracer.builder, [each.value for each in numbers], loc)
    return _with(recording.result, iter(values), {})


class Template(Keyed):
    """A user's function of numbers of certain types that only computes. key: equal for functions that compute the same."""

    __call__ = call_in_language

    def __init__(self, recording: _Recording, key: Any) -> None:
        self.recording = recording
        self.key = key
        self.name = "a template"

    def run(self, site: Site, *args: Any) -> Any:
        """Return what the function makes of numbers of its types."""
        plan, to_value = self.recording.copy, site.tracer.arithmetic.to_value
        values = [to_value(each, param.type.dtype) for each, param in zip(_flat(args), plan.block.params)]
        return _with(self.recording.result, iter(plan.copy(site.tracer.builder, values)), {})


def template(site: Site, function: Any, args: tuple[Any, ...]) -> Template | None:
    """Return `function` as what it does with numbers like these; None where it may do more, or looks at other numbers."""
    recording = _record(site, function, args, _key_of(args, {})[1])
    key = recording and _computed_by(recording.copy.block, {})
    return Template(recording, (key, *_key_of((recording.result,), {})[:1])) if recording and key else None


def _flat(values: Any) -> list[Any]:
    """Return what stands in tuples, and in tuples in them."""
    return [leaf for each in values for leaf in (_flat(each) if type(each) is tuple else (each,))]


def _computed_by(block: Block, places: dict[Value, int]) -> Any:
    """Return what a block of pure ops computes of its parameters; None where it does more or other values take part.

    places: the numbers of values, in the order in which they are defined.
    """
    rows: list[Any] = [tuple([_placed(param, places) for param in block.params])]
    for op in block.ops:
        operands = [places.get(value) for value in op.operands()]
        bodies = [_computed_by(body, places) for body in op.bodies()]
        if op.effects or None in operands or None in bodies:
            return None
        attributes = [getattr(op, name) for name in op.ATTRIBUTE_FIELDS]
        shown = [ops.exactly(each) if isinstance(each, float) else each for each in attributes]
        rows.append((type(op), *shown, *operands, *bodies, *[_placed(value, places) for value in op.results]))
    return tuple(rows)


def _placed(value: Value, places: dict[Value, int]) -> Any:
    places[value] = len(places)
    return value.type


def _record(site: Site, function: Any, args: tuple[Any, ...], numbers: list[Number]) -> _Recording | None:
    """Carry out a call, of whose numbers only the types are known. Nothing of it remains where it is of no use."""
    tracer = site.tracer
    start, params, count = tracer.checkpoint(), [Value(each.value.type) for each in numbers], tracer.builder.op_count
    with tracer.builder.block(params) as opened:
        result = site.invoke(function, list(_with(args, iter(params), {})))
        key, found = _key_of((result,), {})
        tracer.builder.yield_(*[each.value for each in found])
    tracer.builder.op_count = count  # the budget is for what a kernel has, whoever recorded that first
    if key is not None and not tracer.has_changed(start):
        return _Recording(
            copy_of(Reuser().block(opened.done())), result, tracer.is_placed, tracer.is_of_hopper, tracer.has_acted
        )
    tracer.journal.undo(start.journal)
    tracer.facts.withdraw(start.asked)
    tracer.forget(start)
    return None


def _key_of(values: Any, forms: dict[int, Any]) -> tuple[Any, list[Any]]:
    """Return what values are but for the numbers and pointers in them, and these; None where none can say that.

    Nor can it of what is known to be a part of an argument: it matters of which.
    """
    parts = ValueParts(forms, [], [], {})
    key = taken_apart(values, parts)
    numbers = [each for each in parts.objects if type(each) is Number or type(each) is Address]
    return None if any(type(each) is Address and each.start for each in numbers) else key, numbers


def _with(value: Any, values: Iterator[Value], made: dict[int, Any]) -> Any:
    """Return a value with other values for those known at run time in it. made: by its id, what stands for an object by now."""
    kind = type(value)
    if kind is Number:
        return Number(next(values), value.is_weak, value.lanes and _with(value.lanes, values, made))
    if kind is Address:
        return Address(next(values))
    if kind is tuple or kind is list:
        return kind([_with(each, values, made) for each in value])
    if kind is slice:
        return slice(*[_with(each, values, made) for each in (value.start, value.stop, value.step)])
    if kind is dict:
        return dict(zip(value, [_with(each, values, made) for each in value.values()]))
    if kind is not Array and (not is_of_library(value) or is_one_of_a_kind(value)):
        return value
    if (kind is Array or mapper_of(value) is not None) and id(value) in made:
        return made[id(value)]  # as `taken_apart` meets it once
    parts = [_with(each, values, made) for each in parts_of(value)]
    if kind is Array or isinstance(value, tuple):
        new = kind(*parts)
    else:
        new = object.__new__(kind)
        vars(new).update(zip(vars(value), parts))
    made[id(value)] = new
    return new
