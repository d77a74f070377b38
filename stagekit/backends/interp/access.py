"""Loads and stores: from a pointer per lane to elements of an allocation, checked on the way.

    for touch in touches(team, address, mask, access):     # one per allocation; as a rule one in all
        touch.view.elements[touch.index]                   # what its lanes read

Lanes whose access is at fault are reported and left out: the kernel goes on without touching memory there.
Watchers (races, unwritten reads, statistics) are told of every touch before memory is read or written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from stagekit.backends.interp.findings import FreedAccess, MisalignedAccess, OutOfBounds, ReadOnlyWrite
from stagekit.backends.interp.memory import AnyPointers, Array, Pointers, View, in_lane
from stagekit.backends.interp.team import Access, LaneIndexing, Role, Team, Touch
from stagekit.diagnostics import Diagnostic, counted

VERBS: dict[Role, str] = {"read": "reads", "write": "writes", "atomic": "updates"}


def both(mask: Array | None, more: Any) -> Any:
    """Lanes in `mask` and in `more` (a bool or one per lane). False: no lane at all."""
    if isinstance(more, np.ndarray):
        return more if mask is None else mask & more
    return mask if more else False


def read(team: Team, address: AnyPointers, mask: Array | None, access: Access) -> Any:
    """What the lanes of `mask` read; 0 in every other lane."""
    result: Any = None
    for touch in touches(team, address, mask, access):
        for watcher in team.launch.watchers:
            watcher.access(touch, None)
        values = touch.view.elements[touch.index]
        if access.dtype.kind == "bool":
            values = values != 0  # any byte but 0 is True
        if touch.lanes is None or (isinstance(address, Pointers) and not isinstance(values, np.ndarray)):
            result = values
            continue
        if result is None:
            result = np.zeros(team.lanes, access.dtype.numpy)
        result[touch.lanes] = values
    return access.dtype.numpy.type(0) if result is None else result


def write(team: Team, address: AnyPointers, value: Any, mask: Array | None, access: Access) -> None:
    """Store `value` for the lanes of `mask`; of lanes that store to one element the last wins."""
    team.launch.writes += 1
    for touch in touches(team, address, mask, access):
        stored = touch.pick(value)
        for watcher in team.launch.watchers:
            watcher.access(touch, stored)
        if isinstance(stored, np.ndarray) and not isinstance(touch.index, np.ndarray):
            stored = stored[-1]
        touch.view.elements[touch.index] = stored


def touches(team: Team, address: AnyPointers, mask: Array | None, access: Access) -> Iterator[Touch]:
    """What the lanes of `mask` touch by `access`, faults reported and left out."""
    for part, lanes in address.parts(mask):
        if lanes is not None and not np.count_nonzero(lanes):
            continue
        allocation, index = part.allocation, part.index
        view = allocation.view(access.dtype, part.phase)
        lanes = _without_faults(team, part, view, lanes, access)
        if lanes is False:
            continue
        if lanes is not None and isinstance(index, np.ndarray):
            index = index[lanes]
        copy = team.copy_of(access.space) if allocation.copies > 1 else None
        if copy is not None:
            index = index + (copy if lanes is None else copy[lanes]) * view.pitch
        yield Touch(team, access, allocation, view, index, lanes, part.phase)


# -- faults -----------------------------------------------------------------------------------------------------------


def _without_faults(team: Team, address: Pointers, view: View, lanes: Any, access: Access) -> Any:
    """The lanes whose access has no fault; False if there are none."""
    if not view.is_aligned:
        _report_misaligned(team, address, lanes, access)
    is_outside = address.index.view(np.uint64) >= view.limit
    if access.axes is not None and access.axes.checked:
        is_outside = is_outside | access.axes.outside(team.values)
    if np.count_nonzero(is_outside):
        lanes = _report(team, address, lanes, is_outside, access)
    if access.role != "read" and not address.allocation.is_writable and lanes is not False:
        lanes = _report(team, address, lanes, np.True_, access)
    return lanes


def _report(team: Team, address: Pointers, lanes: Any, is_fault: Any, access: Access) -> Any:
    """Report those of `lanes` that are at fault; the others, or False if there are none."""
    everyone = np.ones(team.lanes, np.bool_) if lanes is None else lanes
    at_fault = everyone & is_fault
    if not at_fault.any():
        return lanes
    diagnostic = _fault(team, int(np.argmax(at_fault)), address, access)
    team.report(diagnostic, access.loc, at_fault, address.allocation.name)
    kept = everyone & ~at_fault
    return kept if kept.any() else False


def _fault(team: Team, lane: int, address: Pointers, access: Access) -> Diagnostic:
    allocation, dtype, verb = address.allocation, access.dtype, VERBS[access.role]
    index = in_lane(address.index, lane)
    count = allocation.view(dtype, address.phase).limit
    offset_bytes = index * dtype.itemsize + address.phase
    if allocation.is_gone_at(offset_bytes):
        return FreedAccess(verb, index, allocation.name, allocation.base + offset_bytes)
    meant = access.axes.missed(team.values, lane) if access.axes is not None else None
    if meant is None and 0 <= index < count:
        return ReadOnlyWrite(verb, index, allocation.name)
    if meant is None:
        element, limit = f"element {index} of `{allocation.name}`", f", which has {counted(count, 'element')}"
    else:
        element, limit = _beyond(meant, allocation.name)
    limit += f" of {dtype.name}"
    return OutOfBounds(verb, allocation.name, element, limit, allocation.space.value, index, count, offset_bytes)


def _beyond(meant: LaneIndexing, name: str) -> tuple[str, str]:
    """The element that a lane means, and the axes that do not have it, in words."""
    shape = meant.shape
    shown = ", ".join(":" if index is None else str(index) for index in meant.indices)
    element = (
        f"`[{shown}]` of a view of `{name}` with shape {shape}"
        if meant.is_view
        else f"`{name}[{shown}]` of shape {shape}"
    )
    *some, last = meant.missed
    limits = "".join(f"axis {k} has {shape[k]} and " for k in some)
    return element, f": {limits}axis {last} has {counted(shape[last], 'element')}"


def _report_misaligned(team: Team, address: Pointers, lanes: Array | None, access: Access) -> None:
    at_fault = team.active_lanes() if lanes is None else lanes
    allocation, align = address.allocation, access.dtype.itemsize
    offset_bytes = in_lane(address.offset_bytes(access.dtype), int(np.argmax(at_fault)))
    excess = (allocation.base + offset_bytes) % align
    diagnostic = MisalignedAccess(VERBS[access.role], access.dtype.name, offset_bytes, allocation.name, excess, align)
    team.report(diagnostic, access.loc, at_fault, allocation.name)
