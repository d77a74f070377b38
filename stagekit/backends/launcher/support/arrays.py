"""An array as address, sizes and strides: NumPy's from its object's fields, all others as a `DLTensor`, and checked alike."""

from __future__ import annotations

from stagekit import native_tables as tables
from stagekit.backends.launcher.routine import Routine
from stagekit.backends.launcher.support.functions import function
from stagekit.backends.launcher.support.streams import agree, current_stream
from stagekit.backends.launcher.values import PTR, Value
from stagekit.dtypes import bool_, int32, int64, uint32

_ON_CPU, _ON_GPU = 1, 2  # DLPack's device types


@function(
    bool_,
    process=tables.PROCESS,
    object_=tables.OBJECT,
    destination=tables.DESTINATION,
    out=PTR,
    wanted=tables.WANTED_ARRAY,
)
def read_array(r: Routine, process: Value, object_: Value, destination: Value, out: Value, wanted: Value) -> None:
    """Read an array that is as `wanted`: its address, sizes and, where they are asked for, strides in elements to `out`.

    destination: what the array's device and stream are noted in, null on the CPU. Sizes that depend on other arguments are not
    looked at.
    """
    kind, is_for_cpu = object_.field("type"), wanted.field("device_type", int32) == _ON_CPU
    with r.when((kind == process.field("ndarray")) & is_for_cpu):
        array = object_.at(0, tables.NDARRAY)
        r.require(array.field("dtype") == process.at(wanted.field("dtype", int64)).load())
        flags = array.field("flags", int32) & wanted.field("checked_flags", int32)
        r.require(flags == wanted.field("needed_flags", int32))
        _require_rank(r, array.field("rank", int32), wanted)
        unit_shift = wanted.field("unit_shift", int64)
        _put(r, array.field("data", int64), array.field("shape"), array.field("strides"), unit_shift, out, wanted)
    with r.when(kind == process.field("device_array")):  # it holds the address of its `DLTensor` as an int
        address = object_.at(process.field("device_array_slot", int64)).load()
        tensor = r.call(tables.TENSOR, "PyLong_AsVoidPtr", address)
        r.give(take_tensor.call(r, tensor, r.number(1), destination, r.null, out, wanted))
    row = _row_of(r, process, kind)
    with r.when(row.field("read").is_null()):
        r.give(_read_capsule(r, process, object_, row, destination, out, wanted))
    tensor = r.room(tables.DLTENSOR_BYTES, tables.TENSOR)
    r.require_no_error(r.call_at(row.field("read"), int32, object_, tensor) == 0)
    flags = row.field("flags", int64)
    with r.when(flags & tables.MAY_BE_NEGATED != 0):
        _require_positive(r, process, object_, tensor)
    is_writable, stream_of = flags & tables.NEVER_READ_ONLY, row.field("stream_of")
    r.give(take_tensor.call(r, tensor, is_writable, destination, stream_of, out, wanted))


def _row_of(r: Routine, process: Value, kind: Value) -> Value:
    """The row of an array type."""
    rows = process.field("exchanges")

    def row(i: Value) -> Value:
        return rows.at(i * tables.size(tables.EXCHANGE), tables.EXCHANGE)

    return row(r.find(process.field("exchange_count", int64), lambda i: row(i).field("type") == kind))


def _require_rank(r: Routine, rank: Value, wanted: Value) -> None:
    needed = wanted.field("rank", int64)
    r.require((needed < 0) | (needed == rank.to(int64)))


def _put(
    r: Routine, address: Value, shape: Value, strides: Value, unit_shift: Value, out: Value, wanted: Value
) -> None:
    """Give what was read. unit_shift: by how many bits the strides are shifted against elements."""
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
        below_unit, out_strides = (r.number(1) << unit_shift) - 1, out.word(rank + 1)
        with r.loop(rank) as axis:  # each stride must be whole where it is ever taken
            stride = strides.item(axis, int64)
            r.require((stride & below_unit == 0) | (shape.item(axis, int64) <= 1))
            out_strides.word(axis).store(stride >> unit_shift)
    r.give(True)


@function(
    bool_,
    tensor=tables.TENSOR,
    is_writable=int64,
    destination=tables.DESTINATION,
    stream_of=PTR,
    out=PTR,
    wanted=tables.WANTED_ARRAY,
)
def take_tensor(
    r: Routine, tensor: Value, is_writable: Value, destination: Value, stream_of: Value, out: Value, wanted: Value
) -> None:
    """Read a `DLTensor` that is as `wanted`, like `read_array`. stream_of: what its owner's current stream is asked by."""
    r.require(tensor.field("device_type", int32) == wanted.field("device_type", int32))
    r.require(tensor.field("dtype", int32) == wanted.field("dlpack_dtype", int32))
    _require_rank(r, tensor.field("rank", int32), wanted)
    r.require((is_writable != 0) | (wanted.field("is_written", int64) == 0))
    shape, strides = tensor.field("shape"), tensor.field("strides")
    with r.when(wanted.field("rank", int64) > 0):
        _require_layout(r, shape, strides, wanted)
    with r.when(destination.is_set()):
        agree(r, destination, tensor.field("device", int32), stream_of)
    _put(r, tensor.field("data", int64) + tensor.field("byte_offset", int64), shape, strides, r.number(0), out, wanted)


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


def _require_positive(r: Routine, process: Value, object_: Value, tensor: Value) -> None:
    """A torch tensor may stand for its negative. Only one that is every second number of a complex one does: all its steps are
    even. So mostly nobody is asked.
    """
    is_plain = r.variable(r.false)
    shape, strides = tensor.field("shape"), tensor.field("strides")
    with r.when(strides.is_set()), r.loop(tensor.field("rank", int32).to(int64)) as axis:
        is_odd = strides.item(axis, int64) & 1 != 0
        is_plain.set(is_plain.get() | is_odd & (shape.item(axis, int64) > 1))
    with r.when(strides.is_set() & ~is_plain.get()):
        answer = r.call_method(object_, process.field("is_neg_name"))
        r.require_no_error(answer.is_set())
        r.drop(answer)
        r.require(answer == process.field("false"))


# Capsules -----------------------------------------------------------------------------------------------------------


def _read_capsule(
    r: Routine, process: Value, object_: Value, row: Value, destination: Value, out: Value, wanted: Value
) -> Value:
    """Read an array by its `__dlpack__`. Nobody consumes the capsule, so that its own destructor frees what it holds.

    On a GPU the owner is told the stream of the launch, which the array is then ready for.
    """
    has_stream, stream_of = destination.is_set(), row.field("stream_of")
    stream = r.choose(has_stream, lambda: _stream_object(r, process, object_, stream_of, destination), lambda: object_)
    given = r.words([object_, stream, process.field("dlpack_version"), process.field("false")])
    first = has_stream.select(r.number(0), 1)  # without a stream, the object stands where the stream would
    keywords = has_stream.select(row.field("stream_keywords"), row.field("keywords"))
    name = process.field("dlpack_name")
    capsule = r.call(PTR, "PyObject_VectorcallMethod", name, given.word(first), r.number(1), keywords)
    with r.when(has_stream):
        r.drop(stream)
    r.require_no_error(capsule.is_set())
    is_right = take_capsule.call(r, capsule, destination, stream_of, out, wanted)
    r.drop(capsule)
    return is_right


def _stream_object(r: Routine, process: Value, object_: Value, stream_of: Value, destination: Value) -> Value:
    """The launch's stream as DLPack's int, which spells the default stream 1. The launch then stays with this stream."""
    answer = r.call_method(object_, process.field("dlpack_device_name"))
    r.require_no_error(answer.is_set())
    kind, device = (r.call(int64, "PyLong_AsLong", r.call(PTR, "PyTuple_GetItem", answer, r.number(i))) for i in (0, 1))
    r.drop(answer)
    r.require_no_error(r.call(PTR, "PyErr_Occurred").is_null())
    r.require((kind == _ON_GPU) & (device.to(uint32).to(int64) == device))
    agree(r, destination, device.to(int32), stream_of)
    with r.when(destination.field("has_stream", int64) == 0):
        stream = current_stream(r, process, device.to(int32), destination.field("stream_of"))
        destination.place("stream").store(stream)
        destination.place("has_stream").store(r.number(tables.ASKED))
    number = destination.field("stream", int64)
    return r.call(PTR, "PyLong_FromLongLong", (number == 0).select(r.number(1), number))


@function(bool_, capsule=PTR, destination=tables.DESTINATION, stream_of=PTR, out=PTR, wanted=tables.WANTED_ARRAY)
def take_capsule(r: Routine, capsule: Value, destination: Value, stream_of: Value, out: Value, wanted: Value) -> None:
    """`take_tensor` of what a capsule holds, of DLPack 1 or before it."""
    versioned, old = r.text("dltensor_versioned"), r.text("dltensor")
    with r.when(r.call(int32, "PyCapsule_IsValid", capsule, versioned) != 0):
        managed = r.call(tables.VERSIONED, "PyCapsule_GetPointer", capsule, versioned)
        r.require(managed.field("major", int32) == tables.DLPACK_VERSION[0])
        is_writable = (managed.field("flags", int64) & tables.READ_ONLY) ^ 1
        tensor = managed.at(tables.VERSIONED["tensor"], tables.TENSOR)
        r.give(take_tensor.call(r, tensor, is_writable, destination, stream_of, out, wanted))
    r.require(r.call(int32, "PyCapsule_IsValid", capsule, old) != 0)
    tensor = r.call(tables.TENSOR, "PyCapsule_GetPointer", capsule, old)
    r.give(take_tensor.call(r, tensor, r.number(1), destination, stream_of, out, wanted))
