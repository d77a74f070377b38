from typing import NamedTuple

import numpy as np

import stagekit as sk


class Pair(NamedTuple):
    x: sk.Tensor((None,), sk.float32)
    scale: sk.float32


@sk.jit
def kernel(pair: Pair, out):
    out[0] = pair.x[0] * pair.scale


x = np.zeros(8, np.float32)
kernel[1, 1]((x, 2.0), x)
