import numpy as np

import stagekit as sk


@sk.inline
def meet():
    sk.syncthreads()


@sk.jit
def kernel(x):
    i = sk.cuda.thread_idx("x")
    if x[i] > 2:
        meet()


kernel[1, 32](np.arange(32, dtype=np.float32))
