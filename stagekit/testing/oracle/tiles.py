"""What the functions of whole tiles mean for a kernel that CPython runs: reductions, scans, order and places, by NumPy.

A user's combiner is called for one element after the other, in the order of their indices.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import stagekit as sk
from stagekit import dtypes
from stagekit.backends.interp.findings import OutOfBounds
from stagekit.diagnostics import UNKNOWN, Diagnostic
from stagekit.dtypes import DType
from stagekit.frontend.errors import BadShape, StagingError
from stagekit.runtime.args import describe
from stagekit.testing.oracle.values import (
    Array,
    NoMeaning,
    OracleScalar,
    OracleTile,
    OracleValue,
    dtype_of,
    elements_in,
    refused,
    value_of,
)  # fmt: skip


class NoIdentity(Diagnostic):
    title = "An identity that changes a value"
    label = "combined with the identity {identity}, {value} becomes {result}"
    help = "`combine(identity, x)` and `combine(x, identity)` must be x; without `identity=` none is needed"


class NotCommutative(Diagnostic):
    title = "A combiner that is not commutative"
    label = "of {a} and {b} it makes {one}, in the other order {other}"
    help = "leave out `commutative=True`: elements are then combined in the order of their indices"


def _tile(value: Any) -> OracleTile:
    if not isinstance(value, OracleTile):
        raise refused("a function of tiles", describe(value), "it takes a tile")
    return value


# -- any combiner -------------------------------------------------------------------------------------------------------

Values = tuple[OracleScalar, ...]


class _Combining:
    """The elements of one tile or several, and what a user's function makes of two. is_single: it takes numbers, not tuples."""

    def __init__(self, tile: Any, combine: Callable[..., Any], identity: Any) -> None:
        self.is_single = not isinstance(tile, tuple | list)
        self.tiles: list[OracleTile] = [_tile(each) for each in ((tile,) if self.is_single else tile)]
        self.dtypes = [each.dtype for each in self.tiles]
        self.function = combine
        rows = zip(*[each.elements for each in self.tiles], strict=True)
        self.rows: list[Values] = [tuple(map(OracleScalar, row, self.dtypes)) for row in rows]
        if identity is not None:
            self._check(self.values([identity] if self.is_single else identity))

    def values(self, given: Sequence[Any]) -> Values:
        """Return numbers in the dtypes of the tiles."""
        pairs = zip(given, self.dtypes, strict=True)
        return tuple(value_of(elements_in(each, dtype), dtype) for each, dtype in pairs)  # type: ignore[misc]

    def __call__(self, a: Values, b: Values) -> Values:
        found = self.function(a[0], b[0]) if self.is_single else self.function(a, b)
        given = [found] if self.is_single else list(found)
        for each, dtype in zip(given, self.dtypes, strict=True):
            if isinstance(each, OracleValue) and dtype_of(each) is not dtype:
                raise refused("a combiner", dtype_of(each).name, f"its tile has {dtype.name}")
        return self.values(given)

    def _check(self, identity: Values) -> None:
        for row in self.rows:
            for found in (self(identity, row), self(row, identity)):
                if not _equal(found, row):
                    raise NoMeaning(NoIdentity(shown(identity), shown(row), shown(found)))

    def check_commutative(self) -> None:
        for a, b in zip(self.rows, self.rows[1:]):
            one, other = self(a, b), self(b, a)
            if not _equal(one, other):
                raise NoMeaning(NotCommutative(shown(a), shown(b), shown(one), shown(other)))

    def up_to_each(self, *, is_reversed: bool) -> list[Values]:
        rows = self.rows[::-1] if is_reversed else self.rows
        found = rows[:1]
        for row in rows[1:]:
            found.append(self(found[-1], row))
        return found[::-1] if is_reversed else found

    def answer(self, values: Sequence[Any]) -> Any:
        return values[0] if self.is_single else tuple(values)


def _equal(a: Values, b: Values) -> bool:
    return all(
        x.elements == y.elements or (x.elements != x.elements and y.elements != y.elements) for x, y in zip(a, b)
    )


def shown(values: Values) -> str:
    return ", ".join(map(str, values))


def _reduce(_: Any, tile: Any, combine: Any, identity: Any = None, commutative: bool = False) -> Any:
    combining = _Combining(tile, combine, identity)
    if commutative:
        combining.check_commutative()
    return combining.answer(combining.up_to_each(is_reversed=False)[-1])


def _scan(_: Any, tile: Any, combine: Any, identity: Any = None, reverse: bool = False) -> Any:
    combining = _Combining(tile, combine, identity)
    columns = zip(*combining.up_to_each(is_reversed=reverse))
    return combining.answer(
        [value_of([each.elements for each in column], dtype) for column, dtype in zip(columns, combining.dtypes)]
    )


# -- sums, products, extremes -------------------------------------------------------------------------------------------


def _sum_dtype(own: DType) -> DType:
    """Integers below 32 bits are summed in 32, 16-bit floats in float32."""
    if own.is_float:
        return own if own.bits >= 32 else dtypes.float32
    return own if own.bits >= 32 else dtypes.uint32 if own.kind == "uint" else dtypes.int32


def _rounded(exact: Any, own: DType) -> OracleValue:
    """Return what was computed in float64 as a sum of elements of a float dtype."""
    return value_of(exact, dtypes.float64).to(_sum_dtype(own)).to(own)


def _reduce_sum(_: Any, tile: OracleTile) -> OracleValue:
    own = _tile(tile).dtype
    if own.is_float:
        return _rounded(np.float64(math.fsum(tile.elements.astype(np.float64).tolist())), own)
    working = _sum_dtype(own)
    return value_of(tile.elements_as(working).sum(dtype=working.numpy), working)


def _cumulative(function: Any) -> Callable[..., OracleValue]:
    def run(_: Any, tile: OracleTile, reverse: bool = False) -> OracleValue:
        own = _tile(tile).dtype
        working = _sum_dtype(own)
        step = -1 if reverse else 1
        given = tile.elements.astype(np.float64) if own.is_float else tile.elements_as(working)
        with np.errstate(all="ignore"):
            found = function(given[::step], dtype=given.dtype)[::step]
        return _rounded(found, own) if own.is_float else value_of(found, working)

    return run


def _reduced(spec: Any) -> Callable[..., OracleValue]:
    """Return the reduction by `minimum` or `maximum`, to which it does not matter if an element takes part twice."""

    def run(_: Any, tile: OracleTile) -> OracleValue:
        elements = _tile(tile).elements
        while len(elements) > 1:
            half = (len(elements) + 1) // 2
            elements = spec.evaluate(elements[:half], elements[-half:])
        return value_of(elements[0], tile.dtype)

    return run


def _by_numpy(function: Callable[[Array], Any], dtype: DType) -> Callable[..., OracleValue]:
    """Return what NumPy's function says of the elements. Floats of 16 bits are looked at as float64, which holds them all."""

    def run(_: Any, tile: OracleTile) -> OracleValue:
        elements = _tile(tile).elements
        return value_of(function(elements.astype(np.float64) if tile.dtype.is_float else elements), dtype)

    return run


# -- order and places ---------------------------------------------------------------------------------------------------


def _order(tile: Any, *, is_descending: bool, is_by_sign: bool = False) -> Array:
    """Return the indices that sort a tile: NaN last, turned round if descending; equal ones by their index, unless -0.0 comes
    before 0.0 by its sign.
    """
    given = _tile(tile)
    elements = given.elements.astype(np.float64) if given.dtype.is_float else given.elements
    _, first = np.unique(elements, return_inverse=True)
    rank = 2 * first + (is_by_sign and given.dtype.is_float and ~np.signbit(elements))
    rank[elements != elements] = 2 * len(rank)
    return np.argsort(-rank if is_descending else rank, kind="stable")


def _sort(_: Any, tile: OracleTile, descending: bool = False) -> OracleValue:
    return value_of(_tile(tile).elements[_order(tile, is_descending=descending, is_by_sign=True)], tile.dtype)


def _argsort(_: Any, tile: OracleTile, descending: bool = False) -> OracleValue:
    return value_of(_order(tile, is_descending=descending), dtypes.int64)


def _topk(_: Any, tile: OracleTile, k: int, largest: bool = True) -> tuple[OracleValue, OracleValue]:
    places = _order(tile, is_descending=largest)[:k]
    return value_of(_tile(tile).elements[places], tile.dtype), value_of(places, dtypes.int64)


def _gather(_: Any, tile: OracleTile, index: Any) -> OracleValue:
    places, count = np.asarray(elements_in(index, dtypes.int64)), _tile(tile).extent
    outside = places[(places < 0) | (places >= count)]
    if outside.size:
        first, limit = int(outside.flat[0]), f", which has {count}"
        offset = first * tile.dtype.itemsize
        raise NoMeaning(
            OutOfBounds("reads", "tile", f"element {first} of a tile", limit, "shared", first, count, offset)
        )
    return value_of(tile.elements[places], tile.dtype)


def _histogram(_: Any, tile: OracleTile, bins: int, mask: Any = None) -> OracleValue:
    on = np.broadcast_to(True if mask is None else elements_in(mask, dtypes.bool_), (_tile(tile).extent,))
    counted = [int(x) for x in tile.elements[on] if 0 <= int(x) < bins]
    return value_of(np.bincount(counted, minlength=bins), dtypes.int32)


# -- axes -----------------------------------------------------------------------------------------------------------------


def _of_axes(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of tiles of any shape, given one of tiles of one axis: along `axis`, or of all elements in C order."""

    def along(_: Any, given: Any, *args: Any, axis: Any = None, **named: Any) -> Any:
        tiles = [_tile(each) for each in given] if isinstance(given, tuple | list) else [_tile(given)]
        if axis is None or all(tile.ndim == 1 and axis in (0, -1) for tile in tiles):
            flat = [value_of(tile.elements.reshape(-1), tile.dtype) for tile in tiles]
            return run(_, flat[0] if not isinstance(given, tuple | list) else flat, *args, **named)
        return _stacked(run, tiles, given, axis, functools.partial(_call, args, named))

    return along


def _with_axis(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same, whose second argument may be the axis."""
    return lambda _, given, axis=None: _of_axes(run)(_, given, axis=axis)


def _call(args: Any, named: Any, run: Callable[..., Any], row: Any) -> Any:
    return run(None, row, *args, **named)


def _stacked(run: Callable[..., Any], tiles: list[OracleTile], given: Any, axis: int, call: Callable[..., Any]) -> Any:
    """Return what a function makes of each row along an axis, put together again."""
    if len({tile.shape for tile in tiles}) > 1 or not -tiles[0].ndim <= axis < tiles[0].ndim:
        text = f"axis {axis} of tiles of shapes {[tile.shape for tile in tiles]}"
        raise StagingError(BadShape(text, "give an axis of the tile"), UNKNOWN)
    turned = [np.moveaxis(tile.elements, axis, -1) for tile in tiles]
    around = turned[0].shape[:-1]
    found = []
    for index in np.ndindex(around):
        row = [value_of(each[index], tile.dtype) for each, tile in zip(turned, tiles)]
        found.append(call(run, row if isinstance(given, tuple | list) else row[0]))
    columns = list(zip(*found)) if isinstance(found[0], tuple | list) else [found]
    results = tuple([_together(column, around, axis) for column in columns])
    return results if isinstance(found[0], tuple | list) else results[0]


def _together(values: Sequence[OracleValue], around: tuple[int, ...], axis: int) -> OracleValue:
    stacked = np.array([value.elements for value in values], values[0].dtype.numpy)
    whole = stacked.reshape((*around, *stacked.shape[1:]))
    return value_of(np.moveaxis(whole, -1, axis) if stacked.ndim > 1 else whole, values[0].dtype)


def _shared(_: Any, tile: Any) -> OracleTile:
    return _tile(tile)


def _dot(_: Any, a: Any, b: Any, acc: Any = None, precision: str = "ieee", whole_rows: bool = False) -> OracleValue:
    """The product of matrices: exact where that is possible, of floats within the error of sums in float64, whatever precision is
    asked for.
    """
    left, right = _tile(a), _tile(b)
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0] or left.dtype is not right.dtype:
        raise StagingError(BadShape(f"dot of tiles of shapes {left.shape} and {right.shape}", ""), UNKNOWN)
    dtype = _sum_dtype(left.dtype)
    working = dtypes.float64 if dtype.is_float else dtype
    with np.errstate(all="ignore"):
        found = left.elements_as(working) @ right.elements_as(working)
        found = found if acc is None else found + _tile(acc).elements_as(working)
    return value_of(found, working).to(dtype)


# -- other tiles of the same elements -------------------------------------------------------------------------------------


def _flip(_: Any, tile: Any, axis: int | None = None) -> OracleValue:
    return value_of(np.flip(_tile(tile).elements, axis), tile.dtype)


def _join(_: Any, a: Any, b: Any) -> OracleValue:
    if _tile(a).dtype is not _tile(b).dtype:
        raise refused("join", f"{a.dtype.name} and {b.dtype.name}", "give both one dtype")
    return value_of(np.stack(np.broadcast_arrays(a.elements, b.elements), axis=-1), a.dtype)


def _split(_: Any, tile: Any) -> tuple[OracleValue, OracleValue]:
    if _tile(tile).ndim < 2 or tile.shape[-1] != 2:
        raise StagingError(BadShape(f"split of a tile of shape {tile.shape}", "its last axis has extent 2"), UNKNOWN)
    return value_of(tile.elements[..., 0], tile.dtype), value_of(tile.elements[..., 1], tile.dtype)


TILES: dict[Any, Callable[..., Any]] = {
    sk.reduce: _of_axes(_reduce),
    sk.scan: _of_axes(_scan),
    sk.reduce_sum: _with_axis(_reduce_sum),
    sk.reduce_max: _with_axis(_reduced(sk.maximum)),
    sk.reduce_min: _with_axis(_reduced(sk.minimum)),
    sk.cumsum: _of_axes(_cumulative(np.cumsum)),
    sk.cumprod: _of_axes(_cumulative(np.cumprod)),
    sk.argmax: _with_axis(_by_numpy(np.argmax, dtypes.int64)),
    sk.argmin: _with_axis(_by_numpy(np.argmin, dtypes.int64)),
    sk.any: _with_axis(_by_numpy(np.any, dtypes.bool_)),
    sk.all: _with_axis(_by_numpy(np.all, dtypes.bool_)),
    sk.dot: _dot,
    sk.shared: _shared,
    sk.flip: _flip,
    sk.join: _join,
    sk.split: _split,
    sk.sort: _sort,
    sk.argsort: _argsort,
    sk.topk: _topk,
    sk.gather: _gather,
    sk.histogram: _histogram,
    sk.count_nonzero: _with_axis(_by_numpy(np.count_nonzero, dtypes.int32)),
}
