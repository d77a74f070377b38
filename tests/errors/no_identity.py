import numpy as np

import stagekit as sk
from stagekit.testing import run_in_python


@sk.jit
def kernel(x, out, B: sk.constexpr):
    tile = sk.load(x + sk.arange(0, B))
    out[0] = sk.reduce(tile, lambda a, b: a * b, identity=0)


run_in_python(kernel, 1, np.arange(1, 9), np.zeros(1, np.int64), 8)
