import numpy as np

import stagekit as sk


@sk.jit
def kernel(out):
    t = sk.cuda.thread_idx("x")
    tile = sk.alloc_shared((64 * 64,), sk.float16, align=1024)
    for i in range(t, 64 * 64, 128):
        tile[i] = 1
    sk.cuda.fence_proxy_async()
    sk.syncthreads()
    sums = [sk.float32(0)] * 4
    sk.cuda.wgmma_fence()
    sums = sk.cuda.wgmma_m64n8(tile, tile, *sums)
    sk.cuda.wgmma_commit()
    out[t] = sums[0]
    sk.cuda.wgmma_wait_m64n8(*sums)


sk.sanitize(kernel)[1, 128](np.zeros(128, np.float32))
