"""Arguments in the order of the parameters, and the values of those that are numbers or constexprs."""

from __future__ import annotations

from functools import partial

from stagekit import native_tables as tables
from stagekit.backends.launcher.registers import PTR, Reg
from stagekit.backends.launcher.routine import Routine, function
from stagekit.dtypes import ALL_DTYPES, DType, bool_, float16, float32, float64, int32, int64, uint8, uint16, uint64

_EXACT_IN_FLOAT64 = 1 << 53


@function(bool_, PTR, PTR, int64, PTR, PTR, int64, int64)
def bind(r: Routine, names: Reg, args: Reg, given: Reg, keywords: Reg, out: Reg, count: Reg, positional: Reg) -> None:
    """Write one object per parameter to `out`.

    names: `count` names, then as many defaults, null where a parameter has none. positional: how many can be given by position.
    """
    r.require(given <= positional)
    with r.loop(given) as place:
        out.word(place).store(args.item(place))
    with r.loop(count, start=given) as place:
        out.word(place).store(r.null)
    with r.if_then(keywords.is_set()):
        _place_keywords(r, names, args, given, keywords, out, count)
    with r.loop(count) as place, r.if_then(out.item(place).is_null()):
        default = names.item(count + place)
        r.require(default.is_set())
        out.word(place).store(default)
    r.ret(True)


def _place_keywords(r: Routine, names: Reg, args: Reg, given: Reg, keywords: Reg, out: Reg, count: Reg) -> None:
    named = r.call(int64, "PyTuple_Size", keywords)
    r.require(given + named <= count)
    with r.loop(named) as k:
        name, first = r.call(PTR, "PyTuple_GetItem", keywords, k), given + k

        def place_after(steps: Reg) -> Reg:
            """Begin the search where the name is if keywords come in the order of the parameters."""
            straight = first + steps
            return (straight < count).select(straight, straight - count)

        place = place_after(r.find(count, lambda steps: names.item(place_after(steps)) == name))
        r.require(out.item(place).is_null())
        out.word(place).store(args.item(first))


# Numbers ------------------------------------------------------------------------------------------------------------


@function(bool_, tables.PROCESS, tables.OBJECT, PTR, tables.WANTED_NUMBER)
def read_number(r: Routine, process: Reg, object_: Reg, out: Reg, wanted: Reg) -> None:
    """Store a number as the dtype that is `wanted`, at the low end of 8 bytes; an integer is widened to all of them."""
    kind = object_.field("type")
    with r.if_then(kind == process.field("int")):
        _require_own(r, wanted, ALL_DTYPES.index(int32))
        r.ret(store_integer.call(r, _as_int64(r, object_), out, wanted))
    with r.if_then(kind == process.field("float")):
        _require_own(r, wanted, ALL_DTYPES.index(float32))
        r.ret(store_float.call(r, r.call(float64, "PyFloat_AsDouble", object_), out, wanted))
    is_true, is_false = object_ == process.field("true"), object_ == process.field("false")
    with r.if_then(is_true | is_false):
        _require_own(r, wanted, ALL_DTYPES.index(bool_))
        r.ret(store_integer.call(r, is_true.to(int64), out, wanted))
    _read_numpy_scalar(r, process, object_, out, wanted)


def _require_own(r: Routine, wanted: Reg, dtype_index: Reg | int) -> None:
    """Require the dtype that chose the specialisation, where the parameter declares none."""
    own = wanted.field("own", int64)
    r.require((own == -1) | (own == dtype_index))


def _as_int64(r: Routine, object_: Reg) -> Reg:
    overflow = r.alloca(4)
    number = r.call(int64, "PyLong_AsLongLongAndOverflow", object_, overflow)
    r.require(overflow.load(int32) == 0)
    return number


def _read_numpy_scalar(r: Routine, process: Reg, object_: Reg, out: Reg, wanted: Reg) -> None:
    """Store the value of a NumPy scalar, which follows the object's header and has the dtype that its type says."""
    types, kind = process.address_of("scalar_bool"), object_.field("type")
    which = r.find(r.number(len(ALL_DTYPES)), lambda i: types.item(i) == kind)
    _require_own(r, wanted, which)
    place = object_.at(tables.SCALAR_VALUE)
    known = {index: dtype for index, dtype in enumerate(ALL_DTYPES) if not dtype.is_storage_only}
    r.switch(which, {index: partial(_store_scalar, r, dtype, place, out, wanted) for index, dtype in known.items()})


def _store_scalar(r: Routine, dtype: DType, place: Reg, out: Reg, wanted: Reg) -> None:
    if dtype.is_float:
        r.ret(store_float.call(r, _float64_at(r, dtype, place), out, wanted))
        return
    whole = (place.load(uint8) != 0) if dtype is bool_ else place.load(dtype)
    if dtype is uint64:
        r.require(whole.to(int64) >= 0)  # a larger number goes the general way
    r.ret(store_integer.call(r, whole.to(int64), out, wanted))


def _float64_at(r: Routine, dtype: DType, place: Reg) -> Reg:
    if dtype is float16:  # by CPython, since not every processor converts one
        real = r.call(float64, "PyFloat_Unpack2", place, r.number(1, int32))
        r.require(real == real)  # the bits of a NaN are the general way's to choose
        return real
    real = place.load(dtype)
    return real if dtype is float64 else real.to(float32).to(float64)


@function(bool_, int64, PTR, tables.WANTED_NUMBER)
def store_integer(r: Routine, whole: Reg, out: Reg, wanted: Reg) -> None:
    kind = wanted.field("kind", int64)
    with r.if_then(kind == tables.NUMBER_KINDS.index(None)):
        r.require((whole >= wanted.field("low", int64)) & (whole <= wanted.field("high", int64)))
        out.store(whole)
        r.ret(True)
    with r.if_then(kind == tables.NUMBER_KINDS.index(float32)):
        out.store(whole.to(float32))
        r.ret(True)
    # An integer must be rounded only once: to a float64, or to a narrower float if a float64 holds it.
    is_exact = (whole + _EXACT_IN_FLOAT64).to(uint64) <= 2 * _EXACT_IN_FLOAT64
    r.require(is_exact | (kind == tables.NUMBER_KINDS.index(float64)))
    r.ret(store_float.call(r, whole.to(float64), out, wanted))


@function(bool_, float64, PTR, tables.WANTED_NUMBER)
def store_float(r: Routine, real: Reg, out: Reg, wanted: Reg) -> None:
    kinds = enumerate(tables.NUMBER_KINDS)
    arms = {kind: partial(_store_float_as, r, dtype, real, out) for kind, dtype in kinds if dtype is not None}
    r.switch(wanted.field("kind", int64), arms)
    r.ret(True)


def _store_float_as(r: Routine, dtype: DType, real: Reg, out: Reg) -> None:
    if dtype in (float32, float64):
        out.store(real.to(dtype))
        return
    r.require(real == real)
    if dtype is float16:  # by CPython; one that is too large goes the general way
        r.require_no_error(r.call(int32, "PyFloat_Pack2", real, out, r.number(1, int32)) == 0)
    else:
        out.store(_rounded_to_odd(real).to(dtype).bits(uint16))


def _rounded_to_odd(real: Reg) -> Reg:
    """Round a float64 to a float32 that is rounded to 16 bits as the float64 would be: cut off towards zero, and the last bit
    set where anything was lost.
    """
    nearest = real.to(float32)
    back, bits = nearest.to(float64), nearest.bits(int32)
    is_larger = back.bits(uint64) << 1 > real.bits(uint64) << 1  # in size, without the sign
    cut = is_larger.select(bits - 1, bits)
    return (back != real).select(cut | 1, cut).bits(float32)


@function(bool_, tables.PROCESS, tables.OBJECT, PTR, int64, int64)
def is_expected(r: Routine, process: Reg, object_: Reg, expected: Reg, is_int: Reg, value: Reg) -> None:
    """Return whether this is the object that a constexpr was specialised for, or, where that is an int, an equal int."""
    with r.if_then(object_ == expected):
        r.ret(True)
    r.require((is_int != 0) & (object_.field("type") == process.field("int")))
    r.ret(_as_int64(r, object_) == value)
