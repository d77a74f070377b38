"""mbarriers: how they count, who waits for which phase, and what a wait learns.

    state of the mbarrier `full`        after                       count 1, phase 0 lacks
                                        mbarrier_init               1 arrival
                                        arrive_expect_tx(512)       512 bytes
                                        a copy of 512 bytes lands   nothing: phase 1 begins, and it lacks 1 arrival

They are kept beside memory, by the place of their 8 bytes, in which nothing that means anything is stored. What arrives tells the
mbarrier what is ordered before it, if it is relaxed only which reads are over; once the phase ends, whoever waits for it learns
that, and nothing of the next phase.
Source: PTX ISA, "mbarrier: phase, arrive-on, expect-tx, complete-tx, test_wait".
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from stagekit.backends.interp.access import touches
from stagekit.backends.interp.findings import MbarrierAbsent, MbarrierMisused, MbarrierOverrun, MbarrierStuck
from stagekit.backends.interp.program import Built, Compiler, Step
from stagekit.backends.interp.team import Access, LaunchState, Role, Team, Touch, Values
from stagekit.diagnostics import Diagnostic, Loc, counted
from stagekit.ir import Native, Value, ops
from stagekit.limits import MBARRIER_MOST


@dataclass(eq=False)
class Mbarrier:
    """An mbarrier. loc: of its initialisation. count: arrivals that each phase takes.

    pending, tx: arrivals and bytes that the present phase lacks. phase: its number. seen: how many phases had ended at the latest
    wait that succeeded.
    """

    name: str
    loc: Loc
    count: int
    pending: int
    tx: int = 0
    phase: int = 0
    seen: int = 0

    def ends_with(self, arrivals: int, tx: int) -> bool:
        """Return whether the present phase lacks just these."""
        return arrivals == self.pending and tx == self.tx

    def lacks(self) -> str:
        """Return in words what the present phase waits for."""
        parts = [f"{self.pending} of {counted(self.count, 'arrival')}"] if self.pending else []
        parts += [counted(self.tx, "byte")] if self.tx > 0 else []
        unseen = self.phase - self.seen
        more = f"; {unseen} phases have ended since a wait last saw one end" if unseen > 1 else ""
        return f"phase {self.phase} lacks {' and '.join(parts) or 'nothing'}{more}"

    def stuck(self, phase: int) -> Diagnostic:
        return MbarrierStuck(phase, self.name, self.lacks())

    def awaits(self, phase: int) -> str:
        return f"the phase of parity {phase} of `{self.name}`, whose {self.lacks()}"


class Awaitable(Protocol):
    """What threads wait for, in phases: an mbarrier, the barrier of a cluster."""

    def stuck(self, phase: int) -> Diagnostic:
        """Return what is wrong where this phase never ends."""

    def awaits(self, phase: int) -> str:
        """Return in words what somebody waits for who waits for this phase."""


class Awaited(NamedTuple):
    """A wait that has failed: for which phase of what (of an mbarrier its parity), and a thread that waits."""

    what: Awaitable
    phase: int
    loc: Loc
    tag: int


class _Spot(NamedTuple):
    """The place at which one lane has an mbarrier, or not. position: of the lane among those that touch. start: in bytes."""

    position: int
    lane: int
    start: int
    operand: int


class Use(NamedTuple):
    """One lane's operation on an mbarrier. position: of the lane among those that touch."""

    position: int
    lane: int
    mbarrier: Mbarrier
    operand: int


def count_down(launch: LaunchState, mbarrier: Mbarrier, arrivals: int, tx: int) -> None:
    """Let arrivals and bytes come, of which there may be none, and end the phase if it lacks nothing more."""
    is_end = mbarrier.ends_with(arrivals, tx)
    mbarrier.pending -= arrivals
    mbarrier.tx -= tx
    launch.writes += 1
    if is_end:
        mbarrier.phase, mbarrier.pending = mbarrier.phase + 1, mbarrier.count
        for watcher in launch.watchers:
            watcher.handed_on(mbarrier, ended(mbarrier))


def ended(barrier: Awaitable) -> Hashable:
    """Return the key under which watchers keep what a wait for the phases that have ended learns."""
    return barrier, "ended"


# -- operations -----------------------------------------------------------------------------------------------------------


def build_mbarrier(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    """Build an operation on mbarriers, of one lane after the other."""
    return (_OPERATIONS[op.spec.name](c, op),)


def word(c: Compiler, op: ops.IntrinsicOp, role: Role, pointer: Value) -> Access:
    """Register that `op` accesses an mbarrier. It covers no element, which tells it from an access of the memory itself."""
    return replace(c.access(op, role, pointer), covers=0)


def _places(touch: Touch, operand: Any) -> Iterator[_Spot]:
    """Yield where each lane that touches points, in the order of lanes, with its operand."""
    given = touch.pick(touch.team.spread(operand)).tolist()
    starts = (touch.indices() * touch.access.dtype.itemsize + touch.phase).tolist()
    for position, (lane, start, number) in enumerate(zip(touch.lane_numbers.tolist(), starts, given)):
        yield _Spot(position, lane, start, int(number))


def _name(touch: Touch, position: int) -> str:
    name, element = touch.allocation.name, touch.element(position)
    return f"{name}[{element}]" if touch.allocation.size > touch.access.dtype.itemsize else name


def _report(touch: Touch, use: _Spot | Use, diagnostic: Diagnostic) -> None:
    touch.team.report(diagnostic, touch.access.loc, touch.at_fault([use.position]), _name(touch, use.position))


def existing(team: Team, touch: Touch, operand: Any, what: str) -> list[Use]:
    """Return what lanes do to mbarriers that exist; report the others."""
    known, found = team.launch.mbarriers.get(touch.allocation, {}), []
    for place in _places(touch, operand):
        if place.start in known:
            found.append(Use(place.position, place.lane, known[place.start], place.operand))
        else:
            _report(touch, place, MbarrierAbsent(what, _name(touch, place.position)))
    return found


def _used(team: Team, touch: Touch, operand: Any, what: str) -> list[Use]:
    """Return what lanes do to mbarriers that exist. Watchers are told if all exist."""
    found = existing(team, touch, operand, what)
    for watcher in team.launch.watchers if len(found) == len(touch.indices()) else ():
        watcher.access(touch, None)
    return found


def _build_init(c: Compiler, op: ops.IntrinsicOp) -> Step:
    access = word(c, op, "write", op.args[0])
    pointer, count = c.numbers(op.args)

    def step(values: Values, team: Team) -> None:
        for touch in touches(team, values[pointer], team.mask, access):
            _overwrite(touch, touch.pick(values[count]))
            known = team.launch.mbarriers.setdefault(touch.allocation, {})
            for place in _places(touch, values[count]):
                name = _name(touch, place.position)
                if place.start in known:
                    what = f"`{name}` is an mbarrier already"
                    _report(touch, place, MbarrierMisused(what, "let one thread initialise it, or end it first"))
                if not 1 <= place.operand <= MBARRIER_MOST:
                    what = f"`{name}` is to take {counted(place.operand, 'arrival')}"
                    _report(touch, place, MbarrierMisused(what, f"a phase takes 1 to {MBARRIER_MOST}"))
                known[place.start] = Mbarrier(name, op.loc, place.operand, place.operand)

    return step


def _build_inval(c: Compiler, op: ops.IntrinsicOp) -> Step:
    access = word(c, op, "write", op.args[0])
    (pointer,) = c.numbers(op.args)

    def step(values: Values, team: Team) -> None:
        for touch in touches(team, values[pointer], team.mask, access):
            known = team.launch.mbarriers.get(touch.allocation, {})
            for place in _places(touch, 0):
                mbarrier = known.pop(place.start, None)
                if mbarrier is None:
                    _report(touch, place, MbarrierAbsent(op.spec.name, _name(touch, place.position)))
                elif mbarrier.tx:
                    what = f"ends `{mbarrier.name}`, whose {mbarrier.lacks()}"
                    _report(
                        touch,
                        place,
                        MbarrierMisused(what, "end it when its copies have come: wait for their phase first"),
                    )
            _overwrite(touch, np.uint64(0))

    return step


def _overwrite(touch: Touch, value: Any) -> None:
    """Store what stands for no number that a kernel may look at."""
    stored = touch.view.elements.dtype.type(0) + np.asarray(value).astype(np.uint64)
    for watcher in touch.team.launch.watchers:
        watcher.access(touch, stored)
    touch.view.elements[touch.index] = stored
    touch.team.launch.writes += 1


def _arrival(
    arrives: Callable[[int], int], expects: Callable[[int], int]
) -> Callable[[Compiler, ops.IntrinsicOp], Step]:
    """Return what builds an operation that counts so many arrivals, and expects so many bytes, of its operand."""

    def build(c: Compiler, op: ops.IntrinsicOp) -> Step:
        access = replace(word(c, op, "atomic", op.args[0]), order="release", scope="block")
        pointer, operand = c.numbers(op.args)
        only_reads = "relaxed" in op.params

        def step(values: Values, team: Team) -> None:
            for touch in touches(team, values[pointer], team.mask, access):
                telling: dict[Mbarrier, list[int]] = {}  # the lanes that have arrived at a phase which has not ended
                for use in _used(team, touch, values[operand], op.spec.name):
                    arrivals, tx = arrives(use.operand), expects(use.operand)
                    _check_arrival(touch, use, arrivals, tx)
                    _arrive(touch, use, min(arrivals, use.mbarrier.pending), tx, telling, only_reads)
                for mbarrier, positions in telling.items():
                    _tell(touch, positions, mbarrier, only_reads)

        return step

    return build


def _check_arrival(touch: Touch, use: Use, arrivals: int, tx: int) -> None:
    """Report what the present phase has no room for."""
    mbarrier = use.mbarrier
    if arrivals > mbarrier.pending:
        _report(touch, use, MbarrierOverrun(counted(arrivals, "arrival"), mbarrier.name, mbarrier.lacks()))
    if mbarrier.tx + tx > MBARRIER_MOST:
        what = f"`{mbarrier.name}` is to expect {counted(tx, 'byte')} more, with {mbarrier.tx} expected already"
        _report(touch, use, MbarrierMisused(what, f"a phase takes up to {MBARRIER_MOST} bytes"))


def _arrive(
    touch: Touch, use: Use, arrivals: int, tx: int, telling: dict[Mbarrier, list[int]], only_reads: bool
) -> None:
    """Let a lane expect bytes, then arrive, and tell what it did before, together with others at the same phase."""
    mbarrier, launch = use.mbarrier, touch.team.launch
    if arrivals:
        telling.setdefault(mbarrier, []).append(use.position)
    if mbarrier.ends_with(arrivals, -tx):
        _tell(touch, telling.pop(mbarrier, []), mbarrier, only_reads)
    count_down(launch, mbarrier, arrivals, -tx)


def _tell(touch: Touch, positions: list[int], mbarrier: Mbarrier, only_reads: bool) -> None:
    for watcher in touch.team.launch.watchers if positions else ():
        watcher.sent(touch, positions, mbarrier, only_reads=only_reads)


def _build_wait(c: Compiler, op: ops.IntrinsicOp) -> Step:
    access = replace(word(c, op, "read", op.args[0]), order="acquire", scope="block")
    result, pointer, parity = c.numbers((op.result, *op.args))

    def step(values: Values, team: Team) -> None:
        found = np.ones(team.lanes, np.bool_)  # a wait at fault, which is reported, does not wait
        team.awaited = []
        for touch in touches(team, values[pointer], team.mask, access):
            learning: dict[Mbarrier, list[int]] = {}
            for use in _used(team, touch, values[parity], op.spec.name):
                found[use.lane] = _has_ended(touch, use)
                if found[use.lane]:
                    learning.setdefault(use.mbarrier, []).append(use.position)
            for mbarrier, positions in learning.items():
                for watcher in team.launch.watchers:
                    watcher.received(touch, positions, ended(mbarrier))
        values[result] = found

    return step


def _has_ended(touch: Touch, use: Use) -> bool:
    """Return whether the phase for which a lane waits has ended; if not, note that it waits."""
    mbarrier, team = use.mbarrier, touch.team
    if use.operand not in (0, 1):
        what = f"a wait for the parity {use.operand} of `{mbarrier.name}`"
        _report(touch, use, MbarrierMisused(what, "the parity of a phase is 0 or 1: its number modulo 2"))
    if mbarrier.phase & 1 == use.operand & 1:
        team.awaited.append(Awaited(mbarrier, use.operand & 1, touch.access.loc, int(team.tag[use.lane])))
        return False
    mbarrier.seen = mbarrier.phase
    return True


_OPERATIONS: dict[str, Callable[[Compiler, ops.IntrinsicOp], Step]] = {
    "mbarrier_init": _build_init,
    "mbarrier_inval": _build_inval,
    "mbarrier_arrive": _arrival(lambda count: count, lambda count: 0),
    "mbarrier_arrive_peer": _arrival(lambda count: count, lambda count: 0),
    "mbarrier_expect_tx": _arrival(lambda tx: 0, lambda tx: tx),
    "mbarrier_arrive_expect_tx": _arrival(lambda tx: 1, lambda tx: tx),
    "mbarrier_test_wait": _build_wait,
    "mbarrier_try_wait": _build_wait,
}
