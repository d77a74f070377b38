import numpy as np

import stagekit as sk


@sk.jit
def kernel(x):
    found = []
    if x[0] > 0:
        found.append(x[1])
    x[2] = len(found)


kernel[1, 1](np.zeros(8, np.float32))
