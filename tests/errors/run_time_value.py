import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, n):
    for i in sk.static_range(n):
        x[i] = i


kernel[1, 1](np.zeros(8, np.float32), 4)
