"""Running a kernel on the CPU."""

from __future__ import annotations

from collections.abc import Callable

from stagekit import native_tables as tables
from stagekit.backends.launcher.routine import Routine
from stagekit.backends.launcher.support.functions import function, prepared
from stagekit.backends.launcher.values import PTR, Value
from stagekit.dtypes import float64, int32, int64

WORTH_SHARING_NS = 150_000.0  # as in `runtime/pool.py`
WORTH_RELEASING_NS = 5_000.0  # below, letting other Python threads run costs more than it gives
SCRATCH_ON_STACK = 64 * 1024  # bytes; larger kernels take the worker's memory
_SCRATCH_ALIGN = 64  # bytes: a cache line, and the widest vector
_LEAST_NS = 0.5  # that a block is taken to cost: 0 means not known
_MONOTONIC = 1  # CLOCK_MONOTONIC


@function(
    PTR,
    failure="null",
    state=tables.STATE,
    code=PTR,
    slots=PTR,
    grid=PTR,
    blocks=int64,
    scratch_bytes=int64,
    shared_bytes=int64,
)
def run(
    r: Routine,
    state: Value,
    code: Value,
    slots: Value,
    grid: Value,
    blocks: Value,
    scratch_bytes: Value,
    shared_bytes: Value,
) -> None:
    """Run a cpu kernel whose entry is `code`: here while that is quicker than waking other threads, else through `share`.

    It starts with a sixty-fourth of the blocks and looks at the clock, as `runtime/pool.py` does. A single block has nobody to
    share with, however long it took when it was measured.
    """

    def share(first: Value) -> None:
        r.give(r.tell(state.field("share"), slots, grid, first, blocks, shared_bytes))

    none = state.field("process", tables.PROCESS).field("none")
    with r.when(blocks == 0):
        r.give_object(none)
    cost, memory = state.field("cost"), scratch_bytes + shared_bytes
    known = cost.load(float64)
    estimate = known * blocks.to(float64)
    is_worth_sharing = (estimate >= WORTH_SHARING_NS) & (blocks != 1)
    with r.when(is_worth_sharing | (memory > SCRATCH_ON_STACK)):
        share(r.number(0))
    is_brief = (known > 0.0) & (estimate < WORTH_RELEASING_NS)
    thread = r.choose(is_brief, lambda: r.null, lambda: r.call(PTR, "PyEval_SaveThread"))
    scratch = r.stack(memory, _SCRATCH_ALIGN)

    def run_blocks(first: Value, last: Value) -> Value:
        return r.call_at(code, int32, slots, grid, first, last, scratch)

    ran, fault = _run_here(r, run_blocks, blocks, cost)
    with r.when(thread.is_set()):
        r.call_nothing("PyEval_RestoreThread", thread)
    with r.when(fault != 0):
        r.give(r.tell(state.field("fail"), fault))
    with r.when(ran != blocks):
        share(ran)
    r.give_object(none)


def _run_here(
    r: Routine, run_blocks: Callable[[Value, Value], Value], blocks: Value, cost: Value
) -> tuple[Value, Value]:
    """How many blocks ran, and what the kernel reports. cost: where the time of a block is kept."""
    part = blocks >> 6
    first = (part == 0).select(r.number(1), part)
    before = _now(r)
    fault = run_blocks(r.number(0), first)
    measured = (_now(r) - before).to(float64) / first.to(float64)
    per_block = (measured < _LEAST_NS).select(r.number(_LEAST_NS, float64), measured)
    cost.store(per_block)
    rest = blocks - first
    goes_on = (rest != 0) & (per_block * rest.to(float64) < WORTH_SHARING_NS)
    ran: tuple[Value, Value] = r.choose(
        goes_on,
        lambda: (blocks, fault | run_blocks(first, blocks)),
        lambda: (first, fault),
    )
    return ran


def _now(r: Routine) -> Value:
    """Nanoseconds."""
    time = r.room(2 * tables.WORD)
    r.call(int32, "clock_gettime", r.number(_MONOTONIC, int32), time)
    return time.item(0, int64) * 1_000_000_000 + time.item(1, int64)


@prepared
def run_prepared(r: Routine, state: Value) -> None:
    blocks, scratch_bytes, shared_bytes = (state.field(n, int64) for n in ("blocks", "scratch_bytes", "shared_bytes"))
    code, slots, grid = state.field("code"), state.field("slots"), state.place("grid_x")
    r.give(run.call(r, state, code, slots, grid, blocks, scratch_bytes, shared_bytes))
