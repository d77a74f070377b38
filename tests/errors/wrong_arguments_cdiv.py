import stagekit as sk

sk.cdiv("8", 2)
