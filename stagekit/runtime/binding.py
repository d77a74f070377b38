"""Which argument is whose: position, keyword and default, by Python's own rules.

bind = Binder("scale", ("x", "factor"), (..., ...), 0, ("x", "factor: float32"))
bind((x,), {"factor": 2.0})     [x, 2.0]
bind((x,), {"facter": 2.0})     error: no parameter `facter`; did you mean `factor`?
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from stagekit.diagnostics import Diagnostic, Note
from stagekit.runtime.errors import ArgumentError, DuplicateArgument, MissingArgument, TooManyArguments, UnknownArgument


class Binder:
    """Puts the arguments of a call in the order of the parameters. Built once per kernel.

    defaults: `...` where there is none. keyword_only: how many of the last parameters cannot be given by position. texts: how the
    errors show each.
    """

    def __init__(
        self, kernel: str, names: Sequence[str], defaults: Sequence[Any], keyword_only: int, texts: Sequence[str]
    ) -> None:
        self._kernel = kernel
        self._names = tuple(names)
        self._defaults = defaults
        self.keyword_only = keyword_only
        self._positional = len(names) - keyword_only
        self._texts = texts

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """One value per parameter, or an `ArgumentError` that shows the signature."""
        if not kwargs and len(args) == len(self._names) == self._positional:
            return args
        if len(args) > self._positional:
            raise self._error(TooManyArguments(self._kernel, self._positional, len(args)))
        for name in kwargs:
            if name in self._names[: len(args)]:
                raise self._error(DuplicateArgument(name, self._kernel))
            if name not in self._names:
                raise self._error(UnknownArgument(self._kernel, name, suggestion(name, self._names)))
        values = [*args, *(kwargs.get(n, d) for n, d in list(zip(self._names, self._defaults))[len(args) :])]
        missing = [f"`{name}`" for name, value in zip(self._names, values) if value is ...]
        if missing:
            raise self._error(MissingArgument(self._kernel, ", ".join(missing)))
        return values

    def _error(self, diagnostic: Diagnostic) -> ArgumentError:
        texts = [
            *self._texts[: self._positional],
            *(["*"] if self.keyword_only else []),
            *self._texts[self._positional :],
        ]
        notes = [Note(f"the signature is {self._kernel}({', '.join(texts)})")]
        if self._names[:1] == ("self",):
            notes.append(Note(f"a kernel is not bound to an object: {OF_AN_OBJECT}"))
        return ArgumentError(diagnostic, notes=tuple(notes))


OF_AN_OBJECT = "annotate `self: sk.constexpr` and pass the object first, or let a closure capture what is needed of it"


def suggestion(name: str, known: Sequence[str]) -> str:
    """What a misspelt name may have been: "did you mean `BLOCK`?", else the list of names."""
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"did you mean `{close[0]}`?"
    return f"the parameters are {', '.join(f'`{k}`' for k in known)}" if known else "it has no parameters"
