import stagekit as sk


@sk.jit
def kernel(x, WEIGHTS: sk.constexpr):
    x[0] = WEIGHTS[0]


kernel.specialize(WEIGHTS=[1, 2, 3])
