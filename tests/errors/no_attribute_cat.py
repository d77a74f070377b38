import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, n):
    x[0] = sk.cat(x, x)


kernel[1, 32](np.zeros(8, np.float32), 3)
