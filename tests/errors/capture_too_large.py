import numpy as np

import stagekit as sk

TABLE = np.broadcast_to(np.float32(1), (1 << 20, 1 << 20))


@sk.jit
def kernel(out):
    out[0] = TABLE[0, 0]


kernel[1, 1](np.zeros(1, np.float32))
