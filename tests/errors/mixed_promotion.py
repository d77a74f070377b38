import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, a: sk.int64, b: sk.uint64):
    x[0] = a + b


kernel[1, 1](np.zeros(8, np.float32), 1, 2)
