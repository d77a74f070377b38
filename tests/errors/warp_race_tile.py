import numpy as np

import stagekit as sk


def largest(p, i):
    return sk.reduce_max(sk.load(p + i))


def store_first(p, value):
    sk.store(p, value)


@sk.jit
def kernel(p, B: sk.constexpr):
    store_first(p, largest(p, sk.arange(0, B)))


sk.sanitize(kernel)[1](np.zeros(16, np.float32), 16)
