"""May a launch go natively: is nothing diverted, and is all that the tracer read as it was."""

from __future__ import annotations

from stagekit import native_tables as tables
from stagekit.backends.launcher.routine import Routine
from stagekit.backends.launcher.support.functions import function
from stagekit.backends.launcher.values import PTR, Value
from stagekit.dtypes import bool_, int32, int64


@function(bool_, process=tables.PROCESS)
def is_undiverted(r: Routine, process: Value) -> None:
    """Is nothing set that sends every launch elsewhere: a switch in the environment, a sanitizer of this thread?"""
    environment = process.field("environment")
    for switch in ("target_switch", "sanitize_switch"):
        r.require(r.call(int32, "PyDict_Contains", environment, process.field(switch)) == 0)
    sanitizer = process.field("sanitizer")
    with r.when(sanitizer.is_set()):
        held = r.room(tables.WORD)
        r.call(int32, "PyContextVar_Get", sanitizer, r.null, held)
        r.drop(held.load())
        r.require(held.load() == process.field("none"))
    r.give(True)


@function(bool_, state=tables.STATE)
def is_current(r: Routine, state: Value) -> None:
    """Does every place outside the kernel that its tracer read still hold the object it held?"""
    rows = state.field("guards")
    with r.loop(state.field("guard_count", int64)) as i:
        guard = rows.at(i * tables.size(tables.GUARD), tables.GUARD)
        r.require(_content(r, guard.field("holder"), guard.field("key")) == guard.field("seen"))
    ask = state.field("ask")
    with r.when(ask.is_set()):
        answer = r.call_python(ask)
        r.require_no_error(answer.is_set())
        r.drop(answer)
        r.require(answer == state.field("process", tables.PROCESS).field("true"))
    r.give(True)


def _content(r: Routine, holder: Value, key: Value) -> Value:
    """What a cell, or a dict under `key`, holds now; null where it holds nothing."""

    def of_cell() -> Value:
        content = r.call(PTR, "PyCell_Get", holder)
        r.drop(content)
        return content

    now: Value = r.choose(key.is_null(), of_cell, lambda: r.call(PTR, "PyDict_GetItemWithError", holder, key))
    return now
