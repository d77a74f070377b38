"""Sums, largest elements and where they are: of rows, of columns, and of whole arrays.

A row is one program's. A whole array is shared by programs that each take every `programs`-th piece; one more program reduces
what they found. Nothing depends on which program comes first, so every run has the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import stagekit as sk
from stagekit.kernels.fragments import load_piece, store_piece
from stagekit.kernels.host import (
    STREAMED_TILE,
    Dtype,
    as_rows,
    dtype_of,
    empty,
    factory,
    float_dtype_of,
    is_on_cpu,
    power_of_two,
    programs_for,
    require,
    require_array,
    require_packed,
    tile_of,
)
from stagekit.kernels.sharing import checked_out

MOST_PROGRAMS, MOST_ON_CPU = 8192, 1024  # that share a whole array
COLUMNS = 128  # of a program that adds columns


@dataclass(frozen=True)
class Reduction:
    """A reduction of elements. combine: of two tiles, or two numbers; of_tile: of a tile, to a number."""

    combine: Callable[[Any, Any], Any]
    of_tile: Callable[[Any], Any]
    identity_of: Callable[[sk.DType], Any]
    dtype_of: Callable[[sk.DType], sk.DType]  # of the result; a 16-bit float is reduced in float32


@sk.inline
def plus(a: Any, b: Any) -> Any:
    """Return a + b."""
    return a + b


SUM = Reduction(plus, sk.reduce_sum, lambda dtype: 0, lambda dtype: dtype if dtype.is_float else sk.int64)
MAX = Reduction(
    sk.maximum, sk.reduce_max, lambda dtype: -float("inf") if dtype.is_float else dtype.min, lambda dtype: dtype
)


def widened(dtype: Dtype) -> sk.DType:
    """Return the dtype to reduce `dtype` in."""
    if dtype is sk.bool_:
        return sk.uint8
    return sk.float32 if dtype.is_float and dtype.bits < 32 else dtype


# -- rows, and whole arrays ---------------------------------------------------------------------------------------------


@sk.inline
def reduced(of: Reduction, source: Any, first: Any, end: Any, step: Any, working: Dtype, BLOCK: int) -> Any:
    """Return what the pieces of `source` at `first`, `first + step` and so on reduce to, as one number."""
    identity = of.identity_of(working)
    found = sk.full(BLOCK, identity, working)
    for start in range(first, end, step):
        i = start + sk.arange(0, BLOCK)
        x = sk.load(source + i, mask=i < end)
        found = of.combine(found, sk.where(i < end, x.to(working), identity))
    return of.of_tile(found)


@factory
def reduce_rows_kernel(of: Reduction, dtype: Dtype, BLOCK: int) -> sk.JitFunction:
    """Return the kernel `k[rows](x, out)`."""
    rows, columns = sk.dynamic("rows"), sk.dynamic("columns")
    Rows = Annotated[sk.Array, sk.Tensor((rows, columns), dtype, strides=(None, 1))]
    Out = Annotated[sk.Array, sk.Tensor((rows,), of.dtype_of(dtype))]
    working = widened(of.dtype_of(dtype))

    @sk.jit
    def reduce_rows(x: Rows, out: Out) -> None:
        row = sk.program_id(0)
        out[row] = reduced(of, x[row], 0, columns, BLOCK, working, BLOCK)

    return reduce_rows


@factory
def reduce_kernel(of: Reduction, dtype: Dtype, axes: int, out_dtype: Dtype, BLOCK: int) -> sk.JitFunction:
    """Return the kernel `k[programs](x, out)` of arrays without gaps, in which each program finds one element of out."""
    X = Annotated[sk.Array, sk.Tensor((None,) * axes, dtype)]
    Out = Annotated[sk.Array, sk.Tensor((None,), out_dtype)]
    working = widened(of.dtype_of(dtype))

    @sk.jit(threads=BLOCK // 8 if 256 <= BLOCK <= 8192 else None)  # two vectors of memory in each, of a long array
    def reduce(x: X, out: Out) -> None:
        program, step = sk.program_id(0), sk.num_programs(0) * BLOCK
        out[program] = reduced(of, x, program * BLOCK, math.prod(x.shape), step, working, BLOCK)

    return reduce


def _reduce(of: Reduction, x: Any, axis: int | None) -> Any:
    dtype = dtype_of(x)
    if axis is None:
        require_packed(x)
        most = MOST_ON_CPU if is_on_cpu(x) else MOST_PROGRAMS
        programs = programs_for(math.prod(x.shape), STREAMED_TILE, most)
        parts = empty(x, (programs,), widened(of.dtype_of(dtype)))
        out = empty(x, (1,), of.dtype_of(dtype))
        reduce_kernel(of, dtype, len(x.shape), dtype_of(parts), STREAMED_TILE)[programs](x, parts)
        reduce_kernel(of, dtype_of(parts), 1, dtype_of(out), power_of_two(programs))[1](parts, out)
        return out
    require_last(axis, x)
    rows = as_rows(x)
    out = empty(x, (rows.shape[0],), of.dtype_of(dtype))
    reduce_rows_kernel(of, dtype, tile_of(rows.shape[1]))[rows.shape[0]](rows, out)
    return out if len(x.shape) == 2 else out.reshape(tuple(x.shape[:-1]))


def require_last(axis: int, x: Any) -> None:
    last = len(x.shape) - 1
    if axis is True or axis not in (-1, last):
        require(False, "axis is {!r}: rows lie along the last axis, -1; None stands for the whole array", axis)


def sum(x: Any, *, axis: int | None = None) -> Any:
    """Return the sum of all elements as an array of one element, or the sums along the last axis (`axis=-1`).

    x: any dtype; float16 and bfloat16 are summed in float32, integers in int64, in which they are returned.
    """
    return _reduce(SUM, x, axis)


def max(x: Any, *, axis: int | None = None) -> Any:
    """Return the largest element as an array of one element, or those along the last axis (`axis=-1`); NaN if there is one.

    Of nothing it is -inf, or the least integer.
    """
    return _reduce(MAX, x, axis)


# -- where the largest is -------------------------------------------------------------------------------------------------


@sk.inline
def better(a: Any, b: Any) -> Any:
    """Return that of two pairs (number, index) which holds the larger number, of equal ones the lower index; NaN is largest."""
    (x, i), (y, j) = a, b
    is_nan, other_is_nan = x != x, y != y
    is_first = (x > y) | (is_nan & ~other_is_nan) | (((x == y) | (is_nan & other_is_nan)) & (i < j))
    return sk.where(is_first, x, y), sk.where(is_first, i, j)


@factory
def argmax_kernel(dtype: Dtype, BLOCK: int) -> sk.JitFunction:
    """Return the kernel `k[rows](x, out)`; out is int64."""
    rows, columns = sk.dynamic("rows"), sk.dynamic("columns")
    Rows = Annotated[sk.Array, sk.Tensor((rows, columns), dtype, strides=(None, 1))]
    Out = Annotated[sk.Array, sk.Tensor((rows,), sk.int64)]
    working = widened(dtype)
    lowest = MAX.identity_of(working)

    @sk.jit
    def argmax(x: Rows, out: Out) -> None:
        row = sk.program_id(0)
        best = sk.full(BLOCK, lowest, working), sk.arange(0, BLOCK)  # nothing is less, and the first of equals counts
        for start in range(0, columns, BLOCK):
            i = start + sk.arange(0, BLOCK)
            numbers = sk.load(x[row] + i, mask=i < columns).to(working)
            best = better(best, (sk.where(i < columns, numbers, lowest), i))
        _, out[row] = sk.reduce(best, better, commutative=True)

    return argmax


def argmax(x: Any) -> Any:
    """Return the index of the largest element along the last axis, int64: of several the first, of NaNs the first."""
    rows = as_rows(x)
    require(rows.shape[1] > 0, f"of an array of shape {tuple(x.shape)} no row has a largest element")
    out = empty(x, (rows.shape[0],), sk.int64)
    argmax_kernel(dtype_of(x), tile_of(rows.shape[1]))[rows.shape[0]](rows, out)
    return out if len(x.shape) == 2 else out.reshape(tuple(x.shape[:-1]))


# -- columns ------------------------------------------------------------------------------------------------------------


@factory
def column_sums_kernel(dtype: Dtype, out_dtype: Dtype, BLOCK: int) -> sk.JitFunction:
    """Return the kernel `k[pieces of a row](x, out)`, the sums of the columns of x in order, in float32."""
    rows, columns = sk.dynamic("rows"), sk.dynamic("columns")
    Rows = Annotated[sk.Array, sk.Tensor((rows, columns), dtype, strides=(None, 1))]
    Out = Annotated[sk.Array, sk.Tensor((columns,), out_dtype)]

    @sk.jit
    def column_sums(x: Rows, out: Out) -> None:
        start = sk.program_id(0) * BLOCK
        total = sk.zeros(BLOCK, sk.float32)
        for row in range(rows):
            total += load_piece(x[row], start, columns, BLOCK)
        store_piece(out, start, columns, total)

    return column_sums


def column_sums(x: Any, *, out: Any = None) -> Any:
    """Return the sums of the columns of x, of two axes, added in float32.

    x: float32, float16 or bfloat16. out: one axis, any float dtype.
    """
    require_array(x)
    out = empty(x, (x.shape[-1],), dtype_of(x)) if out is None else checked_out(out, apart=(x,))
    column_sums_kernel(float_dtype_of(x), dtype_of(out), COLUMNS)[sk.cdiv(x.shape[-1], COLUMNS)](x, out)
    return out
