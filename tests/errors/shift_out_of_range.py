import numpy as np

import stagekit as sk


@sk.jit
def kernel(out, amount):
    out[0] = sk.int32(1) << amount


sk.sanitize(kernel)[1, 1](np.zeros(8, np.float32), 40)
