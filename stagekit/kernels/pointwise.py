"""Kernels that make each element from the elements beside it: `elementwise` of any function, and what is built of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

import stagekit as sk
from stagekit.kernels.fragments import load_piece, store_piece
from stagekit.kernels.host import (
    Dtype,
    as_rows,
    dtype_of,
    empty_like,
    factory,
    float_dtype_of,
    is_array,
    is_packed,
    numbers_beside,
    require,
    require_packed,
    require_shape,
    settled,
)
from stagekit.kernels.options import LEAST_SEED, int_of, option_of
from stagekit.kernels.sharing import checked_out

MAX_INPUTS = 8
PIECE = 1024  # elements of a program
Kind = tuple[Dtype, int] | None  # of an input: dtype and axes; None for a number

# -- elementwise ----------------------------------------------------------------------------------------------------------


@sk.inline
def element_of(x: Any, row: Any, i: Any, mask: Any) -> Any:
    """Return the tile of what goes with the indices `i`: of a row of x, of x itself where it has no rows, or x as a number."""
    if not hasattr(x, "shape"):
        return x
    tile = sk.load((x if row is None or x.ndim == 1 else x[row]) + i, mask=mask)
    return tile.to(sk.float32) if tile.dtype.is_float and tile.dtype.bits < 32 else tile


@factory
def elementwise_kernel(
    function: Callable[..., Any], kinds: tuple[Kind, ...], out_kind: tuple[sk.DType, int], BY_ROWS: bool, BLOCK: int
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
        value = i.of_each(function, *[element_of(x, row, i, mask) for x in inputs])
        sk.store((out if row is None else out[row]) + i, value, mask=mask)

    return elementwise


def elementwise(function: Callable[..., Any], *inputs: Any, out: Any = None) -> Any:
    """Return function(*inputs) of each element. At most 8 inputs: arrays of one shape, arrays of one axis, numbers.

    function: of tiles, as `lambda x, y: sk.maximum(x + y, 0)`; 16-bit floats come as float32 and are rounded at the end. Arrays
    have an axis at least; one of one axis goes with each row of the others. A float is float64 beside an array
    of that. out: any dtype; left out, like the first array. Rows may be apart; out may be one of the inputs.
    """
    arrays = [x for x in inputs if is_array(x)]
    require(bool(arrays), "an array is needed among the inputs, got {!r}", inputs)
    require(callable(function), "a function of tiles is needed, got {!r}", function)
    out = target = empty_like(arrays[0]) if out is None else checked_out(out, *arrays)
    for x in arrays:
        if len(x.shape) > 1:  # else it goes with each row
            require_shape("an input", x, out.shape)
    by_rows = any(x.shape != out.shape or not is_packed(x) for x in (out, *arrays))
    if by_rows:
        target = as_rows(out)
        inputs = tuple(as_rows(x) if len(getattr(x, "shape", ())) > 1 else x for x in inputs)
    kinds = tuple((dtype_of(x), len(x.shape)) if is_array(x) else None for x in inputs)
    inputs = numbers_beside([kind[0] for kind in kinds if kind], inputs)
    kernel = elementwise_kernel(settled(function), kinds, (dtype_of(out), len(target.shape)), by_rows, PIECE)
    grid = (target.shape[0], sk.cdiv(target.shape[1], PIECE)) if by_rows else sk.cdiv(math.prod(out.shape), PIECE)
    kernel[grid](target, *inputs)
    return out


# -- SwiGLU ---------------------------------------------------------------------------------------------------------------


@sk.inline
def swiglu_of(gate: Any, up: Any) -> Any:
    """Return silu(gate) * up."""
    return gate * sk.sigmoid(gate) * up


def swiglu(gate: Any, up: Any, *, out: Any = None) -> Any:
    """Return silu(gate) * up, where silu(x) = x / (1 + exp(-x)). The two may be halves of one array; out may be one of them."""
    return elementwise(swiglu_of, gate, up, out=out)


@factory
def swiglu_backward_kernel(dtype: Dtype, BLOCK: int) -> sk.JitFunction:
    """Return the kernel `k[rows, pieces of a row](gradient, gate, up, gate_gradient, up_gradient)`."""
    rows, columns = sk.dynamic("rows"), sk.dynamic("columns")
    Rows = Annotated[sk.Array, sk.Tensor((rows, columns), dtype, strides=(None, 1))]

    @sk.jit
    def swiglu_backward(gradient: Rows, gate: Rows, up: Rows, gate_gradient: Rows, up_gradient: Rows) -> None:
        row, start = sk.program_id(0), sk.program_id(1) * BLOCK
        g, x, y = (load_piece(each[row], start, columns, BLOCK) for each in (gradient, gate, up))
        s = sk.sigmoid(x)
        store_piece(gate_gradient[row], start, columns, g * y * s * (1 + x * (1 - s)))
        store_piece(up_gradient[row], start, columns, g * x * s)

    return swiglu_backward


def swiglu_backward(gradient: Any, gate: Any, up: Any, *, out: tuple[Any, Any] | None = None) -> tuple[Any, Any]:
    """Return the gradients of gate and up, from that of `swiglu(gate, up)`. out: arrays for them; gate and up themselves too."""
    out = (empty_like(gate), empty_like(up)) if out is None else out
    require(isinstance(out, tuple | list) and len(out) == 2, "out is {!r}: it is two arrays", out)
    read = gradient, gate, up
    for name, each in (("gate", gate), ("up", up)):
        require_shape(name, each, gradient.shape)
    written = [checked_out(each, *read, apart=apart, shape=gate.shape) for each, apart in zip(out, ((), out[:1]))]
    arrays = [as_rows(x) for x in (*read, *written)]
    rows, columns = arrays[0].shape
    swiglu_backward_kernel(float_dtype_of(gate), PIECE)[rows, sk.cdiv(columns, PIECE)](*arrays)
    return out


# -- rotary position embedding ----------------------------------------------------------------------------------------------


@factory
def rope_kernel(dtype: Dtype, angle_dtype: Dtype, HALF: int, INTERLEAVED: bool, HEADS: int) -> sk.JitFunction:
    """Return the kernel `k[tokens, pieces of a token](x, cos, sin, out, turn)`, with HEADS heads of 2 * HALF elements a piece.

    A tile has three axes: head, half of it and angle; with interleaved pairs one. turn: 1, or -1 to turn back, which is what the
    gradient asks for.
    """
    tokens, width = sk.dynamic("tokens"), sk.dynamic("width")
    Tokens = Annotated[sk.Array, sk.Tensor((tokens, width), dtype, strides=(None, 1))]
    Angles = Annotated[sk.Array, sk.Tensor((tokens, HALF), angle_dtype, strides=(None, 1))]

    @sk.jit
    def rope(x: Tokens, cos: Angles, sin: Angles, out: Tokens, turn: sk.float32) -> None:
        token, first = sk.program_id(0), sk.program_id(1) * HEADS
        if INTERLEAVED:
            i = first * (2 * HALF) + sk.arange(0, HEADS * 2 * HALF)
            side, angle = i % 2, i // 2 % HALF
            partner = i + 1 - 2 * side
        else:
            head, side = first + sk.arange(0, HEADS)[:, None, None], sk.arange(0, 2)[None, :, None]
            start = head * (2 * HALF) + sk.arange(0, HALF)[None, None, :]
            i, partner = start + side * HALF, start + (1 - side) * HALF
            angle = (
                sk.arange(0, HALF)[None, None, :] + i * 0
            )  # of all three axes: each thread has those of its elements
            side = side + i * 0
        own, other = (sk.load(x[token] + place, mask=i < width).to(sk.float32) for place in (i, partner))
        c, s = (sk.load(each[token] + angle).to(sk.float32) for each in (cos, sin))
        sk.store(out[token] + i, own * c + other * s * sk.where(side < 1, -turn, turn), mask=i < width)

    return rope


def rope(x: Any, cos: Any, sin: Any, *, out: Any = None, interleaved: bool = False, backward: bool = False) -> Any:
    """Return x with each pair of elements of a head turned by an angle: (a, b) to (a * cos - b * sin, b * cos + a * sin).

    x: (..., heads, size of a head), without gaps. cos, sin: (tokens, half a head), a row for each of what is before the heads. A
    pair is an element and the one half a head further, or its neighbour if interleaved. out: like x, x itself too. backward: turn
    the other way, which makes of the gradient of the result that of x. Source: Su et al., RoFormer, 2021.
    """
    out = empty_like(x) if out is None else checked_out(out, x, apart=(cos, sin), shape=x.shape)
    is_back = option_of("backward", backward, bool)
    require(
        len(x.shape) > 1 and x.shape[-1] > 0 and x.shape[-1] % 2 == 0,
        f"x has shape {tuple(x.shape)}: heads lie along the last axis, in pairs",
    )
    heads, size = x.shape[-2:]
    width = heads * size
    source, target = (_as_tokens(each, width) for each in (x, out))
    each = max(1, PIECE // size)
    kernel = rope_kernel(float_dtype_of(x), dtype_of(cos), size // 2, interleaved, each)
    kernel[source.shape[0], sk.cdiv(heads, each)](source, cos, sin, target, -1.0 if is_back else 1.0)
    return out


def _as_tokens(x: Any, width: int) -> Any:
    require_packed(x)
    return x.reshape((math.prod(x.shape[:-2]), width))


# -- dropout ------------------------------------------------------------------------------------------------------------


@factory
def dropout_kernel(dtype: Dtype, axes: int, BLOCK: int) -> sk.JitFunction:
    """Return the kernel `k[pieces](x, out, probability, seed)` of arrays without gaps."""
    sizes = tuple(sk.dynamic(f"size{axis}") for axis in range(axes))
    X = Annotated[sk.Array, sk.Tensor(sizes, dtype)]

    @sk.jit
    def dropout(x: X, out: X, probability: sk.float32, seed: sk.int64) -> None:
        i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
        mask = i < math.prod(x.shape)
        keep = sk.rand(seed, i) >= probability
        v = sk.load(x + i, mask=mask).to(sk.float32)
        sk.store(out + i, sk.where(keep, v * (1 / (1 - probability)), 0), mask=mask)

    return dropout


def dropout(x: Any, probability: float, seed: int, *, out: Any = None) -> Any:
    """Return x with each element 0 with this probability, below 1, else divided by 1 - probability.

    What is dropped depends on seed and place alone: the same call of a gradient gives that of x, and no mask is kept. x: without
    gaps, float32, float16 or bfloat16. seed: an int64. out: like x, x itself too. Source: Philox, see `sk.rand`.
    """
    require_packed(x)
    require(
        0 <= option_of("probability", probability, float) < 1,
        f"probability is {probability}: it lies from 0 to below 1",
    )
    out = empty_like(x) if out is None else checked_out(out, x)
    kernel = dropout_kernel(float_dtype_of(x), len(x.shape), PIECE)
    kernel[sk.cdiv(math.prod(x.shape), PIECE)](x, out, probability, int_of("seed", seed, LEAST_SEED))
    return out
