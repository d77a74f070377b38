import numpy as np

import stagekit as sk


@sk.jit
def kernel(out, n, parts):
    out[0] = n // parts


sk.sanitize(kernel)[1, 1](np.zeros(8, np.float32), 7, 0)
