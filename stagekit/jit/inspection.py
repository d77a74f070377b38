"""What can be seen of a kernel without launching it: IR, LLVM, PTX, machine code, signature, report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stagekit.artifact import Artifact, Style
from stagekit.diagnostics import hide_frames
from stagekit.frontend.kernel import Traced
from stagekit.jit.native import NativelyLaunchable
from stagekit.jit.options import check_compile
from stagekit.jit.variant import Variant
from stagekit.signature import Signature

if TYPE_CHECKING:
    from stagekit.backends.report import Report


class Inspectable(NativelyLaunchable):
    """Shows the variant that was used last, or the one for contiguous arrays of the annotated types; no GPU is needed."""

    def _shown(self) -> Variant:
        """The variant that the properties show."""
        raise NotImplementedError

    def trace(self) -> Traced:
        """The traced kernel of the variant that the properties show."""
        return self._shown().whole()

    @hide_frames
    def compile(
        self, target: str = "cuda", *, capability: int | None = None, block: int | tuple[int, ...] | None = None
    ) -> Artifact:
        """Compile for "cuda" or "cpu" without launching.

        capability: cuda, ten times the version, such as 90. block: cpu, where the kernel does not fix it.
        """
        axes = check_compile(target, capability, block)
        return self._shown().artifact(target, capability, axes)

    @property
    @hide_frames
    def ir(self) -> str:
        """The traced IR as text."""
        return self._shown().ir

    @property
    @hide_frames
    def llvm(self) -> str:
        """LLVM IR for the GPU, before optimisation."""
        return self.compile("cuda").stages["llvm"]

    @property
    @hide_frames
    def ptx(self) -> str:
        """PTX for the GPU that is present, else for compute capability 9.0."""
        return self.compile("cuda").stages["ptx"]

    @property
    @hide_frames
    def sass(self) -> str:
        """Machine code of the GPU as text; needs ptxas and a disassembler (`stagekit[cuda]`)."""
        from stagekit.backends import ptxas

        return ptxas.disassemble(ptxas.assemble(self.ptx).cubin)

    @property
    @hide_frames
    def signature(self) -> Signature:
        """What a launch accepts."""
        return self._shown().traced.signature

    @property
    @hide_frames
    def launch(self) -> Any:
        """The launch that the kernel computes itself (`LaunchSpec`), or None."""
        return self._shown().traced.launch

    @property
    @hide_frames
    def fixed_block(self) -> tuple[int, int, int] | None:
        """Threads per block along x, y and z where the kernel fixes them, else None."""
        return self._shown().traced.block

    @property
    @hide_frames
    def style(self) -> Style:
        """What stands in the brackets: "block", "thread" or "entry"."""
        return self._shown().traced.style

    @hide_frames
    def report(self) -> Report:
        """Registers, spills, shared memory and instruction counts, from ptxas; lines where a variable widened."""
        from stagekit.backends.report import report

        return report(self.ptx, self.trace().widened)
