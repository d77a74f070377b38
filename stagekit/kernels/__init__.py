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
| `column_sums` | of two axes | a program for 128 columns |
| `embedding`, `embedding_backward` | rows of a table by number; adds rows to a table | a program for each number; atomics |

Rows: a program for each row. One of up to 32,768 elements is one tile, a power of two, and is read once; a longer one passes
through in tiles of 4,096. Arrays are float32, float16 or bfloat16; sums and what lies between are float32, and rounded once. The
last axis has no gaps; of arrays with two axes the rows may be apart. An output may be an input, as it is, and nothing else that
overlaps it.
"""

from stagekit.kernels.gathering import (
    embedding,
    embedding_backward,
    embedding_backward_kernel,
    embedding_kernel,
)
from stagekit.kernels.losses import cross_entropy, cross_entropy_kernel
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
from stagekit.kernels.pointwise import elementwise, elementwise_kernel
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

__all__ = [
    "MAX", "SUM", "Reduction", "argmax", "argmax_kernel", "column_sums", "column_sums_kernel",
    "cross_entropy", "cross_entropy_kernel", "elementwise", "elementwise_kernel",
    "embedding", "embedding_backward", "embedding_backward_kernel", "embedding_kernel",
    "layernorm", "layernorm_backward", "layernorm_kernel", "max", "norm_backward_kernel",
    "reduce_kernel", "reduce_rows_kernel", "rmsnorm", "rmsnorm_backward", "rmsnorm_kernel", "softmax", "softmax_kernel", "sum",
]  # fmt: skip
