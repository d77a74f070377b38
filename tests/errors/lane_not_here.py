import numpy as np

import stagekit as sk


@sk.jit
def kernel(out):
    i = sk.cuda.thread_idx("x")
    if i < 8:
        out[i] = sk.shfl_sync(0xFFFFFFFF, i, 0)
    sk.syncwarp()


sk.sanitize(kernel)[1, 32](np.zeros(8, np.float32))
