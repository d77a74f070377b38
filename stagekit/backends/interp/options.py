"""The options of a run of the interpreter: which checks, in which order, how much to report."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from stagekit.limits import MAX_ITERATIONS

Order = Literal["forward", "backward", "random"]


@dataclass(frozen=True, slots=True)
class Checks:
    """Switches of the sanitizer. Bounds, alignment, read-only arrays and barriers are always checked: they cost next to nothing.

    axes: indices that leave their axis and hit another row of the array. races: accesses that nothing orders. uninitialised:
    reads of shared and local memory that nothing has written. lanes: masks and sources of warp operations. overflow: of
    arithmetic that leads to an index. division: of integers by zero. shifts: by amounts out of range. nan: NaN from operands
    that are numbers. rounding: integers that `float(x)` cannot hold.
    """

    axes: bool = False
    races: bool = False
    uninitialised: bool = False
    lanes: bool = False
    overflow: bool = False
    division: bool = False
    shifts: bool = False
    nan: bool = False
    rounding: bool = False

    @classmethod
    def all(cls) -> Checks:
        return cls(**dict.fromkeys((f.name for f in fields(cls)), True))


@dataclass(frozen=True, slots=True)
class Schedule:
    """An order in which warps and blocks take turns.

    "forward" and "backward" run one warp as far as it goes, from the first or the last; "random" lets `seed` choose who
    runs next at every access of memory and every warp operation. The same schedule gives the same run.
    """

    order: Order
    seed: int = 0

    def __str__(self) -> str:
        return f"order={self.order!r}, seed={self.seed}" if self.order == "random" else f"order={self.order!r}"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a run.

    schedule: None for blocks in order, each as one team where no thread waits for another (small blocks side by side).
    outputs: names of arrays that the launch must write in full, and not read before. statistics: whether to measure accesses,
    masks and branches. max_findings: how many to report, one per kind and place. max_iterations: of one loop, before it is
    taken to be endless.
    """

    checks: Checks = Checks()
    schedule: Schedule | None = None
    outputs: tuple[str, ...] = ()
    statistics: bool = False
    max_findings: int = 100
    max_iterations: int = MAX_ITERATIONS


UNCHECKED = Options()
CHECKED = Options(checks=Checks.all())
