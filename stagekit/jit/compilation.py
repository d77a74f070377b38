"""From traced IR to something that launches: passes, backend, artifact, kernel. One function per target.

What loads machine code is imported with the first kernel of a process, and what makes it when one is first compiled: a process
that finds its kernels on disk never does.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stagekit.artifact import Artifact
from stagekit.frontend.kernel import Traced
from stagekit.ir import Function
from stagekit.recursion import repeated_deeply
from stagekit.runtime.cpu import CpuKernel
from stagekit.runtime.kernel import Kernel

if TYPE_CHECKING:
    from stagekit.backends.interp import Options
    from stagekit.jit.interpreting import InterpKernel

DEFAULT_CAPABILITY = 90  # for looking at PTX where there is no GPU


@dataclass(frozen=True)
class Naming:
    """How a kernel is called: for people, and its constexprs for `repr` and error texts."""

    kernel_name: str
    constexprs: tuple[tuple[str, str], ...]


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
def cuda_artifact(traced: Traced, naming: Naming, capability: int) -> Artifact:
    """PTX for one compute capability (times ten)."""
    from stagekit.backends import nvptx
    from stagekit.passes.manager import dump_from_config

    fn = lower_for(traced, "cuda", capability)
    code = nvptx.compile(fn, capability)
    dump = dump_from_config()
    dump.show("llvm", lambda: code.llvm)
    dump.show("ptx", lambda: code.ptx)
    artifact = _artifact(traced, naming, fn, "cuda", code.ptx.encode())
    return dataclasses.replace(
        artifact,
        entry=code.entry,
        shared_bytes=code.shared_bytes,
        added_shared_bytes=code.dynamic_bytes,
        uses_dynamic_shared=code.uses_dynamic_shared,
        capability=capability,
        stages={"llvm": code.llvm, "ptx": code.ptx},
    )


@repeated_deeply
def cpu_artifact(traced: Traced, naming: Naming, block: tuple[int, int, int]) -> Artifact:
    """An object file for this machine and one block size."""
    from stagekit.backends import host
    from stagekit.passes.manager import dump_from_config

    fn = lower_for(traced, "cpu", 0)
    code = host.compile(fn, block)
    dump_from_config().show("llvm", lambda: code.llvm)
    artifact = _artifact(traced, naming, fn, "cpu", code.object_code)
    return dataclasses.replace(
        artifact,
        entry=code.entry,
        block=block,
        shared_bytes=code.shared_bytes,
        scratch_bytes=code.scratch_bytes,
        stages={"llvm": code.llvm},
    )


def _artifact(traced: Traced, naming: Naming, fn: Function, target: Any, code: bytes) -> Artifact:
    sites = tuple(fn.attribute("record_sites", ()))
    return Artifact(
        target=target,
        kernel_name=naming.kernel_name,
        entry=fn.name,
        code=code,
        signature=traced.signature,
        style=traced.style,
        launch=traced.launch,
        block=traced.block,
        shared_bytes=0,
        has_records=bool(sites),
        is_debug=bool(fn.attribute("debug")),
        record_sites=sites,
        constexprs=naming.constexprs,
    )


def load_cpu(artifact: Artifact, constexprs: dict[str, Any]) -> Kernel:
    """Put an object file into this process."""
    from stagekit.backends.host import loader

    loaded = loader.load(artifact.code, artifact.entry)
    return CpuKernel(artifact, loaded.address, loaded.close, constexprs)


def load_cuda(artifact: Artifact, constexprs: dict[str, Any]) -> Kernel:
    """A kernel whose module is loaded at its first launch on each device."""
    from stagekit.runtime.cuda import CudaKernel

    return CudaKernel(artifact, constexprs)


@repeated_deeply
def load_interp(traced: Traced, naming: Naming, constexprs: dict[str, Any], options: Options | None) -> InterpKernel:
    """The checking interpreter; it takes any block. options: what it checks, None for nothing that costs time."""
    from stagekit.backends.interp import UNCHECKED
    from stagekit.jit.interpreting import InterpKernel

    artifact = _artifact(traced, naming, traced.function, "cpu", b"")
    return InterpKernel(artifact, lower_for(traced, "interp", 0), options or UNCHECKED, constexprs, traced.pruned)
