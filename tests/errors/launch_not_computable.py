import numpy as np

import stagekit as sk


@sk.jit
def kernel(x):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.int32(x[0]), block=1))
    x[1] = 1


kernel(np.zeros(8, np.float32))
