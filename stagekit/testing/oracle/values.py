"""Numbers and tiles of numbers for a kernel that CPython runs: NumPy's elements with the language's dtypes.

In which dtype operands meet is said by `frontend/numbers`, what an operation means there by `ir/semantics`, and what a function
means by its record. Nothing is shared with `lib/`, whose tiles these are held against.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from stagekit import dtypes
from stagekit.diagnostics import UNKNOWN, Diagnostic, StagekitError, shown
from stagekit.dtypes import DType
from stagekit.frontend import overloads
from stagekit.frontend.errors import BadIndex, BadOperands, BadShape, StagingError
from stagekit.frontend.numbers import COMPARISONS, SYMBOLS, Arithmetic, default_dtype, is_literal, meet
from stagekit.intrinsics import registry
from stagekit.ir import Builder, Intrinsic, UnaryKind, semantics

Array = np.ndarray[Any, np.dtype[Any]]
Elements = Any  # a NumPy scalar, or an array
Extents = tuple[int, ...]

MAX_AXES = 4  # of a tile


class _PlaceInProgram:
    """What the front end asks of a place in a program. An error gets its line where it leaves the user's function."""

    loc = UNKNOWN

    def error(self, diagnostic: Diagnostic) -> StagingError:
        return StagingError(diagnostic, self.loc)


PLACE: Any = _PlaceInProgram()
_ARITHMETIC = Arithmetic(Builder(UNKNOWN))


def refused(what: str, values: str, hint: str) -> StagingError:
    """Return the error for operands that an operation does not take."""
    return StagingError(BadOperands(what, values, hint), UNKNOWN)


class NoMeaning(StagekitError):
    """Raised for a step of a block-level program that has no meaning; `.id` names the rule that it breaks."""


class NotOfBlocks(Diagnostic):
    title = "No operation of a block-level program"
    label = "`{name}` has no meaning where a block is one program"
    help = "`run_in_python` runs block-level kernels; kernels of threads are checked by `sk.sanitize`"


class OracleValue:
    """A number, or a tile of numbers, of one dtype. Immutable.

    elements: a NumPy scalar or an array. is_weak: it was chosen among literals, so it takes another operand's dtype.
    """

    __array_ufunc__ = None  # NumPy's scalars leave operators to this class
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, elements: Elements, dtype: DType, is_weak: bool = False) -> None:
        self.elements = elements
        self.dtype = dtype
        self.is_weak = is_weak

    @property
    def extents(self) -> Extents | None:
        """The shape of a tile; None for a number."""
        return None

    def elements_as(self, dtype: DType) -> Elements:
        return semantics.cast(self.elements, self.dtype, dtype)

    def to(self, dtype: DType) -> OracleValue:
        """Return these elements converted to `dtype`; integers wrap."""
        if not isinstance(dtype, DType):
            raise refused(".to", shown(dtype), "give a dtype, such as sk.float32")
        return value_of(self.elements_as(dtype), dtype)

    def view(self, dtype: DType) -> OracleValue:
        """Return the same bits as another dtype of the same size."""
        if not isinstance(dtype, DType) or dtype.bits != self.dtype.bits:
            raise refused(".view", f"{self.dtype.name} as {shown(dtype)}", "give a dtype of the same size")
        return value_of(self.elements.view(dtype.numpy), dtype)

    def __array__(self, *_: Any, **__: Any) -> Array:
        raise TypeError("NumPy cannot compute with a value of a kernel")

    def __neg__(self) -> OracleValue:
        dtype = dtypes.int32 if self.dtype is dtypes.bool_ else self.dtype
        return value_of(semantics.unary(UnaryKind.NEG, dtype, self.elements_as(dtype)), dtype, self.is_weak)

    def __pos__(self) -> Any:
        return binary("+", self, 0) if self.dtype is dtypes.bool_ else self

    def __invert__(self) -> OracleValue:
        if self.dtype.is_float:
            raise refused("~", self.dtype.name, "bit operations need integers")
        return value_of(semantics.unary(UnaryKind.NOT, self.dtype, self.elements), self.dtype, self.is_weak)

    def __abs__(self) -> Any:
        return call_intrinsic(registry.by_name("abs"), self)

    def __round__(self) -> Any:
        return as_int(call_intrinsic(registry.by_name("rint"), self) if self.dtype.is_float else self)

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return binary("//", self, other), binary("%", self, other)

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return binary("//", other, self), binary("%", other, self)


class OracleScalar(OracleValue):
    """One number. It has no `__int__`, `__index__` or `__float__`: Python's own numbers would forget its dtype."""

    def number(self) -> bool | int | float:
        return semantics.to_python(self.elements, self.dtype)

    def __bool__(self) -> bool:
        return bool(self.elements != 0)

    def __format__(self, spec: str) -> str:
        return format(dtypes.shown(self.number(), self.dtype), spec)

    def __str__(self) -> str:
        return f"{self}"

    def __repr__(self) -> str:
        return f"{self.dtype.name}({self})"


class OracleTile(OracleValue):
    """Numbers along up to four axes."""

    @property
    def extents(self) -> Extents:
        return self.shape

    @property
    def extent(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def shape(self) -> Extents:
        shape: Extents = self.elements.shape
        return shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def T(self) -> OracleValue:
        return self.trans()

    def trans(self, *order: Any) -> OracleValue:
        """Return the tile whose axis i is axis `order[i]` of this one."""
        axes = order[0] if len(order) == 1 and isinstance(order[0], tuple | list) else order
        return self._other(np.transpose, axes or None)

    def reshape(self, *shape: Any) -> OracleValue:
        """Return the tile of these elements, in C order, with other axes."""
        return self._other(np.reshape, shape[0] if isinstance(shape[0], tuple | list) else shape)

    def convert_layout(self, layout: Any) -> OracleTile:
        """Return the tile: no thread has a part of it here."""
        return self

    def _other(self, function: Callable[..., Array], axes: Any) -> OracleValue:
        try:
            return value_of(function(self.elements, axes), self.dtype, self.is_weak)
        except ValueError as error:
            raise StagingError(BadShape(str(error), ""), UNKNOWN) from None

    def __getitem__(self, index: Any) -> OracleValue:
        return value_of(at_index(self.elements, index, MAX_AXES), self.dtype, self.is_weak)

    def each(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Return the tile of `function` of each element of the arguments; what is no tile goes with every element."""
        shape: Any = check_extents("each", self, *args, *named.values())
        rows = [
            (
                [_element(arg, shape, index) for arg in args],
                {name: _element(arg, shape, index) for name, arg in named.items()},
            )
            for index in np.ndindex(shape)
        ]
        found = [function(*row, **row_named) for row, row_named in rows]
        dtype = functools.reduce(lambda a, b: dtypes.promote(a, b) or a, map(dtype_of, found))
        return value_of(np.array([elements_in(each, dtype) for each in found]).reshape(shape), dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        hint = "a tile has no single truth value: combine masks with & | ~, choose with sk.where"
        raise refused("a condition", "a tile", hint)


def _element(value: Any, shape: Extents, index: Extents) -> Any:
    if not isinstance(value, OracleTile):
        return value
    return OracleScalar(np.broadcast_to(value.elements, shape)[index], value.dtype, value.is_weak)


def at_index(elements: Array, index: Any, most: int) -> Any:
    """Return what an index takes of an array: static slices, integers, new axes and `...`, as of a tile."""
    given = tuple(map(plain, index if isinstance(index, tuple) else (index,)))
    has_run_time = any(isinstance(each, OracleScalar) for each in (index if isinstance(index, tuple) else (index,)))
    if not all(each is None or each is ... or isinstance(each, slice) or _is_integer(each) for each in given):
        raise StagingError(
            BadIndex(f"a tile of shape {elements.shape} has no [{index}]", "give None, slices or integers"), UNKNOWN
        )
    try:
        found = elements[given]
    except (IndexError, TypeError, ValueError) as error:
        raise StagingError(BadIndex(str(error), ""), UNKNOWN) from None
    if np.ndim(found) > most or (not np.size(found) and not has_run_time):
        raise StagingError(BadIndex(f"[{index}] of a tile gives the shape {np.shape(found)}", ""), UNKNOWN)
    return found


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def value_of(elements: Any, dtype: DType, is_weak: bool = False) -> OracleValue:
    """Return the number or the tile that these elements are."""
    array = np.asarray(elements, dtype.numpy)
    return OracleTile(array, dtype, is_weak) if array.ndim else OracleScalar(array[()], dtype, is_weak)


def plain(value: Any) -> Any:
    """Return a number of the kernel as Python's own; anything else unchanged."""
    return value.number() if isinstance(value, OracleScalar) else value


def is_numeric(value: Any) -> bool:
    return isinstance(value, OracleValue | int | float | np.generic)


_LITERALS = {dtypes.bool_: False, dtypes.int32: 0, dtypes.int64: dtypes.int64.max, dtypes.float64: 0.0}


def representative(value: Any) -> Any:
    """Return a NumPy scalar or a literal that meets other operands in the same dtype."""
    if not isinstance(value, OracleValue):
        return value
    return _LITERALS[value.dtype] if value.is_weak else value.dtype.numpy.type(0)


def dtype_of(value: Any) -> DType:
    return default_dtype(representative(value))


def elements_in(value: Any, dtype: DType) -> Elements:
    """Return a number or a tile in `dtype`; an integer literal must fit."""
    return value.elements_as(dtype) if isinstance(value, OracleValue) else overloads.known(PLACE, value, dtype)


def check_extents(what: str, *values: Any) -> Extents | None:
    """Return the shape of the tiles among operands, None without tiles; refuse tiles that do not go together."""
    shapes = [extents for value in values if (extents := getattr(value, "extents", None)) is not None]
    try:
        return np.broadcast_shapes(*shapes) if shapes else None
    except ValueError:
        hint = "axes go together where their extents are equal, or one is 1"
        raise StagingError(BadShape(f"`{what}` of shapes {' and '.join(map(str, shapes))}", hint), UNKNOWN) from None


# -- operators ----------------------------------------------------------------------------------------------------------


def binary(symbol: str, left: Any, right: Any) -> Any:
    """Return `left symbol right`, of which at least one is a number or tile of the kernel."""
    if not (is_numeric(left) and is_numeric(right)):
        return NotImplemented
    check_extents(symbol, left, right)
    if symbol == "**":
        return _power(left, right)
    dtype, is_weak = _ARITHMETIC.operand_dtype(symbol, representative(left), representative(right))
    found = semantics.binary(SYMBOLS[symbol].kind, dtype, elements_in(left, dtype), elements_in(right, dtype))
    return value_of(found, dtype, is_weak)


def compare(op: type[ast.cmpop], left: Any, right: Any) -> Any:
    """Compare two operands. An integer literal may be beyond the dtype of the other."""
    if not (is_numeric(left) and is_numeric(right)):
        return NotImplemented
    symbol, kind, python = COMPARISONS[op]
    check_extents(symbol, left, right)
    dtype, _ = meet(representative(left), representative(right), UNKNOWN)
    if isinstance(right, int) and dtype.is_integer and not dtype.holds(right):
        return value_of(np.full(np.shape(left.elements), python(0, right)), dtypes.bool_)
    return value_of(semantics.compare(kind, dtype, elements_in(left, dtype), elements_in(right, dtype)), dtypes.bool_)


def choose(condition: Any, if_true: Any, if_false: Any) -> Any:
    """Return `if_true` where `condition` holds, else `if_false`, in the dtype in which the two meet."""
    are_literals = not any(isinstance(each, OracleValue) for each in (condition, if_true, if_false))
    if are_literals or not (is_numeric(if_true) and is_numeric(if_false)):
        return if_true if plain(condition) else if_false
    check_extents("where", condition, if_true, if_false)
    dtype, is_weak = meet(representative(if_true), representative(if_false), UNKNOWN)
    both = elements_in(if_true, dtype), elements_in(if_false, dtype)
    return value_of(np.where(elements_in(condition, dtypes.bool_), *both), dtype, is_weak)


def _power(base: Any, exponent: Any) -> Any:
    """Return `base ** exponent`: what `pow` gives, but for a literal exponent, which does not widen an integer base."""
    kinds = dtype_of(base), dtype_of(exponent)
    is_float, is_known = any(kind.is_float for kind in kinds), isinstance(exponent, int)
    if is_known and exponent < 0 and not is_float:
        hint = "an integer has no negative power; make the base a float"
        raise refused("**", f"{kinds[0].name} and a negative exponent, {exponent}", hint)
    dtype = dtypes.int32 if kinds[0] is dtypes.bool_ else kinds[0]
    if not is_known or (is_float and not 0 <= exponent <= 2):
        whole = value_of(elements_in(base, dtype), dtype) if kinds == (dtypes.bool_, dtypes.bool_) else base
        found = call_intrinsic(registry.by_name("pow"), whole, exponent)
        is_weak = not is_float and meet(representative(base), representative(exponent), UNKNOWN)[1]
        return value_of(found.elements, found.dtype, is_weak)
    square = value_of(elements_in(base, dtype), dtype)
    result = value_of(np.ones_like(square.elements), dtype)
    while exponent:
        result = binary("*", result, square) if exponent & 1 else result
        square, exponent = binary("*", square, square), exponent >> 1
    return value_of(result.elements, dtype, base.is_weak)


def extreme(op: type[ast.cmpop], best: Any, *others: Any) -> Any:
    """Return what Python's `min` (op: Lt) or `max` (Gt) means: the first, unless a later one is strictly smaller or larger."""
    for other in others:
        best = choose(compare(op, other, best), other, best)
    return best


def as_int(value: OracleValue) -> OracleValue:
    """Return `int(x)`: int32 where that holds every value of the dtype, else int64; 64-bit integers stay."""
    if value.dtype.is_integer and value.dtype.bits == 64:
        return value
    fits = not value.dtype.is_float and dtypes.promote(value.dtype, dtypes.int32) is dtypes.int32
    return value.to(dtypes.int32 if fits else dtypes.int64)


def as_float(value: OracleValue) -> OracleValue:
    """Return `float(x)`: float32, but a float64 stays one."""
    return value if value.dtype is dtypes.float64 else value.to(dtypes.float32)


def call_intrinsic(spec: Intrinsic, *args: Any, **named: Any) -> Any:
    """Return an elementwise intrinsic of numbers and tiles, by what its record says that it means."""
    values, params = overloads.bind(PLACE, spec, list(args), named)
    for value in values:
        if not is_numeric(value):
            raise refused(spec.name, type(value).__name__, "it takes numbers and tiles of them")
    if all(map(is_literal, values)):
        return overloads.fold(PLACE, spec, values, params)
    check_extents(spec.name, *values)
    sig = overloads.resolve(PLACE, spec, [representative(value) for value in values])
    given = [elements_in(value, type_.dtype) for value, type_ in zip(values, sig.args, strict=True)]
    with np.errstate(all="ignore"):
        found = spec.evaluate(*np.broadcast_arrays(*given), *params)  # type: ignore[misc]  # the caller looked
    parts = found if isinstance(found, tuple) else (found,)
    results = tuple(value_of(part, type_.dtype) for part, type_ in zip(parts, sig.results, strict=True))
    return results if len(results) > 1 else results[0]


# -- the methods of operators -------------------------------------------------------------------------------------------


def _method(run: Callable[[Any, Any, Any], Any], what: Any, *, is_mirrored: bool = False) -> Any:
    if is_mirrored:
        return lambda self, other: run(what, other, self)
    return lambda self, other: run(what, self, other)


for _symbol, _operator in SYMBOLS.items():
    if _symbol != "@":
        setattr(OracleValue, f"__{_operator.method}__", _method(binary, _symbol))
        setattr(OracleValue, f"__r{_operator.method}__", _method(binary, _symbol, is_mirrored=True))
for _op, _comparison in COMPARISONS.items():
    setattr(OracleValue, f"__{_comparison[2].__name__}__", _method(compare, _op))
