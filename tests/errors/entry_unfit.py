import numpy as np

import stagekit as sk
from stagekit import testing


@sk.jit
def kernel(x, n, BLOCK: sk.constexpr):
    if sk.speculate(n % 4 == 0):
        sk.store(x + sk.arange(0, BLOCK), 1)


testing.force_entry(kernel, "quick")[1](np.zeros(8, np.float32), 5, 8)
