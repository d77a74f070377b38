import numpy as np

import stagekit as sk


@sk.jit
def kernel(x):
    x[0] = 1


kernel[1, 1](np.zeros(8, "datetime64[s]"))
