"""What can be wrong with an operator of JAX alone; what several libraries have a use for is in `stagekit.operators`."""

from __future__ import annotations

from stagekit.diagnostics import Diagnostic


class NoPlatform(Diagnostic):
    title = "An operator has no code for this platform"
    label = "`{name}` runs on the CPU and on CUDA GPUs, and jax compiles it for {platform}"
    help = "compute it on the CPU: `jax.device_put(x, jax.devices('cpu')[0])`"


class NeverWritten(Diagnostic):
    title = "An output that no launch writes"
    label = "`{name}`: no kernel that it launches writes to `{output}`"
    help = "pass `{output}` to the kernel that makes it: assignments outside kernels are not part of the operator"
