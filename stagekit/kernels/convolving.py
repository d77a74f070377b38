"""Convolutions with filters, which are products of matrices.

There are a row for each filter, a column for each pixel of the result, and between them the elements that a filter covers. The
second matrix is never made. A program of `conv2d_kernel` reads the part of it that it multiplies from the planes.

On a GPU, where filters go by the same steps down and across, it is read ahead. Images are copied to rows, one for each pixel with
the frame of zeros about its image, in which channels lie side by side. What an element of the filters covers is then the same
matrix from another row on:

    out[f, pixel] = sum of filters[f, i, j, c] * rows[pixel + i * pitch + j, c]        pitch: pixels in a framed row of an image

for all pixels of all images at once. Pixels of the frame, whose sums are of no use, are computed, too, and not written. Where
filters go by steps of s, they begin at every s-th row of the matrix, and of s numbers one is written.
Sources: Chetlur et al., cuDNN: Efficient Primitives for Deep Learning, 2014; Zhou et al., Characterizing and Demystifying the
Implicit Convolution Algorithm on Commercial Matrix-Multiplication Accelerators, 2021.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import stagekit as sk
from stagekit.kernels.host import (
    Dtype,
    dtype_of,
    empty,
    factory,
    float_dtype_of,
    is_on_cpu,
    power_of_two,
    require,
    require_packed,
)
from stagekit.kernels.matrices import Blocks, BlockSizes
from stagekit.kernels.neighbouring import Pair
from stagekit.kernels.options import Extent, Precision, int_of, require_multiple
from stagekit.kernels.sharing import checked_out

Tile = tuple[int, int, int, int]  # filters, pixels, elements of a filter, and threads of a program
Pads = tuple[Extent, Extent]
PRECISIONS = ("ieee", "tf32", "tf32x3")  # of float32
MOST_PIXELS = 1 << 31  # of all images with their frames, whose numbers are int32
SIDE = 64  # pixels and channels that a program of `to_rows` turns
_LEAST_DEPTH = 16  # channels of a round


# -- from planes ------------------------------------------------------------------------------------------------------------


@factory
def conv2d_kernel(
    dtype: Dtype, KERNEL: Pair, STRIDE: Pair, PADDING: Pads, DILATION: Pair, BLOCKS: Tile, precision: Precision = "ieee"
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
            total = sk.dot(sk.load(filters.tile((first, start), (M, K))), patch, total, precision=precision)
        if bias is not None:
            total += sk.load(bias.tile(first, M)).to(sk.float32)[:, None]
        sk.store(out[image].tile((first, pixel), (M, N)), total)

    return conv2d


# -- from rows, by those who read ahead ---------------------------------------------------------------------------------------


@factory
def to_rows_kernel(dtype: Dtype, PADDING: Pads) -> sk.JitFunction:
    """Return the kernel `k[blocks of pixels, blocks of channels, images](x, out, out_columns)`, which copies images to rows.

    out: (images, pixels, channels), with the frame and with channels that x does not have, which are zeros.
    """
    images, channels, rows, columns = (sk.dynamic(name) for name in ("images", "channels", "rows", "columns"))
    X = Annotated[sk.Array, sk.Tensor((images, channels, rows, columns), dtype, (None, None, None, 1))]
    Out = Annotated[sk.Array, sk.Tensor((images, None, None), dtype, (None, None, 1))]
    top, left = PADDING

    @sk.jit(threads=256)
    def to_rows(x: X, out: Out, out_columns: sk.int32) -> None:
        pixel, channel, image = sk.program_id(0) * SIDE, sk.program_id(1) * SIDE, sk.program_id(2)
        source = x[image]
        p, c = (sk.int32(pixel) + sk.arange(0, SIDE))[None, :], (channel + sk.arange(0, SIDE))[:, None]
        y, z = p // out_columns - top, p % out_columns - left
        mask = (y >= 0) & (y < rows) & (z >= 0) & (z < columns) & (c < channels)
        place = y * source.strides[1] + z + c * source.strides[0]
        turned = sk.load(source.ptr + place, mask=mask, other=0).T
        sk.store(out[image].tile((pixel, channel), (SIDE, SIDE)), turned)

    return to_rows


@factory
def filter_rows_kernel(dtype: Dtype, AREA: int, CHANNELS: int, TILE: int) -> sk.JitFunction:
    """Return the kernel `k[filters, parts of their rows](filters, out)`, which puts the channels of each place side by side.

    filters: (filters, channels, AREA); out: (filters, AREA * CHANNELS), with zeros for channels that there are not.
    """
    Filters = Annotated[sk.Array, sk.Tensor((None, None, AREA), dtype)]
    Out = Annotated[sk.Array, sk.Tensor((None, AREA * CHANNELS), dtype, (None, 1))]

    @sk.jit
    def filter_rows(filters: Filters, out: Out) -> None:
        number, first = sk.program_id(0), sk.program_id(1) * TILE
        i = sk.int32(first) + sk.arange(0, TILE)
        place, channel = i // CHANNELS, i % CHANNELS
        exists = (channel < filters.shape[1]) & (place < AREA)
        v = sk.load(
            filters[number].ptr + (channel * filters.strides[1] + place * filters.strides[2]), mask=exists, other=0
        )
        sk.store(out[number].tile(first, TILE), v)

    return filter_rows


@factory
def conv2d_of_rows_kernel(
    dtype: Dtype, KERNEL: Pair, STRIDE: int, DILATION: Pair, CHANNELS: int, BLOCKS: BlockSizes, precision: Precision
) -> sk.JitFunction:
    """Return the kernel `k[blocks of filters, blocks of pixels](rows, filters, bias, out, pitch, height, out_columns)`.

    rows: all pixels of all images; filters: as `filter_rows` makes them; out: (images, filters, pixels). pitch: columns of a
    framed image; height: its rows where filters begin. bias: may be None. BLOCKS: of filters, pixels and channels, which divide
    CHANNELS.
    """
    images, count, pixels = sk.dynamic("images"), sk.dynamic("count"), sk.dynamic("pixels")
    (high, wide), (by, across) = KERNEL, DILATION
    Rows = Annotated[sk.Array, sk.Tensor((None, CHANNELS), dtype, (CHANNELS, 1))]
    Filters = Annotated[sk.Array, sk.Tensor((count, high * wide * CHANNELS), dtype, (high * wide * CHANNELS, 1))]
    Bias = Annotated[sk.Array, sk.Tensor((count,), dtype)]
    Out = Annotated[sk.Array, sk.Tensor((images, count, pixels), dtype, (None, None, 1))]
    M, N, K, threads, stages = Blocks(*BLOCKS)
    require_multiple("CHANNELS", CHANNELS, K)
    parts_of_channels = CHANNELS // K

    @sk.jit(threads=threads)
    def conv2d_of_rows(
        rows: Rows,
        filters: Filters,
        bias: Bias | None,
        out: Out,
        pitch: sk.int32,
        height: sk.int32,
        out_columns: sk.int32,
    ) -> None:
        first, pixel = sk.program_id(0) * M, sk.program_id(1) * N

        def parts(number: Any) -> Any:
            place, part = number // parts_of_channels, number % parts_of_channels
            ahead = place // wide * by * pitch + place % wide * across
            begun = rows[ahead::STRIDE]
            return filters.tile((first, number * K), (M, K)), begun.tile((pixel, part * K), (N, K))

        total = sk.zeros((M, N), sk.float32)
        for weights, covered in sk.staged(range(high * wide * parts_of_channels), parts, stages=max(stages, 2)):
            total = sk.dot(weights, covered.T, total, precision=precision)
        if bias is not None:
            total += sk.load(bias.tile(first, M)).to(sk.float32)[:, None]
        p, f = (sk.int32(pixel) + sk.arange(0, N))[None, :], (sk.int32(first) + sk.arange(0, M))[:, None]
        row, z = p // pitch, p % pitch
        image, y = row // height, row % height
        place = y * out_columns + z
        exists = (z < out_columns) & (place < pixels) & (image < images) & (f < count)
        sk.store(out.ptr + (image * out.strides[0] + f * out.strides[1] + place), total, mask=exists)

    return conv2d_of_rows


def _by_rows(
    x: Any, filters: Any, bias: Any, out: Any, stride: int, padding: Pair, dilation: Pair, precision: str
) -> None:
    """Write a convolution of one stride for rows and columns to out, (images, filters, rows, columns) without gaps."""
    dtype, (images, channels, *plane), (count, _, *kernel_size) = dtype_of(x), x.shape, filters.shape
    height, pitch = (size + 2 * frame for size, frame in zip(plane, padding))
    height = sk.cdiv(height, stride) * stride  # so that each image begins where a filter does
    area, blocks = math.prod(kernel_size), blocks_for_pixels(dtype, channels)
    depth = sk.cdiv(channels, blocks.depth) * blocks.depth
    rows, of_filters = empty(x, (images, height * pitch, depth), dtype), empty(x, (count, area * depth), dtype)
    to_rows_kernel(dtype, padding)[sk.cdiv(height * pitch, SIDE), sk.cdiv(depth, SIDE), images](x, rows, pitch)
    tile = min(1024, power_of_two(area * depth))
    filters = filters.reshape((count, channels, area))
    filter_rows_kernel(dtype, area, depth, tile)[count, sk.cdiv(area * depth, tile)](filters, of_filters)
    kernel = conv2d_of_rows_kernel(dtype, tuple(kernel_size), stride, dilation, depth, blocks, precision)
    grid = sk.cdiv(count, blocks.rows), sk.cdiv(images * height // stride * pitch, blocks.columns)
    flat = out.reshape((images, count, out.shape[2] * out.shape[3]))
    kernel[grid](
        rows.reshape((images * height * pitch, depth)), of_filters, bias, flat, pitch, height // stride, out.shape[3]
    )


def blocks_for_pixels(dtype: Dtype, channels: int) -> Blocks:
    """Return what a program multiplies at once: filters, pixels, and channels of one place of the filters."""
    return Blocks(64, 128, min(max(power_of_two(channels), _LEAST_DEPTH), 128 // dtype.itemsize), 128, 3)


# -- both -------------------------------------------------------------------------------------------------------------------


def conv2d(
    x: Any, filters: Any, bias: Any = None, *, stride: int | Pair = 1, padding: int | Pair = 0, dilation: int | Pair = 1,
    precision: str = "ieee", out: Any = None,
) -> Any:  # fmt: skip
    """Return the correlation of images with filters, which learning calls a convolution: (images, filters, rows, columns).

    x: (images, channels, rows, columns). filters: (filters, channels, high, wide), without gaps. bias: a number for each filter.
    All of one dtype, float32, float16 or bfloat16; sums are float32, rounded once. stride, padding, dilation: an int, or one for
    rows and one for columns. Beyond an image are zeros. A filter larger than the padded image is refused. precision: of float32
    on a GPU, as in `sk.dot`: "ieee", "tf32" or "tf32x3". Where both strides are one, a GPU makes copies of x and the filters.
    """
    dtype = float_dtype_of(x)
    known = PRECISIONS if dtype is sk.float32 else PRECISIONS[:1]
    require(precision in known, "precision={!r} of {}: it is one of {}", precision, dtype.name, known)
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
    out = empty(x, shape, dtype) if out is None else checked_out(out, apart=(x, filters, bias), shape=shape)
    require_packed(out)
    framed = shapes[0][2] + 2 * pads[0], shapes[0][3] + 2 * pads[1]
    if steps[0] == steps[1] and not is_on_cpu(x) and shape[0] * math.prod(framed) * steps[0] < MOST_PIXELS:
        _by_rows(x, filters, bias, out, steps[0], pads, gaps, precision)
        return out
    flat = out.reshape((*shape[:2], sizes[0] * sizes[1]))
    rows = filters.reshape((shape[1], math.prod(shapes[1][1:])))
    blocks = (16, 32, 32, 32) if is_on_cpu(x) else (64, 64, 16, 64)
    kernel = conv2d_kernel(dtype, kernel_size, steps, pads, gaps, blocks, precision)
    kernel[sk.cdiv(shape[1], blocks[0]), sk.cdiv(flat.shape[2], blocks[1]), shape[0]](x, rows, bias, flat, sizes[1])
    return out


def _pair(name: str, value: int | Pair, least: int) -> Pair:
    """Return one int for rows and one for columns."""
    if isinstance(value, tuple | list):
        require(len(value) == 2, "{} is {!r}: it is an int from {} on, or two", name, value, least)
        return int_of(name, value[0], least), int_of(name, value[1], least)
    both = int_of(name, value, least)
    return both, both
