import numpy as np

import stagekit as sk


@sk.jit
def kernel(state):
    sk.grid_sync(state)


kernel[1025, 32](np.zeros(2, np.uint32))
