import numpy as np

import stagekit as sk


@sk.jit
def kernel(out):
    tile = sk.alloc_shared((4,), out.dtype, align=16)
    for i in range(4):
        tile[i] = 1
    sk.cuda.cp_async_bulk_s2g(out, tile, 16)
    sk.cuda.cp_async_bulk_commit()
    sk.cuda.cp_async_bulk_wait()


sk.sanitize(kernel)[1, 1](np.zeros(8, np.float32))
