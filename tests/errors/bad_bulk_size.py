import numpy as np

import stagekit as sk


@sk.jit
def kernel(out, n):
    tile = sk.alloc_shared((8,), out.dtype, align=16)
    sk.cuda.fence_proxy_async()
    sk.cuda.cp_async_bulk_s2g(out, tile, n * 4)


sk.sanitize(kernel)[1, 1](np.zeros(8, np.float32), 3)
