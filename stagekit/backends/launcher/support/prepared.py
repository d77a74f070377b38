"""Launches whose arguments were read before: METH_FASTCALL functions, whose `self` is a tuple that begins with the STATE."""

from __future__ import annotations

from stagekit import native_tables as tables
from stagekit.backends.launcher.routine import Routine
from stagekit.backends.launcher.support.enqueueing import NOTHING_DONE, enqueue, launch_of
from stagekit.backends.launcher.support.functions import function
from stagekit.backends.launcher.support.running import run
from stagekit.backends.launcher.values import PTR, Value
from stagekit.dtypes import int64


def state_of(r: Routine, own: Value) -> Value:
    """The STATE that the tuple `own` of a built-in function begins with."""
    number = r.call(PTR, "PyTuple_GetItem", own, r.number(0))
    return r.call(tables.STATE, "PyLong_AsVoidPtr", number)


def _refuse_arguments(r: Routine, state: Value, args: Value, given: Value, keywords: Value) -> None:
    """A call with arguments goes the general way, which refuses it in words."""
    with r.when((given != 0) | (keywords != r.null)):
        r.give(r.call(PTR, "PyObject_Vectorcall", state.field("general"), args, given, keywords))


@function(PTR, failure="null", own=PTR, args=PTR, given=int64, keywords=PTR)
def run_prepared(r: Routine, own: Value, args: Value, given: Value, keywords: Value) -> None:
    state = state_of(r, own)
    _refuse_arguments(r, state, args, given, keywords)
    blocks, scratch_bytes, shared_bytes = (state.field(n, int64) for n in ("blocks", "scratch_bytes", "shared_bytes"))
    code, slots, grid = state.field("code"), state.field("slots"), state.place("grid_x")
    r.give(run.call(r, state, code, slots, grid, blocks, scratch_bytes, shared_bytes))


@function(PTR, failure="null", own=PTR, args=PTR, given=int64, keywords=PTR)
def enqueue_prepared(r: Routine, own: Value, args: Value, given: Value, keywords: Value) -> None:
    state = state_of(r, own)
    _refuse_arguments(r, state, args, given, keywords)
    code, pointers = state.field("code"), state.field("pointers")
    launch = launch_of(r, state.place("grid_x"), state.place("block_x"), state.field("shared_bytes", int64))
    destination = state.at(tables.STATE["device"], tables.DESTINATION)
    result = enqueue.call(r, state, code, pointers, launch, destination)
    with r.when(result == r.value(PTR, NOTHING_DONE)):
        r.give(r.call_unless_raised(lambda: r.call_python(state.field("general"))))
    r.give(result)
