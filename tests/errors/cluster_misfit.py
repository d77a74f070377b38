import numpy as np

import stagekit as sk


@sk.jit
def kernel(x):
    x[sk.cuda.block_idx("x")] = 1


kernel[sk.cuda.LaunchConfig(grid=7, block=1, cluster=2)](np.zeros(7, np.float32))
