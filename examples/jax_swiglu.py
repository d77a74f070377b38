"""SwiGLU, silu(gate) * up, as a function of JAX: one kernel forward, one for both gradients, trained under `jax.jit`.

Run it: `python examples/jax_swiglu.py [--steps 20] [--rows 512] [--width 256]`. It needs JAX and jax-tvm-ffi (the extra `jax`),
and runs on the CPU or a CUDA GPU. JAX's own functions train the same block from the same weights: the losses agree.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import stagekit as sk

try:
    import jax
    import jax.numpy as jnp

    import stagekit.jax as skj
except ImportError as error:
    print(f"skipped, on the cpu and on a gpu: this example needs the extra `jax` ({error})")
    raise SystemExit(0) from None

BLOCK = 1024  # elements of a program


@sk.inline
def sigmoid(x):
    return 1.0 / (1.0 + sk.exp(-x))


@sk.jit
def forward(gate, up, out, n: sk.int64):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    g, u = sk.load(gate + i, mask=i < n), sk.load(up + i, mask=i < n)
    sk.store(out + i, g * sigmoid(g) * u, mask=i < n)


@sk.jit
def backward(gradient, gate, up, of_gate, of_up, n: sk.int64):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    d, g, u = sk.load(gradient + i, mask=i < n), sk.load(gate + i, mask=i < n), sk.load(up + i, mask=i < n)
    s = sigmoid(g)
    sk.store(of_gate + i, d * u * s * (1.0 + g * (1.0 - s)), mask=i < n)
    sk.store(of_up + i, d * g * s, mask=i < n)


@skj.operator(outputs={"of_gate": "gate", "of_up": "up"}, vmap=("gradient", "gate", "up"))
def swiglu_backward(gradient, gate, up, *, of_gate, of_up):
    backward[sk.cdiv(gate.size, BLOCK)](gradient, gate, up, of_gate, of_up, gate.size)


@skj.operator(outputs={"out": "gate"}, backward=swiglu_backward, saves=("gate", "up"), vmap=("gate", "up"))
def swiglu(gate, up, *, out):
    forward[sk.cdiv(gate.size, BLOCK)](gate, up, out, gate.size)


def plain_swiglu(gate, up):
    return jax.nn.silu(gate) * up


def make_step(activation):
    """Return a step of gradient descent, compiled: weights and data to new weights and the loss."""

    def loss(weights, x, wanted):
        gate, up, down = weights
        return jnp.mean((activation(x @ gate, x @ up) @ down - wanted) ** 2)

    @jax.jit
    def step(weights, x, wanted):
        value, gradients = jax.value_and_grad(loss)(weights, x, wanted)
        return [w - 0.05 * g for w, g in zip(weights, gradients)], value

    return step


def train(activation, steps, rows, width):
    """Return the losses of some steps, and the milliseconds of the fastest."""
    random = np.random.default_rng(0)
    weights = [jnp.asarray(random.standard_normal((width, width)) / width**0.5, jnp.float32) for _ in range(3)]
    x, wanted = (jnp.asarray(random.standard_normal((rows, width)), jnp.float32) for _ in range(2))
    step, losses, times = make_step(activation), [], []
    for _ in range(steps):
        began = time.perf_counter()
        weights, value = step(weights, x, wanted)
        losses.append(float(value))
        times.append(time.perf_counter() - began)
    return losses, 1e3 * min(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("steps", 20), ("rows", 512), ("width", 256)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    results = {each.__name__: train(each, **vars(options)) for each in (plain_swiglu, swiglu)}
    for name, (losses, fastest) in results.items():
        print(f"{name:12}  loss {losses[0]:.5f} to {losses[-1]:.5f}, {fastest:.2f} ms a step")
    (expected, _), (found, _) = results.values()
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    print(f"the losses agree, on the {jax.default_backend()}; a gpu needs the CUDA plugin of JAX")


if __name__ == "__main__":
    main()
