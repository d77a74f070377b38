import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, WEIGHTS: sk.constexpr):
    x[0] = WEIGHTS[3]


kernel[1, 1](np.zeros(8, np.float32), (1, 2, 3))
