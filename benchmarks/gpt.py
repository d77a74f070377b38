"""The GPT of examples/gpt in kernels of the shelf, beside the same model in torch, compiled and not, and in NumPy.

    python benchmarks/gpt.py [--device cuda] [--layers 6 --width 384 --heads 6 --context 256 --batch 32] [--steps 20]

Needs torch. All are float32 and begin with the same weights. A step of training: loss, gradients and AdamW of all weights, by
torch's `foreach` optimiser in torch. Generation: one character after another, each from the whole context, which has no cache.
Characters (tokens) a second, by the median step; before that, each has run `--warm` steps, which are not counted, and the losses
of the first step are compared.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe

from stagekit import kernels

sys.path.append(str(Path(__file__).parents[1] / "examples/gpt"))

import reference
from model import GPT, Optimiser, Shape

Step = Callable[[], Any]
RATE, BETAS = 1e-3, (0.9, 0.95)


class Data:
    """Weights and a batch, the same for all. device: as torch names it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.shape = Shape(96, options.context, options.layers, options.heads, options.width)
        self.weights = self.shape.initial(0)
        random = np.random.default_rng(0)
        self.tokens, self.targets = random.integers(0, 96, (2, options.batch, options.context)).astype(np.int32)
        self.device = options.device

    def placed(self, array: Any) -> Any:
        import torch

        return torch.tensor(array, device=self.device)


def of_kernels(data: Data, ops: Any, place: Callable[[Any], Any]) -> tuple[Step, Step]:
    """Return a step of training, which gives the losses, and one of generation, of what calls kernels or NumPy."""
    model = GPT(ops, data.shape, {name: place(weight) for name, weight in data.weights.items()})
    batch, length = data.tokens.shape
    angles = tuple(map(place, data.shape.angles(length, batch)))
    alone = tuple(map(place, data.shape.angles(length, 1)))
    tokens, targets, one = place(data.tokens), place(data.targets), place(data.tokens[:1])
    optimiser = Optimiser(model) if ops is kernels else None

    def train() -> Any:
        losses, gradients = model.gradients(tokens, targets, angles)
        if optimiser is not None:
            optimiser.apply(gradients, RATE)
        return losses

    return train, lambda: model.logits(one, alone)


def of_torch(data: Data, compiles: bool) -> tuple[Step, Step]:
    """Return the same steps of the same model in torch, with torch's own attention and norms."""
    import torch
    import torch.nn.functional as F

    weights = {name: torch.nn.Parameter(data.placed(weight)) for name, weight in data.weights.items()}
    shape, length = data.shape, data.tokens.shape[1]
    tokens, targets = data.placed(data.tokens).long(), data.placed(data.targets).long()
    cos, sin = (data.placed(each).reshape(1, length, 1, -1) for each in shape.angles(length, 1))
    optimiser = torch.optim.AdamW(weights.values(), RATE, betas=BETAS, weight_decay=0.1)

    def turned(x: Any) -> Any:
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def attention(x: Any, layer: int) -> Any:
        n = F.rms_norm(x, x.shape[-1:], weights[f"attention norm {layer}"], 1e-6)
        heads = (*x.shape[:2], shape.heads, -1)
        q, k, v = ((n @ weights[f"{name} {layer}"]).reshape(heads) for name in "qkv")
        q, k, v = (each.transpose(1, 2) for each in (turned(q), turned(k), v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + mixed.transpose(1, 2).reshape(x.shape) @ weights[f"o {layer}"]

    def gated(x: Any, layer: int) -> Any:
        n = F.rms_norm(x, x.shape[-1:], weights[f"swiglu norm {layer}"], 1e-6)
        return x + (F.silu(n @ weights[f"gate {layer}"]) * (n @ weights[f"up {layer}"])) @ weights[f"down {layer}"]

    def logits(numbers: Any) -> Any:
        x = F.embedding(numbers, weights["table"])
        for layer in range(shape.layers):
            x = gated(attention(x, layer), layer)
        return F.rms_norm(x, x.shape[-1:], weights["norm"], 1e-6) @ weights["head"]

    def losses(numbers: Any, wanted: Any) -> Any:
        return F.cross_entropy(logits(numbers).flatten(0, 1), wanted.flatten(), reduction="none")

    losses_of, logits_of = (torch.compile(losses), torch.compile(logits)) if compiles else (losses, logits)

    def train() -> Any:
        found = losses_of(tokens, targets)
        found.mean().backward()
        optimiser.step()
        optimiser.zero_grad()
        return found.detach()

    def generate() -> Any:
        with torch.no_grad():
            return logits_of(tokens[:1])

    return train, generate


def seconds(step: Step, count: int, device: str) -> float:
    """Return the median seconds of a step, after which the device is waited for."""
    import torch

    times = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def rows(data: Data, options: argparse.Namespace) -> Iterator[str]:
    """Yield a row of the table for each system."""
    systems: dict[str, Callable[[], tuple[Step, Step]]] = {
        "stagekit": lambda: of_kernels(data, kernels, data.placed),
        "torch": lambda: of_torch(data, compiles=False),
        "torch.compile": lambda: of_torch(data, compiles=True),
        "NumPy, without the optimiser": lambda: of_kernels(data, reference, lambda array: array),
    }
    first = None
    for name, make in systems.items():
        if name.partition(",")[0] in options.without:
            continue
        train, generate = make()
        start = time.perf_counter()
        found = train()
        loss = float(found.mean())  # waits for the device
        generate()
        begun = time.perf_counter() - start
        first = loss if first is None else first
        if not abs(loss - first) < 0.05:
            raise SystemExit(f"{name}: a loss of {loss}, and the first system has {first}")
        for step in (train, generate):
            seconds(step, options.warm, options.device)
        trained, written = (seconds(step, options.steps, options.device) for step in (train, generate))
        yield f"| {name} | {data.tokens.size / trained:,.0f} | {1 / written:,.0f} | {begun:.1f} |"


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    for name, number in (("layers", 6), ("width", 384), ("heads", 6), ("context", 256), ("batch", 32)):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm", type=int, default=3)
    parser.add_argument("--without", nargs="*", default=[], help="systems to leave out: torch, torch.compile, NumPy")
    options = parser.parse_args()
    print(describe(options.device))
    print(f"{options.layers} layers of {options.width}, {options.batch} sequences of {options.context}\n")
    print(
        "| | characters a second, training | generation | seconds until the first steps have run |\n|---|---|---|---|"
    )
    for line in rows(Data(options), options):
        print(line, flush=True)


if __name__ == "__main__":
    main()
