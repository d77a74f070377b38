"""Fragments that the kernels of the shelf share: how a piece of a row is read and written, and what a row is split into."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import stagekit as sk


@sk.inline
def load_piece(row: Any, start: Any, columns: Any, BLOCK: int, other: float = 0.0) -> Any:
    """Return `row[start : start + BLOCK]` as a tile of float32, `other` where the row has ended."""
    i = start + sk.arange(0, BLOCK)
    return sk.load(row + i, mask=i < columns, other=other).to(sk.float32)


@sk.inline
def store_piece(row: Any, start: Any, columns: Any, value: Any) -> None:
    """Write a tile to `row[start:]`, as far as the row goes, rounded to the dtype of the row."""
    i = start + sk.arange(0, len(value))
    sk.store(row + i, value, mask=i < columns)


@sk.inline
def starts(columns: Any, BLOCK: int, ONE_TILE: bool) -> Iterable[Any]:
    """Return where the pieces of a row begin: a single one, which is known while specialising, or a loop at run time."""
    return (0,) if ONE_TILE else range(0, columns, BLOCK)


@sk.inline
def exp_for(row: Any, x: Any) -> Any:
    """Return exp(x) as closely as an array of the dtype of `row` shows it."""
    return sk.fast_exp(x) if row.dtype.bits == 32 else sk.fast_exp2(x * math.log2(math.e))
