import stagekit as sk


@sk.function
def kernel(x: sk.Tensor((16,), sk.float32)):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=2000))
    x[0] = 1
