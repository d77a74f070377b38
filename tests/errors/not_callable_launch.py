import numpy as np

import stagekit as sk


@sk.jit
def double(out, n):
    out[0] = n * 2


@sk.jit
def kernel(out, n):
    double[1, 1](out, n)


kernel[1, 1](np.zeros(1, np.float32), 3)
