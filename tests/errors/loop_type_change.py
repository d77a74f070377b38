import numpy as np

import stagekit as sk


@sk.jit
def kernel(x):
    total = sk.int32(0)
    for i in range(8):
        total = total + x[i]
    x[0] = total


kernel[1, 1](np.zeros(8, np.float32))
