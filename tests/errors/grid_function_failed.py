import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, n, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    sk.store(x + i, 1.0, mask=i < n)


kernel[lambda a: sk.ceildiv(a["size"], a["BLOCK"])](np.zeros(8, np.float32), 8, 4)
