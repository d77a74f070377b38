import numpy as np

import stagekit as sk


def largest(p, i):
    return sk.warp_reduce(sk.load(p + i), sk.maximum, 16)


def store_first(p, value):
    sk.store(p, value)


@sk.jit
def kernel(p):
    store_first(p, largest(p, sk.cuda.thread_idx("x")))


sk.sanitize(kernel)[1, 16](np.zeros(16, np.float32))
