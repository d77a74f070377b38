import numpy as np

import stagekit as sk


@sk.jit
def kernel(out):
    i = sk.cuda.thread_idx("x")
    mask = 0xF if i < 4 else 0xFF
    out[i] = sk.shfl_sync(mask, i, 0)


sk.sanitize(kernel)[1, 8](np.zeros(8, np.float32))
