import numpy as np

import stagekit as sk


@sk.jit
def kernel(x):
    x[sk.program_id(0) * 4 + sk.cuda.thread_idx("x")] = 1


kernel[2, 4](np.zeros(8, np.float32))
