import numpy as np

import stagekit as sk
from stagekit.cuda import LaunchConfig


@sk.jit
def kernel(out):
    t = sk.cuda.thread_idx("x")
    tile = sk.alloc_shared((32,), sk.float32)
    tile[t] = t
    other = sk.peer(tile, sk.cuda.cluster_rank() + 1)
    sk.cuda.cluster_sync()
    out[sk.cuda.block_idx("x") * 32 + t] = other[t]
    sk.cuda.cluster_sync()


with sk.sanitize():
    kernel[LaunchConfig(4, 32, cluster=2)](np.zeros(128, np.float32))
