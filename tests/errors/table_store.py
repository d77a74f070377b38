import numpy as np

import stagekit as sk

WEIGHTS = np.array([1, 4, 6, 4, 1], np.float32)


@sk.jit
def kernel(out):
    i = sk.cuda.thread_idx("x")
    WEIGHTS[i] = out[i]


kernel[1, 5](np.zeros(5, np.float32))
