"""The recurrence of selective state spaces, and its gradients: a program for each sequence.

All steps of a tile are done at once, as a scan of pairs; the state at its end carries on into the next tile.

Source: Gu and Dao, Mamba, 2023; Blelloch, Prefix Sums and Their Applications, 1990.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import stagekit as sk
from stagekit.kernels.fragments import load_piece, store_piece
from stagekit.kernels.host import (
    Dtype,
    empty,
    empty_like,
    factory,
    float_dtype_of,
    power_of_two,
    require,
    require_array,
)
from stagekit.kernels.scanning import fill_kernel
from stagekit.kernels.sharing import checked_out

SCANNED_TILE = 1024  # steps that are done at once


@sk.inline
def one_after_the_other(first: Any, second: Any) -> Any:
    """Return two steps h -> a * h + b as one: pairs (a, b)."""
    (a, b), (c, d) = first, second
    return a * c, b * c + d


@sk.inline
def states_of(decays: Any, gains: Any, reverse: bool = False) -> Any:
    """Return h[t] = decays[t] * h[t - 1] + gains[t] from h = 0 on, after the factor of what h was; reverse: from the last t."""
    return sk.scan((decays, gains), one_after_the_other, identity=(1.0, 0.0), reverse=reverse)


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
                gain = step * x * load_piece(B[batch, n], start, length, BLOCK)
                decay, h = states_of(sk.exp(step * A[channel, n]), gain)
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
    states, length) likewise. A: (channels, states), D: (channels,), float32. out: u, delta or z too.
    """
    batches, channels, length = _sizes_of(u, A)
    read = (u, delta) if z is None else (u, delta, z)
    out = empty_like(u) if out is None else checked_out(out, *read, apart=(A, B, C, D))
    kernel = selective_scan_kernel(float_dtype_of(u), A.shape[1], min(SCANNED_TILE, power_of_two(length)))
    kernel[channels, batches](u, delta, A, B, C, D, z, out)
    return out


def _sizes_of(u: Any, A: Any) -> tuple[int, ...]:
    """Return the batches, the channels and the length of sequences. Refused: other arrays."""
    require_array(u, A)
    axes = len(u.shape), len(A.shape)
    require(axes == (3, 2), "u and A have {} axes: give (batches, channels, length) and (channels, states)", axes)
    return tuple(u.shape)


@sk.inline
def store_states(states: Any, u: Any, delta: Any, rates: Any, inputs: Any, BLOCK: int) -> None:
    """Write the states of one sequence at the end of each tile but the last: `states[tile, n]`."""
    length = u.shape[0]
    for tile in range(sk.cdiv(length, BLOCK) - 1):
        x, step = load_piece(u, tile * BLOCK, length, BLOCK), load_piece(delta, tile * BLOCK, length, BLOCK)
        for n in range(rates.shape[0]):
            pairs = sk.exp(step * rates[n]), step * x * load_piece(inputs[n], tile * BLOCK, length, BLOCK)
            decay, h = sk.reduce(pairs, one_after_the_other, identity=(1.0, 0.0))
            states[tile, n] = h + (decay * states[tile - 1, n] if tile > 0 else 0)


@sk.inline
def add_piece(row: Any, start: Any, value: Any) -> None:
    """Add a tile to `row[start:]`, as far as the row goes, to which others add too."""
    i = start + sk.arange(0, len(value))
    sk.atomic_add(row + i, value, mask=i < row.shape[0])


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
        states, tiles = before[batch, channel], sk.cdiv(length, BLOCK)
        store_states(states, u[batch, channel], delta[batch, channel], A[channel], B[batch], BLOCK)
        behind = sk.alloc_shared((STATES,), sk.float32)  # the gradient of the state at the beginning of the tile behind
        for back in range(tiles):
            tile = tiles - 1 - back
            start = tile * BLOCK
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
                decay, h = states_of(sk.exp(step * rate), gain)
                h += decay * (states[tile - 1, n] if tile > 0 else 0)
                decay, h_slope = states_of(sk.exp(next_step * rate), slope * c, reverse=True)
                h_slope += decay * (behind[n] if back > 0 else 0)
                behind[n] = sk.gather(h_slope, 0)
                kept = h - gain  # of the state before: exp(step * rate) * h[t - 1]
                y += h * c
                x_slope += h_slope * step * b
                step_slope += h_slope * (rate * kept + x * b)
                sk.atomic_add(A_gradient[channel] + n, sk.reduce_sum(h_slope * step * kept))
                add_piece(B_gradient[batch, n], start, h_slope * step * x)
                add_piece(C_gradient[batch, n], start, slope * h)
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
    batches, channels, length = _sizes_of(u, A)
    states, block = A.shape[1], min(SCANNED_TILE // 2, power_of_two(length))  # in registers
    before = empty(u, (batches, channels, max(sk.cdiv(length, block) - 1, 1), states), sk.float32)
    of_z = None if z is None else empty_like(z)
    sums = [None if each is None else _zeros(each, tuple(each.shape)) for each in (A, B, C, D)]
    slopes = empty_like(u), empty_like(delta), *sums, of_z
    kernel = selective_scan_backward_kernel(float_dtype_of(u), states, block)
    kernel[channels, batches](gradient, u, delta, A, B, C, D, z, before, *slopes)
    return slopes


def _zeros(like: Any, shape: tuple[int, ...]) -> Any:
    found, size = empty(like, shape, sk.float32), math.prod(shape)
    fill_kernel(sk.float32, 1024)[sk.cdiv(size, 1024)](found.reshape((size,)), 0)
    return found
