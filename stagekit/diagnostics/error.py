"""The error around a diagnostic, and its text: what, where with a caret, why, what to do, then the chain of calls.

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

import linecache
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stagekit.diagnostics.diagnostic import HUGE, Diagnostic, Loc, Note, is_huge

_CONTEXT_LINES = 1  # lines shown before the one at fault
_CHAIN_ENDS = 5  # of a long chain of calls, such as a recursion, both ends are shown


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


_LIBRARY = str(Path(__file__).parents[1] / "lib")


def place_of_user(loc: Loc | None) -> Loc | None:
    """The place to show of `loc`.

    Fragments of our own library are like intrinsics to their user: an error in one shows where it was called.
    """
    here = loc
    while here is not None and here.file.startswith(_LIBRARY):
        here = here.call_site
    return here or loc


def conceal(error: StagekitError) -> None:
    """Forget where an error came through: the bare `raise` that must follow adds no frame either."""
    error.__traceback__ = None
    error.__cause__ = None
    error.__suppress_context__ = True


# -- text -------------------------------------------------------------------------------------------------------------


def shown(value: Any, most: int = 200) -> str:
    """A user's value for a text of ours: its repr, but never long, and never an error of its own."""
    if is_huge(value):
        return HUGE.format(int.bit_length(value))
    try:
        text = repr(value)
    except Exception:  # a `__repr__` of the user's may raise anything
        text = f"<{type(value).__name__} without a repr>"
    return text if len(text) <= most else f"{text[: most - 1]}…"


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
    """The source around `loc` with the span underlined; only the label where the source cannot be read."""
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
