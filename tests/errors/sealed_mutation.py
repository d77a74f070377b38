import numpy as np

import stagekit as sk


@sk.jit
def kernel(x):
    a = [x[0], x[1]]
    b = [x[2], x[3]]
    if x[0] > 0:
        chosen = a
    else:
        chosen = b
    chosen[0] = 5
    x[0] = chosen[0]


kernel[1, 1](np.zeros(8, np.float32))
