"""TIRx."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import tvm_tirx.tirx
from tvm_tirx.script import tirx as T

from systems.arrays import SIZE, Arrays, listed

NAME = "TIRx"

n = T.dynamic("n")


@T.function
def take2(a0: T.Tensor((n,), "float32"), a1: T.Tensor((n,), "float32")):
    T.device_entry(launch=T.cuda.LaunchConfig(grid=T.ceildiv(n, 32), block=32))
    i = T.cuda.block_idx("x") * 32 + T.cuda.thread_idx("x")
    if i < n:
        a1[i] = a0[i]


@T.function
def take4(a0: T.Tensor((n,), "float32"), a1: T.Tensor((n,), "float32"), a2: T.Tensor((n,), "float32"),
          a3: T.Tensor((n,), "float32")):  # fmt: skip
    T.device_entry(launch=T.cuda.LaunchConfig(grid=T.ceildiv(n, 32), block=32))
    i = T.cuda.block_idx("x") * 32 + T.cuda.thread_idx("x")
    if i < n:
        a3[i] = a0[i] + a1[i] + a2[i]


TAKES = {2: take2, 4: take4}


def launches(arrays: Arrays, count: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    if arrays.library == "torch" and arrays.items[0].numel() == SIZE and count in TAKES:
        names = {**arrays.names(count), "k": tvm_tirx.tirx.compile(TAKES[count], target="cuda")}
        yield "positional", f"k({listed(count)})", names


def _add(salt: int) -> Any:
    @T.function
    def add(a: T.Tensor((n,), "float32"), b: T.Tensor((n,), "float32")):
        T.device_entry(launch=T.cuda.LaunchConfig(grid=T.ceildiv(n, 256), block=256))
        i = T.cuda.block_idx("x") * 256 + T.cuda.thread_idx("x")
        if i < n:
            b[i] = a[i] + T.float32(salt)

    return add


def _softmax(salt: int) -> Any:
    @T.function
    def softmax(src: T.Tensor((n,), "float32"), dst: T.Tensor((n,), "float32")):
        T.device_entry(launch=T.cuda.LaunchConfig(grid=1, block=256))
        t = T.cuda.thread_idx("x")
        for_max = T.alloc_shared((8,), "float32")
        for_sum = T.alloc_shared((8,), "float32")
        x: T.float32 = T.float32(-float("inf"))
        if t < n:
            x = src[t]
        e = T.exp(x - T.cuda.cta_max(x, 8, for_max.ptr_to([0])))
        total = T.cuda.cta_sum(e, 8, for_sum.ptr_to([0]))
        if t < n:
            dst[t] = e / total + T.float32(salt)

    return softmax


def _matmul(salt: int) -> Any:
    @T.function
    def matmul(a: T.Tensor((n, n), "float32"), b: T.Tensor((n, n), "float32"), c: T.Tensor((n, n), "float32")):
        T.device_entry(launch=T.cuda.LaunchConfig(grid=(T.ceildiv(n, 16), T.ceildiv(n, 16)), block=(16, 16)))
        left = T.alloc_shared((16, 16), "float32")
        right = T.alloc_shared((16, 16), "float32")
        tx = T.cuda.thread_idx("x")
        ty = T.cuda.thread_idx("y")
        row = T.cuda.block_idx("y") * 16 + ty
        col = T.cuda.block_idx("x") * 16 + tx
        total: T.float32 = T.float32(salt)
        for part in range(T.ceildiv(n, 16)):
            left[ty, tx] = T.float32(0)
            right[ty, tx] = T.float32(0)
            if row < n and part * 16 + tx < n:
                left[ty, tx] = a[row, part * 16 + tx]
            if col < n and part * 16 + ty < n:
                right[ty, tx] = b[part * 16 + ty, col]
            T.cuda.cta_sync()
            for k in T.unroll(16):
                total = total + left[ty, k] * right[k, tx]
            T.cuda.cta_sync()
        if row < n and col < n:
            c[row, col] = total

    return matmul


def specialisations(target: str) -> dict[str, Callable[[int], None]]:
    x, y, m, product = (torch.ones(shape, device="cuda") for shape in (256, 256, (64, 64), (64, 64)))
    torch.cuda.synchronize()

    def maker(function: Callable[[int], Any], arguments: tuple[Any, ...]) -> Callable[[int], None]:
        def make(salt: int) -> None:
            tvm_tirx.tirx.compile(function(salt), target="cuda")(*arguments)
            torch.cuda.synchronize()

        return make

    return {
        "add": maker(_add, (x, y)),
        "softmax": maker(_softmax, (x, y)),
        "matmul": maker(_matmul, (m, m, product)),
    }
