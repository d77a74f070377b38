"""Triton."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import triton
import triton.language as tl

from systems import rows_with_triton
from systems.arrays import SIZE, Arrays, listed

NAME = "Triton"
WARPS = 8  # for rows of 4,096 elements


@triton.jit
def take0(BLOCK: tl.constexpr):
    tl.arange(0, BLOCK)


@triton.jit
def take2(a0, a1, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(a1 + i, tl.load(a0 + i, mask=i < n), mask=i < n)


@triton.jit
def take4(a0, a1, a2, a3, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    m = i < n
    tl.store(a3 + i, tl.load(a0 + i, mask=m) + tl.load(a1 + i, mask=m) + tl.load(a2 + i, mask=m), mask=m)


@triton.jit
def take16(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    m = i < n
    x = tl.load(a0 + i, mask=m) + tl.load(a1 + i, mask=m) + tl.load(a2 + i, mask=m) + tl.load(a3 + i, mask=m)
    y = tl.load(a4 + i, mask=m) + tl.load(a5 + i, mask=m) + tl.load(a6 + i, mask=m) + tl.load(a7 + i, mask=m)
    z = tl.load(a8 + i, mask=m) + tl.load(a9 + i, mask=m) + tl.load(a10 + i, mask=m) + tl.load(a11 + i, mask=m)
    w = tl.load(a12 + i, mask=m) + tl.load(a13 + i, mask=m) + tl.load(a14 + i, mask=m)
    tl.store(a15 + i, x + y + z + w, mask=m)


def launches(arrays: Arrays, count: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    if arrays.library != "torch":
        return
    names = {**arrays.names(count), "k": {0: take0, 2: take2, 4: take4, 16: take16}[count]}
    size = [str(SIZE)] if count else []
    yield "positional", f"k[(1,)]({listed(count, *size)}, BLOCK={SIZE})" if count else f"k[(1,)](BLOCK={SIZE})", names
    if count:
        keywords = ", ".join(f"a{i}=x{i}" for i in range(count))
        yield "keywords", f"k[(1,)]({keywords}, n={SIZE}, BLOCK={SIZE})", names


@triton.jit
def add(a, b, n, VALUE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(b + i, tl.load(a + i, mask=i < n) + VALUE, mask=i < n)


@triton.jit
def softmax(src, dst, n, BLOCK: tl.constexpr, SALT: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(src + i, mask=i < n, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(dst + i, e / tl.sum(e, axis=0) + SALT, mask=i < n)


@triton.jit
def matmul(a, b, c, n, TILE: tl.constexpr, SALT: tl.constexpr):
    rows = tl.program_id(1) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(0) * TILE + tl.arange(0, TILE)
    total = tl.full((TILE, TILE), SALT, tl.float32)
    for start in range(0, n, TILE):
        inner = start + tl.arange(0, TILE)
        left = tl.load(a + rows[:, None] * n + inner[None, :], mask=inner[None, :] < n, other=0.0)
        right = tl.load(b + inner[:, None] * n + columns[None, :], mask=inner[:, None] < n, other=0.0)
        total += tl.dot(left, right, input_precision="ieee")
    tl.store(c + rows[:, None] * n + columns[None, :], total)


def specialisations(target: str) -> dict[str, Callable[[int], None]]:
    x, y, m = (torch.ones(shape, device="cuda") for shape in (256, 256, (64, 64)))
    rows, columns = 64, 4096
    weight, targets = torch.ones(columns, device="cuda"), torch.zeros(rows, dtype=torch.int64, device="cuda")
    of_rows, wide, out = torch.ones(rows, device="cuda"), *(torch.ones(rows, columns, device="cuda") for _ in range(2))
    data = SimpleNamespace(
        x=wide, y=wide, out=out, weight=weight, bias=weight, targets=targets, losses=of_rows, eps=1e-6
    )
    heads = torch.ones((256, 64), device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()

    def then_wait(launch: Callable[[int], Any]) -> Callable[[int], None]:
        def make(salt: int) -> None:
            launch(salt)
            torch.cuda.synchronize()

        return make

    return {
        "add": then_wait(lambda salt: add[(1,)](x, y, 256, VALUE=salt, BLOCK=256)),
        "softmax": then_wait(lambda salt: softmax[(1,)](x, y, 256, BLOCK=256, SALT=salt)),
        "matmul": then_wait(lambda salt: matmul[(4, 4)](m, m, m, 64, TILE=16, SALT=salt)),
        **{
            f"rows: {name}": then_wait(lambda salt, name=name: rows_with_triton.launches(data, WARPS, salt)[name]())
            for name in ("softmax", "rmsnorm", "layernorm", "cross-entropy", "cumsum")
        },
        "attention": then_wait(
            lambda salt: rows_with_triton.attention[(2,)](
                heads, heads, heads, heads, 256, 0.125, M=128, N=64, D=64, num_warps=4, num_stages=2, SALT=salt
            )
        ),
    }
