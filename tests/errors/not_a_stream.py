import numpy as np

import stagekit as sk


@sk.jit
def kernel(x):
    x[0] = 1


kernel[1, 32, 0, True](np.zeros(8, np.float32))
