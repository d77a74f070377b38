import stagekit as sk


@sk.jit
def kernel(x, *, BLOCK: sk.constexpr, factor=2.0):
    x[0] = BLOCK * factor


kernel.specialize(BLOK=64)
