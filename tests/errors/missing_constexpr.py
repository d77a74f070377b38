import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, *, BLOCK: sk.constexpr, STAGES: sk.constexpr, UNROLL: sk.constexpr = 1):
    x[0] = BLOCK * STAGES * UNROLL


kernel[1, 1](np.zeros(8, np.float32), UNROLL=2)
