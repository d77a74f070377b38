"""An array as address, sizes and strides: NumPy's from the fields of its object, all others as a `DLTensor`."""

from __future__ import annotations

from stagekit import native_tables as tables
from stagekit.backends.launcher.registers import PTR, Reg
from stagekit.backends.launcher.routine import Routine, function
from stagekit.backends.launcher.support.launching import current_stream, note_destination
from stagekit.dtypes import bool_, complex64, int32, int64, uint32


@function(bool_, tables.PROCESS, tables.OBJECT, tables.DESTINATION, PTR, PTR, tables.WANTED_ARRAY)
def read_array(r: Routine, process: Reg, object_: Reg, destination: Reg, held: Reg, out: Reg, wanted: Reg) -> None:
    """Write the address, sizes and, where they are asked for, strides in elements of an array that is as `wanted` to `out`.

    destination: notes the array's device and stream; null on the CPU. held: takes the array's capsule, if it makes one, for
    `release`. Sizes that depend on other arguments are not checked here.
    """
    kind, is_for_cpu = object_.field("type"), wanted.field("device_type", int32) == tables.ON_CPU
    with r.if_then((kind == process.field("ndarray")) & is_for_cpu):
        array = object_.at(0, tables.NDARRAY)
        r.require(array.field("dtype") == process.at(wanted.field("dtype", int64)).load())
        flags = array.field("flags", int32) & wanted.field("checked_flags", int32)
        r.require(flags == wanted.field("needed_flags", int32))
        _require_rank(r, array.field("rank", int32), wanted)
        unit_shift = wanted.field("unit_shift", int64)
        _store_array(
            r, array.field("data", int64), array.field("shape"), array.field("strides"), unit_shift, out, wanted
        )
    with r.if_then(kind == process.field("device_array")):  # which holds the address of its `DLTensor` as an int
        address = object_.at(process.field("device_array_slot", int64)).load()
        tensor = r.call(tables.TENSOR, "PyLong_AsVoidPtr", address)
        r.ret(read_tensor.call(r, tensor, 1, destination, r.null, out, wanted))
    rows = process.field("exchanges")

    def row_at(i: Reg) -> Reg:
        return rows.at(i * tables.size(tables.EXCHANGE), tables.EXCHANGE)

    row = row_at(r.find(process.field("exchange_count", int64), lambda i: row_at(i).field("type") == kind))
    with r.if_then(row.field("read").is_null()):
        r.ret(_read_by_dlpack(r, process, object_, row, destination, held, out, wanted))
    tensor = r.alloca(tables.DLTENSOR_BYTES, tables.TENSOR)
    r.require_no_error(r.call_at(row.field("read"), int32, object_, tensor) == 0)
    flags = row.field("flags", int64)
    with r.if_then(flags & tables.MAY_BE_NEGATED != 0):
        _require_as_in_memory(r, process, object_, tensor)
    is_writable, stream_of = flags & tables.NEVER_READ_ONLY, row.field("stream_of")
    r.ret(read_tensor.call(r, tensor, is_writable, destination, stream_of, out, wanted))


def _require_rank(r: Routine, rank: Reg, wanted: Reg) -> None:
    needed = wanted.field("rank", int64)
    r.require((needed < 0) | (needed == rank.to(int64)))


def _store_array(r: Routine, address: Reg, shape: Reg, strides: Reg, unit_shift: Reg, out: Reg, wanted: Reg) -> None:
    """Check and store what was read, and return true. The strides are in elements shifted left by `unit_shift` bits."""
    out.store(address)
    align, rank = wanted.field("align", int64), wanted.field("rank", int64)
    with r.if_then(align > 1):
        r.require(address % align == 0)
    fixed_sizes = wanted.at(tables.size(tables.WANTED_ARRAY))
    with r.loop(rank) as axis:
        size, fixed = shape.item(axis, int64), fixed_sizes.item(axis, int64)
        r.require((fixed == -1) | (fixed == size))
        out.word(axis + 1).store(size)
    with r.if_then(wanted.field("is_strided", int64) != 0):
        below_unit, out_strides = (r.number(1) << unit_shift) - 1, out.word(rank + 1)
        with r.loop(rank) as axis:  # a stride along several items must be whole elements
            stride = strides.item(axis, int64)
            r.require((stride & below_unit == 0) | (shape.item(axis, int64) <= 1))
            out_strides.word(axis).store(stride >> unit_shift)
    r.ret(True)


@function(bool_, tables.TENSOR, int64, tables.DESTINATION, PTR, PTR, tables.WANTED_ARRAY)
def read_tensor(
    r: Routine, tensor: Reg, is_writable: Reg, destination: Reg, stream_of: Reg, out: Reg, wanted: Reg
) -> None:
    """Do what `read_array` does, for a `DLTensor`. stream_of: asks its owner for the current stream; null if there is none."""
    r.require(tensor.field("device_type", int32) == wanted.field("device_type", int32))
    r.require(tensor.field("dtype", int32) == wanted.field("dlpack_dtype", int32))
    _require_rank(r, tensor.field("rank", int32), wanted)
    r.require((is_writable != 0) | (wanted.field("is_written", int64) == 0))
    shape, strides = tensor.field("shape"), tensor.field("strides")
    with r.if_then(tensor.field("data").is_null()):  # only an array without elements needs no memory
        r.find(tensor.field("rank", int32).to(int64), lambda axis: shape.item(axis, int64) == 0)
    with r.if_then(wanted.field("rank", int64) > 0):
        _require_layout(r, shape, strides, wanted)
    with r.if_then(destination.is_set()):
        note_destination(r, destination, tensor.field("device", int32), stream_of)
    _store_array(
        r, tensor.field("data", int64) + tensor.field("byte_offset", int64), shape, strides, r.number(0), out, wanted
    )


def _require_layout(r: Routine, shape: Reg, strides: Reg, wanted: Reg) -> None:
    """Require C order without gaps where that is wanted, and gaps where a specialisation for arrays without them exists too."""
    wants_packed = wanted.field("is_packed", int64) != 0
    r.require(strides.is_set() | wants_packed)  # no strides mean C order without gaps
    with r.if_then(strides.is_set()):
        is_packed = _is_packed(r, shape, strides, wanted.field("rank", int64))
        is_for_other = is_packed & (wanted.field("is_loose", int64) != 0)
        r.require(wants_packed.select(is_packed, ~is_for_other))


def _is_packed(r: Routine, shape: Reg, strides: Reg, rank: Reg) -> Reg:
    """Return whether this is C order without gaps. Axes of one element may have any stride; an empty array always is."""
    expected, has_gaps, is_empty = r.variable(r.number(1)), r.variable(r.false), r.variable(r.false)
    with r.loop(rank) as done:
        axis = rank - done - 1
        size, step = shape.item(axis, int64), strides.item(axis, int64)
        has_gaps.store(has_gaps.load(bool_) | (step != expected.load(int64)) & (size != 1))
        is_empty.store(is_empty.load(bool_) | (size == 0))
        expected.store(expected.load(int64) * size)
    return ~has_gaps.load(bool_) | is_empty.load(bool_)


def _require_as_in_memory(r: Routine, process: Reg, object_: Reg, tensor: Reg) -> None:
    """Require that a torch tensor stands neither for its negative nor for its conjugate.

    Only a view of every second number of a complex tensor is the former, whose steps are all even, and only a complex one the
    latter; other tensors are not asked.
    """
    with r.if_then(tensor.field("dtype", int32) & 0xFF == complex64.dlpack):
        _require_false(r, process, object_, "is_conj_name")
    is_plain = r.variable(r.false)
    shape, strides = tensor.field("shape"), tensor.field("strides")
    with r.if_then(strides.is_set()), r.loop(tensor.field("rank", int32).to(int64)) as axis:
        is_odd = strides.item(axis, int64) & 1 != 0
        is_plain.store(is_plain.load(bool_) | is_odd & (shape.item(axis, int64) > 1))
    with r.if_then(strides.is_set() & ~is_plain.load(bool_)):
        _require_false(r, process, object_, "is_neg_name")


def _require_false(r: Routine, process: Reg, object_: Reg, method: str) -> None:
    answer = r.call_method(object_, process.field(method))
    r.require_no_error(answer.is_set())
    r.decref(answer)
    r.require(answer == process.field("false"))


# Capsules -----------------------------------------------------------------------------------------------------------


def _read_by_dlpack(
    r: Routine, process: Reg, object_: Reg, row: Reg, destination: Reg, held: Reg, out: Reg, wanted: Reg
) -> Reg:
    """Read an array by its `__dlpack__`, and keep the capsule in `held`, since it may be all that keeps the memory alive.

    On a GPU the owner is told the stream of the launch, and has the array ready for it.
    """
    has_stream, stream_of = destination.is_set(), row.field("stream_of")
    stream = r.if_else(has_stream, lambda: _stream_object(r, process, object_, stream_of, destination), lambda: object_)
    given = r.array_of([object_, stream, process.field("dlpack_version"), process.field("false")])
    first = has_stream.select(r.number(0), 1)  # without a stream, the object stands where the stream would
    keywords = has_stream.select(row.field("stream_keywords"), row.field("keywords"))
    name = process.field("dlpack_name")
    capsule = r.call(PTR, "PyObject_VectorcallMethod", name, given.word(first), 1, keywords)
    with r.if_then(has_stream):
        r.decref(stream)
    r.require_no_error(capsule.is_set())
    count = held.load(int64)
    held.word(count + 1).store(capsule)
    held.store(count + 1)
    return read_capsule.call(r, capsule, destination, stream_of, out, wanted)


@function(bool_, PTR)
def release(r: Routine, held: Reg) -> None:
    """Let go of the capsules of a launch that has ended. held: their number, then the capsules.

    Nobody has consumed them, so their own destructors free what they hold. An exception that is set stays set.
    """
    exception = [r.alloca(tables.WORD) for _ in ("type", "value", "traceback")]
    r.call_void("PyErr_Fetch", *exception)
    with r.loop(held.load(int64)) as i:
        r.decref(held.item(i + 1))
    r.call_void("PyErr_Restore", *(part.load() for part in exception))
    r.ret(True)


def _stream_object(r: Routine, process: Reg, object_: Reg, stream_of: Reg, destination: Reg) -> Reg:
    """Return the launch's stream as DLPack's int, which spells the default stream 1. The launch then stays with this stream."""
    answer = r.call_method(object_, process.field("dlpack_device_name"))
    r.require_no_error(answer.is_set())
    kind, device = (r.call(int64, "PyLong_AsLong", r.call(PTR, "PyTuple_GetItem", answer, i)) for i in (0, 1))
    r.decref(answer)
    r.require_no_error(r.call(PTR, "PyErr_Occurred").is_null())
    r.require((kind == tables.ON_CUDA) & (device.to(uint32).to(int64) == device))
    note_destination(r, destination, device.to(int32), stream_of)
    with r.if_then(destination.field("has_stream", int64) == 0):
        stream = current_stream(r, process, device.to(int32), destination.field("stream_of"))
        destination.address_of("stream").store(stream)
        destination.address_of("has_stream").store(r.number(tables.ASKED))
    number = destination.field("stream", int64)
    return r.call(PTR, "PyLong_FromLongLong", (number == 0).select(r.number(1), number))


@function(bool_, PTR, tables.DESTINATION, PTR, PTR, tables.WANTED_ARRAY)
def read_capsule(r: Routine, capsule: Reg, destination: Reg, stream_of: Reg, out: Reg, wanted: Reg) -> None:
    """Do what `read_tensor` does, for the tensor in a capsule of DLPack 1 or before it."""
    versioned, old = r.text("dltensor_versioned"), r.text("dltensor")
    with r.if_then(r.call(int32, "PyCapsule_IsValid", capsule, versioned) != 0):
        managed = r.call(tables.VERSIONED, "PyCapsule_GetPointer", capsule, versioned)
        r.require(managed.field("major", int32) == tables.DLPACK_VERSION[0])
        is_writable = (managed.field("flags", int64) & tables.READ_ONLY) ^ 1
        tensor = managed.at(tables.VERSIONED["tensor"], tables.TENSOR)
        _require_possible_shape(r, tensor)
        r.ret(read_tensor.call(r, tensor, is_writable, destination, stream_of, out, wanted))
    r.require(r.call(int32, "PyCapsule_IsValid", capsule, old) != 0)
    tensor = r.call(tables.TENSOR, "PyCapsule_GetPointer", capsule, old)
    _require_possible_shape(r, tensor)
    r.ret(read_tensor.call(r, tensor, 1, destination, stream_of, out, wanted))


def _require_possible_shape(r: Routine, tensor: Reg) -> None:
    rank, shape = tensor.field("rank", int32).to(int64), tensor.field("shape")
    r.require((rank == 0) | (rank > 0) & shape.is_set())
    with r.loop(rank) as axis:
        r.require(shape.item(axis, int64) >= 0)
