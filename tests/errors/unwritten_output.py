import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, out):
    i = sk.cuda.block_idx("x") * 3 + sk.cuda.thread_idx("x")
    if i < len(out):
        out[i] = x[i]


sk.sanitize(kernel, outputs=["out"])[2, 3](np.arange(8, dtype=np.float32), np.zeros(8, np.float32))
