"""Arrays of other libraries, and ours on a GPU, as a READING."""

from __future__ import annotations

from stagekit import native_tables as tables
from stagekit.backends.launcher.routine import Routine
from stagekit.backends.launcher.support.functions import function
from stagekit.backends.launcher.values import Value
from stagekit.dtypes import bool_, int32, int64


@function(bool_, process=tables.PROCESS, object_=tables.OBJECT, out=tables.READING)
def read_tensor(r: Routine, process: Value, object_: Value, out: Value) -> None:
    """Fill a READING from an array of ours on a GPU, or from one whose type speaks DLPack's C exchange API."""
    kind = object_.field("type")
    with r.when(kind == process.field("device_array")):
        _copy_own(r, process, object_, out)
        r.give(True)
    row = _exchange_of(r, process, kind)
    status = r.call_at(row.field("read"), int32, object_, out)
    r.require_no_error(status == 0)
    out.place("stream_of").store(row.field("stream_of"))
    flags = row.field("flags", int64)
    out.place("flags").store(flags)
    with r.when(flags & tables.MAY_BE_NEGATED != 0):
        _require_positive(r, process, object_, out)
    r.give(True)


def _copy_own(r: Routine, process: Value, object_: Value, out: Value) -> None:
    """A `DeviceArray` holds the address of its `DLTensor` as an int."""
    address = object_.at(process.field("device_array_slot", int64)).load()
    tensor = r.call(tables.TENSOR, "PyLong_AsVoidPtr", address)
    for offset in range(0, tables.DLTENSOR_BYTES, tables.WORD):
        out.at(offset).store(tensor.at(offset).load(int64))
    out.place("stream_of").store(r.null)
    out.place("flags").store(r.number(tables.NEVER_READ_ONLY))


def _exchange_of(r: Routine, process: Value, kind: Value) -> Value:
    """The row of an array type."""
    rows = process.field("exchanges")

    def row(i: Value) -> Value:
        return rows.at(i * tables.size(tables.EXCHANGE), tables.EXCHANGE)

    return row(r.find(process.field("exchange_count", int64), lambda i: row(i).field("type") == kind))


def _require_positive(r: Routine, process: Value, tensor: Value, reading: Value) -> None:
    """A torch tensor may stand for its negative. Only one that is every second number of a complex one does: all its steps are
    even. So mostly nobody is asked.
    """
    is_plain = r.variable(r.false)
    shape, strides = reading.field("shape"), reading.field("strides")
    with r.when(strides.is_set()), r.loop(reading.field("rank", int32).to(int64)) as axis:
        is_odd = strides.item(axis, int64) & 1 != 0
        is_plain.set(is_plain.get() | is_odd & (shape.item(axis, int64) > 1))
    with r.when(strides.is_set() & ~is_plain.get()):
        answer = r.call_method(tensor, process.field("is_neg_name"))
        r.require_no_error(answer.is_set())
        r.drop(answer)
        r.require(answer == process.field("false"))
