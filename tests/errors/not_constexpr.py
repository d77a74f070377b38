import stagekit as sk


@sk.jit
def kernel(x, n):
    x[0] = n


kernel.specialize(n=4)
