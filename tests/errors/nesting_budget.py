import numpy as np

import stagekit as sk


def descend(x, level):
    if x[level] > 0:
        x[level] -= 1
        if x[level] < 10:
            x[level] += 1
            if x[level] != 5:
                x[level] = 0
                descend(x, level - 1)


@sk.jit
def kernel(x):
    descend(x, 900)


kernel[1, 1](np.zeros(1000, np.float32))
