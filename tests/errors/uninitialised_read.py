import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, out):
    buffer = sk.alloc_shared((8,), sk.float32)
    i = sk.cuda.thread_idx("x")
    if i > 0:
        buffer[i] = x[i]
    sk.syncthreads()
    out[i] = buffer[7 - i]


sk.sanitize(kernel)[1, 8](np.arange(8, dtype=np.float32), np.zeros(8, np.float32))
