import numpy as np

import stagekit as sk


@sk.jit
def kernel(out, row: sk.int32, stride: sk.int32):
    i = row * stride
    if i < len(out):
        out[i] = 1


sk.sanitize(kernel)[1, 1](np.zeros(8, np.float32), 65536, 65536)
