import numpy as np

import stagekit as sk


@sk.jit
def kernel(x):
    i, j = sk.arange(0, 4), sk.arange(0, 8)
    sk.store(x + i * 8 + j, 1.0)


kernel[1](np.zeros(32, np.float32))
