"""Run a kernel: arrays in, arrays changed, a report out.

    report = run(fn, [x, out, np.int64(1000)], (4, 1, 1), (256, 1, 1), options=CHECKED)

`fn` is verified IR after the passes for "interp". A slot for a pointer is a NumPy array or an address inside one of
`allocations`; any other slot is a number of the parameter's dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stagekit.backends.interp.compile import prepare
from stagekit.backends.interp.control import Abandoned
from stagekit.backends.interp.findings import FindingSink, Index3
from stagekit.backends.interp.launch import Launch
from stagekit.backends.interp.memory import Allocation, at_byte, find, join_arenas, just_aligned
from stagekit.backends.interp.options import UNCHECKED, Options
from stagekit.backends.interp.order import Clocks, NoOrder
from stagekit.backends.interp.program import Program, execute
from stagekit.backends.interp.races import Races
from stagekit.backends.interp.report import Message, Report
from stagekit.backends.interp.schedule import BlockRun, Scheduler, Warp
from stagekit.backends.interp.statistics import Measured
from stagekit.backends.interp.steps import SHARED_BASE
from stagekit.backends.interp.team import Team
from stagekit.backends.interp.written import WrittenBytes
from stagekit.diagnostics import InternalError
from stagekit.ir import Function, Pointer, Space, Value, ops, semantics
from stagekit.limits import WARP

_TEAM_LANES = 8192  # lanes at which NumPy's cost per call no longer matters
_TEAM_SHARED_BYTES = 1 << 24  # of the shared memory of the blocks of one team
_DYNAMIC_ALIGN = 16  # bytes, of dynamic shared memory
_ORDER_SEED = 1  # keeps the order of blocks apart from the order of warps under one seed


def run(
    fn: Function,
    slots: Sequence[Any],
    grid: Index3,
    block: Index3,
    dynamic_shared_bytes: int = 0,
    options: Options = UNCHECKED,
    allocations: Sequence[Allocation] = (),
) -> Report:
    """Compile `fn` and launch it once; `prepare` and `launch` do the two apart."""
    return launch(prepare(fn, options), slots, grid, block, dynamic_shared_bytes, allocations)


def launch(
    program: Program,
    slots: Sequence[Any],
    grid: Index3,
    block: Index3,
    dynamic_shared_bytes: int = 0,
    allocations: Sequence[Allocation] = (),
) -> Report:
    """Run a prepared kernel. grid: blocks, block: threads, along x, y, z."""
    params, known = _bind((*program.fn.params, *program.extra), slots, allocations)
    join_arenas(known)
    options = program.options
    started = Launch(
        program, grid, block, dynamic_shared_bytes, params, known, options, FindingSink(options.max_findings)
    )
    _watch(started)
    if started.blocks and started.threads:
        with np.errstate(all="ignore"):
            _run_blocks(started)
    return _report(started)


# -- arguments --------------------------------------------------------------------------------------------------------


def _bind(
    params: Sequence[Value], slots: Sequence[Any], allocations: Sequence[Allocation]
) -> tuple[tuple[Any, ...], tuple[Allocation, ...]]:
    """The value of each parameter, and every allocation: those given and one per array among the slots."""
    if len(params) != len(slots):
        raise InternalError(f"{len(slots)} slots for {len(params)} parameters")
    known = list(allocations)
    for param, slot in zip(params, slots, strict=True):
        if isinstance(param.type, Pointer) and isinstance(slot, np.ndarray):
            known.append(Allocation.of_array(param.name, slot))
    return tuple(_bind_one(p, s, known) for p, s in zip(params, slots, strict=True)), tuple(known)


def _bind_one(param: Value, slot: Any, known: Sequence[Allocation]) -> Any:
    kind = param.type
    if not isinstance(kind, Pointer):
        return slot if isinstance(slot, np.generic) else semantics.typed(slot, kind.dtype)
    if not isinstance(slot, np.ndarray):
        return find(known, param.name, kind.dtype, int(slot))
    own = next(a for a in known if a.array is slot and a.name == param.name)
    return at_byte(own, np.int64(slot.ctypes.data - own.base), kind.dtype)


def _watch(started: Launch) -> None:
    checks = started.options.checks
    if checks.races:
        started.order = clocks = Clocks(started)
        started.races = Races(started, clocks)
    else:
        started.order = NoOrder()
    started.written = WrittenBytes(started.options.outputs, watches_reads=checks.uninitialised)
    started.measured = Measured()


def _report(started: Launch) -> Report:
    started.written.report_outputs(started.allocations, started.sink)
    statistics = started.measured.done() if started.options.statistics else None
    return Report(
        started.sink.done(), tuple(started.prints), tuple(started.failures), statistics, started.options.schedule
    )


# -- blocks -----------------------------------------------------------------------------------------------------------


def _run_blocks(started: Launch) -> None:
    order = _block_order(started)
    try:
        if started.program.is_scheduled:
            Scheduler(started, iter(order.tolist()), lambda number: _start_block(started, number)).run()
        else:
            _run_together(started, order)
    except Abandoned:
        return  # what is wrong is among the findings


def _block_order(started: Launch) -> Any:
    numbers = np.arange(started.blocks)
    schedule = started.options.schedule
    if schedule is None or schedule.order == "forward":
        return numbers
    if schedule.order == "backward":
        return numbers[::-1]
    return np.random.default_rng((schedule.seed, _ORDER_SEED)).permutation(numbers)


def _run_together(started: Launch, order: Any) -> None:
    """Teams of whole blocks, each from end to end."""
    together = _blocks_together(started) if started.program.is_batched else 1
    for start in range(0, len(order), together):
        blocks = order[start : start + together]
        memory = _shared_memory(started, len(blocks))
        team = Team(started, blocks, 0, started.threads, memory)
        prints, failures = len(started.prints), len(started.failures)
        for _ in execute(started.program.code, team.values, team):
            raise InternalError("a team of whole blocks has nobody to wait for")
        _sort_by_block(started.prints, prints)
        _sort_by_block(started.failures, failures)
        _drop(started, team)


def _blocks_together(started: Launch) -> int:
    sizes = (a.count * a.dtype.itemsize for a in started.program.shared if a.count is not None)
    shared_bytes = sum(sizes) + started.dynamic_shared_bytes
    return max(min(_TEAM_LANES // started.threads, _TEAM_SHARED_BYTES // max(shared_bytes, 1)), 1)


def _sort_by_block(messages: list[Message], start: int) -> None:
    """Blocks side by side say things in turn; put what each said together."""
    messages[start:] = sorted(messages[start:], key=lambda m: m.who.block[::-1])


def _start_block(started: Launch, number: int) -> BlockRun:
    memory = _shared_memory(started, 1)
    block = BlockRun(number)
    for first in range(0, started.threads, WARP):
        team = Team(started, np.array([number]), first, min(WARP, started.threads - first), memory)
        block.warps.append(Warp(team, execute(started.program.code, team.values, team), block))
    return block


def _shared_memory(started: Launch, copies: int) -> list[Allocation]:
    """The shared memory of so many blocks: one allocation per `alloc`, and one for all that ask for the dynamic bytes."""
    made: list[Allocation] = []
    base, dynamic = SHARED_BASE, None
    for op in started.program.shared:
        if op.count is None and dynamic is not None:
            made.append(dynamic)
            continue
        size = started.dynamic_shared_bytes if op.count is None else op.count * op.dtype.itemsize
        base = just_aligned(base, max(op.align, op.dtype.itemsize, _DYNAMIC_ALIGN if op.count is None else 1))
        made.append(_shared_allocation(op, base, size, copies))
        base += size
        dynamic = made[-1] if op.count is None else dynamic
    return made


def _shared_allocation(op: ops.Alloc, base: int, size: int, copies: int) -> Allocation:
    name = op.result.name or "shared"
    return Allocation.fresh(name, Space.SHARED, op.dtype, base, size=size, copies=copies)


def _drop(started: Launch, team: Team) -> None:
    """Forget what was watched of memory that ends with its blocks."""
    gone = {*team.memory, *team.local.values()}
    started.written.forget(gone)
    if started.options.checks.races:
        started.races.forget(gone)
