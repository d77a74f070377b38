import numpy as np

import stagekit as sk
from stagekit.testing import run_in_python


@sk.jit
def kernel(bins, keys, out, B: sk.constexpr):
    i = sk.arange(0, B)
    before = sk.atomic_add(bins + sk.load(keys + i), 1)
    sk.store(out + i, before)


run_in_python(kernel, 1, np.zeros(8, np.int32), np.array([3, 5, 3, 1], np.int32), np.zeros(4, np.int32), 4)
