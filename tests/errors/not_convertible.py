import stagekit as sk

sk.float32("one")
