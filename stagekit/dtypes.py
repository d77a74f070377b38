"""The scalar types of the language: one row per dtype, the one promotion rule, and how a number becomes one of a dtype.

A `DType` is also a conversion: inside a kernel `float16(x)` converts a traced value, outside it gives a NumPy scalar.
Sources: NumPy 2 (NEP 50) for the idea that literals adapt; `docs/language.md` states every rule that differs.
"""

from __future__ import annotations

import importlib
import math
import re
import sys
from itertools import count
from typing import Any, Literal

import numpy as np

from stagekit.diagnostics import Diagnostic, called, counted, hide_frames
from stagekit.forks import cached_property
from stagekit.frozen import frozen

EXTENSION = "ml_dtypes"  # has the dtypes that NumPy lacks; imported when one is needed, since that can take a second

Kind = Literal["bool", "int", "uint", "float", "complex"]


class NotConvertible(Diagnostic):
    title = "A value that no dtype can hold"
    label = "`{dtype}({value})`"
    help = "a dtype converts a number or an array of numbers"


@frozen()
class FloatFormat:
    """How a float lays out its bits below the sign: an exponent with `bias`, then `fraction_bits`.

    Without infinity the highest exponent holds numbers like any other, and what is too large becomes NaN.
    """

    fraction_bits: int
    bias: int
    has_infinity: bool = True

    @property
    def precision(self) -> int:
        """Significant bits, the leading one included."""
        return self.fraction_bits + 1

    @property
    def infinity(self) -> int:
        """The bits of +inf: the first magnitude that is not a finite number."""
        return (2 * self.bias + 1) << self.fraction_bits

    @property
    def nan(self) -> int:
        """The bits of the NaN that conversions return."""
        quiet, ones = 1 << (self.fraction_bits - 1), (1 << self.fraction_bits) - 1
        return self.infinity | (quiet if self.has_infinity else ones)

    @property
    def overflow(self) -> int:
        """The bits of whatever is too large."""
        return self.infinity if self.has_infinity else self.nan

    @property
    def largest(self) -> float:
        """The largest finite number."""
        exponent, fraction = divmod(self.overflow - 1, 1 << self.fraction_bits)
        return math.ldexp((1 << self.fraction_bits) + fraction, exponent - self.bias - self.fraction_bits)

    def nearest(self, value: float) -> float:
        """Return the number of this format that is nearest, the even one in a tie, without NumPy and ml_dtypes."""
        if abs(value) < 2 * self.largest:  # what is larger may round to no float at all
            exponent = max(math.frexp(value)[1] - 1, 1 - self.bias) - self.fraction_bits  # of the last bit
            value = math.copysign(math.ldexp(round(math.ldexp(value, -exponent)), exponent), value)
        if abs(value) <= self.largest or value != value:
            return value
        return math.copysign(math.inf if self.has_infinity else math.nan, value)

    def bits(self, value: float) -> int:
        """Return the bits of a number of this format."""
        sign = (math.copysign(1, value) < 0) << (2 * self.bias + 1).bit_length() + self.fraction_bits
        if not math.isfinite(value):
            return sign | (self.nan if value != value else self.infinity)
        exponent = max(math.frexp(value)[1] - 1, 1 - self.bias) if value else 1 - self.bias
        fraction = int(math.ldexp(abs(value), self.fraction_bits - exponent))  # with the leading bit of a normal number
        return sign | fraction + (exponent + self.bias - 1 << self.fraction_bits)


NO_LAYOUT = FloatFormat(0, 0)


_KINDS = {
    "bool": "a truth value",
    "int": "a signed integer",
    "uint": "an unsigned integer",
    "float": "a float",
    "complex": "a complex number of two floats",
}
_TO_INTEGER = "an integer to its low bits, and a float to its whole part, saturated, NaN to 0"
_CONVERSIONS = {
    "bool": "0 to false, all else to true",
    "int": _TO_INTEGER,
    "uint": _TO_INTEGER,
    "float": "to the nearest number, the even one in a tie",
    "complex": "both parts to the nearest number, of a real number with an imaginary part of 0",
}


@frozen(eq=False, held=True)
class DType:
    """One scalar type. Compared by identity: every dtype exists once.

    name: the public name, `float32`, and NumPy's or ml_dtypes'. short: its spelling in the IR, `f32`. bits: the size of
    the *value*; a bool is one bit wide as a value and one byte in memory (`itemsize`, bytes). dlpack: the type code of
    DLPack, where formats that are not IEEE's have one each. layout: of a float. `is_storage_only` dtypes can be loaded,
    stored and converted, and have no arithmetic. part: of a complex dtype, that of its two parts; the IR knows only these.
    """

    name: str
    short: str
    kind: Kind
    bits: int
    dlpack: int
    layout: FloatFormat = NO_LAYOUT
    is_storage_only: bool = False
    part: DType | None = None

    def __post_init__(self) -> None:
        storage = ", for storage: loaded, stored and converted, without arithmetic" if self.is_storage_only else ""
        text = (
            f"{self.name}: {_KINDS[self.kind]} of {counted(self.bits, 'bit')}{storage}.\n\n"
            f"`x: sk.{self.name}` annotates a scalar parameter. `sk.{self.name}(x)` converts {_CONVERSIONS[self.kind]}. "
            "In a kernel x is any number or tile, elsewhere a Python or NumPy number, or an array; anything else is refused, as "
            "BAD_CALL or NOT_CONVERTIBLE."
        )
        if self.part is not None:
            text = text.replace("`x: sk", "`z: sk").replace(
                "In a kernel x is any number or tile", "In a kernel x is any number"
            )
        vars(self).update(__doc__=text, __name__=self.name)

    def __repr__(self) -> str:
        return f"stagekit.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype_named, (self.name,)

    def __or__(self, other: object) -> Any:
        """`float32 | None`: an optional scalar parameter."""
        return (self, None) if other is None else NotImplemented

    __ror__ = __or__

    @hide_frames
    def __call__(self, value: Any) -> Any:
        """Convert a Python or NumPy number to a NumPy scalar of this dtype (in a kernel: convert a traced value)."""
        return called(self, self.name, (value,), {})

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype that stores this type: of ml_dtypes, where NumPy has none."""
        return np.dtype(self.name if self.is_in_numpy else getattr(importlib.import_module(EXTENSION), self.name))

    @cached_property
    def is_in_numpy(self) -> bool:
        """Whether NumPy itself has this dtype."""
        return hasattr(np, self.name)

    @cached_property
    def itemsize(self) -> int:
        """Size of one element in memory, in bytes."""
        return max(self.bits // 8, 1)

    @cached_property
    def is_float(self) -> bool:
        return self.kind == "float"

    @cached_property
    def is_integer(self) -> bool:
        """Whether this is a signed or unsigned integer; bool is neither."""
        return self.kind in ("int", "uint")

    @cached_property
    def is_signed(self) -> bool:
        return self.kind == "int"

    @cached_property
    def min(self) -> int:
        """The smallest value: an int, of a float dtype a float, the least finite one."""
        if self.is_float:
            return -self.layout.largest  # type: ignore[return-value]  # almost all who ask have an integer dtype
        return -(1 << (self.bits - 1)) if self.kind == "int" else 0

    @cached_property
    def max(self) -> int:
        """The largest value: an int, of a float dtype a float, the largest finite one."""
        if self.is_float:
            return self.layout.largest  # type: ignore[return-value]
        return (1 << (self.bits - (self.kind == "int"))) - 1

    @property
    def eps(self) -> float:
        """Of a float dtype: the distance from 1 to the next larger number."""
        return self._power_of_two("eps", -self.layout.fraction_bits)

    @property
    def smallest_normal(self) -> float:
        """Of a float dtype: the least positive number of full precision. Also called `tiny`."""
        return self._power_of_two("smallest_normal", 1 - self.layout.bias)

    tiny = smallest_normal

    @property
    def smallest_subnormal(self) -> float:
        """Of a float dtype: the least positive number."""
        return self._power_of_two("smallest_subnormal", 1 - self.layout.bias - self.layout.fraction_bits)

    def _power_of_two(self, name: str, exponent: int) -> float:
        if not self.is_float:
            raise AttributeError(f"{self.name} has no {name!r}, which float dtypes have")
        return math.ldexp(1, exponent)

    @property
    def unsigned(self) -> DType:
        """The unsigned integer dtype of this width."""
        return _BY_NAME[f"uint{self.bits}"]

    def wrap(self, value: int) -> int:
        """Return what this integer dtype keeps of `value`: its low bits."""
        return (value - self.min) % (1 << self.bits) + self.min

    def holds(self, value: int) -> bool:
        """Return whether this integer dtype represents `value` exactly."""
        return self.min <= value <= self.max


bool_ = DType("bool", "bool", "bool", 1, 6)
int8 = DType("int8", "i8", "int", 8, 0)
int16 = DType("int16", "i16", "int", 16, 0)
int32 = DType("int32", "i32", "int", 32, 0)
int64 = DType("int64", "i64", "int", 64, 0)
uint8 = DType("uint8", "u8", "uint", 8, 1)
uint16 = DType("uint16", "u16", "uint", 16, 1)
uint32 = DType("uint32", "u32", "uint", 32, 1)
uint64 = DType("uint64", "u64", "uint", 64, 1)
float16 = DType("float16", "f16", "float", 16, 2, FloatFormat(10, 15))
bfloat16 = DType("bfloat16", "bf16", "float", 16, 4, FloatFormat(7, 127))
float32 = DType("float32", "f32", "float", 32, 2, FloatFormat(23, 127))
float64 = DType("float64", "f64", "float", 64, 2, FloatFormat(52, 1023))
float8_e4m3fn = DType(
    "float8_e4m3fn", "f8e4m3", "float", 8, 10, FloatFormat(3, 7, has_infinity=False), is_storage_only=True
)
float8_e5m2 = DType("float8_e5m2", "f8e5m2", "float", 8, 12, FloatFormat(2, 15), is_storage_only=True)

ALL_DTYPES: tuple[DType, ...] = tuple(each for each in globals().values() if isinstance(each, DType))
ARITHMETIC_DTYPES = tuple(d for d in ALL_DTYPES if not d.is_storage_only)
INTEGER_DTYPES = tuple(d for d in ALL_DTYPES if d.is_integer)
FLOAT_DTYPES = tuple(d for d in ARITHMETIC_DTYPES if d.is_float)

complex64 = DType("complex64", "c64", "complex", 64, 5, part=float32)
complex128 = DType("complex128", "c128", "complex", 128, 5, part=float64)
ELEMENT_DTYPES = (*ALL_DTYPES, complex64, complex128)  # of arrays; a kernel sees a complex number as two floats

INDEX = int64  # of thread and block indices, shapes, strides and loop variables

_BY_NAME = {d.name: d for d in ELEMENT_DTYPES}
_BY_NUMPY = {d.numpy: d for d in ALL_DTYPES if d.is_in_numpy}
_SIGNED_BY_BITS = {d.bits: d for d in ALL_DTYPES if d.kind == "int"}


def dtype_named(name: str) -> DType:
    """Return the dtype with this public name. Raises KeyError."""
    return _BY_NAME[name]


def dtype_from_numpy(dtype: np.dtype[Any]) -> DType | None:
    """Return the dtype that NumPy stores as `dtype` in native byte order, or None."""
    if dtype not in _BY_NUMPY and dtype.type.__module__ == EXTENSION:  # whoever made this dtype has imported it
        _BY_NUMPY.update({d.numpy: d for d in ALL_DTYPES})
    return _BY_NUMPY.get(dtype)


def element_dtype(dtype: np.dtype[Any]) -> DType | None:
    """Return the dtype of the elements of an array that NumPy stores as `dtype`, a number's or a complex one, or None."""
    return dtype_from_numpy(dtype) or _COMPLEX.get(dtype)


_COMPLEX = {each.numpy: each for each in (complex64, complex128)}


def promote(a: DType, b: DType) -> DType | None:
    """Return the dtype in which two typed operands meet, or None where mixing is refused.

    The wider of one kind; bool gives way to anything; int with float is that float; float16 with bfloat16 is
    float32; a signed and an unsigned integer meet in the next wider signed one, which 64 bits do not have.
    """
    if a is b:
        return a
    if a.is_storage_only or b.is_storage_only:
        return None
    if bool_ in (a, b):
        return b if a is bool_ else a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.is_float:
        return least_common(a, b)
    if a.kind == b.kind:
        return a if a.bits >= b.bits else b
    signed, unsigned = (a, b) if a.is_signed else (b, a)
    return _SIGNED_BY_BITS.get(max(signed.bits, 2 * unsigned.bits))


def least_common(a: DType, b: DType) -> DType | None:
    """Return the least dtype that holds every value of both exactly, in which two paths meet; None where there is none.

    There is none for a signed integer with uint64, and none is looked for across kinds: bool, integer and float do not meet.
    """
    if a is b:
        return a
    if a.is_integer and b.is_integer:
        return promote(a, b)
    if not (a.is_float and b.is_float):
        return None
    if a.bits == b.bits:
        return float16 if a.bits == 8 else float32
    return a if a.bits > b.bits else b


def true_divide_dtype(a: DType) -> DType:
    """Return the dtype of `/` on operands that met in `a`: float32 for integers up to 32 bits, float64 above."""
    if a.is_float:
        return a
    return float64 if a.bits == 64 else float32


# -- numbers as text --------------------------------------------------------------------------------------------------

_WITHOUT_DIGITS = r"(.?[<>=^])?[-+ ]?z?#?0?\d*[,_]?"


class _Shown(float):
    """A float of a narrower dtype. A format that does not ask for digits shows the fewest that tell it apart in that dtype."""

    dtype: DType

    def __format__(self, spec: str) -> str:
        is_plain = re.fullmatch(_WITHOUT_DIGITS, spec) is not None
        return format(_shortest(float(self), self.dtype) if is_plain else float(self), spec)


def shown(value: bool | float, dtype: DType) -> bool | int | float:
    """Return a value of `dtype` for a format: float32 0.1 is shown as `0.1`, as in NumPy, and not as 0.10000000149011612."""
    if not dtype.is_float or dtype is float64:
        return value
    number = _Shown(value)
    number.dtype = dtype
    return number


def _shortest(value: float, dtype: DType) -> float:
    """Return the number with the fewest digits that `dtype` rounds to `value`."""
    if value != value or value in (float("inf"), -float("inf")):
        return value
    candidates = (float(f"{value:.{digits}e}") for digits in count())
    with np.errstate(over="ignore"):  # a number cut to few digits may be past the largest
        return next(each for each in candidates if float(dtype.numpy.type(each)) == value)


# -- numbers, rounded once ----------------------------------------------------------------------------------------------
#
# For `float16(x)`, folding, the interpreter, and arguments of launches: to nearest even.
#
#     number_as(0.1, np.dtype("float16"))      np.float16(0.1)
#     number_as(2**24 + 1, bfloat16.numpy)     an int of any size is read exactly; what is too large becomes infinite
#
# NumPy and ml_dtypes reach narrow floats through a float64 or a float32 that is itself rounded. Rounded to odd (towards zero,
# then the last bit set where anything was lost), the wide float rounds again as if once, if it has two bits more than the narrow.
# Source: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008.

Array = np.ndarray[Any, np.dtype[Any]]
_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


def number_as(value: float, dtype: np.dtype[Any]) -> Any:
    """Return a Python int or float as a NumPy scalar of a float dtype."""
    if isinstance(value, int):
        value = _float_of(value, dtype)
    with np.errstate(all="ignore"):
        return rounded(np.asarray(value, np.float64), dtype)[()]


def rounded(value: Array, dtype: np.dtype[Any]) -> Array:
    """Return integers or floats as a float dtype, rounded once."""
    if dtype.itemsize < _FLOAT32.itemsize:
        if value.dtype.kind in "iu":
            value = to_odd_float64(value)
        if value.dtype == _FLOAT64:
            value = to_odd_float32(value)
    return value.astype(dtype)


def to_odd_float32(value: Array) -> Array:
    """Return float64 as float32, rounded to odd: good for rounding again to 22 bits or fewer."""
    near = value.astype(np.float32)
    toward_zero = np.where(np.abs(near.astype(np.float64)) > np.abs(value), np.nextafter(near, np.float32(0)), near)
    is_inexact = (toward_zero.astype(np.float64) != value) & ~np.isnan(value)
    bits = toward_zero.astype(np.float32).view(np.uint32) | is_inexact.astype(np.uint32)
    return np.asarray(bits).view(np.float32)


def to_odd_float64(value: Array) -> Array:
    """Return an integer as float64 in which any lost bit is kept as a sticky low bit: good for rounding again to 24 bits.

    The low 12 bits of a number of 53 bits or more lie below every narrower rounding point: one bit can stand for all.
    """
    if value.dtype.itemsize < _FLOAT64.itemsize:
        return value.astype(np.float64)
    low = value.dtype.type(0xFFF)
    sticky = (value & ~low) | np.where(value & low, value.dtype.type(0x800), value.dtype.type(0))
    magnitude = np.abs(value.astype(np.float64))
    return np.where(magnitude < 2.0**53, value, sticky).astype(np.float64)


def _float_of(value: int, dtype: np.dtype[Any]) -> float:
    """Return an int as float64, rounded to nearest for a float64 and to odd for less; infinite where it is too large."""
    excess = value.bit_length() - sys.float_info.mant_dig
    if dtype != _FLOAT64 and excess > 0:
        leading = abs(value) >> excess
        leading |= leading << excess != abs(value)
        value = (-leading if value < 0 else leading) << excess
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
