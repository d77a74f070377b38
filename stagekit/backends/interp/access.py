"""Loads and stores: from a pointer per lane to elements of an allocation, checked on the way.

    for place in places(team, address, mask, access):      # one per allocation; as a rule one in all
        place.view.elements[place.index]                   # what its lanes read

Lanes whose access is at fault are reported and left out: the kernel goes on without touching memory there.
Observers (races, unwritten reads, statistics) see every place before it is read or written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from stagekit.backends.interp.findings import FreedAccess, MisalignedAccess, OutOfBounds, ReadOnlyWrite
from stagekit.backends.interp.indexing import Axes, LaneIndexing
from stagekit.backends.interp.memory import Allocation, AnyPointers, Array, Pointers, View
from stagekit.backends.interp.team import Team
from stagekit.diagnostics import Diagnostic, Loc, counted
from stagekit.dtypes import DType
from stagekit.ir import Space

Role = Literal["read", "write", "atomic"]
VERBS: dict[Role, str] = {"read": "reads", "write": "writes", "atomic": "updates"}


@dataclass(frozen=True, eq=False)
class Access:
    """A place in the kernel that touches memory. number: its position among all of them, from 1. axes: of `A[i, j]`."""

    number: int
    role: Role
    dtype: DType
    space: Space
    loc: Loc
    axes: Axes | None

    @property
    def checks_axes(self) -> bool:
        return self.axes is not None and bool(self.axes.checked)


class Place(NamedTuple):
    """Elements of one allocation that some lanes touch.

    lanes: a mask of those lanes, None for all. index: into `view.elements`, one per such lane, or a scalar for all of them.
    """

    allocation: Allocation
    view: View
    index: Any
    lanes: Array | None
    phase: int

    def indices(self, team: Team) -> Array:
        """`index` with one element per lane of the place."""
        return self.index if isinstance(self.index, np.ndarray) else np.full(self.count(team), self.index)

    def count(self, team: Team) -> int:
        return team.lanes if self.lanes is None else int(np.count_nonzero(self.lanes))

    def pick(self, value: Any) -> Any:
        """Of a value per lane of the team, those of this place."""
        return value if self.lanes is None or not isinstance(value, np.ndarray) else value[self.lanes]


Observer = Callable[[Team, Access, Place, Any], None]
"""Called with the value to be stored, one per lane of the place or a scalar; None for a read."""


def both(mask: Array | None, more: Any) -> Any:
    """Lanes in `mask` and in `more` (a bool or one per lane). False: no lane at all."""
    if isinstance(more, np.ndarray):
        return more if mask is None else mask & more
    return mask if more else False


def places(team: Team, address: AnyPointers, mask: Array | None, access: Access) -> Iterator[Place]:
    """Where the lanes of `mask` touch memory, faults reported and left out."""
    for part, lanes in address.parts(mask):
        if lanes is None or lanes.any():
            place = _place(team, part, lanes, access)
            if place is not None:
                yield place


def _place(team: Team, address: Pointers, lanes: Any, access: Access) -> Place | None:
    allocation, index = address.allocation, address.index
    view = allocation.view(access.dtype, address.phase)
    if (allocation.base + address.phase) % access.dtype.itemsize:
        _report_misaligned(team, address, lanes, access)
    is_outside = np.asarray(index).view(np.uint64) >= view.limit
    if access.axes is not None and access.axes.checked:
        is_outside = is_outside | access.axes.outside(team.values)
    if is_outside.any():
        lanes = _without_faults(team, address, lanes, is_outside, access)
    if access.role != "read" and not allocation.is_writable and lanes is not False:
        lanes = _without_faults(team, address, lanes, np.True_, access)
    if lanes is False:
        return None
    if lanes is not None and isinstance(index, np.ndarray):
        index = index[lanes]
    copy = team.copy_of(allocation.space) if allocation.copies > 1 else None
    if copy is not None:
        index = index + (copy if lanes is None else copy[lanes]) * view.pitch
    return Place(allocation, view, index, lanes, address.phase)


def _without_faults(team: Team, address: Pointers, lanes: Any, is_fault: Any, access: Access) -> Any:
    """The lanes that are left after those at fault were reported; False if none are."""
    everyone = np.ones(team.lanes, np.bool_) if lanes is None else lanes
    at_fault = everyone & is_fault
    if not at_fault.any():
        return lanes
    first = int(np.argmax(at_fault))
    index = int(team.spread(address.index)[first])
    diagnostic = _fault(team, first, address, index, access)
    team.report(diagnostic, access.loc, at_fault, address.allocation.name)
    kept = everyone & ~at_fault
    return kept if kept.any() else False


def _fault(team: Team, lane: int, address: Pointers, index: int, access: Access) -> Diagnostic:
    allocation, dtype, verb = address.allocation, access.dtype, VERBS[access.role]
    count = allocation.view(dtype, address.phase).limit
    offset_bytes = index * dtype.itemsize + address.phase
    if allocation.is_gone_at(offset_bytes):
        return FreedAccess(verb, allocation.name, index, allocation.base + offset_bytes)
    element, limit = (
        f"element {index} of `{allocation.name}`",
        f", which has {counted(count, 'element')} of {dtype.name}",
    )
    written = access.axes.missed(team, lane) if access.axes is not None else None
    if written is None and 0 <= index < count:
        return ReadOnlyWrite(verb, allocation.name, index)
    if written is not None:
        element, limit = _beyond(written, allocation.name)
        limit += f" of {dtype.name}"
    return OutOfBounds(verb, allocation.name, element, limit, allocation.space.value, index, count, offset_bytes)


def _beyond(written: LaneIndexing, name: str) -> tuple[str, str]:
    """The element that a lane means, and the axes that do not have it, in words."""
    shape = written.shape
    shown = ", ".join(":" if index is None else str(index) for index in written.indices)
    if written.is_view:
        element = f"`[{shown}]` of a view of `{name}` with shape {shape}"
    else:
        element = f"`{name}[{shown}]` of shape {shape}"
    *some, last = written.missed
    limits = "".join(f"axis {k} has {shape[k]} and " for k in some)
    return element, f": {limits}axis {last} has {counted(shape[last], 'element')}"


def _report_misaligned(team: Team, address: Pointers, lanes: Array | None, access: Access) -> None:
    at_fault = team.active_lanes() if lanes is None else lanes
    first = int(np.argmax(at_fault))
    offset_bytes = int(team.spread(address.offset_bytes(access.dtype))[first])
    align = access.dtype.itemsize
    excess = (address.allocation.base + offset_bytes) % align
    allocation = address.allocation
    diagnostic = MisalignedAccess(VERBS[access.role], allocation.name, access.dtype.name, offset_bytes, excess, align)
    team.report(diagnostic, access.loc, at_fault, allocation.name)


# -- steps ------------------------------------------------------------------------------------------------------------


def read(team: Team, address: AnyPointers, mask: Any, access: Access, observers: tuple[Observer, ...]) -> Any:
    """What the lanes of `mask` read; 0 in every other lane."""
    result: Any = np.zeros((), access.dtype.numpy)[()]
    for place in places(team, address, mask, access):
        for observe in observers:
            observe(team, access, place, None)
        values = stored_as_value(place.view.elements[place.index], access.dtype)
        is_shared = isinstance(address, Pointers) and not isinstance(values, np.ndarray)
        if place.lanes is None or is_shared:
            result = values
            continue
        if not isinstance(result, np.ndarray):
            result = np.zeros(team.lanes, access.dtype.numpy)
        result[place.lanes] = values
    return result


def write(
    team: Team, address: AnyPointers, value: Any, mask: Any, access: Access, observers: tuple[Observer, ...]
) -> None:
    """Store `value` for the lanes of `mask`; of lanes that store to one element the last wins."""
    for place in places(team, address, mask, access):
        stored = place.pick(value)
        for observe in observers:
            observe(team, access, place, stored)
        if isinstance(stored, np.ndarray) and not isinstance(place.index, np.ndarray):
            stored = stored[-1]
        place.view.elements[place.index] = stored


def stored_as_value(stored: Any, dtype: DType) -> Any:
    """Elements as they lie in memory as values: any byte but 0 is True."""
    return stored != 0 if dtype.kind == "bool" else stored
