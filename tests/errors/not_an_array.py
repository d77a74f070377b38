import numpy as np

import stagekit as sk

n = sk.dynamic("n")


@sk.function
def kernel(A: sk.Tensor((n,), sk.float32), B: sk.Tensor((n,), sk.float32)):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=n, block=1))
    B[sk.cuda.block_idx("x")] = A[sk.cuda.block_idx("x")]


kernel([1.0, 2.0], np.zeros(8, np.float32))
