import numpy as np

import stagekit as sk


@sk.jit
def kernel(out):
    tile = sk.alloc_shared((4,), out.dtype, align=16)
    bar = sk.alloc_shared((1,), sk.uint64)
    sk.cuda.mbarrier_init(bar, 1)
    sk.cuda.fence_mbarrier_init()
    sk.cuda.mbarrier_arrive_expect_tx(bar, 16)
    sk.cuda.cp_async_bulk_g2s(tile, out, 16, bar)


sk.sanitize(kernel)[1, 1](np.zeros(8, np.float32))
