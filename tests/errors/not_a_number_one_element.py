import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, n: sk.int32):
    x[0] = n


kernel[1, 1](np.zeros(8, np.float32), np.array([3]))
