"""Functions that mean the same inside and outside a kernel: plain Python, interpreted like a user's own helpers."""

from __future__ import annotations

from typing import Any

from stagekit.diagnostics import ordinary
from stagekit.frontend.markers import SizeExpr


@ordinary
def ceildiv(a: Any, b: Any) -> Any:
    """`a / b` rounded up: how many blocks of `b` cover `a` elements. Integers of any sign; compile-time, run-time or sizes."""
    if isinstance(a, SizeExpr) or isinstance(b, SizeExpr):
        return -(-a // b)  # sizes are signed
    return a // b + (
        a % b != 0
    )  # nothing is negated: unsigned numbers stay right, and so does the least of signed ones


cdiv = ceildiv
