import numpy as np

import stagekit as sk


@sk.jit
def kernel(A):
    sk.tensor_map(A, box=(64, 64), swizzle=128)


sk.sanitize(kernel)[1, 1](np.zeros((100, 100), np.float16))
