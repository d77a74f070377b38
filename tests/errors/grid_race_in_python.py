import numpy as np

import stagekit as sk
from stagekit.testing import run_in_python


@sk.jit
def kernel(out, B: sk.constexpr):
    sk.store(out + sk.arange(0, B), sk.program_id(0))


run_in_python(kernel, (2,), np.zeros(8, np.int32), 4)
