"""Places in the user's source, errors as records, their text, and what a public function does with a call that makes no sense.

A room raises `StagekitError` (or a subclass that says which kind of Python error it also is) around a `Diagnostic`: a frozen
record of values. Each class of diagnostics has an id (`UnrollBudget` is `UNROLL_BUDGET`), a page in `docs/errors.md` and a
golden test. The text of an error says what, where with a caret, why, what to do, then the chain of calls:

error[UNROLL_BUDGET]: Too many unrolled iterations (softmax.py:14:5)
   |
13 |     total = 0
14 |     for i in sk.static_range(10**6):
   |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ 65537 iterations, the budget is 65536
   = help: ...
   = inlined at rows.py:40:9 in `softmax_rows`
   = while specialising `softmax_rows` with BLOCK=128
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import linecache
import os
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, ParamSpec, TypeVar

from stagekit.forks import importing
from stagekit.frozen import frozen

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)

_CONTEXT_LINES = 1  # lines shown before the one at fault
ALIKE = 0.6  # enough among the few names of one kernel
_CHAIN_ENDS = 5  # of a long chain of calls, such as a recursion, both ends are shown


# never changed; frozen, it would take three times as long to make, for every op
@dataclass(unsafe_hash=True, slots=True)
class Loc:
    """A span in a file, in the function it belongs to.

    line, end_line: from 1. col, end_col: in characters from 0. call_site: the call that was expanded to get here, if any.
    iteration: what an unrolled loop was doing, innermost first, such as `("i = 2",)`.
    """

    file: str
    line: int
    col: int
    end_line: int
    end_col: int
    function: str
    call_site: Loc | None = None
    iteration: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.col + 1}"

    def chain(self) -> Iterator[Loc]:
        """This place, then the call it was expanded from, and so on outwards."""
        here: Loc | None = self
        while here is not None:
            yield here
            here = here.call_site


UNKNOWN = Loc("<none>", 0, 0, 0, 0, "<none>")  # for IR made by hand or parsed from text, never for a user's kernel
_REGISTRY: dict[str, type[Diagnostic]] = {}
_FIELD = re.compile(r"\{(\w+)[^{}]*\}")
_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")  # Not|A|Number


class Diagnostic:
    """Base of the catalogue: a frozen record. `title`, `label` and `help` are templates over the fields: `{name}`.

    title: what went wrong, no values. label: the same with values, shown under the caret. help: what to do.

    What the templates name are the fields of a class, in the order in which they first stand there; a class may annotate them
    instead, as in a dataclass, where code reads them. Nothing is generated per class: a catalogue of a hundred dataclasses would
    be a third of the time of `import stagekit`.
    """

    id: ClassVar[str]
    title: ClassVar[str]
    label: ClassVar[str]
    help: ClassVar[str] = ""
    FIELDS: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls.id = _WORD_STARTS.sub("_", cls.__name__).upper()
        annotated = [name for name, kind in inspect.get_annotations(cls).items() if "ClassVar" not in str(kind)]
        templates = "".join(getattr(cls, what, "") for what in ("title", "label", "help"))
        own = annotated or [name for name in _FIELD.findall(templates) if name not in cls.FIELDS]
        cls.FIELDS += tuple(dict.fromkeys(own))
        if cls.id in _REGISTRY:
            raise InternalError(f"two diagnostics have the id {cls.id}")
        _REGISTRY[cls.id] = cls

    def __init__(self, /, *args: Any, **kwargs: Any) -> None:
        given = {**dict(zip(self.FIELDS, args)), **kwargs}
        if len(args) + len(kwargs) != len(self.FIELDS) or given.keys() != set(self.FIELDS):
            raise InternalError(f"{type(self).__name__} takes {', '.join(self.FIELDS) or 'nothing'}")
        self.__dict__.update(given)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.__dict__.items())})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.values()))

    def label_text(self) -> str:
        return self._filled(self.label)

    def help_text(self) -> str:
        return self._filled(self.help)

    def _filled(self, template: str) -> str:
        """Fill in the fields. An integer longer than Python writes is shown by its size."""
        fields = self.__dict__.items()
        return template.format(**{k: HUGE.format(int.bit_length(v)) if is_huge(v) else v for k, v in fields})


def is_huge(value: Any) -> bool:
    """Return whether this is an integer that no text shows: Python itself refuses to write one of more than 4300 digits."""
    return issubclass(type(value), int) and int.bit_length(value) > _LONGEST_INT_BITS  # `__class__` may raise


_LONGEST_INT_BITS = 1024
HUGE = "<an integer of {} bits>"


def all_diagnostics() -> dict[str, type[Diagnostic]]:
    """Return every diagnostic that the imported rooms define, by id."""
    return dict(_REGISTRY)


@frozen(held=True)
class Note:
    """A second place that explains the first: 'assigned here as int32'."""

    text: str
    loc: Loc | None = None


class InternalError(Exception):
    """A fault of stagekit itself, never of the user's kernel."""


class StagekitError(Exception):
    """A user's mistake, found before anything is launched or lost.

    Fields: `diagnostic`, `loc`, `notes`, `context` (kernel and constexpr values, filled in by the driver) and `id`.
    `str(error)` is the full text with caret, inline chain and constexprs.
    """

    def __init__(self, diagnostic: Diagnostic, loc: Loc | None = None, notes: tuple[Note, ...] = ()) -> None:
        super().__init__(diagnostic, loc, notes)
        self.diagnostic = diagnostic
        self.loc = place_of_user(loc)
        self.notes = tuple(Note(n.text, place_of_user(n.loc)) for n in notes)
        self.context: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return self.diagnostic.id

    def __str__(self) -> str:
        return "\n".join(_lines(self))


PACKAGE = f"{Path(__file__).parent}{os.sep}"
LIBRARY = f"{PACKAGE}lib"
_SHELF = f"{PACKAGE}kernels{os.sep}"  # kernels like a user's own, whose lines say something to whoever uses them


def place_of_user(loc: Loc | None) -> Loc | None:
    """Return the place to show: an error in a fragment of our own shows where the user called it, as for an intrinsic.

    Where no line of the user's is on the way, as in a kernel of the shelf, it shows the shelf's.
    """
    chain = [*loc.chain()] if loc else []
    of_user = (here for here in chain if not here.file.startswith(PACKAGE))
    of_shelf = (here for here in chain if here.file.startswith(_SHELF))
    return next(of_user, None) or next(of_shelf, loc)


_calls_users: set[types.CodeType] = set()


def calls_user(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function of ours that calls one of the user's: of what that raises, entry points drop the frames before it."""
    _calls_users.add(function.__code__)
    return function


def _frames_of_user(error: Exception) -> types.TracebackType | None:
    """Return the frames from a function of the user's on which a marked one of ours called, or None where none did."""
    trace, caller = error.__traceback__, None
    while trace is not None:
        caller = trace if trace.tb_frame.f_code in _calls_users else caller
        trace = trace.tb_next
    called = caller and caller.tb_next
    while called is not None and called.tb_frame.f_code.co_filename.startswith(PACKAGE):
        if not called.tb_frame.f_code.co_name.endswith(("comp>", "genexpr>")):
            return None  # another function of ours, not a comprehension of the caller's
        called = called.tb_next
    return called


def expose(error: Exception) -> None:
    """Drop our frames where a function of the user's raised; before a bare `raise`. An error of ours keeps its frames."""
    error.__traceback__ = _frames_of_user(error) or error.__traceback__


def conceal(error: Exception) -> None:
    """Drop the frames of ours that an error came through; the bare `raise` that must follow adds none either."""
    error.__traceback__ = _frames_of_user(error)
    error.__cause__ = None
    error.__suppress_context__ = True


def frame_of_user() -> types.FrameType:
    """Return the frame of the user's that called us, the innermost that is not ours.

    Functions of ours that are decorated with a context manager are called by `contextlib`.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((PACKAGE, contextlib.__file__)):
        frame = frame.f_back
    return frame


def warn(text: str) -> None:
    """Warn at the line of the user's that called us."""
    frame = frame_of_user()
    place, names = (frame.f_code.co_filename, frame.f_lineno), frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, UserWarning, *place, names.get("__name__"), registry)


DIVISION = "`/` gives a float: integers are divided by `//`"
"""A hint where an integer is needed and a float is given."""

# -- text -------------------------------------------------------------------------------------------------------------


def shown(value: Any, most: int = 200) -> str:
    """Return the repr of a user's value, cut to `most` characters; a repr that raises is described instead."""
    if is_huge(value):
        return HUGE.format(int.bit_length(value))
    try:
        text = repr(value)
    except Exception:  # a `__repr__` of the user's may raise anything
        text = f"<{type(value).__name__} without a repr>"
    return text if len(text) <= most else f"{text[: most - 1]}…"


def closest(name: str, known: Sequence[str], cutoff: float = ALIKE) -> str | None:
    """Return that of the known names which looks most like this one, if one looks at least so much like it."""
    with importing:
        from difflib import get_close_matches

    return next(iter(get_close_matches(name, known, n=1, cutoff=cutoff)), None)


def counted(count: int, one: str, many: str = "") -> str:
    """Return `1 axis`, `2 axes`. many: the plural, `one` with an s where it is left out."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def _lines(error: StagekitError) -> Iterator[str]:
    diagnostic, loc = error.diagnostic, error.loc
    place = f" ({loc})" if loc else ""
    yield f"error[{diagnostic.id}]: {diagnostic.title}{place}"
    if loc:
        yield from _excerpt(loc, diagnostic.label_text())
    else:
        yield f"  = {diagnostic.label_text()}"
    reached = [*_chain(loc)]
    for note in error.notes:
        if note.loc:
            yield f"note: {note.loc}"
            yield from _excerpt(note.loc, note.text)
            yield from _shortened([line for line in _chain(note.loc) if line not in reached])
        else:
            yield f"  = note: {note.text}"
    if help_text := diagnostic.help_text().strip():
        yield f"  = help: {help_text}"
    yield from _shortened(reached)
    for line in error.context:
        yield f"  = {line}"


def _chain(loc: Loc | None) -> Iterator[str]:
    for here in loc.chain() if loc else ():
        if here.iteration:
            yield f"  = in unrolled iteration {', '.join(here.iteration)}"
        if here.call_site:
            yield f"  = `{here.function}` inlined at {here.call_site} in `{here.call_site.function}`"


def _shortened(chain: list[str]) -> list[str]:
    left_out = len(chain) - 2 * _CHAIN_ENDS
    if left_out <= 1:
        return chain
    return [*chain[:_CHAIN_ENDS], f"  = ... {left_out} more", *chain[-_CHAIN_ENDS:]]


def _excerpt(loc: Loc, label: str) -> Iterator[str]:
    """Yield the source around `loc` with its span underlined; only the label where the source cannot be read."""
    text = linecache.getline(loc.file, loc.line).rstrip("\n")
    if not text:
        yield f"  = {label}"
        return
    width = len(str(loc.line))
    yield f"{'':{width}} |"
    for line in range(max(loc.line - _CONTEXT_LINES, 1), loc.line):
        yield f"{line:{width}} | {linecache.getline(loc.file, line).rstrip()}"
    yield f"{loc.line} | {text}"
    end_col = loc.end_col if loc.end_line == loc.line else len(text)
    carets = "^" * max(end_col - loc.col, 1)
    yield f"{'':{width}} | {' ' * loc.col}{carets} {label}"


# -- the border between the user's Python and ours -------------------------------------------------------------------------
#
# The traceback of a user's mistake ends in the user's own call. That holds for a call that does not fit the function's parameters
# too, which Python would report with a frame of ours.


class OutsideKernel(Diagnostic):
    title: ClassVar[str] = "Called outside a kernel"
    label: ClassVar[str] = "`{name}` means something only inside a kernel"
    help: ClassVar[str] = "call it in a function decorated with @jit, @function or @inline"


class WrongArguments(Diagnostic):
    title: ClassVar[str] = "Arguments that a function does not take"
    label: ClassVar[str] = "`{name}`: {problem}"
    help: ClassVar[str] = "call it as {signature}"


class CallError(StagekitError, TypeError):
    """A call of a public function with arguments that it does not take."""


class OfEach:
    """An attribute that each object computes for itself, and the class answers by `of_class`: `__doc__`, `__signature__`."""

    def __init__(self, compute: Callable[[Any], Any], of_class: Any = None) -> None:
        self.compute = compute
        self.of_class = of_class

    def __get__(self, owner: Any, cls: type) -> Any:
        return self.of_class if owner is None else self.compute(owner)


def hide_frames(function: Callable[P, R], *mistakes: type[Exception]) -> Callable[P, R]:
    """Make a public entry point: a mistake of the user's shows the user's frames only. mistakes: Python's own errors."""
    concealed: tuple[type[Exception], ...] = (StagekitError, *mistakes)

    @functools.wraps(function)
    def entry(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except concealed as error:
            conceal(error)
            raise
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                expose(error)
                raise  # from inside the function
            try:
                raise wrong_arguments(function, _misfit(function, args, kwargs) or _problem(error)) from None
            except CallError as refused:
                conceal(refused)
                raise
        except Exception as error:
            expose(error)
            raise

    entry.__stagekit_host__ = True  # type: ignore[attr-defined]  # a kernel does not trace it
    return entry


def public_class(cls: C) -> C:
    """Make the constructor of a class an entry point, as `hide_frames` does for a function."""
    cls.__init__ = hide_frames(cls.__init__)  # type: ignore[misc]
    return cls


def kernel_only(function: Callable[P, R]) -> Callable[P, R]:
    """Make a fragment of the library: expanded where a kernel calls it, refused elsewhere."""

    @functools.wraps(function)
    def refused(*args: P.args, **kwargs: P.kwargs) -> R:
        traced: R = called(function, function.__name__, args, kwargs)
        return traced

    return _in_kernels(function, hide_frames(refused, ZeroDivisionError))


def ordinary(function: Callable[P, R]) -> Callable[P, R]:
    """Make a fragment that means the same outside kernels: operands that it cannot work on are the caller's mistake."""

    @functools.wraps(function)  # one frame, not those of `hide_frames` too: grids are made by these
    def entry(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (StagekitError, ZeroDivisionError) as error:
            conceal(error)
            raise
        except TypeError as error:
            try:
                raise wrong_arguments(function, _problem(error)) from None
            except CallError as refused:
                conceal(refused)
                raise

    return _in_kernels(function, entry)


def under_name(name: str, fragment: Callable[P, R]) -> Callable[P, R]:
    """Return an `ordinary` fragment under a second name, by which errors call it."""
    given = inspect.unwrap(fragment)
    copy = types.FunctionType(given.__code__, given.__globals__)
    functools.update_wrapper(copy, given).__dict__.clear()
    copy.__name__ = copy.__qualname__ = name
    return ordinary(copy)


def _in_kernels(function: Callable[P, R], outside: Callable[P, R]) -> Callable[P, R]:
    """Return the entry point `outside`, which kernels expand as `function` instead."""
    outside.__stagekit_host__ = True  # type: ignore[attr-defined]
    outside.__stagekit_fragment__ = function  # type: ignore[attr-defined]
    return outside


language_call: ContextVar[Callable[[Any, tuple[Any, ...], dict[str, Any]], Any] | None] = ContextVar(
    "language_call", default=None
)
"""Traces `function(*args, **kwargs)` of the language; set while CPython runs a function of the library in a trace."""


# Type of a function of the language -> `(function, args, kwargs)` to its result outside kernels, or to NotImplemented where it
# means something only inside. The front end fills it.
OUTSIDE: dict[type, Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]] = {}


def call_in_language(self: Any, /, *args: Any, **kwargs: Any) -> Any:
    """The `__call__` of the objects that are functions of the language, each with a `name`.

    An entry point that `hide_frames` has no part in: the library makes thousands of these calls in a trace.
    """
    traced = language_call.get()
    if traced is not None:
        return traced(self, args, kwargs)
    try:
        return _computed(self, self.name, args, kwargs)
    except StagekitError as error:
        conceal(error)
        raise


def called(function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Carry out a call that CPython makes of a function of the language: trace it where the library makes it, else compute it."""
    traced = language_call.get()
    return _computed(function, name, args, kwargs) if traced is None else traced(function, args, kwargs)


def _computed(function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    compute = OUTSIDE.get(type(function))
    result = NotImplemented if compute is None else compute(function, args, kwargs)
    if result is NotImplemented:
        raise StagekitError(OutsideKernel(name))
    return result


def wrong_arguments(function: Callable[..., Any], problem: str) -> CallError:
    """Return the error for a call of a function or class with arguments that do not fit."""
    owner, _, method = function.__qualname__.rpartition(".")
    name = owner if method in ("__init__", "__call__") else method
    # as a call fills the parameters: without `self` and without types
    given = [p.replace(annotation=p.empty) for p in inspect.signature(function).parameters.values() if p.name != "self"]
    return CallError(WrongArguments(name, problem, f"`{name}{inspect.Signature(given)}`"))


def check_argument(function: Callable[..., Any], name: str, value: Any, is_taken: Any, wanted: str) -> None:
    """Refuse an argument that a function does not take. wanted: what it takes instead."""
    if not is_taken:
        raise wrong_arguments(function, f"`{name}` is {shown(value)}, not {wanted}")


def _misfit(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return which argument a function does not take, "" if it takes them all. Python's own words count `self`."""
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    return ""


def _problem(error: TypeError) -> str:
    """Return what Python says of a call that does not fit, without the function's name before it."""
    name, parentheses, rest = str(error).partition("() ")
    return rest if parentheses and " " not in name else str(error)
