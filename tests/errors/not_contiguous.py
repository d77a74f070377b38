import numpy as np

import stagekit as sk
from stagekit.diagnostics import hide_frames
from stagekit.jit.compilation import load_cpu


@sk.jit
def kernel(A: sk.Tensor((None,), sk.float32)):
    A[0] = 1


# A kernel chooses the code that fits its arguments; only code taken out of it can meet the wrong ones.
special = kernel.specialize()
code = load_cpu(special.compile("cpu"), {}, next(iter(special._variants.values())).traced)
hide_frames(code.launch)((np.zeros(8, np.float32)[::2],), code.request((1, 1)))
