import numpy as np

import stagekit as sk


@sk.jit
def kernel(out):
    bar = sk.alloc_shared((1,), sk.uint64)
    sk.cuda.mbarrier_init(bar, 2)
    sk.cuda.mbarrier_arrive(bar)
    sk.cuda.mbarrier_wait(bar, 0)


sk.sanitize(kernel)[1, 1](np.zeros(8, np.float32))
