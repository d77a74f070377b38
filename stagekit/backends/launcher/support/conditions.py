"""Whether a launch may go natively: nothing diverts it, and all that the tracer read outside the kernel is as it was.

`frontend/state.py` makes the rows of GUARD; each compares pointers.
"""

from __future__ import annotations

from collections.abc import Callable

from stagekit import native_tables as tables
from stagekit.backends.launcher.registers import PTR, Reg
from stagekit.backends.launcher.routine import Routine, function
from stagekit.dtypes import bool_, int32, int64


@function(bool_, tables.PROCESS)
def is_undiverted(r: Routine, process: Reg) -> None:
    """Return whether nothing sends all launches elsewhere: no switch in the environment, no session of this thread."""
    environment = process.field("environment")
    for switch in ("target_switch", "sanitize_switch"):
        r.require(r.call(int32, "PyDict_Contains", environment, process.field(switch)) == 0)
    session = process.field("session")
    with r.if_then(session.is_set()):
        held = r.alloca(tables.WORD)
        r.call(int32, "PyContextVar_Get", session, r.null, held)
        r.decref(held.load())
        r.require(held.load() == process.field("none"))
    r.ret(True)


@function(bool_, tables.STATE)
def is_current(r: Routine, state: Reg) -> None:
    """Return whether every place outside the kernel that its tracer read still holds the object that it held then."""
    rows = state.field("guards")
    with r.loop(state.field("guard_count", int64)) as i:
        guard = rows.at(i * tables.size(tables.GUARD), tables.GUARD)
        r.require(_holds(r, guard.field("kind", int64), guard.field("holder"), guard.field("key"), guard.field("seen")))
    ask = state.field("ask")
    with r.if_then(ask.is_set()):
        answer = r.call_python(ask)
        r.require_no_error(answer.is_set())
        r.decref(answer)
        r.require(answer == state.field("process", tables.PROCESS).field("true"))
    r.ret(True)


def _holds(r: Routine, kind: Reg, holder: Reg, key: Reg, seen: Reg) -> Reg:
    """Compare what one row names now with what was seen."""
    arms: dict[str, Callable[[], Reg]] = {
        "item": lambda: r.call(PTR, "PyDict_GetItemWithError", holder, key) == seen,
        "cell": lambda: _borrowed(r, r.call(PTR, "PyCell_Get", holder)) == seen,
        "member": lambda: r.call(PTR, "_PyType_Lookup", holder, key) == seen,
        "attribute": lambda: _attribute(r, holder, key) == seen,
        "type": lambda: holder.at(0, tables.OBJECT).field("type") == seen,
        "code": lambda: r.call(PTR, "PyFunction_GetCode", holder) == seen,
        "defaults": lambda: r.call(PTR, "PyFunction_GetDefaults", holder) == seen,
        "keywords": lambda: r.call(PTR, "PyFunction_GetKwDefaults", holder) == seen,
        "list": lambda: _has_items(r, holder, seen),
        "dict": lambda: _has_entries(r, holder, seen),
        "items": lambda: _iterates_items(r, holder, seen),
        "array": lambda: _has_contents(r, holder.at(0, tables.NDARRAY), key, seen),
    }
    return r.switch(kind, {place: arms[name] for place, name in enumerate(tables.GUARD_KINDS)})


def _borrowed(r: Routine, object_: Reg) -> Reg:
    """Let go of a reference at once: only the address is compared."""
    r.decref(object_)
    return object_


def _attribute(r: Routine, owner: Reg, name: Reg) -> Reg:
    found = r.call(PTR, "PyObject_GetAttr", owner, name)
    with r.if_then(found.is_null()):
        r.clear_error()
    return _borrowed(r, found)


def _has_equal_bytes(r: Routine, one: Reg, other: Reg, size: Reg) -> Reg:
    return r.call(int32, "memcmp", one, other, size) == 0


def _has_items(r: Routine, items: Reg, seen: Reg) -> Reg:
    """Compare the items of a list. seen: their number, then as many pointers."""
    count = seen.item(0, int64)
    r.require(r.call(int64, "PyList_Size", items) == count)
    return _has_equal_bytes(r, items.at(0, tables.OBJECT).field("list_items"), seen.word(1), count * tables.WORD)


def _has_entries(r: Routine, entries: Reg, seen: Reg) -> Reg:
    """Compare keys and values of a dict, in order."""
    size = r.call(int64, "PyDict_Size", entries)
    r.require(size * 2 == seen.item(0, int64))
    position, key, value = (r.alloca(tables.WORD) for _ in range(3))
    position.store(r.number(0))
    with r.loop(size) as i:
        r.require(r.call(int32, "PyDict_Next", entries, position, key, value) != 0)
        r.require((key.load() == seen.item(i * 2 + 1)) & (value.load() == seen.item(i * 2 + 2)))
    return r.true


def _iterates_items(r: Routine, holder: Reg, seen: Reg) -> Reg:
    """Compare what iterating over an object yields."""
    iterator = r.call(PTR, "PyObject_GetIter", holder)
    r.require_no_error(iterator.is_set())
    is_same = r.variable(r.true)
    with r.loop(seen.item(0, int64)) as i:
        item = _borrowed(r, r.call(PTR, "PyIter_Next", iterator))
        is_same.store(is_same.load(bool_) & (item == seen.item(i + 1)))
    after = _borrowed(r, r.call(PTR, "PyIter_Next", iterator))
    r.decref(iterator)
    r.clear_error()
    return is_same.load(bool_) & after.is_null()


def _has_contents(r: Routine, array: Reg, layout: Reg, seen: Reg) -> Reg:
    """Compare the bytes of an array, and its layout: rank, bytes, dtype, flags, shape, strides."""
    rank = array.field("rank", int32).to(int64)
    r.require(rank == layout.item(0, int64))
    r.require(array.field("dtype") == layout.item(2))
    r.require(array.field("flags", int32).to(int64) == layout.item(3, int64))
    axes = rank * tables.WORD
    r.require(_has_equal_bytes(r, array.field("shape"), layout.word(4), axes))
    r.require(_has_equal_bytes(r, array.field("strides"), layout.word(rank + 4), axes))
    return _has_equal_bytes(r, array.field("data"), seen, layout.item(1, int64))
