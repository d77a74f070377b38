import stagekit as sk


@sk.jit
def kernel(src, dst, n, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    sk.store(dst + i, sk.load(src + i, mask=i < n), mask=i < n)


print(kernel.specialize(BLOCK=64).ir)
