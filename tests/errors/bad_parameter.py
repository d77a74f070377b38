import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, /, scale):
    x[0] = scale


kernel[1, 1](np.zeros(8, np.float32), 1.5)
