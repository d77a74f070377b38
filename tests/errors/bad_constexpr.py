import stagekit as sk


@sk.jit
def kernel(x, BLOCK: sk.constexpr[int]):
    x[0] = BLOCK


kernel.specialize(BLOCK=64.0)
