import numpy as np

import stagekit as sk


@sk.jit
def kernel(out):
    bar = sk.alloc_shared((1,), sk.uint64)
    sk.cuda.mbarrier_init(bar, 1)


sk.sanitize(kernel)[1, 32](np.zeros(8, np.float32))
