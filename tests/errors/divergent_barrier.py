import numpy as np

import stagekit as sk


@sk.jit
def kernel(out):
    i = sk.cuda.thread_idx("x")
    if i < 4:
        out[i] = 1
        sk.syncthreads()


sk.sanitize(kernel)[1, 8](np.zeros(8, np.float32))
