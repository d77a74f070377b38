"""Products of tiles by warpgroups: `wgmma`, which reads both factors from shared memory by itself.

A product of (M, K) by (K, N) is cut among the warpgroups of the block, four warps each: M by `down` into multiples of 64 rows,
and N by `across`. Both factors lie in panels (`Matrix.is_in_panels`), as `staged` copies them. Sums stay where the instruction
has them, warp by warp as `mma.sync` has its own:

    bfloat16, 128 x 256 x 64 by 8 warps: 2 parts of 64 x 256, each of 4 instructions, one after the other along K

Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"; what an instruction does is in `intrinsics/wgmma.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import stagekit as sk
from stagekit.lib.layout import REGISTERS, WARP, Digit, Layout, Shape, layout_of, quotient_of, recorded, rest_of
from stagekit.lib.shared import CHUNK_BYTES, COLUMN, PANEL_CHUNKS, Matrix
from stagekit.lib.tile import Traced

_ADD, _MULTIPLY = map(sk._operation, ("+", "*"))
_ROWS, _COLUMNS = 64, (64, 128, 192, 256)  # of an instruction, of those that make whole panels
_DEPTH_BYTES = 32  # of an instruction along K
_ROW_BYTES = CHUNK_BYTES * PANEL_CHUNKS
_WARPS = 4  # of a warpgroup
_MOST_SUMS = 128  # of a thread, of the registers that one may have
_OTHER_REGISTERS = 32  # of a thread: ptxas asks for 26, and 6 hold what goes round the loop
_PANEL = _ROW_BYTES // 2  # elements of 16 bits in a row of a panel


class Warpgroups(NamedTuple):
    """How the warpgroups of a block share a product. threads: of the block. columns: of an instruction."""

    shape: Shape
    depth: int
    threads: int
    down: int
    across: int
    columns: int

    @property
    def tiles(self) -> tuple[int, int]:
        """How many instructions a warpgroup has down and across."""
        m, n = self.shape
        return m // (self.down * _ROWS), n // (self.across * self.columns)

    @property
    def layout(self) -> Layout:
        """Where the sums are."""
        down, across = self.tiles
        part = across * self.columns
        registers = (Digit(2, 1, 1), Digit(2, 0, 8), Digit(part // 8, 1, 8), Digit(down, 0, _ROWS))
        lanes = (
            Digit(4, 1, 2), Digit(8, 0, 1), Digit(_WARPS, 0, 16),
            Digit(self.across, 1, part), Digit(self.down, 0, down * _ROWS),
        )  # fmt: skip
        return layout_of(self.shape, self.threads, registers, lanes, 2)


def fits_panels(columns: int, rows: int) -> bool:
    """Return whether a matrix of elements of 16 bits can lie in panels."""
    return columns % _PANEL == 0 and rows % PANEL_CHUNKS == 0


@functools.cache
def _sharing(shape: tuple[int, int, int], threads: int) -> Warpgroups | None:
    """Return how warpgroups share a product; of the ways that in which an instruction has most columns."""
    (m, n, k), groups = shape, threads // (WARP * _WARPS)
    if threads % (WARP * _WARPS) or m % _ROWS or k % _PANEL or n % _PANEL:
        return None
    found = []
    for down in range(1, groups + 1):
        across = groups // down
        is_whole = down * across == groups and m % (down * _ROWS) == 0 and n % (across * _PANEL) == 0
        if is_whole and m * n // threads <= min(_MOST_SUMS, REGISTERS // threads - _OTHER_REGISTERS):
            part = n // across
            columns = next(each for each in reversed(_COLUMNS) if part % each == 0)
            found.append((columns, down, Warpgroups((m, n), k, threads, down, across, columns)))
    return max(found)[-1] if found else None


@sk._direct
def warpgroups_for(dtype: sk.DType, shape: tuple[int, int, int], threads: int) -> Warpgroups | None:
    """Return how warpgroups share a product of tiles of (M, K) by (K, N) in panels; None where they do not multiply it.

    shape: M, N, K.
    """
    found = _sharing(shape, threads) if dtype.is_float and dtype.itemsize == 2 else None
    return found if found and sk._has_warpgroups() else None


@recorded
@sk._direct
def multiplied_by_groups(sharing: Warpgroups, a: Any, b: Any, sums: list[Traced]) -> list[Traced]:
    """Return the sums of this thread, to which its part of the product of two matrices in panels is added.

    Who has written them the usual way has called `fence_proxy_async`, and a barrier stands behind that.
    """
    group = _group(sharing)
    (down, across), columns = sharing.tiles, sharing.columns
    rows = _MULTIPLY(quotient_of(group, sharing.across), down * _ROWS)
    first = _MULTIPLY(rest_of(group, sharing.across), across * columns)
    left, right = _LyingFactor(a, 0, rows), _LyingFactor(b, 1, first)
    multiply, settle = (getattr(sk.cuda, f"wgmma_{part}m64n{columns}") for part in ("", "wait_"))
    count = columns // 2
    parts = [sums[i : i + count] for i in range(0, len(sums), count)]
    sk.cuda.wgmma_fence()
    for step in range(sharing.depth * a.dtype.itemsize // _DEPTH_BYTES):
        for i, (row, column) in enumerate(_pairs(down, across)):
            places = left.at(row * _ROWS, step), right.at(column * columns, step)
            parts[i] = list(multiply(*places, *parts[i], **left.named("a"), **right.named("b")))
    sk.cuda.wgmma_commit()
    return [each for part in parts for each in settle(*part, pending=0)]


def _pairs(down: int, across: int) -> Iterator[tuple[int, int]]:
    return ((row, column) for row in range(down) for column in range(across))


def _group(sharing: Warpgroups) -> Traced:
    """Return the number of this thread's warpgroup, as one of which it is seen that a warp has it in common."""
    if sharing.threads == _WARPS * WARP:
        return 0
    number = quotient_of(sk.cuda.thread_idx("x"), _WARPS * WARP)
    return sk.shfl_sync(0xFFFFFFFF, number, 0)


class _LyingFactor:
    """A factor in panels. axis: of the result, along which its rows or columns are, of which this warpgroup begins at `start`."""

    def __init__(self, matrix: Matrix, axis: int, start: Traced) -> None:
        self.matrix, self.start = matrix, start
        self.is_turned = matrix.strides[axis] == COLUMN

    def named(self, letter: str) -> dict[str, Any]:
        """Return how an instruction is told of it."""
        panel_bytes = self.matrix.rows * _ROW_BYTES if self.is_turned else 0
        return {f"trans_{letter}": self.is_turned, f"panel_{letter}": panel_bytes}

    def at(self, more: int, step: int) -> Traced:
        """Return where rows, or columns, begin `more` behind the first, and how far along K."""
        matrix, per_step = self.matrix, _DEPTH_BYTES // self.matrix.dtype.itemsize
        along, rows = step * per_step, matrix.rows
        index = _ADD(self.start, more)
        if self.is_turned:  # of a whole number of panels
            place = _ADD(_MULTIPLY(index, rows), along * _PANEL)
        else:
            place = _ADD(_MULTIPLY(index, _PANEL), along // _PANEL * rows * _PANEL + along % _PANEL)
        return _ADD(matrix.start, _ADD(matrix.origin, place))
