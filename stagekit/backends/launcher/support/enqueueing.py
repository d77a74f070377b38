"""Giving a kernel to a GPU."""

from __future__ import annotations

from functools import reduce
from operator import or_

from stagekit import native_tables as tables
from stagekit.backends.launcher.routine import Routine
from stagekit.backends.launcher.support.functions import function, prepared
from stagekit.backends.launcher.support.streams import current_stream
from stagekit.backends.launcher.values import PTR, Value
from stagekit.dtypes import int32, int64, uint32

NOTHING_DONE = "inttoptr (i64 1 to ptr)"
"""What `enqueue` gives where the general way must be taken."""


def launch_of(r: Routine, grid: Value, block: Value, shared_bytes: Value) -> Value:
    """A LAUNCH that lacks its stream. grid, block: pointers to three words each."""
    launch = r.room(tables.LAUNCH_BYTES, tables.LAUNCH)
    for what, three in (("grid", grid), ("block", block)):
        for place, axis in enumerate("xyz"):
            launch.place(f"{what}_{axis}").store(three.item(place, int32))
    launch.place("shared_bytes").store(shared_bytes.to(int32))
    launch.place("attributes").store(r.null)
    launch.place("attribute_count").store(r.number(0, int32))
    return launch


@function(
    PTR,
    failure=NOTHING_DONE,
    state=tables.STATE,
    code=PTR,
    pointers=PTR,
    launch=tables.LAUNCH,
    destination=tables.DESTINATION,
)
def enqueue(r: Routine, state: Value, code: Value, pointers: Value, launch: Value, destination: Value) -> None:
    """Give a kernel to a GPU's stream: the one in the brackets, or the current one of whom the first array is from.

    code: the DEVICE rows. pointers: to each parameter of the kernel. Where no argument says which GPU, it is the one whose
    context is current.
    """
    process = state.field("process", tables.PROCESS)
    sizes = [launch.field(f"{what}_{axis}", int32) for what in ("grid", "block") for axis in "xyz"]
    with r.when(reduce(or_, (size == 0 for size in sizes))):
        r.give_object(process.field("none"))
    context = _current_context(r, process)
    given = destination.field("device", int32)
    device = r.choose(given == -1, lambda: _device_of(r, code, context), lambda: given)
    r.require(device.to(uint32) < tables.DEVICES)
    row = _row(code, device.to(int64))
    r.require(row.field("function").is_set())
    r.require(launch.field("shared_bytes", int32).to(int64) <= row.field("allowed_shared", int64))
    stream = r.choose(
        destination.field("has_stream", int64) != 0,
        lambda: destination.field("stream"),
        lambda: current_stream(r, process, device, destination.field("stream_of")),
    )
    launch.place("stream").store(stream)
    fault = _launch(r, process, context, row, launch, pointers)
    with r.when(fault != 0):
        r.give(r.tell(state.field("fail"), fault))
    # A launch that was refused is not noted: what the driver then reports is the fault of a kernel before it.
    process.field("last_launches").word(device.to(int64)).store(state.field("kernel_number", int64))
    r.give_object(process.field("none"))


def _current_context(r: Routine, process: Value) -> Value:
    get_context, current = process.field("get_context"), r.room(tables.WORD)
    r.require(get_context.is_set())
    r.call_at(get_context, int32, current)
    context = current.load()
    r.require(context.is_set())
    return context


def _row(code: Value, device: Value) -> Value:
    return code.at(device * tables.size(tables.DEVICE), tables.DEVICE)


def _device_of(r: Routine, code: Value, context: Value) -> Value:
    devices = r.number(tables.DEVICES)
    return r.find(devices, lambda device: _row(code, device).field("context") == context).to(int32)


def _launch(r: Routine, process: Value, context: Value, row: Value, launch: Value, pointers: Value) -> Value:
    """Call the driver in the row's context, without the GIL: what it says."""
    wanted, set_context = row.field("context"), process.field("set_context")
    is_other = context != wanted
    with r.when(is_other):
        r.call_at(set_context, int32, wanted)
    launch_kernel, function = process.field("launch_kernel"), row.field("function")
    thread = r.call(PTR, "PyEval_SaveThread")
    fault = r.call_at(launch_kernel, int32, launch, function, pointers, r.null)
    r.call_nothing("PyEval_RestoreThread", thread)
    with r.when(is_other):
        r.call_at(set_context, int32, context)
    return fault


@prepared
def enqueue_prepared(r: Routine, state: Value) -> None:
    code, pointers = state.field("code"), state.field("pointers")
    launch = launch_of(r, state.place("grid_x"), state.place("block_x"), state.field("shared_bytes", int64))
    destination = state.at(tables.STATE["device"], tables.DESTINATION)
    result = enqueue.call(r, state, code, pointers, launch, destination)
    with r.when(result == r.value(PTR, NOTHING_DONE)):
        r.give(r.call_unless_raised(lambda: r.call_python(state.field("general"))))
    r.give(result)
