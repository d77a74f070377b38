"""TIRx."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import tvm_tirx
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
        names = {**arrays.names(count), "k": tvm_tirx.compile(TAKES[count], target="cuda")}
        yield "positional", f"k({listed(count)})", names


def _add(value: int) -> Any:
    @T.function
    def add(a: T.Tensor((n,), "float32"), b: T.Tensor((n,), "float32")):
        T.device_entry(launch=T.cuda.LaunchConfig(grid=T.ceildiv(n, 256), block=256))
        i = T.cuda.block_idx("x") * 256 + T.cuda.thread_idx("x")
        if i < n:
            b[i] = a[i] + value

    return add


def specialisations(target: str) -> dict[str, Callable[[int], None]]:
    x, y = torch.ones(256, device="cuda"), torch.ones(256, device="cuda")
    torch.cuda.synchronize()

    def make(salt: int) -> None:
        tvm_tirx.compile(_add(salt), target="cuda")(x, y)
        torch.cuda.synchronize()

    return {"add": make}
