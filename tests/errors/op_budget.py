import numpy as np

import stagekit as sk


@sk.jit(op_budget=100)
def kernel(x):
    for i in sk.static_range(100):
        x[0] = x[1] * i


kernel[1, 1](np.zeros(8, np.float32))
