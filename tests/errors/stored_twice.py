import numpy as np

import stagekit as sk
from stagekit.testing import run_in_python


@sk.jit
def kernel(out, B: sk.constexpr):
    i = sk.arange(0, B)
    sk.store(out + i // 2, i)


run_in_python(kernel, 1, np.zeros(8, np.int32), 8)
