import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, out):
    i = sk.cuda.block_idx("x") * 5 + sk.cuda.thread_idx("x")
    out[i] = x[i] + 1


sk.sanitize(kernel)[2, 5](np.arange(8, dtype=np.float32), np.zeros(8, np.float32))
