import numpy as np

import stagekit as sk


@sk.jit
def kernel(x):
    i = sk.cuda.thread_idx("x")
    assert x[i] > 0, f"x[{i}] is {x[i]}, which is not positive"


kernel[1, 1](np.zeros(8, np.float32))
