import numpy as np

import stagekit as sk


@sk.jit
def kernel(A: sk.Tensor((None,), sk.float32, align=4096)):
    A[0] = 1


kernel[1, 1](np.zeros(8192, np.uint8)[1 : 1 + 32].view(np.float32))
