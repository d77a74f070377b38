import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, BLOCK: sk.constexpr):
    if sk.speculate(sk.load(x) > 3):
        sk.store(x + sk.arange(0, BLOCK), 1)


kernel[1](np.zeros(8, np.float32), 8)
