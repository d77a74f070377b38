"""An array as address, sizes and strides: NumPy's from its object's fields, others by `read_tensor`."""

from __future__ import annotations

from stagekit import native_tables as tables
from stagekit.backends.launcher.routine import Routine
from stagekit.backends.launcher.support.exchange import read_tensor
from stagekit.backends.launcher.support.functions import function
from stagekit.backends.launcher.values import PTR, Value
from stagekit.dtypes import bool_, int32, int64

_ON_CPU = 1  # DLPack's device type


@function(
    bool_,
    process=tables.PROCESS,
    object_=tables.OBJECT,
    reading=tables.READING,
    out=PTR,
    wanted=tables.WANTED_ARRAY,
)
def read_array(r: Routine, process: Value, object_: Value, reading: Value, out: Value, wanted: Value) -> None:
    """Read an array that is as `wanted`: its address, sizes and, where they are asked for, strides in elements to `out`.

    reading: filled for arrays that are not NumPy's. Sizes that depend on other arguments are not looked at.
    """
    is_numpy = object_.field("type") == process.field("ndarray")
    is_for_cpu = wanted.field("device_type", int32) == _ON_CPU
    address, shape, strides, unit_shift = r.choose(
        is_numpy & is_for_cpu,
        lambda: _of_numpy(r, process, object_.at(0, tables.NDARRAY), wanted),
        lambda: _of_others(r, process, object_, reading, wanted),
    )
    out.store(address)
    align, rank = wanted.field("align", int64), wanted.field("rank", int64)
    with r.when(align > 1):
        r.require(address % align == 0)
    fixed_sizes = wanted.at(tables.size(tables.WANTED_ARRAY))
    with r.loop(rank) as axis:
        size, fixed = shape.item(axis, int64), fixed_sizes.item(axis, int64)
        r.require((fixed == -1) | (fixed == size))
        out.word(axis + 1).store(size)
    with r.when(wanted.field("is_strided", int64) != 0):
        _put_strides(r, shape, strides, unit_shift, rank, out.word(rank + 1))
    r.give(True)


Layout = tuple[Value, Value, Value, Value]
"""An address; pointers to sizes and to steps; and by how many bits the steps are shifted against elements."""


def _of_numpy(r: Routine, process: Value, array: Value, wanted: Value) -> Layout:
    r.require(array.field("dtype") == process.at(wanted.field("dtype", int64)).load())
    flags = array.field("flags", int32) & wanted.field("checked_flags", int32)
    r.require(flags == wanted.field("needed_flags", int32))
    _require_rank(r, array.field("rank", int32), wanted)
    return array.field("data", int64), array.field("shape"), array.field("strides"), wanted.field("unit_shift", int64)


def _of_others(r: Routine, process: Value, object_: Value, reading: Value, wanted: Value) -> Layout:
    r.require(read_tensor.call(r, process, object_, reading))
    r.require(reading.field("device_type", int32) == wanted.field("device_type", int32))
    r.require(reading.field("dtype", int32) == wanted.field("dlpack_dtype", int32))
    _require_rank(r, reading.field("rank", int32), wanted)
    # The struct does not say who is read-only; torch never is.
    is_writable = reading.field("flags", int64) & tables.NEVER_READ_ONLY != 0
    r.require(is_writable | (wanted.field("is_written", int64) == 0))
    shape, strides = reading.field("shape"), reading.field("strides")
    with r.when(wanted.field("rank", int64) > 0):
        _require_layout(r, shape, strides, wanted)
    return reading.field("data", int64) + reading.field("byte_offset", int64), shape, strides, r.number(0)


def _require_rank(r: Routine, rank: Value, wanted: Value) -> None:
    needed = wanted.field("rank", int64)
    r.require((needed < 0) | (needed == rank.to(int64)))


def _require_layout(r: Routine, shape: Value, strides: Value, wanted: Value) -> None:
    """C order without gaps where that is wanted; an array that has it where gaps are wanted has another specialisation."""
    wants_packed = wanted.field("is_packed", int64) != 0
    r.require(strides.is_set() | wants_packed)  # no strides mean C order without gaps
    with r.when(strides.is_set()):
        is_packed = _is_packed(r, shape, strides, wanted.field("rank", int64))
        is_too_good = is_packed & (wanted.field("is_loose", int64) != 0)
        r.require(wants_packed.select(is_packed, ~is_too_good))


def _is_packed(r: Routine, shape: Value, strides: Value, rank: Value) -> Value:
    """Is this C order without gaps? Axes of one element may have any stride; an empty array always is."""
    expected, has_gaps, is_empty = r.variable(r.number(1)), r.variable(r.false), r.variable(r.false)
    with r.loop(rank) as done:
        axis = rank - done - 1
        size, step = shape.item(axis, int64), strides.item(axis, int64)
        has_gaps.set(has_gaps.get() | (step != expected.get()) & (size != 1))
        is_empty.set(is_empty.get() | (size == 0))
        expected.set(expected.get() * size)
    return ~has_gaps.get() | is_empty.get()


def _put_strides(r: Routine, shape: Value, strides: Value, unit_shift: Value, rank: Value, out: Value) -> None:
    """Steps as elements; each must be whole where it is ever taken."""
    below_unit = (r.number(1) << unit_shift) - 1
    with r.loop(rank) as axis:
        step = strides.item(axis, int64)
        r.require((step & below_unit == 0) | (shape.item(axis, int64) <= 1))
        out.word(axis).store(step >> unit_shift)


@function(bool_, readings=PTR, count=int64, device=PTR, stream_of=PTR)
def agree_on_device(r: Routine, readings: Value, count: Value, device: Value, stream_of: Value) -> None:
    """The one GPU of all arrays, and who knows its current stream: null where all arrays are ours."""
    first = readings.at(0, tables.READING).field("device", int32)
    device.store(first)
    stream_of.store(r.null)
    with r.loop(count) as i:
        reading = readings.at(i * tables.READING_BYTES, tables.READING)
        r.require(reading.field("device", int32) == first)
        known, owner = stream_of.load(), reading.field("stream_of")
        r.require(owner.is_null() | known.is_null() | (owner == known))
        stream_of.store(known.is_null().select(owner, known))
    r.give(True)
