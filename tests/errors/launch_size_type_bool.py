import numpy as np

import stagekit as sk


@sk.jit
def kernel(x):
    x[0] = 1


kernel[True, 32](np.zeros(8, np.float32))
