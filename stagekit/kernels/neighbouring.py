"""What elements of a plane make of their neighbours: stencils of any function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

import stagekit as sk
from stagekit.kernels.host import (
    Dtype,
    dtype_of,
    empty_like,
    factory,
    is_array,
    is_on_cpu,
    require,
    require_packed,
    settled,
)
from stagekit.kernels.sharing import checked_out

Pair = tuple[int, int]  # along rows and columns of a plane
Edge = Literal["nearest", "wrap"] | float


@factory
def stencil_kernel(
    function: Callable[..., Any], dtype: Dtype, out_dtype: Dtype, EDGE: Edge, SIDES: Pair
) -> sk.JitFunction:
    """Return the kernel `k[blocks of rows, blocks of columns, planes](x, out)`, for blocks of SIDES."""
    planes, rows, columns = sk.dynamic("planes"), sk.dynamic("rows"), sk.dynamic("columns")
    X = Annotated[sk.Array, sk.Tensor((planes, rows, columns), dtype, (None, None, 1))]
    Out = Annotated[sk.Array, sk.Tensor((planes, rows, columns), out_dtype, (None, None, 1))]
    M, N = SIDES
    fits = isinstance(EDGE, str) or dtype.is_float or (dtype.min <= EDGE <= dtype.max and int(EDGE) == EDGE)
    require(fits, "EDGE is {!r}: {} has no such number", EDGE, dtype.name)

    @sk.jit
    def stencil(x: X, out: Out) -> None:
        row, column, plane = sk.program_id(0) * M, sk.program_id(1) * N, sk.program_id(2)
        source = x[plane]

        def at(down: int, right: int) -> Any:
            if not isinstance(EDGE, str):
                tile = sk.load(source.tile((row + down, column + right), (M, N)), other=dtype(EDGE))
            else:
                i = inside(row + down + sk.arange(0, M), rows, EDGE)[:, None]
                j = inside(column + right + sk.arange(0, N), columns, EDGE)[None, :]
                tile = sk.load(source.ptr + (i * source.strides[0] + j))
            return tile.to(sk.float32) if dtype.is_float and dtype.bits < 32 else tile

        sk.store(out[plane].tile((row, column), (M, N)), function(at))

    return stencil


@sk.inline
def inside(i: Any, size: Any, EDGE: str) -> Any:
    """Return indices of an axis for those beyond its ends: that of the nearest element, or counted on from the other end."""
    return i % size if EDGE == "wrap" else sk.minimum(sk.maximum(i, 0), size - 1)


def stencil(function: Callable[..., Any], x: Any, *, edge: Edge = 0.0, out: Any = None) -> Any:
    """Return what a function makes of the neighbours of each element of the planes of x, which lie along its last two axes.

    function: of `at`, of which `at(down, right)` is the element so many rows and columns further, a tile of them; the numbers are
    ints, such as `lambda at: at(-1, 0) + at(1, 0) + at(0, -1) + at(0, 1) - 4 * at(0, 0)`. Those of 16-bit floats are float32.
    x: any dtype, 2 axes or more. edge: what is beyond the plane, a number, or "nearest", or "wrap". out: any dtype, not x.
    """
    require(is_array(x) and len(x.shape) >= 2, "an array of two axes or more is needed, got {!r}", x)
    require(
        edge in ("nearest", "wrap") or not isinstance(edge, str), f'edge is {edge!r}: a number, "nearest" or "wrap"'
    )
    out = empty_like(x) if out is None else checked_out(out, apart=(x,), shape=x.shape)
    source, target = as_planes(x), as_planes(out)
    planes, rows, columns = source.shape
    sides = (8, 32) if is_on_cpu(x) else (16, 64)
    kernel = stencil_kernel(settled(function), dtype_of(x), dtype_of(out), edge, sides)
    kernel[sk.cdiv(rows, sides[0]), sk.cdiv(columns, sides[1]), planes](source, target)
    return out


def as_planes(x: Any) -> Any:
    """Return a view with three axes: the last two, and all before them as one."""
    if len(x.shape) == 3:
        return x
    require_packed(x)
    return x.reshape((math.prod(x.shape[:-2]), *x.shape[-2:]))
