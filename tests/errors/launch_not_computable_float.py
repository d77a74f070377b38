import stagekit as sk

n = sk.dynamic("n")


@sk.function
def kernel(x: sk.Tensor((n,), sk.float32)):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=n / 32, block=32))
    x[0] = 1
