import numpy as np

import stagekit as sk


@sk.jit
def kernel(A: sk.Tensor((None,), sk.float32)):
    A[0] = 1


kernel[1, 1](np.zeros(33, np.uint8)[1:].view(np.float32))
