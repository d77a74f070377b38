"""Train a small GPT on the characters of Python's documentation, in kernels of `stagekit.kernels`, and let it write.

    python examples/gpt --device gpu --steps 2000 --layers 6 --width 384 --context 256 --batch 32
    python examples/gpt --steps 200                                  # on the CPU

Before it begins, logits and gradients of the first batch are compared with NumPy in float64. The loss over the steps is drawn to
`loss.png`, or where --chart says.
"""

from __future__ import annotations

import argparse
import functools
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import reference
from model import GPT, Optimiser, Shape
from PIL import Image, ImageDraw
from text import CHARACTERS, decoded, encoded, english
from tqdm import tqdm

import stagekit as sk
from stagekit import kernels


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpt", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    has_gpu = sk.cuda.is_available()
    parser.add_argument("--device", choices=["cpu", "gpu"], default="gpu" if has_gpu else "cpu")
    for name, number, what in (
        ("steps", 300, "of training"), ("batch", 8, "sequences of a step"), ("context", 64, "characters of a sequence"),
        ("layers", 2, ""), ("heads", 4, ""), ("width", 64, "of a token"), ("characters", 200, "to write at the end"),
        ("seed", 0, "of weights, batches and what is written"),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=number, help=f"{what} ({number})".strip())
    parser.add_argument("--rate", type=float, default=3e-3, help="of the optimiser, at most")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--chart", type=Path, default=Path("loss.png"))
    return parser.parse_args(arguments)


class Trainer:
    """A model, its optimiser, and where its arrays are."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.numbers = encoded(english())
        self.shape = Shape(len(CHARACTERS), options.context, options.layers, options.heads, options.width)
        self.weights = self.shape.initial(options.seed)
        self.model = GPT(kernels, self.shape, {name: self.placed(weight) for name, weight in self.weights.items()})
        self.angles = self.placed_angles(options.context, options.batch)
        self.random = np.random.default_rng(options.seed)

    def placed(self, array: np.ndarray) -> Any:
        """Return the array, where kernels on the device can use it."""
        return sk.cuda.to_device(array) if self.options.device == "gpu" else array.copy()

    def placed_angles(self, tokens: int, sequences: int) -> tuple[Any, Any]:
        cos, sin = self.shape.angles(tokens, sequences)
        return self.placed(cos), self.placed(sin)

    def batch(self) -> tuple[np.ndarray, np.ndarray]:
        """Return sequences from anywhere in the text, and the characters that follow."""
        first = self.random.integers(0, len(self.numbers) - self.options.context - 1, self.options.batch)
        places = first[:, None] + np.arange(self.options.context)
        return self.numbers[places], self.numbers[places + 1]

    def rate(self, step: int) -> float:
        """Return the rate of a step: rising at first, then falling along a cosine to a tenth."""
        warm, steps, most = max(self.options.steps // 20, 1), self.options.steps, self.options.rate
        if step < warm:
            return most * (step + 1) / warm
        share = (step - warm) / max(steps - warm, 1)
        return most * (0.55 + 0.45 * math.cos(math.pi * share))

    def check(self) -> tuple[float, float]:
        """Compare logits and gradients of a batch with NumPy, and return by how much they differ, relative to the largest."""
        tokens, targets = self.batch()
        exact = GPT(reference, self.shape, {name: w.astype(np.float64) for name, w in self.weights.items()})
        angles = self.shape.angles(self.options.context, self.options.batch)
        there = self.placed(tokens), self.placed(targets)
        logits = fetched(self.model.logits(there[0], self.angles))
        _, wanted = exact.gradients(tokens, targets, angles)
        _, found = self.model.gradients(*there, self.angles)
        errors = [difference(fetched(found[name]), wanted[name]) for name in wanted]
        return difference(logits, exact.logits(tokens, angles)), max(errors)

    def train(self) -> list[float]:
        """Train, and return the mean loss of each step, in nats for each character."""
        optimiser = Optimiser(self.model)
        kept: list[Any] = []
        with tqdm(range(self.options.steps), unit="step", file=sys.stderr) as bar:
            for step in bar:
                tokens, targets = (self.placed(each) for each in self.batch())
                losses, gradients = self.model.gradients(tokens, targets, self.angles)
                optimiser.apply(gradients, self.rate(step))
                kept.append(losses)
                if step % 10 == 0:  # to look at a loss waits for the device
                    bar.set_postfix(loss=f"{fetched(losses).mean():.3f}")
        return [float(fetched(losses).mean()) for losses in kept]

    def written(self, start: str) -> str:
        """Return characters that the model writes behind a start."""
        numbers = list(encoded(start))
        angles = functools.cache(lambda length: self.placed_angles(length, 1))
        for _ in range(self.options.characters):
            seen = np.array([numbers[-self.options.context :]], np.int32)
            logits = fetched(self.model.logits(self.placed(seen), angles(seen.shape[1])))[-1]
            powers = np.exp((logits.astype(np.float64) - logits.max()) / self.options.temperature)
            numbers.append(int(self.random.choice(len(powers), p=powers / powers.sum())))
        return decoded(np.array(numbers))


def fetched(array: Any) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else array.to_host()


def difference(found: np.ndarray, exact: np.ndarray) -> float:
    return float(np.abs(found - exact).max() / np.abs(exact).max())


def draw(losses: list[float], path: Path, width: int = 640, height: int = 400, margin: int = 40) -> None:
    """Draw the loss over the steps as a picture: thin each one, thick the mean of those about it."""
    picture = Image.new("RGB", (width, height), "white")
    canvas = ImageDraw.Draw(picture)
    top = max(losses)
    across, up = width - 2 * margin, height - 2 * margin

    def place(step: int, loss: float) -> tuple[float, float]:
        return margin + across * step / max(len(losses) - 1, 1), height - margin - up * loss / top

    for mark in range(int(top) + 1):
        x, y = place(0, mark)
        canvas.line([(x, y), (x + across, y)], fill="#dddddd")
        canvas.text((x - 20, y - 6), str(mark), fill="black")
    reach = max(len(losses) // 40, 1)
    means = [float(np.mean(losses[max(step - reach, 0) : step + reach + 1])) for step in range(len(losses))]
    canvas.line([place(step, loss) for step, loss in enumerate(losses)], fill="#9bb8d9")
    canvas.line([place(step, loss) for step, loss in enumerate(means)], fill="#1f4e8c", width=3)
    canvas.text((margin, 12), "loss, nats for each character", fill="black")
    canvas.text((width - margin - 70, height - 24), f"{len(losses)} steps", fill="black")
    picture.save(path)


def main(arguments: list[str]) -> None:
    options = parsed(arguments)
    trainer = Trainer(options)
    count = sum(weight.size for weight in trainer.weights.values())
    print(f"{options.device}: {count:,} weights, {len(trainer.numbers):,} characters of text")
    of_logits, of_gradients = trainer.check()
    print(f"logits within {of_logits:.1e} of NumPy, gradients within {of_gradients:.1e}")
    if not max(of_logits, of_gradients) < 1e-3:
        raise SystemExit("the kernels are wrong")
    begin = time.perf_counter()
    losses = trainer.train()
    seconds = time.perf_counter() - begin
    tokens = options.batch * options.context * len(losses)
    few = max(len(losses) // 10, 1)
    print(
        f"loss {np.mean(losses[:few]):.3f} to {np.mean(losses[-few:]):.3f}, {tokens / seconds:,.0f} characters a second"
    )
    draw(losses, options.chart)
    begin = time.perf_counter()
    text = trainer.written("Return the ")
    print(f"{options.characters / (time.perf_counter() - begin):,.0f} characters a second:\n{text}")


if __name__ == "__main__":
    main(sys.argv[1:])
