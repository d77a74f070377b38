import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, a: sk.uint8):
    x[0] = a + 300


kernel[1, 1](np.zeros(8, np.float32), 1)
