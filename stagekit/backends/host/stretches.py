"""How a regular access by the lanes of a warp becomes a few vector accesses, and which lane takes which of their elements.

A kernel's lanes ask for `x[index]`, each with its own index. Where the indices differ by a known pattern, a few vector accesses
serve all lanes instead of one access per lane. There are two ways to cut the 32 lanes:

    index                                       runs                  stretches
    16*w + (0..31)                              32 neighbours         the same
    n * (0 x16, 1 x16) + (0..15, 0..15)         twice 16 neighbours   the same
    0..15, 0..15                                twice 16 neighbours   16 neighbours, which two lanes share each
    n * (0 x16, 1 x16)                          two shared elements   the same
    3*t + c                                     32 single elements    3 times 32 neighbours

A *run* is a group of lanes side by side that address neighbours, or one element together. Runs serve where lanes may be off,
since a mask can be cut the same way, and they serve stores: written in the order of the lanes, the last of two stores to one
element wins.

A *stretch* is a piece of memory, whichever lanes read it. Stretches serve loads by lanes that are known to be on. The elements
in between are read too; that is safe, since the first and the last are asked for and less than a page lies between them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from stagekit.backends.host.forms import LANES, Linear, Steps
from stagekit.frozen import frozen

MAX_STRETCHES = 8  # beyond it a gather is cheaper
MAX_GAP = 4  # elements from one that is asked for to the next, within a stretch
CACHED_PATTERNS = 512


@frozen()
class Stretch:
    """`count` elements, of which the lane `i` takes the one at `places[i]`, or none.

    offset, steps: the first element is `base + offset + sum(coefficient * step)`.
    """

    offset: int
    steps: tuple[int, ...]
    count: int
    places: tuple[int | None, ...]

    @property
    def lanes(self) -> list[int]:
        return [lane for lane, place in enumerate(self.places) if place is not None]


Pattern = tuple[Steps, tuple[Steps, ...]]
"""The offsets of a `Linear`, and the steps of its coefficients."""


def pattern_of(index: Linear) -> Pattern:
    return index.offsets, tuple(steps for _, steps in index.scaled)


Element = tuple[int, tuple[int, ...]]
"""The offset of a lane, and its step for each coefficient."""


@functools.lru_cache(CACHED_PATTERNS)
def runs_of(pattern: Pattern, lanes_on: int) -> tuple[Stretch, ...] | None:
    """Return the runs of the lanes of `lanes_on` (bits), or None if there are too many."""
    elements, found = _elements(pattern, lanes_on), []
    waiting = sorted(elements)
    while waiting:
        lane = waiting[0]
        offset, steps = elements[lane]
        step = 0 if elements.get(lane + 1) == elements[lane] else 1
        end = lane + 1
        while elements.get(end) == (offset + (end - lane) * step, steps):
            end += 1
        taken = tuple([(at - lane) * step if lane <= at < end else None for at in range(LANES)])
        found.append(Stretch(offset, steps, end - lane if step else 1, taken))
        waiting = waiting[end - lane :]
    return tuple(found) if len(found) <= MAX_STRETCHES else None


@functools.lru_cache(CACHED_PATTERNS)
def stretches_of(pattern: Pattern, lanes_on: int) -> tuple[Stretch, ...] | None:
    """Return the stretches that hold the elements of the lanes of `lanes_on`, or None if there are too many."""
    elements = _elements(pattern, lanes_on)
    found = []
    for steps in dict.fromkeys([steps for _, steps in elements.values()]):
        offsets = {lane: offset for lane, (offset, of) in elements.items() if of == steps}
        for first, last in _clusters(sorted(set(offsets.values()))):
            count = min(last - first + 1, LANES)
            for start in dict.fromkeys((*range(first, last - count + 1, LANES), last - count + 1)):
                places = [offsets.get(lane, start - 1) - start for lane in range(LANES)]
                found.append(Stretch(start, steps, count, tuple([p if 0 <= p < count else None for p in places])))
        if len(found) > MAX_STRETCHES:
            return None
    return tuple(found)


def _elements(pattern: Pattern, lanes_on: int) -> dict[int, Element]:
    """Return the element of each lane that is on."""
    offsets, scaled = pattern
    steps = [*zip(*scaled)] or [()] * LANES
    return {lane: (offsets[lane], steps[lane]) for lane in range(LANES) if lanes_on >> lane & 1}


def _clusters(offsets: list[int]) -> Iterator[tuple[int, int]]:
    """Return the first and the last of each group of ascending `offsets` that lie close together."""
    first = before = offsets[0]
    for offset in offsets[1:]:
        if offset - before > MAX_GAP:
            yield first, before
            first = offset
        before = offset
    yield first, before
