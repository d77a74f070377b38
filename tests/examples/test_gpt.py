"""The small GPT of examples/gpt: its gradients are those of its loss, its kernels agree with NumPy, and it learns."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "gpt"
SIZES = {"steps": 30, "layers": 1, "width": 32, "heads": 2, "context": 24, "batch": 4, "characters": 12, "rate": 1e-2}
TINY = [part for name, number in SIZES.items() for part in (f"--{name}", str(number))]


@pytest.fixture
def model(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    yield importlib.import_module("model")
    for name in ("model", "reference", "text"):
        sys.modules.pop(name, None)


def test_gradients_are_those_of_the_loss(model):
    """Along a random direction the loss of NumPy changes as its gradients say: the composition is right, whatever the kernels."""
    reference = importlib.import_module("reference")
    shape = model.Shape(vocabulary=11, context=7, layers=2, heads=2, width=16)
    rng = np.random.default_rng(0)
    weights = {name: weight.astype(np.float64) for name, weight in shape.initial(0).items()}
    along = {name: rng.normal(size=weight.shape) for name, weight in weights.items()}
    tokens, targets = rng.integers(0, 11, (2, 3, 7))
    angles = shape.angles(7, 3)

    def loss(step):
        moved = {name: weight + step * along[name] for name, weight in weights.items()}
        return model.GPT(reference, shape, moved).gradients(tokens, targets, angles)[0].mean()

    _, gradients = model.GPT(reference, shape, weights).gradients(tokens, targets, angles)

    assert gradients.keys() == weights.keys() == shape.weights().keys()
    said = sum((gradients[name] * along[name]).sum() for name in weights)
    np.testing.assert_allclose((loss(1e-5) - loss(-1e-5)) / 2e-5, said, rtol=1e-6)


@pytest.mark.usefixtures("model")
def test_there_is_english_to_learn_from():
    text = importlib.import_module("text")
    words = text.english()

    assert len(words) > 200_000
    assert "iterable" in words
    np.testing.assert_array_equal(text.encoded(text.decoded(np.arange(96))), np.arange(96))


@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def test_it_learns_and_writes(device, tmp_path):
    command = [
        sys.executable,
        "-W",
        "error",
        str(FOLDER),
        "--device",
        device,
        *TINY,
        "--chart",
        str(tmp_path / "loss.png"),
    ]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)

    assert finished.returncode == 0, finished.stderr
    before, after = map(float, re.findall(r"loss ([\d.]+) to ([\d.]+)", finished.stdout)[0])
    assert after < before - 0.5
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert "30/30" in finished.stderr  # the bar
    assert len(finished.stdout.partition("Return the ")[2]) >= 12
