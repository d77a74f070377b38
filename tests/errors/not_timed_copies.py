import numpy as np

import stagekit as sk


@sk.jit(target="cuda")
def kernel(x, BLOCK: sk.constexpr):
    sk.store(x + sk.arange(0, BLOCK), 1.0)


sk.autotune(kernel, {"BLOCK": (32, 64)}).tune[1](np.zeros(128, np.float32))
