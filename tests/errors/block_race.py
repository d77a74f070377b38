import numpy as np

import stagekit as sk


@sk.jit
def kernel(out):
    buffer = sk.alloc_shared((64,), sk.int32)
    i = sk.cuda.thread_idx("x")
    buffer[i] = i
    out[i] = buffer[63 - i]


sk.sanitize(kernel)[1, 64](np.zeros(64, np.int32))
