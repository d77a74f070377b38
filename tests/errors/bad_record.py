from pathlib import Path

import numpy as np

import stagekit as sk


@sk.jit
def kernel(x, BLOCK: sk.constexpr):
    sk.store(x + sk.arange(0, BLOCK), 1.0)


Path("tuning.json").write_text("{}")
sk.autotune(kernel, {"BLOCK": (32, 64)}, record="tuning.json")[1](np.zeros(128, np.float32))
