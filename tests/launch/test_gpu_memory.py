"""What kernels on a real GPU leave behind when they are dropped: nothing."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from stagekit.runtime import driver

pytestmark = pytest.mark.gpu

KERNELS = 300
BODY = 64  # statements: code that takes room


def new_kernel() -> Any:
    @sk.jit
    def fill(out: sk.Tensor((None,), sk.float32), V: sk.constexpr):  # type: ignore[no-untyped-def, valid-type]
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=32))
        x = out[sk.cuda.thread_idx("x")]
        for i in sk.static_range(BODY):
            x = x * (V + i) + i
        out[sk.cuda.thread_idx("x")] = x

    return fill


def free_bytes() -> int:
    gc.collect()
    sk.cuda.synchronize()
    with driver.on_device(0):
        free, _ = driver.call("cuMemGetInfo")
    return int(free)


def launch_many(out: Any) -> int:
    """Bytes that so many kernels take while they are kept; each is launched, natively too."""
    before, kernel = free_bytes(), new_kernel()
    for value in range(KERNELS):
        specialised = kernel.specialize(V=value)
        for _ in range(3):
            specialised(out)
    return before - free_bytes()


# case P21
def test_memory_of_dropped_kernels_comes_back() -> None:
    out = sk.cuda.to_device(np.zeros(32, np.float32))
    launch_many(out)  # what the driver keeps for good after its first modules
    before = free_bytes()

    taken = launch_many(out)
    assert free_bytes() == before
    taken_again = launch_many(out)

    assert free_bytes() == before
    assert taken == taken_again
