"""Everything up to here: running sums of rows and of whole arrays, and the recurrence of selective state spaces.

A row passes through its program in tiles, with a number that carries on from one tile to the next. A long array is cut into
tiles, each of a program, which learns from the others what comes before it: one pass over the array. By three passes over as many
stretches as there are programs nothing depends on which program comes first.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import stagekit as sk
from stagekit.kernels.fragments import load_piece, store_piece
from stagekit.kernels.host import (
    STREAMED_TILE,
    Dtype,
    as_rows,
    dtype_of,
    empty,
    empty_like,
    factory,
    is_on_cpu,
    power_of_two,
    programs_for,
    require,
    require_packed,
    tile_of,
)
from stagekit.kernels.reducing import MOST_PROGRAMS, SUM, require_last, widened

# -- running sums -------------------------------------------------------------------------------------------------------


@sk.inline
def running_sums(source: Any, target: Any, first: Any, end: Any, before: Any, working: Dtype, BLOCK: int) -> None:
    """Write the running sums of `source[first:end]`, from the number `before` on."""
    for start in range(first, end, BLOCK):
        i = start + sk.arange(0, BLOCK)
        x = sk.load(source + i, mask=i < end).to(working)
        sums = before + sk.cumsum(x)
        sk.store(target + i, sums, mask=i < end)
        before = sk.gather(sums, BLOCK - 1)


@factory
def cumsum_rows_kernel(dtype: Dtype, BLOCK: int) -> sk.JitFunction:
    """Return the kernel `k[rows](x, out)`."""
    rows, columns = sk.dynamic("rows"), sk.dynamic("columns")
    out_dtype = SUM.dtype_of(dtype)
    Rows = Annotated[sk.Array, sk.Tensor((rows, columns), dtype, strides=(None, 1))]
    Out = Annotated[sk.Array, sk.Tensor((rows, columns), out_dtype, strides=(None, 1))]
    working = widened(out_dtype)

    @sk.jit
    def cumsum_rows(x: Rows, out: Out) -> None:
        row = sk.program_id(0)
        running_sums(x[row], out[row], 0, columns, working(0), working, BLOCK)

    return cumsum_rows


NOTHING, SUM_KNOWN, END_KNOWN = 0, 1, 2  # what a program has said of its tile


def carried(dtype: Dtype) -> sk.DType:
    """Return the dtype of sums of whole tiles of `dtype`."""
    return sk.float64 if dtype.is_float else sk.int64


@sk.inline
def sum_before(program: Any, state: Any, sums: Any, ends: Any, WINDOW: int) -> Any:
    """Return the sum of all tiles before that of `program`, from what `WINDOW` others at once have said, the nearest first.

    Sums of single tiles are added until there is a program that knows the sum of everything up to its end.
    """
    before, last = sums.dtype(0), program - 1
    while True:
        w = sk.arange(0, WINDOW).to(sk.int32)
        other, exists = last - w, w <= last
        known = sk.load(
            state + other, mask=exists, other=END_KNOWN, order="acquire"
        )  # before the first there is nothing
        # one reduction finds the first that knows its end, as 2 * w + 1, or nothing, as 2 * w
        first = sk.reduce_min(sk.where(known == SUM_KNOWN, 2 * WINDOW + 1, 2 * w + (known == END_KNOWN)))
        if first % 2 == 1:
            end = first // 2
            tiles = sk.load(sums + other, mask=exists & (w < end))
            before += sk.reduce_sum(tiles + sk.load(ends + other, mask=exists & (w == end)))
            if end < WINDOW:
                break
            last -= WINDOW
    return before


@factory
def cumsum_kernel(dtype: Dtype, BLOCK: int) -> sk.JitFunction:
    """Return the kernel `k[tiles](x, out, state, sums, ends)`. state: int32, a zero for each tile, and one more.

    A program takes the next tile by an atomic, so that those before have begun, says its tile's sum, scans it, and looks back at
    what others have said. Sums of whole tiles are float64, or int64. Source: Merrill and Garland, Single-pass Parallel Prefix
    Scan with Decoupled Look-back, 2016.
    """
    out_dtype = SUM.dtype_of(dtype)
    working, length, tiles = widened(out_dtype), sk.dynamic("length"), sk.dynamic("tiles")
    X = Annotated[sk.Array, sk.Tensor((length,), dtype)]
    Out = Annotated[sk.Array, sk.Tensor((length,), out_dtype)]
    Sums = Annotated[sk.Array, sk.Tensor((tiles,), carried(dtype))]
    State = Annotated[sk.Array, sk.Tensor((tiles + 1,), sk.int32)]

    @sk.jit
    def cumsum(x: X, out: Out, state: State, sums: Sums, ends: Sums) -> None:
        program = sk.atomic_add(state + tiles, 1)
        i = sk.int64(program) * BLOCK + sk.arange(0, BLOCK)
        v = sk.load(x + i, mask=i < length).to(working)
        total = carried(dtype)(sk.reduce_sum(v))
        sums[program] = total
        sk.store(state + program, SUM_KNOWN, order="release")
        v = sk.cumsum(v)  # before it looks back: meanwhile others say more
        before = sum_before(program, state, sums, ends, max(BLOCK // 128, 32))
        ends[program] = before + total
        sk.store(state + program, END_KNOWN, order="release")
        sk.store(out + i, working(before) + v, mask=i < length)

    return cumsum


@factory
def fill_kernel(dtype: Dtype, BLOCK: int) -> sk.JitFunction:
    """Return the kernel `k[pieces](out, value)`."""
    Out = Annotated[sk.Array, sk.Tensor((None,), dtype)]

    @sk.jit
    def fill(out: Out, value: sk.int32) -> None:
        i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
        sk.store(out + i, value, mask=i < len(out))

    return fill


@factory
def stretch_sums_kernel(dtype: Dtype, BLOCK: int) -> sk.JitFunction:
    """Return the kernel `k[programs](x, sums, stretch)`: the sums of the stretches of an array of one axis."""
    working = widened(SUM.dtype_of(dtype))
    X = Annotated[sk.Array, sk.Tensor((None,), dtype)]
    Sums = Annotated[sk.Array, sk.Tensor((None,), working)]

    @sk.jit
    def stretch_sums(x: X, sums: Sums, stretch: sk.int64) -> None:
        first = sk.program_id(0) * stretch
        end = sk.minimum(first + stretch, len(x))
        total = sk.zeros(BLOCK, working)
        for start in range(first, end, BLOCK):
            i = start + sk.arange(0, BLOCK)
            total += sk.load(x + i, mask=i < end).to(working)
        sums[sk.program_id(0)] = sk.reduce_sum(total)

    return stretch_sums


@factory
def cumsum_of_stretches_kernel(dtype: Dtype, BLOCK: int) -> sk.JitFunction:
    """Return the kernel `k[programs](x, out, ends, stretch)`; ends: the running sums of what `stretch_sums_kernel` found."""
    out_dtype = SUM.dtype_of(dtype)
    working, length = widened(out_dtype), sk.dynamic("length")
    X = Annotated[sk.Array, sk.Tensor((length,), dtype)]
    Out = Annotated[sk.Array, sk.Tensor((length,), out_dtype)]
    Ends = Annotated[sk.Array, sk.Tensor((None,), working)]

    @sk.jit
    def cumsum_of_stretches(x: X, out: Out, ends: Ends, stretch: sk.int64) -> None:
        program = sk.program_id(0)
        first = program * stretch
        before = ends[program - 1] if program > 0 else working(0)
        running_sums(x, out, first, sk.minimum(first + stretch, length), before, working, BLOCK)

    return cumsum_of_stretches


def cumsum(x: Any, *, axis: int | None = None, out: Any = None, fixed_order: bool = False) -> Any:
    """Return the running sums along the last axis (`axis=-1`), or those of an array of one axis, by many programs (None).

    x: any dtype, without gaps unless its rows are summed; float16 and bfloat16 are summed in float32, integers in int64, in which
    they are returned. out: x itself too. fixed_order: the same last bits of a long float array in each run, by three passes; else
    they depend on which programs come first, by one pass.
    """
    out = empty(x, tuple(x.shape), SUM.dtype_of(dtype_of(x))) if out is None else out
    if axis is not None:
        require_last(axis, x)
        rows, target = as_rows(x), as_rows(out)
        cumsum_rows_kernel(dtype_of(x), tile_of(rows.shape[1]))[rows.shape[0]](rows, target)
        return out
    require(len(x.shape) == 1, f"an array of shape {tuple(x.shape)} has several axes: sum along the last by axis=-1")
    require_packed(x)
    if fixed_order:
        _cumsum_by_stretches(x, out)
    else:
        _cumsum_by_looking_back(x, out)
    return out


LONG = 1 << 23  # elements from which on a GPU takes long tiles, so that each multiprocessor has one


def long_tile(dtype: Dtype) -> int:
    """Return how many elements 1024 threads of a GPU hold at once: in each 32 numbers of 4 bytes, or 16 of 8."""
    return (1 << 17) // int(widened(SUM.dtype_of(dtype)).itemsize)


def _cumsum_by_looking_back(x: Any, out: Any) -> None:
    is_long = len(x) >= LONG and not is_on_cpu(x)
    tile = long_tile(dtype_of(x)) if is_long else STREAMED_TILE
    tiles = sk.cdiv(len(x), tile)
    state = empty(x, (tiles + 1,), sk.int32)
    sums, ends = (empty(x, (tiles,), carried(dtype_of(x))) for _ in range(2))
    fill_kernel(sk.int32, 1024)[sk.cdiv(tiles + 1, 1024)](state, 0)
    cumsum_kernel(dtype_of(x), tile)[tiles](x, out, state, sums, ends)


def _cumsum_by_stretches(x: Any, out: Any) -> None:
    programs = programs_for(len(x), STREAMED_TILE, MOST_PROGRAMS)
    stretch = sk.cdiv(sk.cdiv(len(x), programs), STREAMED_TILE) * STREAMED_TILE
    sums = empty(x, (programs,), widened(SUM.dtype_of(dtype_of(x))))
    stretch_sums_kernel(dtype_of(x), STREAMED_TILE)[programs](x, sums, stretch)
    ends = sums.reshape((1, programs))
    cumsum_rows_kernel(dtype_of(sums), power_of_two(programs))[1](ends, ends)
    cumsum_of_stretches_kernel(dtype_of(x), STREAMED_TILE)[programs](x, out, sums, stretch)


# -- selective scan -----------------------------------------------------------------------------------------------------

SCANNED_TILE = 1024  # steps that are done at once


@sk.inline
def one_after_the_other(first: Any, second: Any) -> Any:
    """Return two steps h -> a * h + b as one: pairs (a, b)."""
    (a, b), (c, d) = first, second
    return a * c, b * c + d


@factory
def selective_scan_kernel(dtype: Dtype, STATES: int, BLOCK: int) -> sk.JitFunction:
    """Return the kernel `k[channels, batches](u, delta, A, B, C, D, z, out)`; D and z may be None."""
    batches, channels, length = sk.dynamic("batches"), sk.dynamic("channels"), sk.dynamic("length")
    Sequences = Annotated[sk.Array, sk.Tensor((batches, channels, length), dtype, strides=(None, None, 1))]
    Inputs = Annotated[sk.Array, sk.Tensor((batches, STATES, length), dtype, strides=(None, None, 1))]
    Matrix = Annotated[sk.Array, sk.Tensor((channels, STATES), sk.float32)]
    Vector = Annotated[sk.Array, sk.Tensor((channels,), sk.float32)]

    @sk.jit
    def selective_scan(
        u: Sequences,
        delta: Sequences,
        A: Matrix,
        B: Inputs,
        C: Inputs,
        D: Vector | None,
        z: Sequences | None,
        out: Sequences,
    ) -> None:
        channel, batch = sk.program_id(0), sk.program_id(1)
        states = sk.alloc_shared((STATES,), sk.float32)  # at the end of the tile before
        for start in range(0, length, BLOCK):
            x = load_piece(u[batch, channel], start, length, BLOCK)
            step = load_piece(delta[batch, channel], start, length, BLOCK)  # 0 past the end, where a is 1 and b is 0
            y = x * (0 if D is None else D[channel])
            for n in range(STATES):
                decay = sk.exp(step * A[channel, n])
                gain = step * x * load_piece(B[batch, n], start, length, BLOCK)
                decay, h = sk.scan((decay, gain), one_after_the_other, identity=(1.0, 0.0))
                h += decay * (states[n] if start > 0 else 0)
                y += h * load_piece(C[batch, n], start, length, BLOCK)
                states[n] = sk.gather(h, BLOCK - 1)
            if z is not None:
                gate = load_piece(z[batch, channel], start, length, BLOCK)
                y *= gate * sk.sigmoid(gate)
            store_piece(out[batch, channel], start, length, y)

    return selective_scan


def selective_scan(u: Any, delta: Any, A: Any, B: Any, C: Any, D: Any = None, z: Any = None, *, out: Any = None) -> Any:
    """Return sum of C[n] * h[n] + D * u, times silu(z); step by step h[n] = exp(delta * A[n]) * h[n] + delta * u * B[n].

    u, delta, z, out: (batches, channels, length), float32, float16 or bfloat16, the last axis without gaps. B, C: (batches,
    states, length) likewise. A: (channels, states), D: (channels,), float32. out: u, delta or z too. All steps of a tile are done
    at once, as a scan of pairs. Source: Gu and Dao, Mamba, 2023; Blelloch, Prefix Sums and Their Applications, 1990.
    """
    out = empty(u, tuple(u.shape), dtype_of(u)) if out is None else out
    batches, channels, length = u.shape
    kernel = selective_scan_kernel(dtype_of(u), A.shape[1], min(SCANNED_TILE, power_of_two(length)))
    kernel[channels, batches](u, delta, A, B, C, D, z, out)
    return out


@factory
def selective_scan_backward_kernel(dtype: Dtype, STATES: int, BLOCK: int) -> sk.JitFunction:
    """Return the kernel `k[channels, batches](g, u, delta, A, B, C, D, z, before, u_gradient, delta_gradient, A_gradient,
    B_gradient, C_gradient, D_gradient, z_gradient)`; D, z and their gradients may be None. It adds to those of A, B, C and D.

    before: room for the states before each tile but the first, of each sequence.
    """
    batches, channels, length = sk.dynamic("batches"), sk.dynamic("channels"), sk.dynamic("length")
    Sequences = Annotated[sk.Array, sk.Tensor((batches, channels, length), dtype, strides=(None, None, 1))]
    Inputs = Annotated[sk.Array, sk.Tensor((batches, STATES, length), dtype, strides=(None, None, 1))]
    Sums = Annotated[sk.Array, sk.Tensor((batches, STATES, length), sk.float32)]
    Before = Annotated[sk.Array, sk.Tensor((batches, channels, None, STATES), sk.float32)]
    Matrix = Annotated[sk.Array, sk.Tensor((channels, STATES), sk.float32)]
    Vector = Annotated[sk.Array, sk.Tensor((channels,), sk.float32)]

    @sk.jit
    def selective_scan_backward(
        g: Sequences,
        u: Sequences,
        delta: Sequences,
        A: Matrix,
        B: Inputs,
        C: Inputs,
        D: Vector | None,
        z: Sequences | None,
        before: Before,
        u_gradient: Sequences,
        delta_gradient: Sequences,
        A_gradient: Matrix,
        B_gradient: Sums,
        C_gradient: Sums,
        D_gradient: Vector | None,
        z_gradient: Sequences | None,
    ) -> None:
        channel, batch = sk.program_id(0), sk.program_id(1)
        tiles = sk.cdiv(length, BLOCK)
        for tile in range(tiles - 1):
            x = load_piece(u[batch, channel], tile * BLOCK, length, BLOCK)
            step = load_piece(delta[batch, channel], tile * BLOCK, length, BLOCK)
            for n in range(STATES):
                gain = step * x * load_piece(B[batch, n], tile * BLOCK, length, BLOCK)
                pairs = sk.exp(step * A[channel, n]), gain
                decay, h = sk.reduce(pairs, one_after_the_other, identity=(1.0, 0.0))
                before[batch, channel, tile, n] = h + (decay * before[batch, channel, tile - 1, n] if tile > 0 else 0)
        behind = sk.alloc_shared((STATES,), sk.float32)  # the gradient of the state at the beginning of the tile behind
        for back in range(tiles):
            tile = tiles - 1 - back
            start = tile * BLOCK
            i = start + sk.arange(0, BLOCK)
            x = load_piece(u[batch, channel], start, length, BLOCK)
            step = load_piece(delta[batch, channel], start, length, BLOCK)
            next_step = load_piece(delta[batch, channel], start + 1, length, BLOCK)
            slope = load_piece(g[batch, channel], start, length, BLOCK)
            outer = slope
            if z is not None:
                gate = load_piece(z[batch, channel], start, length, BLOCK)
                slope *= gate * sk.sigmoid(gate)
            skip = 0 if D is None else D[channel]
            y, x_slope, step_slope = x * skip, slope * skip, sk.zeros(BLOCK, sk.float32)
            for n in range(STATES):
                rate, b = A[channel, n], load_piece(B[batch, n], start, length, BLOCK)
                c = load_piece(C[batch, n], start, length, BLOCK)
                gain = step * x * b
                decay, h = sk.scan((sk.exp(step * rate), gain), one_after_the_other, identity=(1.0, 0.0))
                h += decay * (before[batch, channel, tile - 1, n] if tile > 0 else 0)
                pairs = sk.exp(next_step * rate), slope * c
                decay, h_slope = sk.scan(pairs, one_after_the_other, identity=(1.0, 0.0), reverse=True)
                h_slope += decay * (behind[n] if back > 0 else 0)
                behind[n] = sk.gather(h_slope, 0)
                kept = h - gain  # of the state before: exp(step * rate) * h[t - 1]
                y += h * c
                x_slope += h_slope * step * b
                step_slope += h_slope * (rate * kept + x * b)
                sk.atomic_add(A_gradient[channel] + n, sk.reduce_sum(h_slope * step * kept))
                sk.atomic_add(B_gradient[batch, n] + i, h_slope * step * x, mask=i < length)
                sk.atomic_add(C_gradient[batch, n] + i, slope * h, mask=i < length)
            if D_gradient is not None:
                sk.atomic_add(D_gradient + channel, sk.reduce_sum(slope * x))
            if z is not None and z_gradient is not None:
                s = sk.sigmoid(gate)
                store_piece(z_gradient[batch, channel], start, length, outer * y * s * (1 + gate * (1 - s)))
            store_piece(u_gradient[batch, channel], start, length, x_slope)
            store_piece(delta_gradient[batch, channel], start, length, step_slope)

    return selective_scan_backward


def selective_scan_backward(
    gradient: Any, u: Any, delta: Any, A: Any, B: Any, C: Any, D: Any = None, z: Any = None
) -> tuple[Any, ...]:
    """Return the gradients of u, delta, A, B, C, D and z, from that of `selective_scan` of these; None for D and z that are None.

    gradient: like u. Those of A, B, C and D are float32, sums over channels and batches by atomics, in any order; on a GPU these
    atomics take most of the time. The states are computed anew, those before each tile first.
    """
    batches, channels, length = u.shape
    states, block = A.shape[1], min(SCANNED_TILE // 2, power_of_two(length))  # in registers
    before = empty(u, (batches, channels, max(sk.cdiv(length, block) - 1, 1), states), sk.float32)
    of_z = None if z is None else empty_like(z)
    sums = [None if each is None else _zeros(each, tuple(each.shape)) for each in (A, B, C, D)]
    slopes = empty_like(u), empty_like(delta), *sums, of_z
    kernel = selective_scan_backward_kernel(dtype_of(u), states, block)
    kernel[channels, batches](gradient, u, delta, A, B, C, D, z, before, *slopes)
    return slopes


def _zeros(like: Any, shape: tuple[int, ...]) -> Any:
    found, size = empty(like, shape, sk.float32), math.prod(shape)
    fill_kernel(sk.float32, 1024)[sk.cdiv(size, 1024)](found.reshape((size,)), 0)
    return found
