"""From traced IR to something that launches: passes, backend, artifact, kernel, one function per target; artifacts on disk.

What loads machine code is imported with the first kernel of a process, and what makes it when one is first compiled: a process
that finds its kernels on disk never does.

The key of an artifact on disk is a digest of the traced IR, of what a launch needs to know, of the target with its options, and
of the versions of all that turns one into the other. Passes and backends read nothing else, so an entry cannot be stale. Places
in the source count only where the code shows them (asserts, prints, line information): a comment above a kernel costs nothing.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stagekit import config
from stagekit.artifact import Artifact
from stagekit.cache import NotPlain, from_bytes, open_store, read_or_make, sha256, to_bytes, to_plain
from stagekit.diagnostics import Loc
from stagekit.forks import importing
from stagekit.frontend.traced import Traced
from stagekit.intrinsics import all_intrinsics
from stagekit.ir import Function, ops, walk
from stagekit.ir.printer import print_function
from stagekit.jit.native_launchers import provide_support
from stagekit.recursion import repeated_deeply
from stagekit.runtime import driver
from stagekit.runtime.cpu import CpuKernel
from stagekit.runtime.kernel import Kernel

_OURS = frozenset(all_intrinsics())  # before any user's module could define more
DEFAULT_CAPABILITY = 90  # for looking at PTX where there is no GPU


def capability_at_hand() -> int:
    """Return the compute capability of the GPU that is present, ten times the version, or else of what PTX is shown for."""
    return driver.capability_if_present() or DEFAULT_CAPABILITY


def lower_for(traced: Traced, target: str, capability: int) -> Function:
    """Run the passes of `target` on a traced kernel."""
    with importing:
        from stagekit.backends.shared_memory import refuse_for_every_gpu
        from stagekit.passes import PassContext
        from stagekit.passes.pipeline import hooks_from_config, lower

    fn = traced.function
    context = PassContext(
        target, capability, fastmath=fn.attribute("fastmath", False), debug=bool(fn.attribute("debug"))
    )
    lowered = lower(fn, context, hooks_from_config())
    refuse_for_every_gpu(lowered)
    return lowered


@repeated_deeply
def cuda_artifact(traced: Traced, capability: int) -> Artifact:
    """Compile PTX for one compute capability (times ten)."""
    with importing:
        from stagekit.backends import nvptx
        from stagekit.passes.pipeline import dump_from_config

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
    with importing:
        from stagekit.backends.host import compiler
        from stagekit.passes.pipeline import dump_from_config

    fn = lower_for(traced, "cpu", 0)
    code = compiler.compile(fn, block)
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
        has_safepoints=code.has_safepoints,
        waits=code.waits,
        stages={"llvm": code.llvm},
    )


def _artifact(traced: Traced, fn: Function, **of_target: Any) -> Artifact:
    """Return an artifact without the names that people see: `Variant` gives it those."""
    fields: dict[str, Any] = {"kernel_name": "", "block": traced.block, "shared_bytes": 0, **of_target}
    return Artifact(
        signature=traced.signature,
        style=traced.style,
        launch=traced.launch,
        grid_axes=traced.grid_axes,
        is_debug=bool(fn.attribute("debug")),
        grid_state=tuple(fn.attribute("grid_state", ())),
        record_sites=tuple(fn.attribute("record_sites", ())),
        **fields,
    )


def load_cpu(artifact: Artifact, constexprs: Mapping[str, Any], traced: Traced) -> Kernel:
    """Put an object file into this process. traced: what it was compiled from."""
    with importing:
        from stagekit.backends.host.target import load

    loaded = load(artifact.code, artifact.entry)
    place_of = functools.partial(_place_of_op, traced)
    return CpuKernel(artifact, loaded.address, loaded.close, constexprs, place_of, provide_support)


@repeated_deeply
def _place_of_op(traced: Traced, number: int) -> Loc:
    """Return where op `number` of the code for the CPU is from. Its artifact does not say: it serves all kernels of equal IR."""
    return [*walk(lower_for(traced, "cpu", 0).body)][number - 1].loc


def load_cuda(artifact: Artifact, constexprs: Mapping[str, Any]) -> Kernel:
    """Make a kernel whose module is loaded at its first launch on each device."""
    with importing:
        from stagekit.runtime.cuda import CudaKernel

    return CudaKernel(artifact, constexprs)


# -- on disk ------------------------------------------------------------------------------------------------------------


def read_or_compile(
    traced: Traced, target: str, made_for: tuple[int, ...], make: Callable[[], Artifact]
) -> tuple[Artifact, bool]:
    """Return the artifact of a traced kernel, made and kept where it is not on disk; and whether it was on disk.

    made_for: the compute capability or the block.
    """
    words = _words(traced) if open_store() else None
    if words is None:
        return make(), False
    with importing:
        from stagekit.backends import (
            toolchain,  # here, since it brings LLVM, which an import of this package does not need
        )

    return read_or_make("code", (*words, target, *map(str, made_for), *toolchain.identity(target)), make, _read, _write)


def _words(traced: Traced) -> tuple[str, str] | None:
    """Return all that a traced kernel is, as text; None where files cannot describe it."""
    fn = traced.function
    shows_places = bool(fn.attribute("lineinfo"))  # whether the code says where in the source something is
    for op in walk(fn.body):
        if isinstance(op, ops.IntrinsicOp) and op.spec not in _OURS:
            return None  # the lowering of a user's intrinsic is the user's own code
        shows_places = shows_places or isinstance(op, ops.Assert | ops.Print)
    try:
        facts = json.dumps(to_plain((traced.signature, traced.launch, traced.style, traced.block, traced.grid_axes)))
    except NotPlain:
        return None
    return print_function(fn, locations=True) if shows_places else traced.ir, facts


def _read(payload: bytes) -> Artifact | None:
    """Return the artifact if it is still what compiling would give. Stages can only be dumped by compiling."""
    if config.DUMP.get():
        return None
    try:
        artifact, notes = from_bytes(payload)
    except ValueError:
        return None
    return artifact if _digest_of_file(notes.get("library")) == notes.get("library_digest") else None


def _write(artifact: Artifact) -> bytes | None:
    """Return the artifact as bytes, with the digest of libdevice's file where the code contains parts of it."""
    notes: dict[str, Any] = {}
    if "__nv_" in artifact.stages.get("llvm", ""):
        with importing:
            from stagekit.backends import libdevice

        path = libdevice.library_path()
        notes = {"library": path, "library_digest": _digest_of_file(path)}
    try:
        return to_bytes(artifact, notes)
    except NotPlain:
        return None


@functools.cache
def _digest_of_file(path: str | None) -> str | None:
    try:
        return sha256(Path(path).read_bytes()).hexdigest() if path else None
    except OSError:
        return ""
