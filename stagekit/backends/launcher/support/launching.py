"""The launch itself: on the CPU here or with the workers of `runtime/pool.py`; on a GPU to a stream, which is found first."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_

from stagekit import native_tables as tables
from stagekit.backends.launcher.registers import PTR, Reg
from stagekit.backends.launcher.routine import Routine, function, prepared
from stagekit.dtypes import float64, int32, int64, uint32

WORTH_RELEASING_NS = 5_000.0  # below, letting other Python threads run costs more than it gives
SCRATCH_ON_STACK = 64 * 1024  # bytes; larger kernels take the worker's memory
_LEAST_NS = 0.5  # that a block is taken to cost: 0 means not known
_MONOTONIC = 1  # CLOCK_MONOTONIC

# On the CPU ---------------------------------------------------------------------------------------------------------


@function(PTR, tables.STATE, PTR, PTR, int64, int64)
def run(r: Routine, state: Reg, slots: Reg, grid: Reg, blocks: Reg, shared_bytes: Reg) -> None:
    """Run a CPU kernel: here while that is quicker than waking other threads, else through `share`.

    It starts with a sixty-fourth of the blocks and looks at the clock, as `runtime/pool.py` does. A single block is never shared,
    however long it took when it was measured.
    """

    def share(first: Reg) -> None:
        r.ret(r.call_python_with_ints(state.field("share"), slots, grid, first, blocks, shared_bytes))

    none = state.field("process", tables.PROCESS).field("none")
    with r.if_then(blocks == 0):
        r.ret_object(none)
    code, cost, memory = state.field("code"), state.field("cost"), state.field("scratch_bytes", int64) + shared_bytes
    known = cost.load(float64)
    estimate = known * blocks.to(float64)
    is_worth_sharing = (estimate >= float(tables.WORTH_SHARING_NS)) & (blocks != 1)
    with r.if_then(is_worth_sharing | (memory > SCRATCH_ON_STACK)):
        share(r.number(0))
    is_brief = (known > 0.0) & (estimate < WORTH_RELEASING_NS)
    thread = r.if_else(is_brief, lambda: r.null, lambda: r.call(PTR, "PyEval_SaveThread"))
    scratch = r.alloca_here(memory, tables.SCRATCH_ALIGN)

    def run_blocks(first: Reg, last: Reg) -> Reg:
        return r.call_at(code, int32, slots, grid, first, last, scratch)

    run_count, fault = _run_here(r, run_blocks, blocks, cost)
    with r.if_then(thread.is_set()):
        r.call_void("PyEval_RestoreThread", thread)
    with r.if_then(fault != 0):
        r.ret(r.call_python_with_ints(state.field("fail"), fault))
    with r.if_then(run_count != blocks):
        share(run_count)
    r.ret_object(none)


def _run_here(r: Routine, run_blocks: Callable[[Reg, Reg], Reg], blocks: Reg, cost: Reg) -> tuple[Reg, Reg]:
    """Return how many blocks have run, and what the kernel reports. cost: where the time of a block is stored."""
    part = blocks >> 6
    first = (part == 0).select(r.number(1), part)
    before = _now(r)
    fault = run_blocks(r.number(0), first)
    measured = (_now(r) - before).to(float64) / first.to(float64)
    per_block = (measured < _LEAST_NS).select(r.number(_LEAST_NS, float64), measured)
    cost.store(per_block)
    rest = blocks - first
    goes_on = (fault == 0) & (rest != 0) & (per_block * rest.to(float64) < float(tables.WORTH_SHARING_NS))
    return r.if_else(goes_on, lambda: (blocks, run_blocks(first, blocks)), lambda: (first, fault))


def _now(r: Routine) -> Reg:
    """Return the time in nanoseconds."""
    time = r.alloca(2 * tables.WORD)
    r.call(int32, "clock_gettime", r.number(_MONOTONIC, int32), time)
    return time.item(0, int64) * 1_000_000_000 + time.item(1, int64)


@prepared
def run_prepared(r: Routine, state: Reg) -> None:
    blocks, shared_bytes = state.field("blocks", int64), state.field("shared_bytes", int64)
    r.ret(run.call(r, state, state.field("slots"), state.address_of("grid_x"), blocks, shared_bytes))


# On a GPU -----------------------------------------------------------------------------------------------------------


def launch_of(r: Routine, grid: Reg, block: Reg, shared_bytes: Reg) -> Reg:
    """Make a LAUNCH that lacks its stream. grid, block: pointers to three words each."""
    launch = r.alloca(tables.LAUNCH_BYTES, tables.LAUNCH)
    for what, three in (("grid", grid), ("block", block)):
        for place, axis in enumerate("xyz"):
            launch.address_of(f"{what}_{axis}").store(three.item(place, int32))
    launch.address_of("shared_bytes").store(shared_bytes.to(int32))
    launch.address_of("attributes").store(r.null)
    launch.address_of("attribute_count").store(r.number(0, int32))
    return launch


@function(PTR, tables.STATE, PTR, tables.LAUNCH, tables.DESTINATION)
def enqueue(r: Routine, state: Reg, pointers: Reg, launch: Reg, destination: Reg) -> None:
    """Give a kernel to a GPU's stream: the one in the brackets, or the current one of the library that the first array is from.

    pointers: to each parameter of the kernel. If no argument says which GPU, it is the one whose context
    is current. Returns null without an exception if the general way must be taken.
    """
    process, rows = state.field("process", tables.PROCESS), state.field("code")
    sizes = [launch.field(f"{what}_{axis}", int32) for what in ("grid", "block") for axis in "xyz"]
    with r.if_then(reduce(or_, (size == 0 for size in sizes))):
        r.ret_object(process.field("none"))
    get_context, current = process.field("get_context"), r.alloca(tables.WORD)
    r.require(get_context.is_set())
    r.call_at(get_context, int32, current)
    context = current.load()
    r.require(context.is_set())

    def row_of(device: Reg) -> Reg:
        return rows.at(device * tables.size(tables.DEVICE), tables.DEVICE)

    def current_device() -> Reg:
        return r.find(r.number(tables.DEVICES), lambda device: row_of(device).field("context") == context).to(int32)

    noted = destination.field("device", int32)
    device = r.if_else(noted == -1, current_device, lambda: noted)
    r.require(device.to(uint32) < tables.DEVICES)
    row = row_of(device.to(int64))
    r.require(row.field("function").is_set())
    r.require(launch.field("shared_bytes", int32).to(int64) <= row.field("allowed_shared", int64))
    stream = r.if_else(
        destination.field("has_stream", int64) != 0,
        lambda: destination.field("stream"),
        lambda: current_stream(r, process, device, destination.field("stream_of")),
    )
    launch.address_of("stream").store(stream)
    fault = _call_driver(r, process, context, row, launch, pointers)
    with r.if_then(fault != 0):
        r.ret(r.call_python_with_ints(state.field("fail"), fault))
    # A launch that was refused is not noted: what the driver then reports is the fault of a kernel before it.
    process.field("last_launches").word(device.to(int64)).store(state.field("kernel_number", int64))
    r.ret_object(process.field("none"))


def _call_driver(r: Routine, process: Reg, context: Reg, row: Reg, launch: Reg, pointers: Reg) -> Reg:
    """Call the driver in the row's context, without the GIL; return its status."""
    wanted, set_context = row.field("context"), process.field("set_context")
    is_other = context != wanted
    with r.if_then(is_other):
        r.call_at(set_context, int32, wanted)
    launch_kernel, kernel = process.field("launch_kernel"), row.field("function")
    thread = r.call(PTR, "PyEval_SaveThread")
    fault = r.call_at(launch_kernel, int32, launch, kernel, pointers, r.null)
    r.call_void("PyEval_RestoreThread", thread)
    with r.if_then(is_other):
        r.call_at(set_context, int32, context)
    return fault


@prepared
def enqueue_prepared(r: Routine, state: Reg) -> None:
    launch = launch_of(r, state.address_of("grid_x"), state.address_of("block_x"), state.field("shared_bytes", int64))
    destination = state.at(tables.STATE["device"], tables.DESTINATION)
    result = enqueue.call(r, state, state.field("pointers"), launch, destination)
    with r.if_then(result.is_null()):
        r.ret(r.call_unless_raised(lambda: r.call_python(state.field("general"))))
    r.ret(result)


# Which GPU and which stream -----------------------------------------------------------------------------------------


def note_destination(r: Routine, destination: Reg, device: Reg, stream_of: Reg) -> None:
    """Note where an array lives and what its owner's current stream is asked by; all arrays of a launch must agree.

    An array whose owner has no current stream (`stream_of` is null) agrees with the others. A stream that was asked for stays.
    """
    known_device, known = destination.field("device", int32), destination.field("stream_of")
    r.require((known_device == -1) | (known_device == device))
    destination.address_of("device").store(device)
    may_decide = known.is_null() & (destination.field("has_stream", int64) != tables.ASKED)
    r.require(stream_of.is_null() | (stream_of == known) | may_decide)
    destination.address_of("stream_of").store(known.is_null().select(stream_of, known))


def current_stream(r: Routine, process: Reg, device: Reg, stream_of: Reg) -> Reg:
    """Ask `stream_of` for the current stream; if it is null, the launch goes to torch's where torch is imported, else to 0."""

    def ask_python(owner: Reg) -> Reg:
        answer = r.call_python_with_ints(owner, device)
        r.require_no_error(answer.is_set())
        stream = r.call(PTR, "PyLong_AsVoidPtr", answer)
        r.decref(answer)
        return stream

    def ask_exchange_api(owner: Reg) -> Reg:
        answer = r.alloca(tables.WORD)
        r.require_no_error(r.call_at(owner, int32, r.number(tables.ON_CUDA, int32), device, answer) == 0)
        return answer.load()

    def ask(owner: Reg) -> Reg:
        is_cupy = owner == process.field("cupy_stream")
        return r.if_else(is_cupy, lambda: ask_python(owner), lambda: ask_exchange_api(owner))

    def torch_stream() -> Reg:
        r.require(process.field("torch_stream").is_set())
        return process.field("torch_stream")

    has_torch = r.call(int32, "PyDict_Contains", process.field("modules"), process.field("torch_name")) != 0
    owner = r.if_else(stream_of.is_set(), lambda: stream_of, lambda: r.if_else(has_torch, torch_stream, lambda: r.null))
    return r.if_else(owner.is_set(), lambda: ask(owner), lambda: r.null)
