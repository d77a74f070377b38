import stagekit as sk

sk.cuda.LaunchConfig(grid=(16, 16), block=128, cluster=(4, 4))
