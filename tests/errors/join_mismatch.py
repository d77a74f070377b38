import numpy as np

import stagekit as sk


@sk.jit
def kernel(x):
    value = sk.int32(1)
    if x[0] > 0:
        value = x[1]
    x[2] = value


kernel[1, 1](np.zeros(8, np.float32))
