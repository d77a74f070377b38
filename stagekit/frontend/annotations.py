"""What an annotation of a parameter means: its markers, wherever they stand in it, and the names in its text."""

from __future__ import annotations

import ast
import contextlib
import inspect
import sys
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any
from weakref import WeakKeyDictionary

from stagekit.diagnostics import counted, shown
from stagekit.dtypes import ELEMENT_DTYPES, DType
from stagekit.frontend.errors import BadAnnotation, SpecializeError
from stagekit.frontend.markers import MAX_ALIGN, Optional, Pointer, SizeExpr, Tensor, _Constexpr, is_alignment
from stagekit.frontend.source import without_warnings
from stagekit.frontend.structures import COMPLEX, PartsMarker, is_named_tuple, is_record
from stagekit.frontend.tracer import suggest

Meaning = Tensor | Pointer | DType | Optional | _Constexpr | PartsMarker | None
MARKERS = (Tensor, Pointer, DType, Optional, _Constexpr, PartsMarker)
_OF_RUN_TIME = Tensor | Pointer | DType | PartsMarker


def misfit_of(value: Any) -> str | None:
    """Return what is wrong with the parts of a marker, in words; None if nothing is."""
    if isinstance(value, Optional):
        return misfit_of(value.inner)
    if isinstance(value, PartsMarker):
        return next((why for _, part in value.parts if (why := misfit_of(part))), None)
    if isinstance(value, Tensor | Pointer) and type(value.dtype) is not DType:
        hint = suggest(shown(value.dtype), [d.name for d in ELEMENT_DTYPES])
        return f"{shown(value.dtype)} is not a dtype; {hint or 'use one such as sk.float32'}"
    if isinstance(value, Tensor | Pointer) and not is_alignment(value.align):
        return f"`align` is {shown(value.align)}, not a power of two from 1 to {MAX_ALIGN}"
    if isinstance(value, Pointer) and value.dtype.part is not None:
        return f"a pointer points to numbers, which {value.dtype.name} is a pair of: take an array, as by sk.Tensor"
    if not isinstance(value, Tensor):
        return None
    for size in value.shape:
        if not (size is None or isinstance(size, SizeExpr) or (type(size) is int and size >= 0)):
            return f"{shown(size)} is not a size"
    for stride in value.strides or ():
        if not (stride is None or type(stride) is int or isinstance(stride, SizeExpr)):
            return f"{shown(stride)} is not a stride"
    if value.strides is not None and len(value.strides) != len(value.shape):
        return f"{counted(len(value.shape), 'size')} and {counted(len(value.strides), 'stride')}"
    return None


def classes_of(annotation: Any) -> tuple[type, ...] | None:
    """Return the classes that a value may have: two for `int | None`, tuple for `tuple[int, ...]`; None if it names none."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        parts = [classes_of(part) for part in typing.get_args(annotation)]
        return None if None in parts else tuple(each for part in parts for each in part or ())
    if annotation is Any:
        return (object,)
    found = type(None) if annotation is None else origin or annotation
    if not isinstance(found, type):
        return None
    try:
        isinstance(None, found)  # not every class answers: a protocol may be for type checkers only
    except Exception:  # a metaclass may raise anything
        return None
    return (found,)


def is_instance(value: Any, types: tuple[type, ...]) -> bool:
    """Return what `isinstance` does, but a bool is no int, and an object whose `__class__` raises is of no type."""
    try:
        return isinstance(value, tuple(t for t in types if not (t is int and isinstance(value, bool))))
    except Exception:
        return False


def strip(annotation: Any) -> Any:
    """Return what stands inside `Annotated[...]` and aliases, and inside `Annotated[...] | None`."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        options = [strip(each) for each in typing.get_args(annotation) if each is not type(None)]
        is_marked = len(options) == 1 and isinstance(options[0], _OF_RUN_TIME)
        return Optional(options[0]) if is_marked else annotation
    if typing.get_origin(annotation) is Annotated:
        inner, *extra = typing.get_args(annotation)
        return next((e for e in extra if isinstance(e, MARKERS)), strip(inner))
    if sys.version_info >= (3, 12) and isinstance(annotation, typing.TypeAliasType):
        return strip(annotation.__value__)
    return structure_of(annotation) or annotation


# -- annotations of parts -----------------------------------------------------------------------------------------------


def structure_of(annotation: Any) -> PartsMarker | None:
    """Return what `tuple[...]`, `list[...]`, or a class by its annotations say of an argument; None where no marker stands."""
    if isinstance(annotation, DType):
        both = tuple([(name, annotation.part) for name in COMPLEX.names or ()])
        return PartsMarker(COMPLEX.kind, both) if annotation.part is not None else None
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is tuple or origin is list:
        is_repeated = origin is list or inside[1:] == (...,)
        parts = [(place, _marker(each)) for place, each in enumerate(inside[:1] if is_repeated else inside)]
        is_said = any(said is not None for _, said in parts)
        return PartsMarker(origin, tuple(parts), is_repeated) if is_said else None
    if isinstance(annotation, type) and (is_record(annotation) or is_named_tuple(annotation)):
        marked = marked_parts(annotation)
        return PartsMarker(annotation, tuple(marked.items())) if marked else None
    return None


def _marker(annotation: Any) -> Any:
    found = strip(annotation)
    return found if isinstance(found, MARKERS) else None


_marked: WeakKeyDictionary[type, Mapping[str, Any]] = WeakKeyDictionary()


def marked_parts(kind: type) -> Mapping[str, Any]:
    """Return the markers by which a dataclass or NamedTuple annotates what its objects hold, by name; none for other classes.

    An annotation as text is evaluated in the module of the class. Raises SpecializeError where one means nothing.
    """
    if kind not in _marked:
        is_open = is_record(kind) or is_named_tuple(kind)
        rows = [(base, inspect.get_annotations(base)) for base in reversed(kind.__mro__)] if is_open else []
        found = {name: _marker_in(base, name, said) for base, own in rows for name, said in own.items()}
        _marked[kind] = {name: marker for name, marker in found.items() if marker is not None}
    return _marked[kind]


def _marker_in(cls: type, name: str, annotation: Any) -> Any:
    try:
        if isinstance(annotation, str):
            names = vars(sys.modules[cls.__module__])
            with without_warnings():
                annotation = eval(compile(annotation.strip(), "<annotation>", "eval", dont_inherit=True), names)
        found = _marker(annotation)
        why = misfit_of(found)
    except SpecializeError:
        raise
    except Exception as error:
        if not any(word in str(annotation) for word in _WORDS):
            return None
        why = f"{type(error).__name__}: {error}; the module of the class has to know its names"
    if why is not None:
        raise SpecializeError(BadAnnotation(f"{cls.__name__}.{name}", shown(annotation, most=200), why))
    return found


_WORDS = ("constexpr", "Tensor", "Pointer")  # in an annotation as text that is not for readers only


def _names_in_annotations(function: types.FunctionType) -> set[str]:
    """Return the names in annotations that are quoted or postponed; from Python 3.14 on, which has text for all, in any."""
    texts: list[Any] = list(function.__annotations__.values()) if sys.version_info < (3, 14) else []
    if sys.version_info >= (3, 14):
        import annotationlib

        texts = list(annotationlib.get_annotations(function, format=annotationlib.Format.STRING).values())
    found: set[str] = set()
    for text in texts:
        # a null character or half of a surrogate pair is no syntax
        with contextlib.suppress(SyntaxError, ValueError), without_warnings():
            tree = ast.parse(text, mode="eval") if type(text) is str else ast.Constant(text)
            found.update(n.id for n in ast.walk(tree) if isinstance(n, ast.Name))
    return found


def outer_names(function: types.FunctionType, frame: types.FrameType | None) -> dict[str, Any]:
    """Return the values, in the frames around a definition, of names in its annotations that closure and module lack."""
    wanted = _names_in_annotations(function) - set(function.__code__.co_freevars) - set(function.__globals__)
    found: dict[str, Any] = {}
    while frame is not None and wanted:
        for name in [n for n in wanted if n in frame.f_locals]:
            found[name] = frame.f_locals[name]
            wanted.discard(name)
        frame = frame.f_back
    return found
