"""IR to IR, one file per pass; `pipeline.py` has the order and runs it, `rewriter.py` what they share."""

from __future__ import annotations

from typing import Protocol

from stagekit.frozen import frozen
from stagekit.ir import Fastmath, Function


@frozen()
class PassContext:
    """All that a pass knows besides the function. capability: cuda only, ten times the version, else 0."""

    target: str
    capability: int
    fastmath: Fastmath
    debug: bool


class Pass(Protocol):
    """A function from valid IR to valid IR, named by its verb. It returns the same object where it changes nothing."""

    __name__: str

    def __call__(self, fn: Function, context: PassContext, /) -> Function: ...
