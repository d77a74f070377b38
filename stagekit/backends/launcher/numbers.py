"""Python numbers as native values: an `int`, a `float` or a `bool`, exactly of that type and in range.

Everything else, NumPy scalars included, goes the general way.
"""

from __future__ import annotations

from stagekit import dtypes
from stagekit.backends.launcher.frame import GENERAL, Frame
from stagekit.dtypes import DType

_FLOATS = {dtypes.float32: "float", dtypes.float64: "double"}
_TYPE_OF_UNDECLARED = {"int": dtypes.int32, "float": dtypes.float32, "bool": dtypes.bool_}


def can_read(dtype: DType) -> bool:
    """Are numbers of this dtype read natively? Narrow floats are not: rounding to them takes long code."""
    return not dtype.is_float or dtype in _FLOATS


def read_number(frame: Frame, dtype: DType, object_: str, is_declared: bool) -> tuple[str, str]:
    """(LLVM type, operand) of a scalar argument in its own width."""
    if dtype is dtypes.bool_:
        return "i8", _read_bool(frame, object_)
    if dtype.is_integer:
        if not is_declared and dtype is not _TYPE_OF_UNDECLARED["int"]:
            frame.require("false")  # only a NumPy scalar has this dtype by itself
        frame.require_equal("ptr", frame.type_of(object_), frame.of_process("int"))
        return f"i{dtype.bits}", _in_range(frame, dtype, read_int(frame, object_))
    if not is_declared and dtype is not _TYPE_OF_UNDECLARED["float"]:
        frame.require("false")
    return _FLOATS[dtype], _read_float(frame, dtype, object_, takes_int=is_declared)


def read_int(frame: Frame, object_: str) -> str:
    """An exact Python int as i64; a longer one goes the general way."""
    w = frame.w
    overflow = w.emit_entry("alloca i32")
    value = w.call("i64", "PyLong_AsLongLongAndOverflow", [("ptr", object_), ("ptr", overflow)])
    frame.require_equal("i32", w.emit(f"load i32, ptr {overflow}"), "0")
    return value


def _in_range(frame: Frame, dtype: DType, value: str) -> str:
    w = frame.w
    if dtype.bits == 64:
        if not dtype.is_signed:
            frame.require(w.emit(f"icmp sge i64 {value}, 0"))
        return value
    narrow = w.emit(f"trunc i64 {value} to i{dtype.bits}")
    wide = w.emit(f"{'sext' if dtype.is_signed else 'zext'} i{dtype.bits} {narrow} to i64")
    frame.require_equal("i64", wide, value)
    return narrow


def _read_bool(frame: Frame, object_: str) -> str:
    w = frame.w
    is_true = w.emit(f"icmp eq ptr {object_}, {frame.of_process('true')}")
    is_false = w.emit(f"icmp eq ptr {object_}, {frame.of_process('false')}")
    frame.require(w.emit(f"or i1 {is_true}, {is_false}"))
    return w.emit(f"zext i1 {is_true} to i8")


def _read_float(frame: Frame, dtype: DType, object_: str, *, takes_int: bool) -> str:
    """A Python float rounded once; an int where the dtype is declared."""
    w, type_ = frame.w, _FLOATS[dtype]
    is_float, other, done = w.new_label("float"), w.new_label("int"), w.new_label("number")
    kind = frame.type_of(object_)
    matches = w.emit(f"icmp eq ptr {kind}, {frame.of_process('float')}")
    w.line(f"br i1 {matches}, label %{is_float}, label %{other if takes_int else GENERAL}")
    w.label(is_float)
    double = w.call("double", "PyFloat_AsDouble", [("ptr", object_)])
    rounded = double if type_ == "double" else w.emit(f"fptrunc double {double} to float")
    if not takes_int:
        return rounded
    w.line(f"br label %{done}")
    w.label(other)
    frame.require_equal("ptr", kind, frame.of_process("int"))
    from_int = w.emit(f"sitofp i64 {read_int(frame, object_)} to {type_}")
    last = w.block
    w.line(f"br label %{done}")
    w.label(done)
    return w.emit(f"phi {type_} [{rounded}, %{is_float}], [{from_int}, %{last}]")
