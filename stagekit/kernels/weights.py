"""Products with weights of 8 or 4 bits, which are unpacked and scaled on their way to the product.

Weights lie as those of a linear layer do, (outputs, inputs), with a scale for each group of neighbours along the inputs, as
`quantize` gives them. Of 4 bits, two lie in a byte, the first in the low half, as numbers from 0 to 15.
"""

from __future__ import annotations

from typing import Annotated, Any

import stagekit as sk
from stagekit.kernels import few_rows
from stagekit.kernels.host import (
    Dtype,
    as_rows,
    dtype_of,
    empty,
    factory,
    float_dtype_of,
    is_on_cpu,
    power_of_two,
    require,
    require_array,
)
from stagekit.kernels.matrices import CPU_BLOCKS, Blocks, BlockSizes
from stagekit.kernels.options import int_of, require_multiple
from stagekit.kernels.quantizing import LARGEST
from stagekit.kernels.sharing import checked_out

LEVELS = 15  # the largest number of 4 bits
GPU_BLOCKS = {16: Blocks(16, 16, 128, 64, 4), 64: Blocks(32, 64, 128, 128, 3), None: Blocks(64, 64, 64, 128, 3)}
"""What a program multiplies, by the most rows of x. Few rows wait for memory: small blocks are many programs."""


@sk.inline
def unpacked(bytes_: Any) -> Any:
    """Return the numbers of 4 bits in a tile of bytes, along twice as long a last axis."""
    rows, columns = bytes_.shape
    return sk.join(bytes_ & 15, bytes_ >> 4).reshape((rows, 2 * columns))


@factory
def quantize_int4_kernel(dtype: Dtype, GROUP: int, TILE: int) -> sk.JitFunction:
    """Return the kernel `k[rows, groups of a row](x, out, scales, zeros)`. TILE: a power of two from GROUP on, which is even."""
    require_multiple("GROUP", GROUP, 2)
    require(power_of_two(TILE) == TILE >= GROUP, "TILE is {}: it is a power of two, at least GROUP, {}", TILE, GROUP)
    Rows = Annotated[sk.Array, sk.Tensor((None, None), dtype, (None, 1))]
    Out = Annotated[sk.Array, sk.Tensor((None, None), sk.uint8, (None, 1))]
    Scales = Annotated[sk.Array, sk.Tensor((None, None), sk.float32)]
    Zeros = Annotated[sk.Array, sk.Tensor((None, None), sk.uint8)]

    @sk.jit
    def quantize_int4(x: Rows, out: Out, scales: Scales, zeros: Zeros) -> None:
        row, group = sk.program_id(0), sk.program_id(1)
        i = sk.arange(0, TILE)
        v = sk.load(x[row] + (group * GROUP + i), mask=i < GROUP, other=0).to(sk.float32)
        least = sk.reduce_min(sk.minimum(v, 0))  # so that 0 stays 0
        step = (sk.reduce_max(sk.maximum(v, 0)) - least) / LEVELS
        scale = sk.where(step > 0, step, 1.0)
        zero = min(max(sk.rint(-least / scale), 0), LEVELS)
        q = sk.minimum(sk.maximum(sk.rint(v / scale) + zero, 0), LEVELS).to(sk.uint8)
        low, high = sk.split(q.reshape((TILE // 2, 2)))
        pair = sk.arange(0, TILE // 2)
        sk.store(out[row] + (group * (GROUP // 2) + pair), low | high << 4, mask=pair < GROUP // 2)
        scales[row, group] = scale
        zeros[row, group] = zero.to(sk.uint8)

    return quantize_int4


def quantize_int4(x: Any, *, group: int = 128) -> tuple[Any, Any, Any]:
    """Return a matrix in numbers of 4 bits, two in a byte, and scale and zero of each group of neighbours in a row.

    x: float32, float16 or bfloat16, (rows, columns); group: even, divides columns. A number q stands for (q - zero) * scale. The
    scale is a fifteenth of the way from the least of a group, or 0, to its largest, or 0, and no number is off by more.
    """
    dtype = float_dtype_of(x)
    require(len(x.shape) == 2, f"x has shape {tuple(x.shape)}: give a matrix")
    rows, columns = x.shape
    group = int_of("group", group, 1)
    divides = group % 2 == 0 and columns % group == 0
    require(divides, f"group={group!r} of {columns} columns: it is an even integer and divides them")
    out = empty(x, (rows, columns // 2), sk.uint8)
    scales, zeros = (empty(x, (rows, columns // group), d) for d in (sk.float32, sk.uint8))
    quantize_int4_kernel(dtype, group, power_of_two(group))[rows, columns // group](x, out, scales, zeros)
    return out, scales, zeros


@factory
def quantized_linear_kernel(
    dtype: Dtype, weight_dtype: Dtype, GROUP: int, HAS_ZEROS: bool, BLOCKS: BlockSizes
) -> sk.JitFunction:
    """Return the kernel `k[blocks of rows, blocks of outputs](x, weight, scales, zeros, out)`. BLOCKS.depth divides GROUP."""
    m, n, k, groups = sk.dynamic("m"), sk.dynamic("n"), sk.dynamic("k"), sk.dynamic("groups")
    X = Annotated[sk.Array, sk.Tensor((m, k), dtype, (None, 1))]
    Weight = Annotated[sk.Array, sk.Tensor((n, None), weight_dtype, (None, 1))]
    Scales = Annotated[sk.Array, sk.Tensor((n, groups), sk.float32)]
    Out = Annotated[sk.Array, sk.Tensor((m, n), dtype, (None, 1))]
    M, N, K, threads, stages = Blocks(*BLOCKS)
    require_multiple("GROUP", GROUP, K)
    per_byte = 2 if weight_dtype is sk.uint8 else 1

    @sk.jit(threads=threads)
    def quantized_linear(x: X, weight: Weight, scales: Scales, zeros: Any, out: Out) -> None:
        row, output = sk.program_id(0) * M, sk.program_id(1) * N

        def parts(start: Any) -> Any:
            return x.tile((row, start), (M, K)), weight.tile((output, start // per_byte), (N, K // per_byte))

        total = sk.zeros((M, N), sk.float32)
        start = 0
        for left, part in sk.staged(range(0, k, K), parts, stages=max(stages, 2)):
            numbers = (unpacked(part) if per_byte == 2 else part).to(sk.float32)
            place = (output, start // GROUP)
            if per_byte == 2:
                numbers -= sk.load(zeros.tile(place, (N, 1))).to(sk.float32) if HAS_ZEROS else few_rows.MIDDLE
            numbers *= sk.load(scales.tile(place, (N, 1)))
            total = sk.dot(left, numbers.to(dtype).T, total)
            start += K
        sk.store(out.tile((row, output), (M, N)), total)

    return quantized_linear


def quantized_linear(x: Any, weight: Any, scales: Any, zeros: Any = None, *, out: Any = None) -> Any:
    """Return x @ w.T, of x (..., inputs) and w (outputs, inputs), the numbers of a weight times the scales of their groups.

    x: float32, float16 or bfloat16. weight: int8, float8_e4m3fn or float8_e5m2 of shape (outputs, inputs), or uint8 of shape
    (outputs, inputs / 2), in which two numbers of 4 bits lie. scales: (outputs, groups), float32: a group has inputs / groups
    neighbours, a multiple of 16; one group is a scale for each output. zeros: of 4 bits, what is subtracted before, (outputs,
    groups), uint8; left out, 8. A number times its scale is rounded to the dtype of x, but for up to 16 rows of 16 bits on a GPU,
    where the sum of a group is scaled. Sums are float32, rounded once. out: shares memory with no input.
    """
    dtype, weight_dtype = float_dtype_of(x), dtype_of(weight)
    is_packed = weight_dtype is sk.uint8
    if not is_packed and weight_dtype not in LARGEST:
        known = ", ".join(each.name for each in LARGEST)
        require(False, f"the weight is of {weight_dtype.name}: give uint8, of 4 bits, or {known}")
    require(zeros is None or is_packed, "zeros are of weights of 4 bits")
    require(len(weight.shape) == 2, "the weight has shape {}: give a matrix", tuple(weight.shape))
    read = (scales,) if zeros is None else (scales, zeros)
    require_array(*read)
    rows, outputs, inputs = as_rows(x), weight.shape[0], weight.shape[1] * (2 if is_packed else 1)
    require(rows.shape[1] == inputs, "x has {} inputs, and the weight has {}", rows.shape[1], inputs)
    group = _group(inputs, outputs, scales)
    fits = zeros is None or (tuple(zeros.shape) == tuple(scales.shape) and dtype_of(zeros) is sk.uint8)
    require(fits, "zeros are uint8, of the shape of the scales, {}", tuple(scales.shape))
    shape, apart = (*x.shape[:-1], outputs), (x, weight, *read)
    out = empty(x, shape, dtype) if out is None else checked_out(out, apart=apart, shape=shape)
    if few_rows.multiply(rows, weight, scales, zeros, as_rows(out), group):
        return out
    most = next(most for most in GPU_BLOCKS if most is None or rows.shape[0] <= most)
    base = CPU_BLOCKS if is_on_cpu(x) else GPU_BLOCKS[most]
    blocks = base._replace(depth=min(base.depth, group & -group))
    kernel = quantized_linear_kernel(dtype, weight_dtype, group, zeros is not None, blocks)
    grid = sk.cdiv(rows.shape[0], blocks.rows), sk.cdiv(outputs, blocks.columns)
    kernel[grid](rows, weight, scales, zeros, as_rows(out))
    return out


def _group(inputs: int, outputs: int, scales: Any) -> int:
    """Return how many neighbours share a scale."""
    shape: tuple[int, ...] = tuple(scales.shape)
    fits = len(shape) == 2 and shape[0] == outputs and shape[1] > 0 and inputs % (16 * shape[1]) == 0
    wanted = "scales of shape {}: give ({}, groups), of groups of a multiple of 16 of {} inputs"
    require(fits, wanted, shape, outputs, inputs)
    return max(inputs // shape[1], 16)  # without inputs too, whose sums are 0
