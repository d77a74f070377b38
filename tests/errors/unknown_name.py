import numpy as np

import stagekit as sk

scale = 2


@sk.inline
def scaled(v):
    return v * sclae


@sk.jit
def kernel(x, N: sk.constexpr):
    for i in sk.static_range(N):
        x[i] = scaled(x[i])


kernel[1, 1](np.zeros(8, np.float32), 3)
