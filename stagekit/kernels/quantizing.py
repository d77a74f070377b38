"""Numbers of 8 bits with a scale for each group of neighbours in a row: int8 and float8, and back.

A program takes several groups of a row, a tile with a row for each: 1024 elements or one group, whichever is more. Memory is read
and written as one piece of the row.
"""

from __future__ import annotations

from typing import Annotated, Any

import stagekit as sk
from stagekit.kernels.host import Dtype, as_rows, dtype_of, empty, factory, float_dtype_of, require, require_shape
from stagekit.kernels.options import int_of, option_of
from stagekit.kernels.sharing import checked_out

LARGEST: dict[Any, float] = {
    sk.int8: 127.0,
    sk.float8_e4m3fn: 448.0,
    sk.float8_e5m2: 57344.0,
}  # what the largest of a group becomes


PIECE = 1024  # elements of a program, where groups are shorter


def groups_of_a_program(group: int) -> int:
    """Return how many groups of this length a program takes."""
    return max(1, PIECE // group)


@factory
def quantize_kernel(dtype: Dtype, to: Dtype, GROUP: int, GROUPS: int) -> sk.JitFunction:
    """Return the kernel `k[rows, pieces of a row](x, out, scales)`, of GROUPS groups a piece. scales: (rows, groups), float32."""
    rows, columns = sk.dynamic("rows"), sk.dynamic("columns")
    Rows = Annotated[sk.Array, sk.Tensor((rows, columns), dtype, strides=(None, 1))]
    Out = Annotated[sk.Array, sk.Tensor((rows, columns), to, strides=(None, 1))]
    Scales = Annotated[sk.Array, sk.Tensor((rows, None), sk.float32)]
    largest = LARGEST[to]

    @sk.jit
    def quantize(x: Rows, out: Out, scales: Scales) -> None:
        row, first = sk.program_id(0), sk.program_id(1) * GROUPS
        i, group = first * GROUP + sk.arange(0, GROUPS * GROUP), first + sk.arange(0, GROUPS)
        v = sk.load(x[row] + i, mask=i < columns).to(sk.float32).reshape((GROUPS, GROUP))
        scale = sk.reduce_max(abs(v), axis=1) / largest
        sk.store(scales[row] + group, scale, mask=group < scales.shape[1])
        q = v / sk.where(scale > 0, scale, 1)[:, None]
        q = sk.minimum(sk.maximum(sk.rint(q) if to is sk.int8 else q, -largest), largest)
        sk.store(out[row] + i, q.reshape((GROUPS * GROUP,)), mask=i < columns)

    return quantize


def quantize(x: Any, dtype: Dtype = sk.int8, *, group: int = 128, out: Any = None) -> tuple[Any, Any]:
    """Return x in a dtype of 8 bits, and the scale of each group of neighbours in a row, by which `dequantize` multiplies.

    dtype: sk.int8, sk.float8_e4m3fn or sk.float8_e5m2. A scale is the largest size in its group divided by 127, 448 or 57344, so
    that each number is at most half a unit in the last place off: half a scale for int8. x: float32, float16 or bfloat16. The
    last group of a row may be shorter. Scales are float32, of shape (..., groups).
    """
    group = int_of("group", group, 1)
    if option_of("dtype", dtype, sk.DType) not in LARGEST:
        raise ValueError(f"dtype is {dtype!r}: numbers are quantised to {', '.join(d.name for d in LARGEST)}")
    source = as_rows(x)
    rows, columns = source.shape
    groups = sk.cdiv(columns, group)
    out = empty(x, tuple(x.shape), dtype) if out is None else checked_out(out, apart=(x,), shape=x.shape)
    scales = empty(x, (rows, groups), sk.float32)
    each = groups_of_a_program(group)
    kernel = quantize_kernel(float_dtype_of(x), dtype, group, each)
    kernel[rows, sk.cdiv(groups, each)](source, as_rows(out), scales)
    return out, scales if len(x.shape) == 2 else scales.reshape((*x.shape[:-1], groups))


@factory
def dequantize_kernel(dtype: Dtype, to: Dtype, GROUP: int, GROUPS: int) -> sk.JitFunction:
    """Return the kernel `k[rows, pieces of a row](q, scales, out)` for pieces of GROUPS groups."""
    rows, columns = sk.dynamic("rows"), sk.dynamic("columns")
    Rows = Annotated[sk.Array, sk.Tensor((rows, columns), dtype, strides=(None, 1))]
    Out = Annotated[sk.Array, sk.Tensor((rows, columns), to, strides=(None, 1))]
    Scales = Annotated[sk.Array, sk.Tensor((rows, None), sk.float32)]

    @sk.jit
    def dequantize(q: Rows, scales: Scales, out: Out) -> None:
        row, first = sk.program_id(0), sk.program_id(1) * GROUPS
        i, group = first * GROUP + sk.arange(0, GROUPS * GROUP), first + sk.arange(0, GROUPS)
        v = sk.load(q[row] + i, mask=i < columns).to(sk.float32).reshape((GROUPS, GROUP))
        v *= sk.load(scales[row] + group, mask=group < scales.shape[1])[:, None]
        sk.store(out[row] + i, v.reshape((GROUPS * GROUP,)), mask=i < columns)

    return dequantize


def dequantize(q: Any, scales: Any, dtype: Dtype = sk.float32, *, group: int = 128, out: Any = None) -> Any:
    """Return numbers of 8 bits times the scales of their groups, in `dtype`: what `quantize` was given, but for its roundings."""
    group = int_of("group", group, 1)
    known = ", ".join(each.name for each in LARGEST)
    require(dtype_of(q) in LARGEST, "q is of {}: what `quantize` makes is of {}", dtype_of(q).name, known)
    source = as_rows(q)
    rows, columns = source.shape
    require_shape("scales", scales, (*q.shape[:-1], sk.cdiv(columns, group)))
    out = (
        empty(q, tuple(q.shape), option_of("dtype", dtype, sk.DType))
        if out is None
        else checked_out(out, apart=(q, scales), shape=q.shape)
    )
    each = groups_of_a_program(group)
    kernel = dequantize_kernel(dtype_of(q), dtype_of(out), group, each)
    kernel[rows, sk.cdiv(columns, each * group)](source, as_rows(scales), as_rows(out))
    return out
