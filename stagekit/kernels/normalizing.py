"""Rows scaled to a sum, a size or a spread: softmax, rmsnorm, layernorm. One program for each row.

A row that fits a tile is read once and stays in registers. A longer one passes through in several tiles, once for what is known
of the whole row and once to be written; `ONE_TILE` decides while a kernel is specialised. Sums are in float32.
"""

from __future__ import annotations

from typing import Annotated, Any

import stagekit as sk
from stagekit.kernels.fragments import exp_for, load_piece, starts, store_piece
from stagekit.kernels.host import (
    MAX_TILE,
    Dtype,
    as_rows,
    dtype_of,
    empty,
    empty_like,
    factory,
    float_dtype_of,
    is_on_cpu,
    require_shape,
    tile_for,
    tile_near,
)
from stagekit.kernels.reducing import column_sums
from stagekit.kernels.sharing import checked_out

LOWEST = sk.float32.min
# elements of 32 and of 16 bits, at most, of which a tile is kept on the CPU
KEPT_OF_SOFTMAX, KEPT_OF_NORMS = (256, MAX_TILE), (256, 256)


def threads_of(ONE_TILE: bool, REREAD: bool) -> int | None:
    """Return how many threads a program has: where the CPU reads a row again a warp, which waits for no other."""
    return 32 if REREAD and not ONE_TILE else None


# -- softmax ------------------------------------------------------------------------------------------------------------


@sk.inline
def softmax_of_tile(source: Any, target: Any, columns: Any, BLOCK: int) -> None:
    """Write the softmax of a row that is read once."""
    x = load_piece(source, 0, columns, BLOCK, -float("inf"))
    e = exp_for(source, x - sk.reduce_max(x))
    store_piece(target, 0, columns, e * (1 / sk.reduce_sum(e)))


@sk.inline
def softmax_of_tiles(source: Any, target: Any, columns: Any, BLOCK: int) -> None:
    """Write the softmax of a row that is read twice: first for its largest element and its sum."""
    largest, total = largest_and_total(source, columns, BLOCK)
    for start in range(0, columns, BLOCK):
        x = load_piece(source, start, columns, BLOCK)
        store_piece(target, start, columns, exp_for(target, x - largest) * (1 / total))


@sk.inline
def softmax_by_way_of_target(source: Any, target: Any, columns: Any, BLOCK: int) -> None:
    """Write the softmax of a row of float32, of which exponentials are kept where the result will be: each is computed once."""
    largest = sk.full(BLOCK, -float("inf"), sk.float32)
    for start in range(0, columns, BLOCK):
        largest = sk.maximum(largest, load_piece(source, start, columns, BLOCK, -float("inf")))
    of_row = sk.reduce_max(largest)
    total = sk.zeros(BLOCK, sk.float32)
    for start in range(0, columns, BLOCK):
        e = exp_for(source, load_piece(source, start, columns, BLOCK, -float("inf")) - of_row)
        total += e
        store_piece(target, start, columns, e)
    share = 1 / sk.reduce_sum(total)
    for start in range(0, columns, BLOCK):
        store_piece(target, start, columns, load_piece(target, start, columns, BLOCK) * share)


@sk.inline
def largest_and_total(source: Any, columns: Any, BLOCK: int) -> Any:
    """Return the largest x of a row, and the sum of exp(x - largest), in one pass.

    Each element of the tile has a sum of its own, scaled down whenever its own largest element grows.
    Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
    """
    largest = sk.full(BLOCK, LOWEST, sk.float32)
    total = sk.zeros(BLOCK, sk.float32)
    for start in range(0, columns, BLOCK):
        x = load_piece(source, start, columns, BLOCK, -float("inf"))
        now = sk.maximum(largest, x)
        total = total * exp_for(source, largest - now) + exp_for(source, x - now)
        largest = now
    of_row = sk.reduce_max(largest)
    return of_row, sk.reduce_sum(total * exp_for(source, largest - of_row))


@factory
def softmax_kernel(dtype: Dtype, BLOCK: int, ONE_TILE: bool, REREAD: bool = False) -> sk.JitFunction:
    """Return the kernel `k[rows](x, out)` for rows of at most BLOCK elements, or of any length unless ONE_TILE.

    REREAD: a longer row of float32 passes through three times, with one exponential of each element, else twice, with three.
    """
    rows, columns = sk.dynamic("rows"), sk.dynamic("columns")
    Rows = Annotated[sk.Array, sk.Tensor((rows, columns), dtype, strides=(None, 1))]
    of_tiles = softmax_by_way_of_target if REREAD and dtype is sk.float32 else softmax_of_tiles
    softmax_of_row = softmax_of_tile if ONE_TILE else of_tiles

    @sk.jit(threads=threads_of(ONE_TILE, REREAD))
    def softmax(x: Rows, out: Rows) -> None:
        row = sk.program_id(0)
        softmax_of_row(x[row], out[row], columns, BLOCK)

    return softmax


def softmax(x: Any, *, out: Any = None) -> Any:
    """Return the softmax along the last axis: exp(x - max) / sum(exp(x - max)).

    x: float32, float16 or bfloat16; of rows of two axes, the rows may be apart. out: the same shape and dtype, x itself too.
    exp is `sk.fast_exp`, 0 below 2**-126, on a GPU within 4 units in the last place of float32; of 16-bit rows, whose results
    show less, the power of 2 of a rounded product.
    """
    out = empty_like(x) if out is None else checked_out(out, x, shape=x.shape)
    source, target = as_rows(x), as_rows(out)
    softmax_kernel(float_dtype_of(x), *tile_near(x, *KEPT_OF_SOFTMAX), is_on_cpu(x))[source.shape[0]](source, target)
    return out


# -- rmsnorm ------------------------------------------------------------------------------------------------------------


@factory
def rmsnorm_kernel(
    dtype: Dtype, weight_dtype: Dtype, BLOCK: int, ONE_TILE: bool, REREAD: bool = False
) -> sk.JitFunction:
    """Return the kernel `k[rows](x, residual, weight, out, eps)`; residual may be None."""
    rows, columns = sk.dynamic("rows"), sk.dynamic("columns")
    Rows = Annotated[sk.Array, sk.Tensor((rows, columns), dtype, strides=(None, 1))]
    Weight = Annotated[sk.Array, sk.Tensor((columns,), weight_dtype, strides=(1,))]

    @sk.jit(threads=threads_of(ONE_TILE, REREAD))
    def rmsnorm(x: Rows, residual: Rows | None, weight: Weight, out: Rows, eps: sk.float32) -> None:
        row = sk.program_id(0)
        source = x[row] if residual is None else residual[row]  # the row, once the residual is added
        squares = sk.zeros(BLOCK, sk.float32)
        for start in starts(columns, BLOCK, ONE_TILE):
            v = load_piece(x[row], start, columns, BLOCK)
            if residual is not None:
                v = add_residual(v, residual[row], start, columns)
            squares += v * v
        scale = sk.rsqrt(sk.reduce_sum(squares) / columns + eps)
        for start in starts(columns, BLOCK, ONE_TILE):
            if not ONE_TILE:  # else the row is still here
                v = load_piece(source, start, columns, BLOCK)
            store_piece(out[row], start, columns, v * scale * load_piece(weight, start, columns, BLOCK))

    return rmsnorm


@sk.inline
def add_residual(v: Any, residual: Any, start: Any, columns: Any) -> Any:
    """Return v plus a piece of the residual, which becomes the residual: rounded, as the next layer reads it."""
    v = (v + load_piece(residual, start, columns, len(v))).to(residual.dtype)
    store_piece(residual, start, columns, v)
    return v.to(sk.float32)


def rmsnorm(x: Any, weight: Any, *, residual: Any = None, out: Any = None, eps: float = 1e-6) -> Any:
    """Return x / sqrt(mean(x²) + eps) * weight, with the mean along the last axis.

    x: float32, float16 or bfloat16. weight: as long as the last axis, of a float dtype of its own. out: like x, x itself too.
    residual: like x, not out; x + residual is normalised, and written to it.
    """
    out = _checked_outs(x, out, residual, weight)
    source, target = as_rows(x), as_rows(out)
    kernel = rmsnorm_kernel(float_dtype_of(x), dtype_of(weight), *tile_near(x, *KEPT_OF_NORMS), is_on_cpu(x))
    kernel[source.shape[0]](source, residual if residual is None else as_rows(residual), weight, target, eps)
    return out


def _checked_outs(x: Any, out: Any, residual: Any, *read: Any) -> Any:
    """Return the array for the result of a norm. It and the residual, to which the sum is written, are checked."""
    if residual is not None:
        checked_out(residual, x, apart=read, shape=x.shape, name="residual")
    return empty_like(x) if out is None else checked_out(out, x, apart=(residual, *read), shape=x.shape)


# -- layernorm ----------------------------------------------------------------------------------------------------------


@sk.inline
def mean_and_spread(x: Any, residual: Any, columns: Any, BLOCK: int) -> Any:
    """Return the mean of a row, once the residual is added, and the mean of squared distances from it, in one pass.

    Each element of the tile has a mean and a sum of squares of its own, which lose no digits; then they are joined. Source: Chan,
    Golub and LeVeque, "Algorithms for Computing the Sample Variance", 1983.
    """
    mean = squares = sk.zeros(BLOCK, sk.float32)
    number = sk.float32(0)
    for start in range(0, columns, BLOCK):
        v = load_piece(x, start, columns, BLOCK)
        if residual is not None:
            v = add_residual(v, residual, start, columns)
        number += 1
        distance = sk.where(start + sk.arange(0, BLOCK) < columns, v - mean, 0)
        mean = sk.fma(distance, 1 / number, mean)
        squares = sk.fma(distance, v - mean, squares)
    counts = (columns // BLOCK + sk.where(sk.arange(0, BLOCK) < columns % BLOCK, 1, 0)).to(sk.float32)
    share = 1 / columns.to(sk.float32)
    of_row = sk.reduce_sum(mean * counts) * share
    return of_row, sk.reduce_sum(squares + (mean - of_row) ** 2 * counts) * share


@factory
def layernorm_kernel(
    dtype: Dtype, weight_dtype: Dtype, BLOCK: int, ONE_TILE: bool, REREAD: bool = False
) -> sk.JitFunction:
    """Return the kernel `k[rows](x, residual, weight, bias, out, eps)`; residual and bias may be None.

    The spread is the mean of squared distances from the mean, which loses no digits as E[x²] - E[x]² does: a row of several
    tiles is read three times, or twice with more arithmetic, if REREAD.
    """
    rows, columns = sk.dynamic("rows"), sk.dynamic("columns")
    Rows = Annotated[sk.Array, sk.Tensor((rows, columns), dtype, strides=(None, 1))]
    Weight = Annotated[sk.Array, sk.Tensor((columns,), weight_dtype, strides=(1,))]

    @sk.jit(threads=threads_of(ONE_TILE, REREAD))
    def layernorm(
        x: Rows, residual: Rows | None, weight: Weight, bias: Weight | None, out: Rows, eps: sk.float32
    ) -> None:
        row = sk.program_id(0)
        source = x[row] if residual is None else residual[row]  # the row, once the residual is added
        if REREAD and not ONE_TILE:
            mean, spread = mean_and_spread(x[row], residual if residual is None else residual[row], columns, BLOCK)
            scale = sk.rsqrt(spread + eps)
        else:
            total = sk.zeros(BLOCK, sk.float32)
            for start in starts(columns, BLOCK, ONE_TILE):
                v = load_piece(x[row], start, columns, BLOCK)
                if residual is not None:
                    v = add_residual(v, residual[row], start, columns)
                total += v
            share = 1 / columns.to(sk.float32)  # a product with it takes a few instructions, a quotient some dozens
            mean = sk.reduce_sum(total) * share
            squares = sk.zeros(BLOCK, sk.float32)
            for start in starts(columns, BLOCK, ONE_TILE):
                if not ONE_TILE:  # else the row is still here
                    v = load_piece(source, start, columns, BLOCK)
                squares += sk.where(start + sk.arange(0, BLOCK) < columns, v - mean, 0) ** 2
            scale = sk.rsqrt(sk.reduce_sum(squares) * share + eps)
        for start in starts(columns, BLOCK, ONE_TILE):
            if not ONE_TILE:
                v = load_piece(source, start, columns, BLOCK)
            y = (v - mean) * scale * load_piece(weight, start, columns, BLOCK)
            if bias is not None:
                y += load_piece(bias, start, columns, BLOCK)
            store_piece(out[row], start, columns, y)

    return layernorm


def layernorm(
    x: Any, weight: Any, bias: Any = None, *, residual: Any = None, out: Any = None, eps: float = 1e-5
) -> Any:
    """Return (x - mean) / sqrt(mean((x - mean)²) + eps) * weight + bias, with the means along the last axis.

    x: float32, float16 or bfloat16. weight, bias: as long as the last axis, of one float dtype. out: like x, x itself too.
    residual: like x, not out; x + residual is normalised, and written to it.
    """
    out = _checked_outs(x, out, residual, weight, bias)
    source, target = as_rows(x), as_rows(out)
    kernel = layernorm_kernel(float_dtype_of(x), dtype_of(weight), *tile_near(x, *KEPT_OF_NORMS), is_on_cpu(x))
    kernel[source.shape[0]](source, residual if residual is None else as_rows(residual), weight, bias, target, eps)
    return out


# -- backward -----------------------------------------------------------------------------------------------------------

MOST_PARTS = 256  # programs, and so rows of partial sums, of a backward kernel


@factory
def norm_backward_kernel(
    dtype: Dtype, weight_dtype: Dtype, BLOCK: int, ONE_TILE: bool, CENTRED: bool
) -> sk.JitFunction:
    """Return the kernel `k[parts](gradient, x, weight, x_gradient, weight_parts, bias_parts, eps)` of layernorm, which is
    CENTRED, or of rmsnorm, whose bias_parts is None.

    With v = x - mean (x itself in rmsnorm), s = 1 / sqrt(mean(v²) + eps), and g = gradient * weight, the gradient of x is
    s * (g - mean(g) - v * s² * mean(g * v)), without mean(g) in rmsnorm. Each program takes rows `parts` apart, and adds up
    gradient * v * s, and the gradient, in its own row of weight_parts and bias_parts, (parts, columns) of float32, whose columns
    `column_sums_kernel` adds. So every run has the same bits.
    """
    rows, columns, parts = sk.dynamic("rows"), sk.dynamic("columns"), sk.dynamic("parts")
    Rows = Annotated[sk.Array, sk.Tensor((rows, columns), dtype, strides=(None, 1))]
    Weight = Annotated[sk.Array, sk.Tensor((columns,), weight_dtype, strides=(1,))]
    Parts = Annotated[sk.Array, sk.Tensor((parts, columns), sk.float32)]

    @sk.inline
    def centred(x: Any, start: Any, mean: Any) -> Any:
        v = load_piece(x, start, columns, BLOCK)
        return sk.where(start + sk.arange(0, BLOCK) < columns, v - mean, 0) if CENTRED else v

    @sk.jit
    def norm_backward(
        gradient: Rows,
        x: Rows,
        weight: Weight,
        x_gradient: Rows,
        weight_parts: Parts,
        bias_parts: Parts | None,
        eps: sk.float32,
    ) -> None:
        part = sk.program_id(0)
        totals = [sk.zeros(BLOCK, sk.float32), sk.zeros(BLOCK, sk.float32)]  # of weight and bias, where they fit a tile
        for row in range(part, rows, parts):
            mean = mean_of_row(x[row], columns, BLOCK, ONE_TILE) if CENTRED else 0
            squares = slopes = products = sk.zeros(BLOCK, sk.float32)
            for start in starts(columns, BLOCK, ONE_TILE):
                v = centred(x[row], start, mean)
                g = load_piece(gradient[row], start, columns, BLOCK)
                weighted = g * load_piece(weight, start, columns, BLOCK)
                squares += v * v
                slopes += weighted
                products += weighted * v
            scale = sk.rsqrt(sk.reduce_sum(squares) / columns + eps)
            slope = sk.reduce_sum(slopes) / columns if CENTRED else 0
            product = sk.reduce_sum(products) / columns * scale * scale
            for start in starts(columns, BLOCK, ONE_TILE):
                if not ONE_TILE:  # else the row is still here
                    v = centred(x[row], start, mean)
                    g = load_piece(gradient[row], start, columns, BLOCK)
                    weighted = g * load_piece(weight, start, columns, BLOCK)
                store_piece(x_gradient[row], start, columns, (weighted - slope - v * product) * scale)
                if ONE_TILE:
                    totals = [totals[0] + g * v * scale, totals[1] + g]
                else:
                    add_to_part(weight_parts[part], start, columns, g * v * scale, row != part)
                    if bias_parts is not None:
                        add_to_part(bias_parts[part], start, columns, g, row != part)
        if ONE_TILE:
            store_piece(weight_parts[part], 0, columns, totals[0])
            if bias_parts is not None:
                store_piece(bias_parts[part], 0, columns, totals[1])

    return norm_backward


@sk.inline
def mean_of_row(x: Any, columns: Any, BLOCK: int, ONE_TILE: bool) -> Any:
    """Return the mean of a row."""
    total = sk.zeros(BLOCK, sk.float32)
    for start in starts(columns, BLOCK, ONE_TILE):
        total += load_piece(x, start, columns, BLOCK)
    return sk.reduce_sum(total) / columns


@sk.inline
def add_to_part(part: Any, start: Any, columns: Any, value: Any, is_begun: Any) -> None:
    """Add a tile to a piece of partial sums, or begin it with the tile: before the first row memory holds nothing of use."""
    i = start + sk.arange(0, len(value))
    known = sk.load(part + i, mask=(i < columns) & is_begun)
    sk.store(part + i, known + value, mask=i < columns)


def rmsnorm_backward(gradient: Any, x: Any, weight: Any, *, out: Any = None, eps: float = 1e-6) -> tuple[Any, Any]:
    """Return the gradients of x and of weight, from that of `rmsnorm(x, weight, eps=eps)`; x is what was normalised.

    gradient: like x. out: like x, for the gradient of x; the gradient itself too. The gradient of weight has its dtype.
    """
    out, weight_gradient, _ = _backward(gradient, x, weight, out, eps, CENTRED=False)
    return out, weight_gradient


def layernorm_backward(
    gradient: Any, x: Any, weight: Any, *, out: Any = None, eps: float = 1e-5
) -> tuple[Any, Any, Any]:
    """Return the gradients of x, weight and bias, from that of `layernorm(x, weight, bias, eps=eps)`; x is what was normalised.

    gradient: like x. out: like x, for the gradient of x; the gradient itself too. Those of weight and bias have weight's dtype.
    """
    return _backward(gradient, x, weight, out, eps, CENTRED=True)


def _backward(gradient: Any, x: Any, weight: Any, out: Any, eps: float, *, CENTRED: bool) -> tuple[Any, Any, Any]:
    require_shape("gradient", gradient, x.shape)
    out = empty_like(x) if out is None else checked_out(out, gradient, x, apart=(weight,), shape=x.shape)
    source = as_rows(x)
    rows, columns = source.shape
    parts = max(1, min(rows, MOST_PARTS))
    weight_parts, bias_parts = (
        empty(x, (parts, columns), sk.float32) if wanted else None for wanted in (True, CENTRED)
    )
    kernel = norm_backward_kernel(float_dtype_of(x), dtype_of(weight), *tile_for(columns), CENTRED)
    kernel[parts](as_rows(gradient), source, weight, as_rows(out), weight_parts, bias_parts, eps)
    weight_gradient = column_sums(weight_parts, out=empty_like(weight))
    return out, weight_gradient, column_sums(bias_parts, out=empty_like(weight)) if CENTRED else None
