import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, BLOCK: sk.constexpr):
    sk.static_assert(BLOCK % 32 == 0, f"BLOCK must be a multiple of 32, got {BLOCK}")
    x[0] = BLOCK


kernel[1, 1](np.zeros(8, np.float32), 20)
