"""What elements of a plane make of their neighbours: stencils of any function, and convolutions with filters.

A convolution is a product of matrices: a row for each filter, a column for each pixel of the result, and between them the
elements that a filter covers. The second matrix is never made: a program reads the part of it that it multiplies from the planes.
Source: Chetlur et al., cuDNN: Efficient Primitives for Deep Learning, 2014.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

import stagekit as sk
from stagekit.kernels.host import (
    Dtype,
    dtype_of,
    empty,
    empty_like,
    factory,
    float_dtype_of,
    is_array,
    is_on_cpu,
    require,
    require_packed,
    settled,
)
from stagekit.kernels.sharing import checked_out

Pair = tuple[int, int]  # along rows and columns of a plane
Blocks = tuple[int, int, int, int]  # filters, pixels, elements of a filter, and threads of a program
Edge = Literal["nearest", "wrap"] | float

# -- stencils -------------------------------------------------------------------------------------------------------------


@factory
def stencil_kernel(
    function: Callable[..., Any], dtype: Dtype, out_dtype: Dtype, EDGE: Edge, SIDES: Pair
) -> sk.JitFunction:
    """Return the kernel `k[blocks of rows, blocks of columns, planes](x, out)`, for blocks of SIDES."""
    planes, rows, columns = sk.dynamic("planes"), sk.dynamic("rows"), sk.dynamic("columns")
    X = Annotated[sk.Array, sk.Tensor((planes, rows, columns), dtype, (None, None, 1))]
    Out = Annotated[sk.Array, sk.Tensor((planes, rows, columns), out_dtype, (None, None, 1))]
    M, N = SIDES

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
    out = empty_like(x) if out is None else checked_out(out, apart=(x,))
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


# -- convolution ------------------------------------------------------------------------------------------------------------


@factory
def conv2d_kernel(
    dtype: Dtype, KERNEL: Pair, STRIDE: Pair, PADDING: Pair, DILATION: Pair, BLOCKS: Blocks
) -> sk.JitFunction:
    """Return the kernel `k[blocks of filters, blocks of pixels, images](x, filters, bias, out, out_columns)`.

    filters: a row for each, without gaps. bias: may be None. out: pixels along one axis, out_columns in a row.
    """
    images, channels, rows, columns = (sk.dynamic(name) for name in ("images", "channels", "rows", "columns"))
    count, depth, pixels = sk.dynamic("count"), sk.dynamic("depth"), sk.dynamic("pixels")
    X = Annotated[sk.Array, sk.Tensor((images, channels, rows, columns), dtype, (None, None, None, 1))]
    Filters = Annotated[sk.Array, sk.Tensor((count, depth), dtype)]
    Bias = Annotated[sk.Array, sk.Tensor((count,), dtype)]
    Out = Annotated[sk.Array, sk.Tensor((images, count, pixels), dtype)]
    M, N, K, threads = BLOCKS
    (high, wide), (down, right), (top, left), (by, across) = KERNEL, STRIDE, PADDING, DILATION

    @sk.jit(threads=threads)
    def conv2d(x: X, filters: Filters, bias: Bias | None, out: Out, out_columns: sk.int64) -> None:
        first, pixel, image = sk.program_id(0) * M, sk.program_id(1) * N, sk.program_id(2)
        source = x[image]
        p = (pixel + sk.arange(0, N))[None, :]
        y, z = p // out_columns * down - top, p % out_columns * right - left  # where a filter begins
        total = sk.zeros((M, N), sk.float32)
        for start in range(0, depth, K):
            k = (start + sk.arange(0, K))[:, None]
            i, j = y + k // wide % high * by, z + k % wide * across
            mask = (i >= 0) & (i < rows) & (j >= 0) & (j < columns) & (k < depth) & (p < pixels)
            covered = k // (high * wide) * source.strides[0] + i * source.strides[1] + j
            patch = sk.load(source.ptr + covered, mask=mask)
            total = sk.dot(sk.load(filters.tile((first, start), (M, K))), patch, total)
        if bias is not None:
            total += sk.load(bias.tile(first, M)).to(sk.float32)[:, None]
        sk.store(out[image].tile((first, pixel), (M, N)), total)

    return conv2d


def conv2d(
    x: Any, filters: Any, bias: Any = None, *, stride: int | Pair = 1, padding: int | Pair = 0, dilation: int | Pair = 1,
    out: Any = None,
) -> Any:  # fmt: skip
    """Return the correlation of images with filters, which learning calls a convolution: (images, filters, rows, columns).

    x: (images, channels, rows, columns). filters: (filters, channels, high, wide), without gaps. bias: a number for each filter.
    All of one dtype, float32, float16 or bfloat16; sums are float32, rounded once. stride, padding, dilation: an int, or one for
    rows and one for columns. Beyond an image are zeros. A filter larger than the padded image is refused.
    """
    dtype = float_dtype_of(x)
    shapes = tuple(x.shape), tuple(filters.shape)
    require(
        len(shapes[0]) == len(shapes[1]) == 4 and shapes[0][1] == shapes[1][1],
        f"x and filters have shapes {shapes[0]} and {shapes[1]}: (images, channels, rows, columns) and "
        "(filters, channels, high, wide)",
    )
    kernel_size = shapes[1][2], shapes[1][3]
    steps, pads, gaps = _pair("stride", stride, 1), _pair("padding", padding, 0), _pair("dilation", dilation, 1)
    sizes = [
        (size + 2 * pad - gap * (length - 1) - 1) // step + 1
        for size, pad, gap, length, step in zip(shapes[0][2:], pads, gaps, kernel_size, steps)
    ]
    require(min(sizes) > 0, f"filters of {kernel_size} do not fit into padded images of {shapes[0][2:]}")
    require_packed(filters)
    shape = shapes[0][0], shapes[1][0], *sizes
    out = empty(x, shape, dtype) if out is None else checked_out(out, apart=(x, filters))
    require_packed(out)
    flat = out.reshape((*shape[:2], sizes[0] * sizes[1]))
    rows = filters.reshape((shape[1], math.prod(shapes[1][1:])))
    blocks = (16, 32, 32, 32) if is_on_cpu(x) else (64, 64, 16, 64)
    kernel = conv2d_kernel(dtype, kernel_size, steps, pads, gaps, blocks)
    kernel[sk.cdiv(shape[1], blocks[0]), sk.cdiv(flat.shape[2], blocks[1]), shape[0]](x, rows, bias, flat, sizes[1])
    return out


def _pair(name: str, value: int | Pair, least: int) -> Pair:
    """Return one int for rows and one for columns."""
    pair = (value, value) if isinstance(value, int) else tuple(value)
    require(
        len(pair) == 2 and all(isinstance(each, int) and each >= least for each in pair),
        f"{name} is {value!r}: give an int from {least} on, or two",
    )
    return pair[0], pair[1]
