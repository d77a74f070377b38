from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import stagekit as sk


def make_class(n):
    @dataclass
    class Pair:
        x: sk.Tensor((n,), sk.float32)
        scale: float

    return Pair


@sk.jit
def kernel(pair, out):
    out[0] = pair.x[0] * pair.scale


x = np.zeros(8, np.float32)
kernel[1, 1](make_class(8)(x, 2.0), x)
