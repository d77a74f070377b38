import numpy as np

import stagekit as sk


@sk.jit
def kernel(A, column):
    a = sk.tensor_map(A, box=(4, 8))
    tile = a.alloc()
    for i in range(a.count):
        tile[i] = 1
    sk.cuda.fence_proxy_async()
    a.store(tile, (0, column))
    sk.cuda.cp_async_bulk_commit()
    sk.cuda.cp_async_bulk_wait()


sk.sanitize(kernel)[1, 1](np.zeros((8, 16), np.float32), 3)
