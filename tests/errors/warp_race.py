import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, out):
    i = sk.cuda.thread_idx("x")
    out[0] += x[i]


sk.sanitize(kernel)[1, 8](np.arange(8, dtype=np.float32), np.zeros(8, np.float32))
