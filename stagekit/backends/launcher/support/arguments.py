"""The arguments of a call in the order of the parameters, and those that are numbers as native values."""

from __future__ import annotations

from functools import partial

from stagekit import native_tables as tables
from stagekit.backends.launcher.request import WANTS
from stagekit.backends.launcher.routine import Routine
from stagekit.backends.launcher.support.functions import function
from stagekit.backends.launcher.values import PTR, Value
from stagekit.dtypes import (
    ALL_DTYPES,
    DType,
    bool_,
    float16,
    float32,
    float64,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)

_EXACT_IN_FLOAT64 = 1 << 53


@function(bool_, names=PTR, args=PTR, given=int64, keywords=PTR, out=PTR, count=int64, positional=int64)
def bind(
    r: Routine, names: Value, args: Value, given: Value, keywords: Value, out: Value, count: Value, positional: Value
) -> None:
    """Fill `out`. names: `count` of them, then as many defaults, null where there is none; `positional` are given by position."""
    r.require(given <= positional)
    with r.loop(given) as place:
        out.word(place).store(args.item(place))
    with r.loop(count, start=given) as place:
        out.word(place).store(r.null)
    with r.when(keywords.is_set()):
        _place_keywords(r, names, args, given, keywords, out, count)
    with r.loop(count) as place, r.when(out.item(place).is_null()):
        default = names.item(count + place)
        r.require(default.is_set())
        out.word(place).store(default)
    r.give(True)


def _place_keywords(
    r: Routine, names: Value, args: Value, given: Value, keywords: Value, out: Value, count: Value
) -> None:
    named = r.call(int64, "PyTuple_Size", keywords)
    r.require(given + named <= count)
    with r.loop(named) as k:
        name, first = r.call(PTR, "PyTuple_GetItem", keywords, k), given + k

        def place_after(steps: Value) -> Value:
            """The search begins where a name is when keywords are given in the order of the parameters."""
            straight = first + steps
            return (straight < count).select(straight, straight - count)

        place = place_after(r.find(count, lambda steps: names.item(place_after(steps)) == name))
        r.require(out.item(place).is_null())
        out.word(place).store(args.item(first))


# Numbers ------------------------------------------------------------------------------------------------------------


@function(bool_, process=tables.PROCESS, object_=tables.OBJECT, out=PTR, wanted=tables.WANTED_NUMBER)
def read_number(r: Routine, process: Value, object_: Value, out: Value, wanted: Value) -> None:
    """Store the value of a number as it is `wanted`, at the low end of 8 bytes; an integer is widened to all of them."""
    kind = object_.field("type")
    with r.when(kind == process.field("int")):
        _require_own(r, wanted, int32)
        r.give(put_integer.call(r, _as_int64(r, object_), out, wanted))
    with r.when(kind == process.field("float")):
        _require_own(r, wanted, float32)
        r.give(put_real.call(r, r.call(float64, "PyFloat_AsDouble", object_), out, wanted))
    is_true, is_false = object_ == process.field("true"), object_ == process.field("false")
    with r.when(is_true | is_false):
        _require_own(r, wanted, bool_)
        r.give(put_integer.call(r, is_true.to(int64), out, wanted))
    _put_scalar(r, process, object_, out, wanted)


def _require_own(r: Routine, wanted: Value, dtype: DType) -> None:
    """An undeclared parameter takes only what chose its specialisation."""
    own = wanted.field("own", int64)
    r.require((own == -1) | (own == ALL_DTYPES.index(dtype)))


def _as_int64(r: Routine, object_: Value) -> Value:
    overflow = r.room(4)
    number = r.call(int64, "PyLong_AsLongLongAndOverflow", object_, overflow)
    r.require(overflow.load(int32) == 0)
    return number


def _put_scalar(r: Routine, process: Value, object_: Value, out: Value, wanted: Value) -> None:
    """NumPy's scalars: the type says which, the value is behind the header."""
    types, kind = process.place("scalar_bool"), object_.field("type")
    which = r.find(r.number(len(ALL_DTYPES)), lambda i: types.item(i) == kind)
    own = wanted.field("own", int64)
    r.require((own == -1) | (own == which))
    place = object_.at(tables.SCALAR_VALUE)
    known = {index: dtype for index, dtype in enumerate(ALL_DTYPES) if not dtype.is_storage_only}
    r.switch(which, {index: partial(_put_scalar_of, r, dtype, place, out, wanted) for index, dtype in known.items()})


def _put_scalar_of(r: Routine, dtype: DType, place: Value, out: Value, wanted: Value) -> None:
    if dtype.is_float:
        r.give(put_real.call(r, _float64_at(r, dtype, place), out, wanted))
        return
    whole = (place.load(uint8) != 0) if dtype is bool_ else place.load(dtype)
    if dtype is uint64:
        r.require(whole.to(int64) >= 0)  # what is beyond an int64 goes the general way
    r.give(put_integer.call(r, whole.to(int64), out, wanted))


def _float64_at(r: Routine, dtype: DType, place: Value) -> Value:
    real = place.load(dtype)
    if dtype is float64:
        return real
    wide = real.to(float32).to(float64)
    if dtype is float16:
        r.require(wide == wide)  # the bits of a NaN are the general way's to choose
    return wide


@function(bool_, whole=int64, out=PTR, wanted=tables.WANTED_NUMBER)
def put_integer(r: Routine, whole: Value, out: Value, wanted: Value) -> None:
    kind = wanted.field("kind", int64)
    with r.when(kind == WANTS.index(None)):
        r.require((whole >= wanted.field("low", int64)) & (whole <= wanted.field("high", int64)))
        out.store(whole)
        r.give(True)
    with r.when(kind == WANTS.index(float32)):
        out.store(whole.to(float32))
        r.give(True)
    # Rounded once: to a float64; to a narrower float only where a float64 holds it.
    is_exact = (whole + _EXACT_IN_FLOAT64).to(uint64) <= 2 * _EXACT_IN_FLOAT64
    r.require(is_exact | (kind == WANTS.index(float64)))
    r.give(put_real.call(r, whole.to(float64), out, wanted))


@function(bool_, real=float64, out=PTR, wanted=tables.WANTED_NUMBER)
def put_real(r: Routine, real: Value, out: Value, wanted: Value) -> None:
    r.switch(
        wanted.field("kind", int64),
        {WANTS.index(dtype): partial(_put_as, r, dtype, real, out) for dtype in WANTS if dtype is not None},
    )
    r.give(True)


def _put_as(r: Routine, dtype: DType, real: Value, out: Value) -> None:
    if dtype in (float32, float64):
        out.store(real.to(dtype))
        return
    r.require(real == real)
    out.store(_rounded_to_odd(real).to(dtype).bits(uint16))


def _rounded_to_odd(real: Value) -> Value:
    """A float32, cut off towards zero, its last bit set where anything was lost: rounding that is as good as rounding all."""
    nearest = real.to(float32)
    back, bits = nearest.to(float64), nearest.bits(uint32)
    is_beyond = back.bits(uint64) << 1 > real.bits(uint64) << 1  # in size, without the sign
    cut = is_beyond.select(bits - 1, bits)
    return (back != real).select(cut | 1, cut).bits(float32)


@function(bool_, process=tables.PROCESS, object_=tables.OBJECT, expected=PTR, is_int=int64, value=int64)
def is_expected(r: Routine, process: Value, object_: Value, expected: Value, is_int: Value, value: Value) -> None:
    """Is this the very object of a constexpr, or where that is an int one that is equal?"""
    with r.when(object_ == expected):
        r.give(True)
    r.require((is_int != 0) & (object_.field("type") == process.field("int")))
    r.give(_as_int64(r, object_) == value)
