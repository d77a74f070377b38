import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, n, scale=1.0):
    x[0] = n * scale


kernel[1, 1](np.zeros(8, np.float32), 4, scael=2.0)
