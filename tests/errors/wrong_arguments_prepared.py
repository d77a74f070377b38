import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, n):
    x[0] = n


x = np.zeros(8, np.float32)
with sk.sanitize():
    launch = kernel.prepare[1, 1](x, 3)
launch(x, 3)
