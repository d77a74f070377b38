"""Kernels to use, and to read: each is written with tiles, as a user of stagekit would write it.

    from stagekit import kernels

    y = kernels.softmax(x)                              # NumPy: on the CPU. torch, CuPy, `sk.cuda.to_device`: on the GPU
    kernels.rmsnorm(x, weight, residual=r, out=x)       # in place

    kernel = kernels.softmax_kernel(sk.float32, 1024, True)       # the kernel itself
    kernel[rows](x, y); kernel.specialize().ptx

Each kernel has two names. `softmax(x, *, out=None, ...)` is a plain function: it takes arrays of any library, makes the output
where none is given, by the same library, chooses the tile and launches on the current stream. `softmax_kernel(dtype, BLOCK,
ONE_TILE)` is the factory behind it: it takes what the kernel is specialised for and gives the same kernel every time. How many
rows there are, how long they are, and how far apart, is known at run time only.

| kernel | computes | how |
| --- | --- | --- |
| `elementwise` | any function of up to 8 arrays and numbers | a program for each piece of 1024 elements |
| `softmax` | exp(x - max) / sum(exp(x - max)) | rows |
| `rmsnorm` | x / sqrt(mean(x²) + eps) * weight, of x + residual | rows |
| `layernorm` | (x - mean) / sqrt(mean((x - mean)²) + eps) * weight + bias, of x + residual | rows |
| `rmsnorm_backward`, `layernorm_backward` | gradients of x, weight and bias | 256 programs at most |
| `cross_entropy` | log(sum(exp(logits))) - logits[target], and its gradient | rows |
| `sum`, `max` | of the last axis, or of all | rows; up to 1024 programs, and one for what they found |
| `argmax` | of the last axis | rows |
| `topk` | the largest of the last axis, in order, and where they are | rows, sorted in tiles of up to 2,048 |
| `column_sums` | of two axes | a program for 128 columns |
| `cumsum` | of the last axis, or of one long array | rows; one pass of programs that look back at others |
| `matmul` | epilogue(a @ b, *operands), any function of tiles | a program for each block; `sk.dot` |
| `batched_matmul` | a[i] @ b[i] | a program for each block; `sk.dot` |
| `grouped_matmul` | rows of a times the matrix of their group | a program for each block of a group; `sk.dot` |
| `hopper_matmul` | a @ b, as it is written for compute capability 9.0 | block after block a program; warps in roles; `wgmma` |
| `transpose` | a matrix with its axes exchanged | a program for each square of 64 |
| `conv2d` | correlation of images with filters | a program for a block of filters and pixels; `sk.dot` |
| `stencil` | any function of an element and its neighbours | a program for 16 rows of 64 |
| `attention` | softmax(scale * q @ k.T) @ v of heads, causal or not | a program for 64 rows of q; `sk.dot` |
| `hopper_attention` | `attention`, as it is written for compute capability 9.0 | block after block a program; `wgmma` |
| `attention_backward` | gradients of q, k and v | one kernel for that of q, one for the others |
| `hopper_attention_backward` | the same, as it is written for compute capability 9.0 | a program for 128 rows of k; `wgmma` |
| `selective_scan` | h = exp(delta * A) * h + delta * u * B, y = C * h + D * u | a program for each sequence, scans of pairs |
| `selective_scan_backward` | its gradients | a program for each sequence, scans to and fro |
| `swiglu`, `swiglu_backward` | silu(gate) * up | elementwise |
| `rope` | pairs of a head turned by angles, or back | a program for each 1024 pairs of a token |
| `dropout` | elements dropped by seed and place | elementwise; Philox |
| `adamw` | a step of AdamW in place, bfloat16 rounded at random | elementwise; Philox |
| `quantize`, `dequantize` | int8 or float8 with a scale for each group, and back | a program for 1024 elements or a group |
| `quantized_linear` | x @ w.T for weights of 4 or 8 bits with scales | a program for each block; `sk.dot` |
| `quantize_int4` | numbers of 4 bits, two in a byte, with scale and zero of each group | a program for each group |
| `embedding`, `embedding_backward` | rows of a table by number; adds rows to a table | a program for each number; atomics |

Rows: a program for each row. One of up to 32,768 elements is one tile, a power of two, and is read once; a longer one passes
through in tiles of 4,096. Arrays are float32, float16 or bfloat16; sums and what lies between are float32, and rounded once. The
last axis has no gaps; of arrays with two axes the rows may be apart. An output may be an input, as it is, but for
`matmul` and `transpose`, and nothing else that overlaps it.
"""

from stagekit.kernels.attending import (
    attention,
    attention_backward,
    attention_backward_kv_kernel,
    attention_backward_q_kernel,
    attention_kernel,
)
from stagekit.kernels.batched import batched_matmul, batched_matmul_kernel, grouped_matmul, grouped_matmul_kernel
from stagekit.kernels.choosing import topk, topk_kernel
from stagekit.kernels.convolving import conv2d, conv2d_kernel
from stagekit.kernels.gathering import embedding, embedding_backward, embedding_backward_kernel, embedding_kernel
from stagekit.kernels.hopper import hopper_matmul, hopper_matmul_kernel
from stagekit.kernels.hopper_attending import hopper_attention, hopper_attention_kernel
from stagekit.kernels.hopper_gradients import (
    hopper_attention_backward,
    hopper_attention_backward_kernel,
    hopper_attention_rounding_kernel,
    hopper_attention_rows_kernel,
)
from stagekit.kernels.losses import cross_entropy, cross_entropy_kernel
from stagekit.kernels.matrices import matmul, matmul_kernel, transpose, transpose_kernel
from stagekit.kernels.neighbouring import stencil, stencil_kernel
from stagekit.kernels.normalizing import (
    layernorm,
    layernorm_backward,
    layernorm_kernel,
    norm_backward_kernel,
    rmsnorm,
    rmsnorm_backward,
    rmsnorm_kernel,
    softmax,
    softmax_kernel,
)
from stagekit.kernels.optimizing import adamw, adamw_kernel
from stagekit.kernels.pointwise import (
    dropout,
    dropout_kernel,
    elementwise,
    elementwise_kernel,
    rope,
    rope_kernel,
    swiglu,
    swiglu_backward,
    swiglu_backward_kernel,
)
from stagekit.kernels.quantizing import LARGEST, dequantize, dequantize_kernel, quantize, quantize_kernel
from stagekit.kernels.reducing import (
    MAX,
    SUM,
    Reduction,
    argmax,
    argmax_kernel,
    column_sums,
    column_sums_kernel,
    max,
    reduce_kernel,
    reduce_rows_kernel,
    sum,
)
from stagekit.kernels.scanning import (
    cumsum,
    cumsum_kernel,
    cumsum_of_long_tiles_kernel,
    cumsum_of_stretches_kernel,
    cumsum_rows_kernel,
    fill_kernel,
    stretch_sums_kernel,
)
from stagekit.kernels.selective import (
    selective_scan,
    selective_scan_backward,
    selective_scan_backward_kernel,
    selective_scan_kernel,
)
from stagekit.kernels.weights import quantize_int4, quantize_int4_kernel, quantized_linear, quantized_linear_kernel

__all__ = [
    "LARGEST", "MAX", "SUM", "Reduction", "adamw", "adamw_kernel", "argmax", "argmax_kernel", "attention",
    "attention_backward", "attention_backward_kv_kernel", "attention_backward_q_kernel", "attention_kernel",
    "batched_matmul", "batched_matmul_kernel", "column_sums", "column_sums_kernel", "conv2d", "conv2d_kernel",
    "cross_entropy", "cross_entropy_kernel", "cumsum", "cumsum_kernel", "cumsum_of_long_tiles_kernel",
    "cumsum_of_stretches_kernel", "cumsum_rows_kernel", "dequantize", "dequantize_kernel", "dropout",
    "dropout_kernel", "elementwise", "elementwise_kernel", "embedding", "embedding_backward",
    "embedding_backward_kernel", "embedding_kernel", "fill_kernel", "grouped_matmul", "grouped_matmul_kernel",
    "hopper_attention", "hopper_attention_backward", "hopper_attention_backward_kernel", "hopper_attention_kernel",
    "hopper_attention_rounding_kernel", "hopper_attention_rows_kernel", "hopper_matmul", "hopper_matmul_kernel",
    "layernorm", "layernorm_backward", "layernorm_kernel", "matmul", "matmul_kernel", "max", "norm_backward_kernel",
    "quantize", "quantize_int4", "quantize_int4_kernel", "quantize_kernel", "quantized_linear",
    "quantized_linear_kernel", "reduce_kernel", "reduce_rows_kernel", "rmsnorm", "rmsnorm_backward", "rmsnorm_kernel",
    "rope", "rope_kernel", "selective_scan", "selective_scan_backward", "selective_scan_backward_kernel",
    "selective_scan_kernel", "softmax", "softmax_kernel", "stencil", "stencil_kernel", "stretch_sums_kernel", "sum",
    "swiglu", "swiglu_backward", "swiglu_backward_kernel", "topk", "topk_kernel", "transpose", "transpose_kernel",
]  # fmt: skip
