import numpy as np

import stagekit as sk


@sk.jit
def reverse(x, n: sk.int32):
    i = sk.cuda.thread_idx("x")
    row = sk.dynamic_shared(sk.float32, (n,))
    row[i] = x[i]
    sk.syncthreads()
    x[i] = row[n - 1 - i]


reverse[1, 64, 128](np.zeros(64, np.float32), 64)
