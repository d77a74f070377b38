"""The launch itself: on the CPU by `pool`; on a GPU to a stream, which is found first."""

from __future__ import annotations

from functools import reduce
from operator import or_

from stagekit import native_tables as tables
from stagekit.backends.launcher.registers import PTR, Reg
from stagekit.backends.launcher.routine import Routine, function, prepared
from stagekit.backends.launcher.support import pool
from stagekit.dtypes import int32, int64, uint32

# On the CPU ---------------------------------------------------------------------------------------------------------


@function(PTR, tables.STATE, PTR, PTR, int64, int64)
def run(r: Routine, state: Reg, slots: Reg, grid: Reg, blocks: Reg, shared_bytes: Reg) -> None:
    """Run a CPU kernel, through `record` where it is one that writes records."""
    process, record = state.field("process", tables.PROCESS), state.field("record")
    with r.if_then(blocks == 0):
        r.ret_object(process.field("none"))
    with r.if_then(record.is_set()):
        r.ret(r.call_python_with_ints(record, slots, grid, blocks, shared_bytes))
    scratch_bytes = state.field("scratch_bytes", int64) + shared_bytes
    fault = pool.run_blocks.call(
        r, process, state.field("code"), state.field("cost"), slots, grid, 0, blocks, scratch_bytes
    )
    r.require(fault != tables.RAISED)
    with r.if_then(fault != 0):
        r.ret(r.call_python_with_ints(state.field("fail"), fault))
    r.ret_object(process.field("none"))


@prepared
def run_prepared(r: Routine, state: Reg) -> None:
    blocks, shared_bytes = state.field("blocks", int64), state.field("shared_bytes", int64)
    r.ret(run.call(r, state, state.field("slots"), state.address_of("grid_x"), blocks, shared_bytes))


# On a GPU -----------------------------------------------------------------------------------------------------------


def launch_of(r: Routine, state: Reg, grid: Reg, block: Reg, shared_bytes: Reg) -> Reg:
    """Make a LAUNCH that lacks its stream. state: has its attributes. grid, block: pointers to three words each."""
    launch = r.alloca(tables.LAUNCH_BYTES, tables.LAUNCH)
    for what, three in (("grid", grid), ("block", block)):
        for place, axis in enumerate("xyz"):
            launch.address_of(f"{what}_{axis}").store(three.item(place, int32))
    launch.address_of("shared_bytes").store(shared_bytes.to(int32))
    launch.address_of("attributes").store(state.field("attributes"))
    launch.address_of("attribute_count").store(state.field("attribute_count", int32))
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
    grid, block = state.address_of("grid_x"), state.address_of("block_x")
    launch = launch_of(r, state, grid, block, state.field("shared_bytes", int64))
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

    def owner_by_modules() -> Reg:
        has_torch = r.call(int32, "PyDict_Contains", process.field("modules"), process.field("torch_name")) != 0
        return r.if_else(has_torch, torch_stream, lambda: r.null)

    owner = r.if_else(stream_of.is_set(), lambda: stream_of, owner_by_modules)
    return r.if_else(owner.is_set(), lambda: ask(owner), lambda: r.null)
