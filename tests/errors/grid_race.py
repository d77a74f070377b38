import numpy as np

import stagekit as sk


@sk.jit
def kernel(out):
    out[0] = sk.cuda.block_idx("x")


sk.sanitize(kernel)[2, 1](np.zeros(8, np.float32))
