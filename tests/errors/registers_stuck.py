import numpy as np

import stagekit as sk


@sk.jit
def kernel(out):
    if sk.warp_id() < 4:
        sk.cuda.setmaxnreg_inc(232)
    else:
        sk.cuda.setmaxnreg_inc(232)


with sk.sanitize():
    kernel[1, 384](np.zeros(1, np.float32))
