import numpy as np

import stagekit as sk
from stagekit.testing import run_in_python


@sk.jit
def kernel(out):
    out[sk.cuda.thread_idx("x")] = 1


run_in_python(kernel, 1, np.zeros(8, np.int32))
