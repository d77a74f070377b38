import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, BLOCK: sk.constexpr):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    sk.store(x + i, 1)


kernel[8, 128](np.zeros(1024, np.float32), 128)
