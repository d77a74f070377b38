import numpy as np

import stagekit as sk


@sk.jit
def kernel(A):
    sk.tensor_map(A, box=(64, 32), swizzle=128)


sk.sanitize(kernel)[1, 1](np.zeros((64, 64), np.float16))
