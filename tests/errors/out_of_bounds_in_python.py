import numpy as np

import stagekit as sk
from stagekit.testing import run_in_python


@sk.jit
def kernel(out, B: sk.constexpr):
    i = sk.program_id(0) * B + sk.arange(0, B)
    sk.store(out + i, i)


run_in_python(kernel, (2,), np.zeros(7, np.int32), 4)
