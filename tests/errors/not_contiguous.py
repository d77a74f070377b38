import numpy as np

import stagekit as sk


@sk.jit
def kernel(A: sk.Tensor((None,), sk.float32, strides=(1,))):
    A[0] = 1


kernel[1, 1](np.zeros(8, np.float32)[::2])
