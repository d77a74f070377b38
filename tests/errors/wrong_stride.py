import numpy as np

import stagekit as sk

n, m = sk.dynamic("n"), sk.dynamic("m")


@sk.jit
def kernel(A: sk.Tensor((n, m), sk.float32, strides=(1, n))):
    A[0, 0] = 1


kernel[1, 1](np.zeros((3, 2), np.float32))
