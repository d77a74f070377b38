import numpy as np

import stagekit as sk


@sk.jit
def kernel(out):
    out[0] = sk.inline_asm("mov.u32 $0, %laneid;", "=r", (), sk.int32)


kernel[1, 1](np.zeros(8, np.float32))
