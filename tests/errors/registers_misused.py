import numpy as np

import stagekit as sk


@sk.jit
def kernel(out):
    if sk.warp_id() == 0:
        sk.cuda.setmaxnreg_dec(40)
    else:
        sk.cuda.setmaxnreg_dec(48)


with sk.sanitize():
    kernel[1, 128](np.zeros(1, np.float32))
