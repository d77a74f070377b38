import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, WEIGHTS: sk.constexpr):
    x[0] = WEIGHTS[0]


kernel.specialize(WEIGHTS=np.ones(3))
