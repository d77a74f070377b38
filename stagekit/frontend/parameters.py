"""A kernel's parameters: what their annotations mean, which are constexpr, and what each becomes in the IR.

Annotations are resolved late, with the constexpr values in scope, since `A: Tensor((N,), float32)` may name a constexpr `N`.
Only the markers count; any other annotation (`int`, a forward reference) is documentation.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any

from stagekit.diagnostics import shown
from stagekit.dtypes import DType
from stagekit.frontend.annotations import MARKERS, Meaning, classes_of, misfit_of, strip
from stagekit.frontend.errors import BadAnnotation, BadParameter, SpecializeError
from stagekit.frontend.markers import Dynamic, Optional, Tensor, _Constexpr
from stagekit.frontend.source import Snapshot, without_warnings
from stagekit.frontend.structures import Form, PartsMarker
from stagekit.frozen import frozen

NOTHING_KNOWN: Mapping[str, Any] = {}
_MOST_QUOTES = 8  # a text may mean itself without end: `Tensor(("N",), ...)` where the constexpr N is "N"


# -- what a call passes -------------------------------------------------------------------------------------------------


@frozen()
class ArrayArg:
    """The type of an array argument, without its sizes."""

    dtype: DType
    rank: int
    is_contiguous: bool


@frozen()
class ScalarArg:
    dtype: DType


@frozen()
class NoneArg:
    pass


@frozen()
class StructureArg:
    """An argument that holds others. parts: the type of each."""

    form: Form
    parts: tuple[ArgType, ...]


@frozen()
class ConstantArg:
    """A part that is known at compile time, since it is neither array nor number or was annotated so. token: its digest."""

    token: Any
    value: Any = field(compare=False)


ArgType = ArrayArg | ScalarArg | NoneArg | StructureArg | ConstantArg


@frozen(slots=False)
class Parameter:
    """One parameter of the Python function."""

    name: str
    default: Any
    is_constexpr: bool
    types: tuple[type, ...] = (object,)  # the classes that `constexpr[...]` allows the value


class Parameters:
    """The signature of a kernel, its annotations unresolved.

    outer: names of the frames around the definition that annotations may use; with postponed annotations they are in no closure.
    """

    def __init__(self, snapshot: Snapshot, outer: Mapping[str, Any]) -> None:
        self.function = snapshot.function
        self.snapshot = snapshot
        self.outer = dict(outer)
        self.signature = inspect.signature(self.function, follow_wrapped=False)
        for p in self.signature.parameters.values():
            if p.kind in _REFUSED_KINDS:
                raise SpecializeError(BadParameter(p.name, p.kind.description, *_REFUSED_KINDS[p.kind]), snapshot.loc)
        self.all = tuple(self._parameter(p) for p in self.signature.parameters.values())
        self.constexprs = tuple(p for p in self.all if p.is_constexpr)
        self.run_time = tuple(p for p in self.all if not p.is_constexpr)
        self.names = tuple(p.name for p in self.all)

    def _parameter(self, p: inspect.Parameter) -> Parameter:
        default = ... if p.default is p.empty else p.default
        meaning = self._constexpr_meaning(p.annotation)
        if meaning is None or meaning.type is ...:
            return Parameter(p.name, default, meaning is not None)
        try:
            allowed = classes_of(meaning.type)
        except Exception:  # an object of the user's that may raise anything
            allowed = None
        if allowed is None:
            raise self._bad(p.name, shown(meaning), "in the brackets stands a class, or a union of classes")
        return Parameter(p.name, default, True, allowed)

    def _constexpr_meaning(self, annotation: Any) -> _Constexpr | None:
        if type(annotation) is str and "constexpr" not in annotation and "(" in annotation:
            return None  # a Tensor or Pointer, over names that may not be known yet
        try:
            meaning = strip(self._evaluate(annotation, {}))
        except Exception:
            return None  # names something not known yet: a Tensor over a constexpr, or a type for the reader only
        return meaning if isinstance(meaning, _Constexpr) else None

    # -- annotations --------------------------------------------------------------------------------------------

    def _evaluate(self, annotation: Any, constexprs: Mapping[str, Any]) -> Any:
        """Return the object that an annotation stands for."""
        for _ in range(_MOST_QUOTES):  # quoted by the user, by postponed evaluation, or by both
            if not isinstance(annotation, str):
                break
            with without_warnings():
                code = compile(annotation.strip(), "<annotation>", "eval", dont_inherit=True)
            annotation = eval(code, self.function.__globals__, self._namespace(constexprs))
        quoted = typing.get_args(annotation)[0] if typing.get_origin(annotation) is Annotated else None
        if isinstance(quoted, typing.ForwardRef):  # Annotated["sk.constexpr", ...]
            meant = strip(self._evaluate(quoted.__forward_arg__, constexprs))
            return meant if isinstance(meant, MARKERS) else annotation
        return annotation

    def _namespace(self, constexprs: Mapping[str, Any]) -> dict[str, Any]:
        closure = {}
        for name, cell in zip(self.function.__code__.co_freevars, self.function.__closure__ or ()):
            with contextlib.suppress(ValueError):  # it is empty yet
                closure[name] = cell.cell_contents
        type_params = {p.__name__: p for p in getattr(self.function, "__type_params__", ())}
        return {**self.outer, **type_params, **closure, **constexprs}

    def meaning(self, name: str, constexprs: Mapping[str, Any]) -> Meaning:
        """Return the marker that annotates a run-time parameter, or None."""
        annotation = self.signature.parameters[name].annotation
        try:
            value = strip(self._evaluate(annotation, constexprs))
        except SpecializeError:  # about an annotation in a class
            raise
        except Exception as error:
            words = shown(annotation, most=10_000)
            if isinstance(error, NameError) and not any(each in words for each in ("constexpr", "Tensor", "Pointer")):
                return None
            raise self._bad(name, annotation, f"{type(error).__name__}: {error}", constexprs) from None
        if isinstance(value, tuple) and len(value) == 2 and value[1] is None:
            value = Optional(strip(value[0]))
        if isinstance(value, _Constexpr):
            raise self._bad(name, annotation, "it means a constexpr, which an annotation has to spell")
        return self.resolve(name, annotation, value, constexprs) if isinstance(value, MARKERS) else None

    def check_known(self, constexprs: Mapping[str, Any]) -> None:
        """Refuse annotations that mean nothing now that these constexprs are known; those that need others have to wait."""
        for parameter in self.run_time:
            annotation = self.signature.parameters[parameter.name].annotation
            try:
                resolved = self._with_sizes(strip(self._evaluate(annotation, constexprs)), constexprs)
            except NameError as error:
                if error.name not in self.names:  # no other constexpr, so it will never mean anything
                    self.meaning(parameter.name, constexprs)
                continue
            except Exception:
                continue  # it names another
            if isinstance(resolved, MARKERS):
                self._check(parameter.name, annotation, resolved, constexprs)

    def resolve(self, name: str, annotation: Any, value: Meaning, constexprs: Mapping[str, Any]) -> Meaning:
        """Return a marker with its quoted sizes evaluated over the constexprs; refuse one that does not fit.

        annotation: what the error text quotes. The marker stands in it, or was given to `.specialize(...)`.
        """
        try:
            resolved: Meaning = self._with_sizes(value, constexprs)
        except Exception as error:
            known = ", ".join(f"`{p.name}`" for p in self.constexprs) or "there are none"
            why = f"{type(error).__name__}: {error}; a quoted size names constexprs ({known}), others are `sk.dynamic(...)`"
            raise self._bad(name, annotation, why) from None
        self._check(name, annotation, resolved, constexprs)
        return resolved

    def _with_sizes(self, value: Any, constexprs: Mapping[str, Any]) -> Any:
        """Return a marker with its quoted sizes replaced by what they mean; anything else unchanged."""
        if isinstance(value, Optional):
            return Optional(self._with_sizes(value.inner, constexprs))
        if isinstance(value, PartsMarker):
            parts = tuple((key, self._with_sizes(part, constexprs)) for key, part in value.parts)
            return dataclasses.replace(value, parts=parts)
        if not isinstance(value, Tensor) or not any(isinstance(s, str) for s in (*value.shape, *(value.strides or ()))):
            return value

        def plain(sizes: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(self._evaluate(s, constexprs) if isinstance(s, str) else s for s in sizes)

        strides = None if value.strides is None else plain(value.strides)
        return dataclasses.replace(value, shape=plain(value.shape), strides=strides)

    def _check(self, name: str, annotation: Any, value: Meaning, constexprs: Mapping[str, Any]) -> None:
        why = misfit_of(value)
        if why is not None:
            raise self._bad(name, annotation, why, constexprs)

    def _bad(
        self, name: str, annotation: Any, why: str, constexprs: Mapping[str, Any] = NOTHING_KNOWN
    ) -> SpecializeError:
        text = annotation if isinstance(annotation, str) else shown(annotation)
        given = [f"{n}={shown(v)}" for n, v in constexprs.items() if re.search(rf"\b{re.escape(n)}\b", text)]
        with_given = f" (with {', '.join(given)})" if given else ""
        return SpecializeError(BadAnnotation(name, text, f"{why}{with_given}"), self.snapshot.loc)

    def sizes_named(
        self, name: str, missing: Sequence[str], constexprs: Mapping[str, Any]
    ) -> Iterator[tuple[str, int]]:
        """Yield each parameter with an axis whose size is the constexpr `name`, and that axis. missing: the unknown ones."""
        known = {**constexprs, **{each: Dynamic(each) for each in missing}}
        for parameter in self.run_time:
            annotation = self.signature.parameters[parameter.name].annotation
            try:
                value = self._with_sizes(strip(self._evaluate(annotation, known)), known)
            except Exception:
                continue  # it needs the value of a constexpr that is missing
            inner = value.inner if isinstance(value, Optional) else value
            if isinstance(inner, Tensor) and known[name] in inner.shape:
                yield parameter.name, inner.shape.index(known[name])


_FIXED = "the number of parameters of a kernel is fixed", "name them, or pass a tuple to one of them"
_REFUSED_KINDS: dict[object, tuple[str, str]] = {
    **dict.fromkeys((inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD), _FIXED),
    inspect.Parameter.POSITIONAL_ONLY: ("`.specialize` gives parameters by name", "leave out the `/`"),
}
