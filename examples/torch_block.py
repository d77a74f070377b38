"""A block of a transformer, residual + rmsnorm and SwiGLU, trained in torch with fused kernels as operators.

Run it: `python examples/torch_block.py [--steps 20] [--width 1024] [--device gpu] ...`. It needs torch; with a GPU it runs there
too. The same block is trained four times from the same weights: by torch's own functions and by two operators of ours, each
eager and compiled by Inductor. The losses agree; what a step takes is printed beside.

`add_rmsnorm` reads two tensors and writes two in one kernel, and keeps the scale of each row for its backward. `swiglu` is the
shelf's, of two halves of one product. Everything else is torch.
"""

from __future__ import annotations

import argparse
import functools
import shutil
import sys
import time
import warnings
from typing import Annotated

import stagekit as sk

PARTS = 128  # programs of the backward, each with a row of partial sums for the gradient of the weight


@functools.cache
def make_add_rmsnorm(dtype, BLOCK):
    """Return the kernels: forward, a program for each row; backward, a program for rows PARTS apart."""
    rows, columns, parts = sk.dynamic("rows"), sk.dynamic("columns"), sk.dynamic("parts")
    Rows = Annotated[sk.Array, sk.Tensor((rows, columns), dtype, strides=(None, 1))]
    Weight = Annotated[sk.Array, sk.Tensor((columns,), dtype)]
    Scales = Annotated[sk.Array, sk.Tensor((rows,), sk.float32)]

    @sk.inline
    def piece(x, i):
        return sk.load(x + i, mask=i < columns).to(sk.float32)

    @sk.jit
    def forward(x: Rows, residual: Rows, weight: Weight, total: Rows, out: Rows, scales: Scales, eps: sk.float32):
        row, i = sk.program_id(0), sk.arange(0, BLOCK)
        t = (piece(x[row], i) + piece(residual[row], i)).to(dtype)  # rounded, as the next block reads it
        sk.store(total[row] + i, t, mask=i < columns)
        t = t.to(sk.float32)
        scale = sk.rsqrt(sk.reduce_sum(t * t) / columns + eps)
        sk.store(out[row] + i, (t * scale * piece(weight, i)).to(dtype), mask=i < columns)
        scales[row] = scale

    @sk.jit
    def backward(
        total_gradient: Rows,
        out_gradient: Rows,
        total: Rows,
        scales: Scales,
        weight: Weight,
        gradient: Rows,
        weight_parts: sk.Tensor((parts, columns), sk.float32),
    ):
        part, i = sk.program_id(0), sk.arange(0, BLOCK)
        w, of_weight = piece(weight, i), sk.zeros(BLOCK, sk.float32)
        for row in range(part, rows, parts):
            t, g, scale = piece(total[row], i), piece(out_gradient[row], i), scales[row]
            mean = sk.reduce_sum(g * w * t) / columns
            of_total = piece(total_gradient[row], i) + scale * (g * w - t * scale * scale * mean)
            sk.store(gradient[row] + i, of_total.to(dtype), mask=i < columns)
            of_weight += g * t * scale
        sk.store(weight_parts[part] + i, of_weight, mask=i < columns)

    return forward, backward


def operators():
    """Return `add_rmsnorm` as an operator of torch; it has the shelf's beside it."""
    import torch
    from torch import Tensor

    import stagekit.torch as skt

    def kernels_for(x):
        return make_add_rmsnorm(getattr(sk, str(x.dtype).removeprefix("torch.")), 1 << (x.shape[1] - 1).bit_length())

    @skt.operator(
        "examples::add_rmsnorm_backward",
        outputs={
            "gradient": "total",
            "weight_parts": lambda total: torch.empty((PARTS, total.shape[1]), device=total.device),
        },
    )
    def add_rmsnorm_backward(
        total_gradient: Tensor,
        out_gradient: Tensor,
        total: Tensor,
        scales: Tensor,
        weight: Tensor,
        gradient: Tensor,
        weight_parts: Tensor,
    ) -> None:
        _, backward = kernels_for(total)
        backward[PARTS](total_gradient, out_gradient, total, scales, weight, gradient, weight_parts)

    def differentiate(total_gradient, out_gradient, total, scales, weight):
        gradient, parts = add_rmsnorm_backward(total_gradient, out_gradient, total, scales, weight)
        return gradient, gradient, parts.sum(0).to(weight.dtype)

    @skt.operator(
        "examples::add_rmsnorm",
        outputs={
            "total": "x",
            "out": "x",
            "scales": lambda x: torch.empty(x.shape[:1], device=x.device),
        },
        backward=differentiate,
        saves=("total", "scales", "weight"),
        non_differentiable="scales",
    )
    def add_rmsnorm(
        x: Tensor, residual: Tensor, weight: Tensor, eps: float, total: Tensor, out: Tensor, scales: Tensor
    ) -> None:
        forward, _ = kernels_for(x)
        forward[x.shape[0]](x, residual, weight, total, out, scales, eps)

    return add_rmsnorm, skt.swiglu


def train(way, device, dtype, sizes, *, is_compiled):
    """Train the blocks by the functions of a way; return the losses, and the milliseconds of a step, least of the last half."""
    import torch

    torch.manual_seed(0)
    layers, width, hidden = sizes.layers, sizes.width, 2 * sizes.width
    shapes = {"norm": (width,), "up": (2 * hidden, width), "down": (width, hidden)}
    weights = [
        {
            name: (torch.ones(shape) if name == "norm" else torch.randn(shape) * shape[1] ** -0.5)
            .to(device, dtype)
            .requires_grad_()
            for name, shape in shapes.items()
        }
        for _ in range(layers)
    ]
    data = torch.randn(sizes.rows, width).to(device, dtype)
    wanted = torch.tanh(data.roll(1, dims=1) * 2)
    add_rmsnorm, swiglu = way

    def loss_of(x):
        residual = torch.zeros_like(x)
        for weight in weights:
            residual, normed = add_rmsnorm(x, residual, weight["norm"], 1e-6)[:2]
            gate, up = (normed @ weight["up"].t()).chunk(2, dim=1)
            x = swiglu(gate, up) @ weight["down"].t()
        return ((x + residual - wanted).float() ** 2).mean()

    step_of = torch.compile(loss_of, fullgraph=True) if is_compiled else loss_of
    parameters = [each for weight in weights for each in weight.values()]
    optimiser = torch.optim.AdamW(parameters, lr=3e-3)
    losses, times = [], []
    for _ in range(sizes.steps):
        began = time.perf_counter()
        optimiser.zero_grad()
        loss = step_of(data)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())  # waits for the GPU
        times.append((time.perf_counter() - began) * 1e3)
    return losses, min(times[len(times) // 2 :])


def of_torch():
    """Return the same two functions, of torch's own."""
    import torch

    def add_rmsnorm(x, residual, weight, eps):
        total = x + residual
        t = total.float()
        return total, (t * torch.rsqrt(t.pow(2).mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)

    return add_rmsnorm, lambda gate, up: torch.nn.functional.silu(gate) * up


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in {"steps": 20, "layers": 2, "width": 64, "rows": 256}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", choices=("cpu", "gpu"), help="left out: the CPU, and the GPU if there is one")
    sizes = parser.parse_args()
    try:
        warnings.simplefilter("default")  # torch warns of what it does itself
        import torch
    except ImportError as error:
        print(f"skipped, on the cpu and elsewhere: this example needs torch ({error}); pip install torch")
        return
    ways = {"torch": of_torch(), "stagekit": operators()}
    for device, name, dtype in (("cpu", "cpu", torch.float32), ("cuda", "gpu", torch.bfloat16)):
        if sizes.device not in (None, name) or (device == "cuda" and not torch.cuda.is_available()):
            continue
        found = {}
        for is_compiled in (False, True):
            if is_compiled and device == "cpu" and shutil.which("g++") is None:
                print("cpu: Inductor needs a C++ compiler, and there is no g++")
                continue
            for way, functions in ways.items():
                mode = "compiled" if is_compiled else "eager"
                losses, step_ms = train(functions, device, dtype, sizes, is_compiled=is_compiled)
                found[way, mode] = losses
                print(f"{name}: {way:8} {mode:8} loss {losses[0]:.4f} -> {losses[-1]:.4f}, {step_ms:8.2f} ms a step")
                sys.stdout.flush()
        first, *others = found.values()
        assert first[-1] < first[0]
        for losses in others:
            tolerance = {"rtol": 0.05, "atol": 1e-3} if dtype == torch.bfloat16 else {"rtol": 1e-3, "atol": 1e-5}
            torch.testing.assert_close(torch.tensor(losses), torch.tensor(first), **tolerance)
        print(f"{name}: all {len(found)} have the same losses, step by step")


if __name__ == "__main__":
    main()
