"""A grid that is worth sharing asks for the number of threads."""

import os

import numpy as np

import stagekit as sk


@sk.jit
def kernel(x):
    i = sk.cuda.block_idx("x")
    for _ in range(1000):
        x[i] = x[i] * 0.5 + 1


os.environ["STAGEKIT_THREADS"] = "many"
kernel[10_000, 1](np.zeros(10_000, np.float32))
