import numpy as np

import stagekit as sk
from stagekit.cuda import LaunchConfig


@sk.jit
def kernel(out):
    t = sk.cuda.thread_idx("x")
    tile = sk.alloc_shared((32,), sk.float32)
    tile[t] = t
    if sk.cuda.cluster_rank() == 0:
        sk.cuda.cluster_sync()
    else:
        ready = sk.alloc_shared((1,), sk.uint64)
        if t == 0:
            sk.cuda.mbarrier_init(ready, 2)
        sk.syncthreads()
        sk.cuda.mbarrier_wait(ready, 0)


with sk.sanitize():
    kernel[LaunchConfig(4, 32, cluster=2)](np.zeros(128, np.float32))
