import numpy as np

import stagekit as sk


@sk.jit
def kernel(out):
    if sk.warp_id() == 0:
        sk.syncwarp()
    else:
        sk.cuda.barrier_sync(1, 64)


with sk.sanitize():
    kernel[1, 64](np.zeros(1, np.float32))
