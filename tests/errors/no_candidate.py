import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, BLOCK: sk.constexpr):
    sk.static_assert(BLOCK % 64 == 0, "BLOCK is a multiple of 64")
    sk.store(x + sk.arange(0, BLOCK), 1.0)


sk.autotune(kernel, {"BLOCK": (32, 96)}).tune[1](np.zeros(128, np.float32))
