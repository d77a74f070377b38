import functools

import stagekit as sk


def scale(x, factor):
    x[0] = factor


kernel = sk.jit(functools.partial(scale, factor=2))
