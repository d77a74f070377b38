"""What the kernels are held against: the functions of `stagekit.kernels` that the model needs, in NumPy, in any dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any  # a NumPy array


def elementwise(function: Callable[..., Array], *inputs: Array) -> Array:
    return function(*inputs)


def matmul(a: Array, b: Array, *operands: Array, epilogue: Callable[..., Array] | None = None) -> Array:
    product = a @ b
    return product if epilogue is None else epilogue(product, *operands)


def transpose(x: Array) -> Array:
    return x.T


def embedding(table: Array, numbers: Array) -> Array:
    return table[numbers]


def embedding_backward(gradient: Array, numbers: Array, out: Array) -> Array:
    np.add.at(out, numbers, gradient)
    return out


def rmsnorm(x: Array, weight: Array, eps: float = 1e-6) -> Array:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def rmsnorm_backward(gradient: Array, x: Array, weight: Array, eps: float = 1e-6) -> tuple[Array, Array]:
    scale = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
    normed, weighted = x * scale, gradient * weight
    of_x = scale * (weighted - normed * (weighted * normed).mean(axis=-1, keepdims=True))
    return of_x, (gradient * normed).sum(axis=0)


def rope(x: Array, cos: Array, sin: Array, *, backward: bool = False) -> Array:
    rows = x.reshape(len(cos), *x.shape[-2:])
    half = x.shape[-1] // 2
    a, b = rows[..., :half], rows[..., half:]
    c, s = cos[:, None], -sin[:, None] if backward else sin[:, None]
    return np.concatenate([a * c - b * s, b * c + a * s], axis=-1).reshape(x.shape)


def attention(q: Array, k: Array, v: Array, *, causal: bool, heads_axis: int, return_lse: bool) -> tuple[Array, Array]:
    weights, lse = _weights(q, k, causal=causal)
    return np.einsum("bhij,bjhd->bihd", weights, v), lse


def attention_backward(
    gradient: Array, q: Array, k: Array, v: Array, out: Array, lse: Array, *, causal: bool, heads_axis: int
) -> tuple[Array, Array, Array]:
    weights, _ = _weights(q, k, causal=causal)
    of_weights = np.einsum("bihd,bjhd->bhij", gradient, v)
    means = np.einsum("bihd,bihd->bhi", gradient, out)
    of_scores = weights * (of_weights - means[..., None]) * q.shape[-1] ** -0.5
    return (
        np.einsum("bhij,bjhd->bihd", of_scores, k),
        np.einsum("bhij,bihd->bjhd", of_scores, q),
        np.einsum("bhij,bihd->bjhd", weights, gradient),
    )


def _weights(q: Array, k: Array, *, causal: bool) -> tuple[Array, Array]:
    """Return the weights of attention (batch, heads, queries, keys), and the logarithms of the sums behind them."""
    scores = np.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    if causal:
        scores = np.where(np.tri(*scores.shape[2:], dtype=bool), scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    powers = np.exp(scores - largest)
    total = powers.sum(axis=-1, keepdims=True)
    return powers / total, (np.log(total) + largest)[..., 0]


def swiglu(gate: Array, up: Array) -> Array:
    return gate / (1 + np.exp(-gate)) * up


def swiglu_backward(gradient: Array, gate: Array, up: Array) -> tuple[Array, Array]:
    s = 1 / (1 + np.exp(-gate))
    return gradient * up * s * (1 + gate * (1 - s)), gradient * gate * s


def cross_entropy(logits: Array, targets: Array, *, gradient: Array, scale: float) -> Array:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares = powers / powers.sum(axis=-1, keepdims=True)
    rows = np.arange(len(targets))
    losses = -np.log(shares[rows, targets])
    shares[rows, targets] -= 1
    gradient[...] = shares * scale
    return losses


def adamw(
    x: Array, gradient: Array, mean: Array, square: Array, step: int, *, rate: float, betas: tuple[float, float],
    decay: float,
) -> None:  # fmt: skip
    mean += (1 - betas[0]) * (gradient - mean)
    square += (1 - betas[1]) * (gradient * gradient - square)
    ready, size = mean / (1 - betas[0] ** step), square / (1 - betas[1] ** step)
    x -= rate * (ready / (np.sqrt(size) + 1e-8) + decay * x)
