"""Kernels as operators of PyTorch, for autograd, `torch.compile`, `torch.export`, `torch.vmap` and CUDA graphs.

    import stagekit.torch as skt

    @skt.operator("demo::scale", outputs={"out": "x"})
    def scale(x: torch.Tensor, factor: float, *, out: torch.Tensor) -> None:
        scale_kernel[grid](x, out, factor, x.numel())

    y = scale(x, 2.0)          # torch.ops.demo.scale.default

`docs/torch.md` shows all of it. The shelf's kernels are there as operators, with their gradients: `skt.rmsnorm(x, weight)`.
`import stagekit` imports nothing of this, and no torch.
"""

from stagekit.diagnostics import conceal
from stagekit.extras import ExtraError, require_all

try:
    require_all("`stagekit.torch`", "torch")
except ExtraError as error:
    conceal(error)
    raise

from stagekit.operators.errors import OperatorError
from stagekit.torch.operators import operator
from stagekit.torch.shelf import attention, cross_entropy, layernorm, matmul, rmsnorm, softmax, swiglu

__all__ = [
    "OperatorError",
    "attention",
    "cross_entropy",
    "layernorm",
    "matmul",
    "operator",
    "rmsnorm",
    "softmax",
    "swiglu",
]
