import stagekit as sk


@sk.function
def kernel(x: sk.Pointer(sk.float32)):
    sk.store(x + sk.cuda.thread_idx("x"), 1.0)


sk.export(kernel, "build", targets="cpu")
