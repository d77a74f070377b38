import numpy as np

import stagekit as sk


@sk.jit
def kernel(raw, out):
    out[0] = sk.load((raw.ptr + 1).to(sk.float32))


sk.sanitize(kernel)[1, 1](np.zeros(8, np.uint8), np.zeros(1, np.float32))
