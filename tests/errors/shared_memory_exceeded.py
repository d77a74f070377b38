import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, N: sk.constexpr):
    tile = sk.alloc_shared((N, N), sk.float32)
    i = sk.cuda.thread_idx("x")
    tile[i, i] = x[i]
    x[i] = tile[i, i]


kernel[1, 32](np.zeros(32, np.float32), 256)
