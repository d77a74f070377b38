import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, n):
    for i in range(n / 2):
        x[i] = 1


kernel[1, 1](np.zeros(8, np.float32), 8)
