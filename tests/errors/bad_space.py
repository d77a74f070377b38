import stagekit as sk


@sk.jit
def kernel(x, BLOCK: sk.constexpr):
    x[0] = BLOCK


sk.autotune(kernel, {"BLOK": (64, 128)})
