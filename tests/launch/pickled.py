"""Kernels of a module, as users send them to other processes."""

from __future__ import annotations

from typing import Any

import numpy as np

import stagekit as sk

ARRAY = sk.Tensor((None,), sk.float32)


@sk.jit
def shifted(x, B: sk.constexpr, C: sk.constexpr = 1):
    x[0] = B + C


@sk.jit
def applied(x, OP: sk.constexpr, B: sk.constexpr):
    x[0] = OP(x[0] + B)


@sk.function
def filled(x: ARRAY):
    x[0] = 7


@sk.inline
def doubled(x):
    return x + x


class Holder:
    @sk.jit
    def kernel(x, B: sk.constexpr):
        x[0] = B


def run(kernel: Any, *args: Any) -> float:
    out = np.ones(1, np.float32)
    kernel[1, 1](out, *args)
    return float(out[0])
