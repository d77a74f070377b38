import numpy as np

import stagekit as sk


@sk.jit
def kernel(x):
    i = sk.cuda.thread_idx("x")
    left = x[i]
    while left > 0:
        left -= 1
        sk.syncthreads()
    sk.syncthreads()


kernel[1, 64](np.arange(64, dtype=np.float32))
