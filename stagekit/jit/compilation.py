"""From traced IR to something that launches: passes, backend, artifact, kernel. One function per target.

What loads machine code is imported with the first kernel of a process, and what makes it when one is first compiled: a process
that finds its kernels on disk never does.
"""

from __future__ import annotations

from typing import Any

from stagekit.artifact import Artifact
from stagekit.frontend.kernel import Traced
from stagekit.ir import Function
from stagekit.recursion import repeated_deeply
from stagekit.runtime.cpu import CpuKernel
from stagekit.runtime.kernel import Kernel

DEFAULT_CAPABILITY = 90  # for looking at PTX where there is no GPU


def lower_for(traced: Traced, target: str, capability: int) -> Function:
    """Run the passes of `target` on a traced kernel."""
    from stagekit.backends.shared_memory import refuse_for_every_gpu
    from stagekit.passes.manager import PassContext, hooks_from_config
    from stagekit.passes.pipeline import lower

    fn = traced.function
    context = PassContext(
        target, capability, fastmath=bool(fn.attribute("fastmath")), debug=bool(fn.attribute("debug"))
    )
    lowered = lower(fn, context, hooks_from_config())
    refuse_for_every_gpu(lowered)
    return lowered


@repeated_deeply
def cuda_artifact(traced: Traced, capability: int) -> Artifact:
    """Compile PTX for one compute capability (times ten)."""
    from stagekit.backends import nvptx
    from stagekit.passes.manager import dump_from_config

    fn = lower_for(traced, "cuda", capability)
    code = nvptx.compile(fn, capability)
    dump = dump_from_config()
    dump.show("llvm", lambda: code.llvm)
    dump.show("ptx", lambda: code.ptx)
    return _artifact(
        traced,
        fn,
        target="cuda",
        code=code.ptx.encode(),
        entry=code.entry,
        shared_bytes=code.shared_bytes,
        added_shared_bytes=code.dynamic_bytes,
        capability=capability,
        stages={"llvm": code.llvm, "ptx": code.ptx},
    )


@repeated_deeply
def cpu_artifact(traced: Traced, block: tuple[int, int, int]) -> Artifact:
    """Compile an object file for this machine and one block size."""
    from stagekit.backends import host
    from stagekit.passes.manager import dump_from_config

    fn = lower_for(traced, "cpu", 0)
    code = host.compile(fn, block)
    dump_from_config().show("llvm", lambda: code.llvm)
    return _artifact(
        traced,
        fn,
        target="cpu",
        code=code.object_code,
        entry=code.entry,
        block=block,
        shared_bytes=code.shared_bytes,
        scratch_bytes=code.scratch_bytes,
        stages={"llvm": code.llvm},
    )


def _artifact(traced: Traced, fn: Function, **of_target: Any) -> Artifact:
    """The caller gives it the names that people see."""
    fields: dict[str, Any] = {"kernel_name": "", "block": traced.block, "shared_bytes": 0, **of_target}
    return Artifact(
        signature=traced.signature,
        style=traced.style,
        launch=traced.launch,
        is_debug=bool(fn.attribute("debug")),
        record_sites=tuple(fn.attribute("record_sites", ())),
        **fields,
    )


def load_cpu(artifact: Artifact, constexprs: dict[str, Any]) -> Kernel:
    """Put an object file into this process."""
    from stagekit.backends.host import loader

    loaded = loader.load(artifact.code, artifact.entry)
    return CpuKernel(artifact, loaded.address, loaded.close, constexprs)


def load_cuda(artifact: Artifact, constexprs: dict[str, Any]) -> Kernel:
    """Make a kernel whose module is loaded at its first launch on each device."""
    from stagekit.runtime.cuda import CudaKernel

    return CudaKernel(artifact, constexprs)
