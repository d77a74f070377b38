"""Functions that mean the same inside and outside a kernel: plain Python, interpreted like a user's own helpers."""

from __future__ import annotations

from typing import Any

from stagekit.diagnostics import ordinary


@ordinary
def ceildiv(a: Any, b: Any) -> Any:
    """`a / b` rounded up: how many blocks of `b` cover `a` elements. Integers of any sign; compile-time, run-time or sizes."""
    return -(-a // b)


cdiv = ceildiv
