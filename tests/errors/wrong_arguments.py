import stagekit as sk

sk.cuda.LaunchConfig(grid=4)
