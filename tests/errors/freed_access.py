import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, out):
    out[0] = x[3]


owner = np.ones(8, np.float32)
x = owner[:]
owner.resize((0,), refcheck=False)
sk.sanitize(kernel)[1, 1](x, np.zeros(1, np.float32))
