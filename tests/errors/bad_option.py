import stagekit as sk


@sk.jit(fastmth=True)
def kernel(out):
    out[0] = 1
