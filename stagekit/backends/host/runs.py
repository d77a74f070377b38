"""How the lanes' elements of a regular access lie in memory: a few runs of neighbours or of one shared element.

    16*w + (0..31)                              one run of 32 neighbours
    n * (0 x16, 1 x16) + (0..15, 0..15)         two runs of 16 neighbours
    n * (0 x16, 1 x16)                          two shared elements

A run is one vector access. The order of runs is that of the lanes, so that of two stores to one element the last wins.
"""

from __future__ import annotations

from dataclasses import dataclass

from stagekit.backends.host.forms import LANES, Linear

MAX_RUNS = 8  # beyond it a gather is cheaper


@dataclass(frozen=True, slots=True)
class Run:
    """Lanes `lane` to `lane + count - 1`. step: elements from one lane to the next, 1 or 0.

    offset, steps: the element of the first lane is `base + offset + sum(coefficient * step)`.
    """

    lane: int
    count: int
    step: int
    offset: int
    steps: tuple[int, ...]

    @property
    def lanes(self) -> range:
        return range(self.lane, self.lane + self.count)

    @property
    def bits(self) -> int:
        return ((1 << self.count) - 1) << self.lane


def runs_of(index: Linear, lanes_on: int) -> list[Run] | None:
    """The runs that have a lane of `lanes_on` (bits), or None if there are too many."""
    found: list[Run] = []
    lane = 0
    while lane < LANES:
        run = _run_from(index, lane)
        lane += run.count
        if run.bits & lanes_on:
            found.append(run)
        if len(found) > MAX_RUNS:
            return None
    return found


def _run_from(index: Linear, lane: int) -> Run:
    places = [_place(index, at) for at in range(lane, LANES)]
    offset, steps = places[0]
    step = 0 if len(places) > 1 and places[1] == places[0] else 1
    count = 1
    while count < len(places) and places[count] == (offset + count * step, steps):
        count += 1
    return Run(lane, count, step, offset, steps)


def _place(index: Linear, lane: int) -> tuple[int, tuple[int, ...]]:
    return index.offsets[lane], tuple(steps[lane] for _, steps in index.scaled)
