"""Where something is: a span of the user's source, and through which `@inline` calls it was reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(
    unsafe_hash=True, slots=True
)  # never changed; frozen, it would take three times as long to make, for every op
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
