import stagekit as sk


@sk.jit
def kernel(x):
    yield x[0]
