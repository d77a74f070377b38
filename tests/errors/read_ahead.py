import stagekit as sk


@sk.jit(threads=64)
def kernel(x):
    for part in sk.staged(range(0, 256, 64), lambda k: x.tile((0, k), (16, 64))):
        sk.store(x.tile((0, 0), (16, 64)), part + 1)


kernel.specialize(x=sk.Tensor((16, 256), sk.float32, strides=(256, 1))).ptx
