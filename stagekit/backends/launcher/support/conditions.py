"""May a launch go natively: is nothing set that sends it elsewhere, and is all as it was that the tracer read outside the kernel?

Each row of GUARD compares pointers; `frontend/state.py` makes them.
"""

from __future__ import annotations

from stagekit import native_tables as tables
from stagekit.backends.launcher.routine import Arm, Routine
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
        r.require(_holds(r, guard.field("kind", int64), guard.field("holder"), guard.field("key"), guard.field("seen")))
    ask = state.field("ask")
    with r.when(ask.is_set()):
        answer = r.call_python(ask)
        r.require_no_error(answer.is_set())
        r.drop(answer)
        r.require(answer == state.field("process", tables.PROCESS).field("true"))
    r.give(True)


def _holds(r: Routine, kind: Value, holder: Value, key: Value, seen: Value) -> Value:
    """Is what one row names what was seen?"""
    now: dict[str, Arm] = {
        "item": lambda: r.call(PTR, "PyDict_GetItemWithError", holder, key),
        "cell": lambda: _released(r, r.call(PTR, "PyCell_Get", holder)),
        "member": lambda: r.call(PTR, "_PyType_Lookup", holder, key),
        "attribute": lambda: _attribute(r, holder, key),
        "type": lambda: holder.at(0, tables.OBJECT).field("type"),
        "code": lambda: r.call(PTR, "PyFunction_GetCode", holder),
        "defaults": lambda: r.call(PTR, "PyFunction_GetDefaults", holder),
        "keywords": lambda: r.call(PTR, "PyFunction_GetKwDefaults", holder),
    }
    arms: dict[str, Arm] = {name: lambda look=look: look() == seen for name, look in now.items()}  # type: ignore[misc]
    arms |= {
        "list": lambda: _has_items(r, holder, seen),
        "dict": lambda: _has_entries(r, holder, seen),
        "items": lambda: _gives_items(r, holder, seen),
        "array": lambda: _has_bytes(r, holder.at(0, tables.NDARRAY), key, seen),
    }
    found: Value = r.switch(kind, {place: arms[name] for place, name in enumerate(tables.GUARD_KINDS)})
    return found


def _released(r: Routine, object_: Value) -> Value:
    """For its address alone."""
    r.drop(object_)
    return object_


def _attribute(r: Routine, owner: Value, name: Value) -> Value:
    found = r.call(PTR, "PyObject_GetAttr", owner, name)
    with r.when(found.is_null()):
        r.forget_error()
    return _released(r, found)


def _is_alike(r: Routine, one: Value, other: Value, size: Value) -> Value:
    return r.call(int32, "memcmp", one, other, size) == 0


def _has_items(r: Routine, items: Value, seen: Value) -> Value:
    """seen: a count, then as many pointers."""
    count = seen.item(0, int64)
    r.require(r.call(int64, "PyList_Size", items) == count)
    return _is_alike(r, items.at(0, tables.OBJECT).field("list_items"), seen.word(1), count * tables.WORD)


def _has_entries(r: Routine, entries: Value, seen: Value) -> Value:
    """Keys and values in order."""
    size = r.call(int64, "PyDict_Size", entries)
    r.require(size * 2 == seen.item(0, int64))
    position, key, value = (r.room(tables.WORD) for _ in range(3))
    position.store(r.number(0))
    with r.loop(size) as i:
        r.require(r.call(int32, "PyDict_Next", entries, position, key, value) != 0)
        r.require((key.load() == seen.item(i * 2 + 1)) & (value.load() == seen.item(i * 2 + 2)))
    return ~r.false


def _gives_items(r: Routine, holder: Value, seen: Value) -> Value:
    iterator = r.call(PTR, "PyObject_GetIter", holder)
    r.require_no_error(iterator.is_set())
    is_same = r.variable(~r.false)
    with r.loop(seen.item(0, int64)) as i:
        item = _released(r, r.call(PTR, "PyIter_Next", iterator))
        is_same.set(is_same.get() & (item == seen.item(i + 1)))
    after = _released(r, r.call(PTR, "PyIter_Next", iterator))
    r.drop(iterator)
    r.forget_error()
    return is_same.get() & after.is_null()


def _has_bytes(r: Routine, array: Value, layout: Value, seen: Value) -> Value:
    """layout: rank, bytes, dtype, flags, shape, strides."""
    rank = array.field("rank", int32).to(int64)
    r.require(rank == layout.item(0, int64))
    r.require(array.field("dtype") == layout.item(2))
    r.require(array.field("flags", int32).to(int64) == layout.item(3, int64))
    axes = rank * tables.WORD
    r.require(_is_alike(r, array.field("shape"), layout.word(4), axes))
    r.require(_is_alike(r, array.field("strides"), layout.word(rank + 4), axes))
    return _is_alike(r, array.field("data"), seen, layout.item(1, int64))
