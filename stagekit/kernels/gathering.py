"""Rows of a table by number: `embedding`, and its gradient, which adds rows into the table. One program for each number."""

from __future__ import annotations

import math
from typing import Annotated, Any

import stagekit as sk
from stagekit.kernels.host import Dtype, as_rows, dtype_of, empty, factory, require_packed, require_shape, tile_of
from stagekit.kernels.sharing import checked_out


@sk.inline
def is_row(number: Any, place: Any, table: Any) -> Any:
    """Return whether a table has a row of this number. On the CPU a number that is none is an error, after the launch."""
    found = (number >= 0) & (number < table.shape[0])
    assert found, f"numbers[{place}] is {number}, and the table has {table.shape[0]} rows"
    return found


@factory
def embedding_kernel(dtype: Dtype, index_dtype: Dtype, BLOCK: int) -> sk.JitFunction:
    """Return the kernel `k[numbers](table, numbers, out)`, which copies row numbers[i] of the table to row i."""
    numbers, columns = sk.dynamic("numbers"), sk.dynamic("columns")
    Table = Annotated[sk.Array, sk.Tensor((None, columns), dtype, strides=(None, 1))]
    Numbers = Annotated[sk.Array, sk.Tensor((numbers,), index_dtype)]
    Rows = Annotated[sk.Array, sk.Tensor((numbers, columns), dtype, strides=(None, 1))]

    @sk.jit
    def embedding(table: Table, numbers: Numbers, out: Rows) -> None:
        row = sk.program_id(0)
        number, target = numbers[row], out[row]
        is_there = is_row(number, row, table)
        for start in range(0, columns, BLOCK):
            i = start + sk.arange(0, BLOCK)
            if is_there:
                sk.store(target + i, sk.load(table[number] + i, mask=i < columns), mask=i < columns)
            else:
                sk.store(target + i, dtype(0), mask=i < columns)

    return embedding


def embedding(table: Any, numbers: Any, *, out: Any = None) -> Any:
    """Return the rows of a table with these numbers, not counted from the end. A number of no row gives zeros, and is an error on
    the CPU.

    table: any dtype, two axes. numbers: int32 or int64, any axes without gaps. out: the axes of numbers, and the last of the
    table.
    """
    flat, columns = _flat(numbers), table.shape[-1]
    shape = (*numbers.shape, columns)
    out = empty(table, shape, dtype_of(table)) if out is None else checked_out(out, apart=(table, numbers), shape=shape)
    kernel = embedding_kernel(dtype_of(table), dtype_of(numbers), tile_of(columns))
    kernel[flat.shape[0]](table, flat, as_rows(out))
    return out


@factory
def embedding_backward_kernel(dtype: Dtype, index_dtype: Dtype, table_dtype: Dtype, BLOCK: int) -> sk.JitFunction:
    """Return the kernel `k[numbers](gradient, numbers, table)`, which adds row i of the gradient to row numbers[i] of the
    table.
    """
    numbers, columns = sk.dynamic("numbers"), sk.dynamic("columns")
    Rows = Annotated[sk.Array, sk.Tensor((numbers, columns), dtype, strides=(None, 1))]
    Numbers = Annotated[sk.Array, sk.Tensor((numbers,), index_dtype)]
    Table = Annotated[sk.Array, sk.Tensor((None, columns), table_dtype, strides=(None, 1))]

    @sk.jit
    def embedding_backward(gradient: Rows, numbers: Numbers, table: Table) -> None:
        row = sk.program_id(0)
        number, source = numbers[row], gradient[row]
        if is_row(number, row, table):
            for start in range(0, columns, BLOCK):
                i = start + sk.arange(0, BLOCK)
                x = sk.load(source + i, mask=i < columns).to(table_dtype)
                sk.atomic_add(table[number] + i, x, mask=i < columns)

    return embedding_backward


def embedding_backward(gradient: Any, numbers: Any, out: Any) -> Any:
    """Add the rows of a gradient to the rows of `out` with these numbers, and return it: what `embedding` was given twice adds
    up.

    gradient: the axes of numbers, and the last of out. out: two axes, best float32: each addition is rounded, and they come in no
    certain order, so that the last bits may differ from run to run.
    """
    checked_out(out, apart=(gradient, numbers))
    require_shape("gradient", gradient, (*numbers.shape, out.shape[-1]))
    flat, columns = _flat(numbers), out.shape[-1]
    tile = tile_of(columns)
    kernel = embedding_backward_kernel(dtype_of(gradient), dtype_of(numbers), dtype_of(out), tile)
    kernel[flat.shape[0]](as_rows(gradient), flat, out)
    return out


def _flat(numbers: Any) -> Any:
    if len(numbers.shape) == 1:
        return numbers
    require_packed(numbers)
    return numbers.reshape((math.prod(numbers.shape),))
