"""Kernels of the shelf as operators, with their gradients: `stagekit.torch.rmsnorm(x, weight)`.

Each is `torch.ops.stagekit.NAME`, launches what `stagekit.kernels.NAME` does, and takes CPU and CUDA tensors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stagekit import kernels
from stagekit.torch.operators import operator

# -- rows ---------------------------------------------------------------------------------------------------------------


def _softmax_backward(gradient: Tensor, out: Tensor) -> Tensor:
    return torch.ops.aten._softmax_backward_data(gradient, out, -1, out.dtype)


@operator("stagekit::softmax", outputs={"out": "x"}, backward=_softmax_backward, saves="out", vmap="x")
def softmax(x: Tensor, *, out: Tensor) -> None:
    """Write the softmax along the last axis."""
    kernels.softmax(x.contiguous(), out=out)


@operator("stagekit::rmsnorm_backward", outputs={"x_gradient": "x", "weight_gradient": "weight"}, vmap="loop")
def rmsnorm_backward(gradient: Tensor, x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return the gradients of x and weight."""
    return kernels.rmsnorm_backward(gradient.contiguous(), x.contiguous(), weight, eps=eps)


@operator("stagekit::rmsnorm", outputs={"out": "x"}, backward=rmsnorm_backward, saves=("x", "weight", "eps"), vmap="x")
def rmsnorm(x: Tensor, weight: Tensor, eps: float = 1e-6, *, out: Tensor) -> None:
    """Write x / sqrt(mean(x²) + eps) * weight, with the mean along the last axis."""
    kernels.rmsnorm(x.contiguous(), weight, out=out, eps=eps)


@operator(
    "stagekit::layernorm_backward",
    outputs={"x_gradient": "x", "weight_gradient": "weight", "bias_gradient": "weight"},
    vmap="loop",
)
def layernorm_backward(gradient: Tensor, x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, weight and bias."""
    return kernels.layernorm_backward(gradient.contiguous(), x.contiguous(), weight, eps=eps)


@operator(
    "stagekit::layernorm", outputs={"out": "x"}, backward=layernorm_backward, saves=("x", "weight", "eps"), vmap="x"
)
def layernorm(x: Tensor, weight: Tensor, bias: Tensor | None = None, eps: float = 1e-5, *, out: Tensor) -> None:
    """Write (x - mean) / sqrt(mean((x - mean)²) + eps) * weight + bias, with the means along the last axis."""
    kernels.layernorm(x.contiguous(), weight, bias, out=out, eps=eps)


@operator("stagekit::cross_entropy_gradient", outputs={"gradient": "logits"}, vmap=("logits", "targets"))
def _cross_entropy_gradient(logits: Tensor, targets: Tensor, ignore: int, *, gradient: Tensor) -> None:
    kernels.cross_entropy(logits.contiguous(), targets.contiguous(), gradient=gradient, ignore=ignore)


def _cross_entropy_backward(gradient: Tensor, logits: Tensor, targets: Tensor, ignore: int) -> tuple[Tensor, None]:
    of_rows = _cross_entropy_gradient(logits, targets, ignore)
    return of_rows * gradient.unsqueeze(-1).to(of_rows.dtype), None


@operator(
    "stagekit::cross_entropy",
    outputs={"losses": lambda targets: torch.empty(targets.shape, dtype=torch.float32, device=targets.device)},
    backward=_cross_entropy_backward,
    saves=("logits", "targets", "ignore"),
    vmap=("logits", "targets"),
)
def cross_entropy(logits: Tensor, targets: Tensor, ignore: int = -100) -> Tensor:
    """Return log(sum(exp(logits))) - logits[target] of each row, float32, 0 where the target is `ignore`."""
    return kernels.cross_entropy(logits.contiguous(), targets.contiguous(), ignore=ignore)


# -- elements -----------------------------------------------------------------------------------------------------------


@operator(
    "stagekit::swiglu_backward", outputs={"gate_gradient": "gate", "up_gradient": "up"}, vmap=("gradient", "gate", "up")
)
def swiglu_backward(gradient: Tensor, gate: Tensor, up: Tensor, *, gate_gradient: Tensor, up_gradient: Tensor) -> None:
    """Write the gradients of gate and up."""
    kernels.swiglu_backward(gradient, _rows(gate), _rows(up), out=(gate_gradient, up_gradient))


@operator(
    "stagekit::swiglu", outputs={"out": "gate"}, backward=swiglu_backward, saves=("gate", "up"), vmap=("gate", "up")
)
def swiglu(gate: Tensor, up: Tensor, *, out: Tensor) -> None:
    """Write silu(gate) * up. The two may be halves of one tensor."""
    kernels.swiglu(_rows(gate), _rows(up), out=out)


def _rows(x: Tensor) -> Tensor:
    """Return x as the shelf takes it: rows may be apart where there are two axes and no others."""
    return x if x.dim() == 2 and x.stride(-1) == 1 else x.contiguous()


# -- products -----------------------------------------------------------------------------------------------------------


def _matmul_backward(gradient: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return matmul(gradient, b.t()), matmul(a.t(), gradient)


@operator(
    "stagekit::matmul",
    outputs={"out": lambda a, b: a.new_empty((a.shape[0], b.shape[1]))},
    backward=_matmul_backward,
    saves=("a", "b"),
    vmap="loop",
)
def matmul(a: Tensor, b: Tensor, *, out: Tensor) -> None:
    """Write a @ b, of matrices of one dtype, either of them also transposed."""
    kernels.matmul(a, b, out=out)


@operator("stagekit::attention_backward", outputs={"of_q": "q", "of_k": "k", "of_v": "v"}, vmap="loop")
def attention_backward(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of q, k and v."""
    is_fixed = torch.are_deterministic_algorithms_enabled()
    return kernels.attention_backward(gradient, q, k, v, out, lse, causal=causal, scale=scale, deterministic=is_fixed)


@operator(
    "stagekit::attention",
    outputs={"out": "q", "lse": lambda q: torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)},
    backward=attention_backward,
    saves=("q", "k", "v", "out", "lse", "causal", "scale"),
    non_differentiable="lse",
    vmap="loop",
)
def attention_with_sums(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """Return softmax(scale * q @ k.T) @ v, and log(sum(exp(scores))) of each row."""
    out, lse = kernels.attention(q, k, v, causal=causal, scale=scale, return_lse=True)
    return out, lse


def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None) -> Tensor:
    """Return softmax(scale * q @ k.T) @ v of tensors (batch, heads, rows, dim), of which k and v may have fewer heads."""
    out, _ = attention_with_sums(q, k, v, causal, scale)
    return out
