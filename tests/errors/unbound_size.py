import numpy as np

import stagekit as sk

n = sk.dynamic("n")


@sk.function
def kernel(A: sk.Tensor((n + 1,), sk.float32)):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=n, block=1))
    A[sk.cuda.block_idx("x")] = 1


kernel(np.zeros(8, np.float32))
