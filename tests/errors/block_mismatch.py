import numpy as np

import stagekit as sk


@sk.jit
def kernel(x):
    i = sk.arange(0, 64)
    sk.store(x + i, 1.0, mask=i < 8)


kernel[sk.cuda.LaunchConfig(grid=1, block=128)](np.zeros(8, np.float32))
