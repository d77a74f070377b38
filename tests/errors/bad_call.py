import numpy as np

import stagekit as sk


def clamp(v, low, high):
    return min(max(v, low), high)


@sk.jit
def kernel(x):
    x[0] = clamp(x[1], low=0)


kernel[1, 1](np.zeros(8, np.float32))
