import stagekit as sk


@sk.jit
def kernel(out: sk.Tensor((None,), sk.float32)):
    out[0] = 1


kernel.specialize().compile("cuda", capability="90a")
