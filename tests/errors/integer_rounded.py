import numpy as np

import stagekit as sk


@sk.jit
def kernel(out, n):
    out[0] = float(n) / 2


sk.sanitize(kernel)[1, 1](np.zeros(1, np.float32), 2**24 + 1)
