"""Run a kernel on NumPy arrays, which it changes, and report what was found.

    report = run(fn, [x, out, np.int64(1000)], (4, 1, 1), (256, 1, 1), options=CHECKED)

`fn` is verified IR after the passes for "interp". A slot for a pointer is a NumPy array or an address inside one of
`allocations`; any other slot is a number of the parameter's dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stagekit.backends.interp.access import WrittenBytes
from stagekit.backends.interp.asynchronous import Protocols
from stagekit.backends.interp.breakpoints import StoppedBlock
from stagekit.backends.interp.clusters import PeerMemory
from stagekit.backends.interp.control import CONTROLS
from stagekit.backends.interp.findings import Finding, FindingSink, Index3, Message
from stagekit.backends.interp.memory import Allocation, Anywhere, at_byte, find, join_arenas
from stagekit.backends.interp.natives import CALLS
from stagekit.backends.interp.options import UNCHECKED, Options, Schedule
from stagekit.backends.interp.program import Builders, Compiler, Program
from stagekit.backends.interp.races import Races
from stagekit.backends.interp.roles import WholeWarpgroups
from stagekit.backends.interp.schedule import Scheduler
from stagekit.backends.interp.statistics import Measured, Statistics
from stagekit.backends.interp.steps import STEPS
from stagekit.backends.interp.team import LaunchState
from stagekit.diagnostics import InternalError, counted
from stagekit.display import ShownAsText
from stagekit.ir import Function, Native, Pointer, Value, semantics

BUILDERS: Builders = {**STEPS, **CONTROLS, **CALLS}


@dataclass(frozen=True)
class ListedMemory:
    """The slot of a pointer from which several arrays are reached. address: of one of them. arrays: their memory."""

    address: int
    arrays: tuple[Allocation, ...]


@dataclass(frozen=True)
class Report(ShownAsText):
    """The results of a run besides the arrays. Its text shows everything that was found and measured.

    findings: in the order of discovery. prints, failures: block by block, in the order in which blocks ran.
    schedule: the order of warps and blocks; None where they ran side by side.
    """

    findings: tuple[Finding, ...]
    prints: tuple[Message, ...]
    failures: tuple[Message, ...]
    statistics: Statistics | None
    schedule: Schedule | None = None

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found and no assert failed."""
        return not self.findings and not self.failures

    def of(self, id: str) -> tuple[Finding, ...]:
        """Return the findings of one kind, by the id of its diagnostic."""
        return tuple(f for f in self.findings if f.id == id)

    def __repr__(self) -> str:
        failed = f", {counted(len(self.failures), 'failed assert')}" if self.failures else ""
        return f"<stagekit report: {counted(len(self.findings), 'finding')}{failed}>"

    def __str__(self) -> str:
        parts = [counted(len(self.findings), "finding") if self.findings else "nothing found"]
        parts += [str(finding) for finding in self.findings]
        parts += [f"assert failed in {m.who}: {m.text}" for m in self.failures]
        if self.statistics is not None:
            parts.append(str(self.statistics))
        return "\n\n".join(parts)


def run(
    fn: Function,
    slots: Sequence[Any],
    grid: Index3,
    block: Index3,
    dynamic_shared_bytes: int = 0,
    options: Options = UNCHECKED,
    allocations: Sequence[Allocation] = (),
) -> Report:
    """Prepare `fn` and launch it once; see `prepare` and `launch`."""
    return launch(prepare(fn, options), slots, grid, block, dynamic_shared_bytes, allocations)


def prepare(fn: Function, options: Options, extra: Sequence[Value] = ()) -> Program:
    """Turn a verified function, lowered for "interp", into a program for any number of launches. extra: see `Program`."""
    return Compiler(fn, options, BUILDERS).program(tuple(extra))


def launch(
    program: Program,
    slots: Sequence[Any],
    grid: Index3,
    block: Index3,
    dynamic_shared_bytes: int = 0,
    allocations: Sequence[Allocation] = (),
    stop: Callable[[int, StoppedBlock], None] | None = None,
    cluster: Index3 = (1, 1, 1),
) -> Report:
    """Run a prepared kernel. grid: blocks, block: threads, cluster: blocks that start together, along x, y, z. See the module for
    slots and allocations.

    stop: called at each `breakpoint()` of a block, with the number of its scene and the threads that stop.
    """
    params, known = _bind((*program.fn.params, *program.extra), slots, allocations)
    join_arenas(known)
    options, checks = program.options, program.options.checks
    sink = FindingSink(options.max_findings)
    state = LaunchState(grid, block, dynamic_shared_bytes, params, known, options, sink, stop=stop, cluster=cluster)
    written = WrittenBytes(options.outputs, checks.uninitialised)
    measured = Measured()
    races = Races(state, program) if checks.races else None
    if any(map(program.has, (Native.MBARRIER, Native.BULK_COPY, Native.TILE_COPY, Native.WARPGROUP_PRODUCT))):
        clocks = None if races is None else races.clocks
        state.watchers.append(
            Protocols(state, clocks, program.accesses)
        )  # first, as it says why the others find something
    if program.has(Native.PEER) or (program.has(Native.TILE_COPY) and cluster != (1, 1, 1)):
        state.watchers.append(PeerMemory(state, None if races is None else races.clocks))
    if program.has(Native.REGISTERS):
        state.watchers.append(WholeWarpgroups(state))
    if races is not None:
        state.watchers += [races, races.clocks]
    if checks.uninitialised or options.outputs:
        state.watchers.append(written)
    if options.statistics:
        state.watchers.append(measured)
    if state.blocks and state.threads:
        with np.errstate(all="ignore"):
            Scheduler(state, program).run()
    written.report_outputs(known, sink)
    statistics = measured.statistics() if options.statistics else None
    return Report(sink.findings(), tuple(state.prints), tuple(state.failures), statistics, options.schedule)


def _bind(
    params: Sequence[Value], slots: Sequence[Any], allocations: Sequence[Allocation]
) -> tuple[tuple[Any, ...], tuple[Allocation, ...]]:
    """Return the value of each parameter, and every allocation: those given, and one per array among the slots."""
    if len(params) != len(slots):
        raise InternalError(f"{len(slots)} slots for {len(params)} parameters")
    known = list(allocations)
    for param, slot in zip(params, slots, strict=True):
        if isinstance(param.type, Pointer) and isinstance(slot, np.ndarray):
            known.append(Allocation.of_array(param.name, slot))
    return tuple(_bind_one(p, s, known) for p, s in zip(params, slots, strict=True)), tuple(known)


def _bind_one(param: Value, slot: Any, known: Sequence[Allocation]) -> Any:
    """Return the value of a parameter: a pointer, or a NumPy scalar of its dtype."""
    kind = param.type
    if not isinstance(kind, Pointer):
        return slot if isinstance(slot, np.generic) else semantics.typed(slot, kind.dtype)
    if isinstance(slot, ListedMemory):
        return Anywhere(param.name, kind.dtype, slot.address, slot.arrays)
    if not isinstance(slot, np.ndarray):
        return find(known, param.name, kind.dtype, int(slot))
    own = next(a for a in known if a.array is slot and a.name == param.name)
    return at_byte(own, np.int64(slot.ctypes.data - own.base), kind.dtype, own.reach)
