import os
import pickle
import signal
import warnings

import numpy as np

import stagekit as sk


@sk.jit
def spin(out):
    x = sk.float32(0)
    for _ in range(200_000):
        x = x * 0.5 + 1
    out[sk.cuda.block_idx("x") * 32 + sk.cuda.thread_idx("x")] = x


children = []


def fork(*_):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        children.append(os.fork())


def launch():
    spin[4000, 32](np.zeros(4000 * 32, np.float32))


os.environ["STAGEKIT_THREADS"] = "2"
launch()
read, write = os.pipe()
signal.signal(signal.SIGALRM, fork)
signal.setitimer(signal.ITIMER_REAL, 0.01)
try:
    launch()
except sk.StagekitError as error:  # in the child, which tells its parent
    os.write(write, pickle.dumps(error))
finally:
    if children == [0]:
        os._exit(0)
os.waitpid(children[0], 0)
raise pickle.loads(os.read(read, 100_000))
