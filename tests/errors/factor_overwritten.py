import numpy as np

import stagekit as sk


@sk.jit
def kernel(out, n):
    t = sk.cuda.thread_idx("x")
    tile = sk.alloc_shared((8 * 64,), sk.float16, align=1024)
    for i in range(t, 8 * 64, 128):
        tile[i] = 1
    sk.cuda.fence_proxy_async()
    sk.syncthreads()
    sums = [sk.float32(0)] * 4
    for i in range(n):
        words = [sk.uint32(i)] * 4
        sk.cuda.wgmma_fence()
        sums = list(sk.cuda.wgmma_rs_m64n8(*words, tile, *sums))
        sk.cuda.wgmma_commit()
    sums = sk.cuda.wgmma_wait_m64n8(*sums)
    out[t] = sums[0]


sk.sanitize(kernel)[1, 128](np.zeros(128, np.float32), 2)
