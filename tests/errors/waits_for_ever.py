import numpy as np

import stagekit as sk
from stagekit.jit.native_launchers import provide_support
from stagekit.runtime import native_process, pool


@sk.jit
def kernel(lock, out):
    while sk.atomic_cas(lock.ptr_to(0), 0, 1) != 0:
        pass
    out[0] += 1
    sk.atomic_exchange(lock.ptr_to(0), 0)


provide_support()
native_process.process().pool.be_patient(100_000_000)  # ns, for ten seconds
try:
    kernel[1, 32](np.zeros(1, np.int32), np.zeros(1, np.int32))
finally:
    native_process.process().pool.be_patient(pool.PATIENCE_NS)
