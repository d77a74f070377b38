"""Heads of attention, as the kernels for a GPU (`attending`) and for the CPU (`attending_on_cpu`) take them."""

from __future__ import annotations

import math
import numbers
from typing import Any, NamedTuple

import numpy as np

import stagekit as sk
from stagekit.kernels.host import (
    FLOATS,
    Dtype,
    dtype_of,
    float_dtype_of,
    remembered,
    require,
    require_array,
    require_choice,
)

MAX_DIM = 256  # of a head
LOG2E = math.log2(math.e)
HEADS = 16  # whose keys and values stay in the cache of a GPU together
LOWEST = -1e30  # of a largest score: times a factor below 1e8 it is still finite
LEAST_SCALE = 1e-30  # by which -inf is still -inf


@sk.inline
def of_head(x: Any, batch: Any, head: Any, HEADS_AXIS: int) -> Any:
    """Return the matrix, or the row, of one head."""
    return x[batch, head] if HEADS_AXIS == 1 else x[batch, :, head]


@sk.inline
def end_of_keys(row: Any, keys: Any, shift: Any, M: int, CAUSAL: bool) -> Any:
    """Return up to where the rows of a block of q look at keys."""
    return sk.minimum(keys, row + M + shift) if CAUSAL else keys


@sk.inline
def sign_and_factor(scale: Any) -> Any:
    """Return the sign of a scale, and its magnitude for exponentials of base 2, which is not 0: scores of -inf stay so."""
    return sk.where(scale < 0, -1.0, 1.0), sk.maximum(sk.abs(scale), LEAST_SCALE) * LOG2E


def padded(dim: int) -> int:
    """Return the columns of the tiles for heads of this dimension: multiples of 16, as products are made of."""
    return -(-dim // 16) * 16


def arrays_of(
    dtype: Dtype,
    DIM: int,
    CAUSAL: bool,
    HEADS_AXIS: int,
    queries: Any,
    keys: Any,
    dtypes: Any = FLOATS,
    most: int = MAX_DIM,
) -> tuple[Any, Any, Any]:
    """Return what arrays like q are, what arrays like k, and those with a number for each row of q.

    Refused: options for which a factory has no kernel. dtypes: those for which it has. most: columns of a head.
    """
    require_choice("dtype", dtype, sk.DType, dtypes)
    require_choice("DIM", DIM, numbers.Integral, range(1, most + 1))
    require_choice("CAUSAL", CAUSAL, bool | np.bool_, (False, True))
    require_choice("HEADS_AXIS", HEADS_AXIS, numbers.Integral, (1, 2))
    batch, heads, key_heads = sk.dynamic("batch"), sk.dynamic("heads"), sk.dynamic("key_heads")
    shapes = [(batch, heads, queries, DIM), (batch, key_heads, keys, DIM)]
    if HEADS_AXIS == 2:
        shapes = [(b, rows, h, dim) for b, h, rows, dim in shapes]
    like_q, like_k = (sk.Tensor(shape, dtype, strides=(None, None, None, 1)) for shape in shapes)
    return like_q, like_k, sk.Tensor((batch, heads, queries), sk.float32)


Shape = tuple[int, ...]


class Sizes(NamedTuple):
    """The sizes of an attention. key_heads: of k and v."""

    batch: int
    dim: int
    heads: int
    queries: int
    key_heads: int
    keys: int


def checked_sizes(q: Any, k: Any, v: Any, heads_axis: int, causal: bool) -> Sizes:
    """Return the sizes of an attention. Refused: arrays that do not go together, which the error shows."""
    require_array(q, k, v)
    require(isinstance(causal, bool | np.bool_), "causal is {!r}: it is True or False", causal)
    require(heads_axis in (1, 2), "heads_axis is {!r}: it is 1, or 2 for (batch, rows, heads, dim)", heads_axis)
    dtypes = float_dtype_of(q), dtype_of(k), dtype_of(v)
    return _sizes_of((tuple(q.shape), tuple(k.shape), tuple(v.shape)), dtypes, heads_axis)


@remembered
def _sizes_of(shapes: tuple[Shape, Shape, Shape], dtypes: tuple[Dtype, ...], heads_axis: int) -> Sizes:
    """Return the sizes of an attention, checked. All is of q, k and v."""
    shown = " and ".join(map(str, shapes))
    require(all(len(shape) == 4 for shape in shapes), f"q, k and v have shapes {shown}: give arrays of four axes")
    names = ", ".join(each.name for each in dtypes)
    is_alike = shapes[1] == shapes[2] and len(set(dtypes)) == 1
    require(is_alike, f"q, k and v are {shown} of {names}: k and v have one shape, and all one dtype")
    of_q, of_k, _ = shapes
    rows_axis = 3 - heads_axis
    sizes = Sizes(of_q[0], of_q[3], of_q[heads_axis], of_q[rows_axis], of_k[heads_axis], of_k[rows_axis])
    require(
        of_q[0] == of_k[0] and sizes.dim == of_k[3],
        f"q and k have shapes {shown}: the first and the last size are equal",
    )
    require(0 < sizes.dim <= MAX_DIM, f"heads have dimension {sizes.dim}: from 1 to {MAX_DIM} there are kernels")
    require(
        sizes.heads > 0 < sizes.key_heads and sizes.heads % sizes.key_heads == 0,
        f"{sizes.heads} heads of q share {sizes.key_heads} of k and v: give a multiple",
    )
    return sizes


def scale_of(scale: Any, dim: int) -> Any:
    """Return the scale of scores: that which was given, or dim**-0.5."""
    if scale is None:
        return dim**-0.5
    require(isinstance(scale, numbers.Real) and scale is not True, "scale is {!r}: it is a number", scale)
    require(math.isfinite(scale), "scale is {!r}: it is finite", scale)
    return scale
