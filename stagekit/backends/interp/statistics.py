"""Measurements of a launch, from its actual addresses: bytes, sectors, bank conflicts, masks and branches.

A *request* is one warp running one access. Global memory moves in sectors of 32 bytes: a warp that reads 32 neighbouring
float32 needs 4. Shared memory has 32 banks of 4 bytes: a request takes as many passes as the busiest bank has to give
different words. Source: CUDA C++ Programming Guide, "Device Memory Accesses"; "Shared Memory" under compute capability 5.x.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np

from stagekit.backends.interp.memory import Array
from stagekit.backends.interp.team import Access, Team, Touch, Watcher
from stagekit.diagnostics import Loc, place_of_user
from stagekit.ir import Space
from stagekit.limits import WARP

SECTOR_BYTES = 32
BANK_BYTES = 4
BANKS = 32


@dataclass(frozen=True)
class AccessStatistics:
    """The figures of one access of the kernel. lanes: accesses by single threads. bytes: what they asked for.

    sectors: sectors moved, of global memory only. passes: of shared memory only; 1 per request without bank conflicts.
    """

    loc: Loc
    role: str
    space: str
    array: str
    requests: int
    lanes: int
    bytes: int
    sectors: int
    passes: int

    @property
    def sectors_per_request(self) -> float:
        return self.sectors / self.requests

    @property
    def bank_conflicts(self) -> int:
        """The passes beyond the first of each request."""
        return self.passes - self.requests if self.space == Space.SHARED.value else 0

    @property
    def mask_efficiency(self) -> float:
        """The share of lanes that took part, 0 to 1."""
        return self.lanes / (self.requests * WARP)


@dataclass(frozen=True)
class BranchStatistics:
    """One `if` whose condition may differ between threads. warps: how many ran it; diverged: how many of those ran both arms."""

    loc: Loc
    warps: int
    diverged: int


@dataclass(frozen=True)
class Statistics:
    """The measurements of a launch. accesses: one per place in the kernel and array. branches: one per place."""

    accesses: tuple[AccessStatistics, ...]
    branches: tuple[BranchStatistics, ...]

    @property
    def bytes_read(self) -> int:
        """The bytes of global memory that threads asked for."""
        return self._bytes("read", "atomic")

    @property
    def bytes_written(self) -> int:
        return self._bytes("write", "atomic")

    def _bytes(self, *roles: str) -> int:
        return sum(a.bytes for a in self.accesses if a.space == Space.GLOBAL.value and a.role in roles)

    def __str__(self) -> str:
        """Return tables with one row per access and one per branch that may differ between threads."""
        lines = [f"global memory: {self.bytes_read} bytes read, {self.bytes_written} bytes written", ""]
        lines += _table(("access", "array", "requests", "bytes", "sectors/request", "bank conflicts", "mask"), [
            (_place(a.loc), f"{a.role} {a.array} ({a.space})", a.requests, a.bytes,
             f"{a.sectors_per_request:.1f}" if a.sectors else "", a.bank_conflicts or "", f"{a.mask_efficiency:.0%}")
            for a in self.accesses
        ])  # fmt: skip
        if self.branches:
            lines += [
                "",
                *_table(("branch", "warps", "diverged"), [(_place(b.loc), b.warps, b.diverged) for b in self.branches]),
            ]
        return "\n".join(lines)


def _place(loc: Loc) -> str:
    shown = place_of_user(loc) or loc
    return f"{PurePath(shown.file).name}:{shown.line}"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return lines in columns: words to the left, numbers to the right."""
    texts = [tuple(head), *(tuple(map(str, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts)]
    columns = [str.ljust if any(c.isalpha() for c in texts[-1][i]) else str.rjust for i in range(len(head))]
    return ["  ".join(put(cell, w) for put, cell, w in zip(columns, row, widths)).rstrip() for row in texts]


class Measured(Watcher):
    """The watcher that adds up the statistics of a launch."""

    def __init__(self) -> None:
        self._accesses: defaultdict[tuple[Access, str], Any] = defaultdict(int)
        self._branches: defaultdict[Loc, Any] = defaultdict(int)

    def access(self, touch: Touch, value: Any) -> None:
        access, warp = touch.access, np.asarray(touch.pick(touch.team.warp_tag))
        if not access.covers:
            return
        size = access.dtype.itemsize * access.covers
        start = touch.indices() * access.dtype.itemsize + touch.phase
        requests = len(np.unique(warp))
        is_global, is_shared = access.space is Space.GLOBAL, access.space is Space.SHARED
        sectors = len(_units(warp, start + touch.allocation.base, size, SECTOR_BYTES)) if is_global else 0
        passes = _passes(warp, start, size) if is_shared else 0
        row = np.array([requests, len(warp), len(warp) * size, sectors, passes])
        self._accesses[access, touch.allocation.name] += row

    def branch(self, team: Team, loc: Loc, taken: Array) -> None:
        rows = team.active_rows()
        both = team.to_warps(taken).any(axis=1) & (rows & ~team.to_warps(taken)).any(axis=1)
        self._branches[loc] += np.array([np.count_nonzero(rows.any(axis=1)), np.count_nonzero(both)])

    def statistics(self) -> Statistics:
        """Return what the launch has added up so far."""
        accesses = (
            AccessStatistics(access.loc, access.role, access.space.value, array, *row.tolist())
            for (access, array), row in self._accesses.items()
        )
        branches = (BranchStatistics(loc, *row.tolist()) for loc, row in self._branches.items())
        return Statistics(tuple(accesses), tuple(branches))


def _units(warp: Array, start: Array, size: int, unit: int) -> Array:
    """Return the different pairs of a warp and a unit of so many bytes of which it touches some."""
    first, most = start // unit, 1 + (size - 1 + unit - 1) // unit
    units = np.minimum(first[:, None] + np.arange(most), ((start + size - 1) // unit)[:, None])
    return np.unique(np.stack([np.repeat(warp, most), units.reshape(-1)], axis=1), axis=0)


def _passes(warp: Array, start: Array, size: int) -> int:
    """Return the passes of all warps: of each, the different words of its busiest bank. An 8-byte element takes two words."""
    pairs = _units(warp, start, size, BANK_BYTES)
    rows, counts = np.unique(np.stack([pairs[:, 0], pairs[:, 1] % BANKS], axis=1), axis=0, return_counts=True)
    _, group = np.unique(rows[:, 0], return_inverse=True)
    most = np.zeros(int(group.max()) + 1, np.int64)
    np.maximum.at(most, group, counts)
    return int(most.sum())
