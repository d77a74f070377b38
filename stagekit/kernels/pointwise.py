"""Kernels that make each element from the elements beside it: `elementwise` of any function, and what is built of it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Annotated, Any

import stagekit as sk
from stagekit.kernels.host import as_rows, dtype_of, empty_like, is_packed

MAX_INPUTS = 8
PIECE = 1024  # elements of a program
Kind = tuple[sk.DType, int] | None  # of an input: dtype and axes; None for a number

# -- elementwise ----------------------------------------------------------------------------------------------------------


@sk.inline
def element_of(x: Any, row: Any, i: Any, mask: Any) -> Any:
    """Return the tile of what goes with the indices `i`: of a row of x, of x itself where it has no rows, or x as a number."""
    if not hasattr(x, "shape"):
        return x
    tile = sk.load((x if row is None or x.ndim == 1 else x[row]) + i, mask=mask)
    return tile.to(sk.float32) if tile.dtype.is_float and tile.dtype.bits < 32 else tile


@functools.cache
def elementwise_kernel(
    function: Callable[..., Any],
    kinds: tuple[Kind, ...],
    out_kind: tuple[sk.DType, int],
    BY_ROWS: bool,
    BLOCK: int,
) -> sk.JitFunction:
    """Return the kernel `k[pieces](out, *inputs)` of arrays without gaps, all elements in a row, or BY_ROWS the kernel
    `k[rows, pieces of a row](out, *inputs)` of arrays with two axes, and inputs of one that go with each row.

    function: takes tiles, those of 16-bit floats as float32. kinds, out_kind: dtypes and numbers of axes.
    """
    sizes = tuple(sk.dynamic(f"size{axis}") for axis in range(2 if BY_ROWS else out_kind[1]))

    def parameter(kind: Kind) -> Any:
        if kind is None:
            return None
        dtype, axes = kind
        return sk.Tensor(sizes[-axes:], dtype, (None, 1)[-axes:] if BY_ROWS else None)

    Out = Annotated[sk.Array, parameter(out_kind)]
    of = [parameter(kind) for kind in (*kinds, *[None] * MAX_INPUTS)[:MAX_INPUTS]]
    A = Annotated[Any, of[0]]
    B = Annotated[Any, of[1]]
    C = Annotated[Any, of[2]]
    D = Annotated[Any, of[3]]
    E = Annotated[Any, of[4]]
    F = Annotated[Any, of[5]]
    G = Annotated[Any, of[6]]
    H = Annotated[Any, of[7]]

    @sk.jit(name=getattr(function, "__name__", "elementwise"))
    def elementwise(
        out: Out, a: A = None, b: B = None, c: C = None, d: D = None, e: E = None, f: F = None, g: G = None, h: H = None
    ) -> None:
        row = sk.program_id(0) if BY_ROWS else None
        i = sk.program_id(1 if BY_ROWS else 0) * BLOCK + sk.arange(0, BLOCK)
        mask = i < (out.shape[1] if BY_ROWS else math.prod(out.shape))
        inputs = (a, b, c, d, e, f, g, h)[: len(kinds)]
        value = function(*[element_of(x, row, i, mask) for x in inputs])
        sk.store((out if row is None else out[row]) + i, value, mask=mask)

    return elementwise


def elementwise(function: Callable[..., Any], *inputs: Any, out: Any = None) -> Any:
    """Return function(*inputs) of each element. At most 8 inputs: arrays of one shape, arrays of one axis, numbers.

    function: of tiles, as `lambda x, y: sk.maximum(x + y, 0)`; 16-bit floats come as float32 and are rounded at the end. Arrays
    have an axis at least; one of one axis goes with each row of the others. out: any dtype; left out, like the first array.
    Rows may be apart; out may be one of the inputs.
    """
    arrays = [x for x in inputs if hasattr(x, "shape")]
    out = target = empty_like(arrays[0]) if out is None else out
    by_rows = any(x.shape != out.shape or not is_packed(x) for x in (out, *arrays))
    if by_rows:
        target = as_rows(out)
        inputs = tuple(as_rows(x) if len(getattr(x, "shape", ())) > 1 else x for x in inputs)
    kinds = tuple((dtype_of(x), len(x.shape)) if hasattr(x, "shape") else None for x in inputs)
    kernel = elementwise_kernel(function, kinds, (dtype_of(out), len(target.shape)), by_rows, PIECE)
    grid = (target.shape[0], sk.cdiv(target.shape[1], PIECE)) if by_rows else sk.cdiv(math.prod(out.shape), PIECE)
    kernel[grid](target, *inputs)
    return out
