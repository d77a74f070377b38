"""A small GPT: what it computes, and its gradients, as calls of functions that someone else has written.

`ops` is the module with these functions: `stagekit.kernels`, for arrays on the CPU or in the memory of a GPU, or `reference`, the
same in NumPy. Nothing here looks into an array, so weights, activations and gradients stay where they are.

Each of the layers adds to x, the rows of all tokens: attention over the tokens before, then a gated linear unit,

    x += attention(rope(n @ Wq), rope(n @ Wk), n @ Wv) @ Wo        n = rmsnorm(x)
    x += swiglu(n @ Wgate, n @ Wup) @ Wdown

The gradients of a step are those of the mean loss. Source: Radford et al., Language Models are Unsupervised Multitask Learners,
2019, with the layers of Touvron et al., LLaMA, 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any  # of NumPy, or on a GPU
Weights = dict[str, Array]

OF_LAYER = ("attention norm", "q", "k", "v", "o", "swiglu norm", "gate", "up", "down")


@dataclass(frozen=True)
class Shape:
    """The sizes of a model. vocabulary: characters; context: the most tokens that it looks at; width: of a token's row."""

    vocabulary: int
    context: int
    layers: int = 2
    heads: int = 4
    width: int = 64

    @property
    def hidden(self) -> int:
        """The width of the gated linear unit: with three matrices, about as many weights as two of four times the width."""
        return -(-self.width * 8 // (3 * 16)) * 16

    def weights(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each weight, by its name."""
        d, h = self.width, self.hidden
        shapes: dict[str, tuple[int, ...]] = {"table": (self.vocabulary, d), "norm": (d,), "head": (d, self.vocabulary)}
        of_layer = ((d,), (d, d), (d, d), (d, d), (d, d), (d,), (d, h), (d, h), (h, d))
        for layer in range(self.layers):
            shapes.update({f"{name} {layer}": shape for name, shape in zip(OF_LAYER, of_layer)})
        return shapes

    def initial(self, seed: int) -> dict[str, np.ndarray]:
        """Return random weights, float32: matrices of the size that keeps rows as long as they are, norms of 1."""
        rng = np.random.default_rng(seed)
        into_x = {"o": (2 * self.layers) ** -0.5, "down": (2 * self.layers) ** -0.5, "table": self.width**0.5}

        def weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
            if len(shape) == 1:
                return np.ones(shape, np.float32)
            scale = into_x.get(name.split()[0], 1.0) * (self.width if name == "table" else shape[0]) ** -0.5
            return (rng.normal(size=shape) * scale).astype(np.float32)

        return {name: weight(name, shape) for name, shape in self.weights().items()}

    def angles(self, tokens: int, sequences: int) -> tuple[np.ndarray, np.ndarray]:
        """Return cosines and sines by which `rope` turns the pairs of each token, float32: of its place in its sequence."""
        half = self.width // self.heads // 2
        angles = np.outer(np.arange(tokens), 10_000.0 ** (-np.arange(half) / half))
        both = np.tile(np.stack([np.cos(angles), np.sin(angles)]), (1, sequences, 1)).astype(np.float32)
        return both[0], both[1]


def plus(product: Array, x: Array) -> Array:
    """Add to a product, while it is still in registers."""
    return product + x


class GPT:
    """A model with its weights. tokens, targets: arrays of int32 (sequences, length), where the weights are."""

    def __init__(self, ops: Any, shape: Shape, weights: Weights) -> None:
        self.ops, self.shape, self.weights = ops, shape, weights

    def logits(self, tokens: Array, angles: tuple[Array, Array]) -> Array:
        """Return the logits of what follows each token: (sequences * length, vocabulary)."""
        return self._forward(tokens, angles)[0]

    def gradients(self, tokens: Array, targets: Array, angles: tuple[Array, Array]) -> tuple[Array, dict[str, Array]]:
        """Return the loss of each token, and the gradients of their mean, by the names of the weights."""
        logits, steps = self._forward(tokens, angles)
        of_logits = self.ops.elementwise(nothing, logits)
        flat = targets.reshape((logits.shape[0],))
        losses = self.ops.cross_entropy(logits, flat, gradient=of_logits, scale=1 / logits.shape[0])
        found: dict[str, Array] = {}
        for step in reversed(steps):
            of_logits = step(of_logits, found)
        return losses, found

    def _forward(self, tokens: Array, angles: tuple[Array, Array]) -> tuple[Array, list[Any]]:
        """Return the logits, and for each step that made them what makes its gradients."""
        flat = tokens.reshape((tokens.shape[0] * tokens.shape[1],))
        x = self.ops.embedding(self.weights["table"], flat)
        steps = [lambda gradient, found: self._table_backward(gradient, flat, found)]
        for layer in range(self.shape.layers):
            for step in (self._attention, self._swiglu):
                x, backward = step(x, layer, tokens.shape, angles)
                steps.append(backward)
        normed = self.ops.rmsnorm(x, self.weights["norm"])

        def backward(gradient: Array, found: dict[str, Array]) -> Array:
            of_normed = self._times_backward(gradient, normed, "head", found)
            of_x, found["norm"] = self.ops.rmsnorm_backward(of_normed, x, self.weights["norm"])
            return of_x

        return self.ops.matmul(normed, self.weights["head"]), [*steps, backward]

    def _table_backward(self, gradient: Array, flat: Array, found: dict[str, Array]) -> None:
        empty = self.ops.elementwise(nothing, self.weights["table"])
        found["table"] = self.ops.embedding_backward(gradient, flat, empty)

    def _turned(self, x: Array) -> Array:
        """Return the transposition of a matrix: a view, where its library has them."""
        return x.T if hasattr(x, "T") else self.ops.transpose(x)

    def _times_backward(
        self, gradient: Array, x: Array, name: str, found: dict[str, Array], before: Array | None = None
    ) -> Array:
        """Take the gradient of `x @ weight` to x, and add it to what other products have given, if any."""
        found[name] = self.ops.matmul(self._turned(x), gradient)
        turned = self._turned(self.weights[name])
        if before is None:
            return self.ops.matmul(gradient, turned)
        return self.ops.matmul(gradient, turned, before, epilogue=plus)

    def _attention(
        self, x: Array, layer: int, sizes: tuple[int, ...], angles: tuple[Array, Array]
    ) -> tuple[Array, Any]:
        ops, of = self.ops, {name: f"{name} {layer}" for name in OF_LAYER}
        heads = (*sizes, self.shape.heads, self.shape.width // self.shape.heads)
        flat = tuple(x.shape)
        normed = ops.rmsnorm(x, self.weights[of["attention norm"]])
        q, k, v = (ops.matmul(normed, self.weights[of[name]]).reshape(heads) for name in "qkv")
        q, k = ops.rope(q, *angles), ops.rope(k, *angles)
        mixed, lse = ops.attention(q, k, v, causal=True, heads_axis=2, return_lse=True)
        rows = mixed.reshape(flat)

        def backward(gradient: Array, found: dict[str, Array]) -> Array:
            of_mixed = self._times_backward(gradient, rows, of["o"], found).reshape(heads)
            parts = ops.attention_backward(of_mixed, q, k, v, mixed, lse, causal=True, heads_axis=2)
            turned = [ops.rope(part, *angles, backward=True) for part in parts[:2]]
            of_normed = None
            for name, part in zip("qkv", (*turned, parts[2])):
                of_normed = self._times_backward(part.reshape(flat), normed, of[name], found, of_normed)
            return self._norm_backward(of_normed, x, of["attention norm"], found, gradient)

        return ops.matmul(rows, self.weights[of["o"]], x, epilogue=plus), backward

    def _swiglu(self, x: Array, layer: int, sizes: tuple[int, ...], angles: tuple[Array, Array]) -> tuple[Array, Any]:
        ops, of = self.ops, {name: f"{name} {layer}" for name in OF_LAYER}
        normed = ops.rmsnorm(x, self.weights[of["swiglu norm"]])
        gate, up = (ops.matmul(normed, self.weights[of[name]]) for name in ("gate", "up"))
        hidden = ops.swiglu(gate, up)

        def backward(gradient: Array, found: dict[str, Array]) -> Array:
            of_hidden = self._times_backward(gradient, hidden, of["down"], found)
            of_gate, of_up = ops.swiglu_backward(of_hidden, gate, up)
            of_normed = self._times_backward(of_gate, normed, of["gate"], found)
            of_normed = self._times_backward(of_up, normed, of["up"], found, of_normed)
            return self._norm_backward(of_normed, x, of["swiglu norm"], found, gradient)

        return ops.matmul(hidden, self.weights[of["down"]], x, epilogue=plus), backward

    def _norm_backward(self, gradient: Array, x: Array, name: str, found: dict[str, Array], past: Array) -> Array:
        """Take the gradient of `rmsnorm(x)` to x, and add that of what went past the layer."""
        of_x, found[name] = self.ops.rmsnorm_backward(gradient, x, self.weights[name])
        return self.ops.elementwise(plus, of_x, past)


def nothing(x: Array) -> Array:
    """Return zeros like x, which is finite."""
    return x * 0


class Optimiser:
    """AdamW for all weights of a model, which it changes where they are."""

    def __init__(self, model: GPT) -> None:
        self.model, self.step = model, 0
        self.means, self.squares = (
            {name: model.ops.elementwise(nothing, weight) for name, weight in model.weights.items()} for _ in range(2)
        )

    def apply(self, gradients: dict[str, Array], rate: float) -> None:
        """Change the weights by one step. Norms do not decay."""
        self.step += 1
        for name, weight in self.model.weights.items():
            decay = 0.1 if len(weight.shape) > 1 else 0.0
            self.model.ops.adamw(
                weight, gradients[name], self.means[name], self.squares[name], self.step,
                rate=rate, betas=(0.9, 0.95), decay=decay,
            )  # fmt: skip
