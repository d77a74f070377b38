"""The kernels of `blocks.py` in Triton, a program for each row, as its tutorials write them, and attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

PIECE = 1024  # elements of a program of `add`


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr, SALT: tl.constexpr = 0):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def softmax(x, out, stride, columns, BLOCK: tl.constexpr, SALT: tl.constexpr = 0):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < columns
    v = tl.load(x + row * stride + i, mask=mask, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * stride + i, e / tl.sum(e, axis=0), mask=mask)


@triton.jit
def rmsnorm(x, weight, out, stride, columns, eps, BLOCK: tl.constexpr, SALT: tl.constexpr = 0):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < columns
    v = tl.load(x + row * stride + i, mask=mask, other=0.0).to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(v * v, axis=0) / columns + eps)
    w = tl.load(weight + i, mask=mask).to(tl.float32)
    tl.store(out + row * stride + i, v * scale * w, mask=mask)


@triton.jit
def layernorm(x, weight, bias, out, stride, columns, eps, BLOCK: tl.constexpr, SALT: tl.constexpr = 0):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < columns
    v = tl.load(x + row * stride + i, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(v, axis=0) / columns
    d = tl.where(mask, v - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(d * d, axis=0) / columns + eps)
    w = tl.load(weight + i, mask=mask).to(tl.float32)
    b = tl.load(bias + i, mask=mask).to(tl.float32)
    tl.store(out + row * stride + i, d * scale * w + b, mask=mask)


@triton.jit
def cross_entropy(x, targets, losses, gradient, stride, columns, BLOCK: tl.constexpr, SALT: tl.constexpr = 0):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < columns
    target = tl.load(targets + row)
    v = tl.load(x + row * stride + i, mask=mask, other=-float("inf")).to(tl.float32)
    chosen = tl.load(x + row * stride + target).to(tl.float32)
    largest = tl.max(v, axis=0)
    e = tl.exp(v - largest)
    total = tl.sum(e, axis=0)
    tl.store(losses + row, largest + tl.log(total) - chosen)
    tl.store(gradient + row * stride + i, e / total - tl.where(i == target, 1.0, 0.0), mask=mask)


@triton.jit
def cumsum(x, out, stride, columns, BLOCK: tl.constexpr, SALT: tl.constexpr = 0):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + i, mask=i < columns, other=0.0).to(tl.float32)
    tl.store(out + row * stride + i, tl.cumsum(v, axis=0), mask=i < columns)


@triton.jit
def attention(
    q, k, v, out, length, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, SALT: tl.constexpr = 0
):  # fmt: skip
    """Of one head; queries and keys divide into blocks of M and of N, and a power of 2 is the base."""
    i, j, d = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    x = tl.load(q + i[:, None] * D + d[None, :])
    largest = tl.full((M,), -float("inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    found = tl.zeros((M, D), tl.float32)
    for start in range(0, length, N):
        places = (start + j)[:, None] * D + d[None, :]
        scores = tl.dot(x, tl.trans(tl.load(k + places))) * (scale * 1.4426950408889634)
        now = tl.maximum(largest, tl.max(scores, axis=1))
        weights, kept = tl.exp2(scores - now[:, None]), tl.exp2(largest - now)
        total = total * kept + tl.sum(weights, axis=1)
        found = tl.dot(weights.to(tl.bfloat16), tl.load(v + places), found * kept[:, None])
        largest = now
    tl.store(out + i[:, None] * D + d[None, :], (found / total[:, None]).to(tl.bfloat16))


def launches(data: Any, warps: int, salt: int = 0) -> dict[str, Callable[[], Any]]:
    """Return what launches each kernel on the arrays of `blocks.Data`, with so many warps.

    salt: a kernel is compiled anew for each.
    """
    x, out = data.x, data.out
    rows, columns = x.shape
    block = triton.next_power_of_2(columns)
    of_rows = {"BLOCK": block, "num_warps": warps, "SALT": salt}

    def run_add() -> None:
        add[(triton.cdiv(x.numel(), PIECE),)](x, data.y, out, x.numel(), BLOCK=PIECE, num_warps=warps)

    def run_softmax() -> None:
        softmax[(rows,)](x, out, x.stride(0), columns, **of_rows)

    def run_rmsnorm() -> None:
        rmsnorm[(rows,)](x, data.weight, out, x.stride(0), columns, data.eps, **of_rows)

    def run_layernorm() -> None:
        layernorm[(rows,)](x, data.weight, data.bias, out, x.stride(0), columns, data.eps, **of_rows)

    def run_cross_entropy() -> None:
        cross_entropy[(rows,)](x, data.targets, data.losses, out, x.stride(0), columns, **of_rows)

    def run_cumsum() -> None:
        cumsum[(rows,)](x, out, x.stride(0), columns, **of_rows)

    return {
        "add": run_add,
        "softmax": run_softmax,
        "rmsnorm": run_rmsnorm,
        "layernorm": run_layernorm,
        "cross-entropy": run_cross_entropy,
        "cumsum": run_cumsum,
    }
