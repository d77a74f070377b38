import numpy as np

import stagekit as sk


@sk.jit
def kernel(flag, data, out):
    if sk.cuda.block_idx("x") == 0:
        data[0] = 42
        flag[0] = 1
    else:
        while True:
            if flag[0] != 0:
                break
        out[0] = data[0]


kernel[2, 1](*(np.zeros(1, np.int32) for _ in range(3)))
