import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, options):
    x[0] = options


kernel[1, 1](np.zeros(8, np.float32), {"scale": 2})
