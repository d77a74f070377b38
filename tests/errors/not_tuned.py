import numpy as np

import stagekit as sk
from stagekit.tuning import autotuning


@sk.jit
def kernel(x, BLOCK: sk.constexpr):
    sk.store(x + sk.arange(0, BLOCK), 1.0)


autotuning.device_text, known = lambda bound: "this processor", autotuning.device_text
try:
    sk.autotune(kernel, {"BLOCK": (32, 64)}, key=["x"], untuned="raise")[1](np.zeros(128, np.float32))
finally:
    autotuning.device_text = known
