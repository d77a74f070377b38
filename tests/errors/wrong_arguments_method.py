import stagekit as sk


@sk.jit
def kernel(x):
    x[0] = 1


kernel.explain(3)
