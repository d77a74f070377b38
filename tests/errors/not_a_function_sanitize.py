import stagekit as sk

sk.sanitize(5)
