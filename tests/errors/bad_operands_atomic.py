import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, n):
    sk.atomic_add(x[n], 1.0)


kernel[1, 32](np.zeros(8, np.float32), 3)
