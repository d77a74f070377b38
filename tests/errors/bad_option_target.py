import stagekit as sk


@sk.jit
def kernel(x: sk.Tensor((None,), sk.float32)):
    x[0] = 1


kernel.compile("cpu", capability=90)
