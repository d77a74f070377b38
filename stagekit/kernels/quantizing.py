"""Numbers of 8 bits with a scale for each group of neighbours in a row: int8 and float8, and back. One program for each group."""

from __future__ import annotations

from typing import Annotated, Any

import stagekit as sk
from stagekit.kernels.host import Dtype, as_rows, dtype_of, empty, factory, float_dtype_of

LARGEST: dict[Any, float] = {
    sk.int8: 127.0,
    sk.float8_e4m3fn: 448.0,
    sk.float8_e5m2: 57344.0,
}  # what the largest of a group becomes


@factory
def quantize_kernel(dtype: Dtype, to: Dtype, GROUP: int) -> sk.JitFunction:
    """Return the kernel `k[rows, groups of a row](x, out, scales)`; scales is (rows, groups), float32."""
    rows, columns = sk.dynamic("rows"), sk.dynamic("columns")
    Rows = Annotated[sk.Array, sk.Tensor((rows, columns), dtype, strides=(None, 1))]
    Out = Annotated[sk.Array, sk.Tensor((rows, columns), to, strides=(None, 1))]
    Scales = Annotated[sk.Array, sk.Tensor((rows, None), sk.float32)]
    largest = LARGEST[to]

    @sk.jit
    def quantize(x: Rows, out: Out, scales: Scales) -> None:
        row, group = sk.program_id(0), sk.program_id(1)
        i = group * GROUP + sk.arange(0, GROUP)
        v = sk.load(x[row] + i, mask=i < columns).to(sk.float32)
        scale = sk.reduce_max(abs(v)) / largest
        scales[row, group] = scale
        q = v / (scale if scale > 0 else 1)
        q = sk.minimum(sk.maximum(sk.rint(q) if to is sk.int8 else q, -largest), largest)
        sk.store(out[row] + i, q, mask=i < columns)

    return quantize


def quantize(x: Any, dtype: Dtype = sk.int8, *, group: int = 128, out: Any = None) -> tuple[Any, Any]:
    """Return x in a dtype of 8 bits, and the scale of each group of neighbours in a row, by which `dequantize` multiplies.

    dtype: sk.int8, sk.float8_e4m3fn or sk.float8_e5m2. A scale is the largest size in its group divided by 127, 448 or 57344, so
    that each number is at most half a unit in the last place off: half a scale for int8. x: float32, float16 or bfloat16. The
    last group of a row may be shorter. Scales are float32, of shape (..., groups).
    """
    if dtype not in LARGEST:
        raise ValueError(f"dtype is {dtype!r}: numbers are quantised to {', '.join(d.name for d in LARGEST)}")
    source = as_rows(x)
    rows, columns = source.shape
    groups = sk.cdiv(columns, group)
    out = empty(x, tuple(x.shape), dtype) if out is None else out
    scales = empty(x, (rows, groups), sk.float32)
    quantize_kernel(float_dtype_of(x), dtype, group)[rows, groups](source, as_rows(out), scales)
    return out, scales if len(x.shape) == 2 else scales.reshape((*x.shape[:-1], groups))


@factory
def dequantize_kernel(dtype: Dtype, to: Dtype, GROUP: int) -> sk.JitFunction:
    """Return the kernel `k[rows, groups of a row](q, scales, out)`."""
    rows, columns = sk.dynamic("rows"), sk.dynamic("columns")
    Rows = Annotated[sk.Array, sk.Tensor((rows, columns), dtype, strides=(None, 1))]
    Out = Annotated[sk.Array, sk.Tensor((rows, columns), to, strides=(None, 1))]
    Scales = Annotated[sk.Array, sk.Tensor((rows, None), sk.float32)]

    @sk.jit
    def dequantize(q: Rows, scales: Scales, out: Out) -> None:
        row, group = sk.program_id(0), sk.program_id(1)
        i = group * GROUP + sk.arange(0, GROUP)
        v = sk.load(q[row] + i, mask=i < columns).to(sk.float32)
        sk.store(out[row] + i, v * scales[row, group], mask=i < columns)

    return dequantize


def dequantize(q: Any, scales: Any, dtype: Dtype = sk.float32, *, group: int = 128, out: Any = None) -> Any:
    """Return numbers of 8 bits times the scales of their groups, in `dtype`: what `quantize` was given, but for its roundings."""
    source = as_rows(q)
    rows, columns = source.shape
    out = empty(q, tuple(q.shape), dtype) if out is None else out
    grid = rows, sk.cdiv(columns, group)
    dequantize_kernel(dtype_of(q), dtype_of(out), group)[grid](source, as_rows(scales), as_rows(out))
    return out
