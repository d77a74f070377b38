import numpy as np

import stagekit as sk


@sk.jit
def kernel(x):
    for i in sk.static_range(300):
        for j in sk.static_range(300):
            x[0] = i * j


kernel[1, 1](np.zeros(8, np.float32))
