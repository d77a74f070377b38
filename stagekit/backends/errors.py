"""The diagnostics of backends."""

from __future__ import annotations

from stagekit.diagnostics import Diagnostic


class LibdeviceMissing(Diagnostic):
    title = "NVIDIA's device library is not installed"
    label = "`{symbol}` comes from libdevice"
    help = "pip install nvidia-nvvm, or install a CUDA toolkit"


class AsmMismatch(Diagnostic):
    title = "Inline assembly does not fit its operands"
    label = "{reason}"
    help = (
        'constraints are those of LLVM, outputs first: "=r,r,r"; `$0` is the first output; write `$$` for a dollar sign'
    )


class ToolMissing(Diagnostic):
    title = "A tool is not installed"
    label = "`{tool}` was not found"
    help = "pip install {package}, or install a CUDA toolkit"


class ToolFailed(Diagnostic):
    title = "A tool failed"
    label = "`{tool}`: {message}"
    help = "it may be older than ptxas: pip install --upgrade {package}"


class PtxRefused(Diagnostic):
    title = "ptxas refuses the kernel"
    label = "{message}"
    help = "look at `.ptx`; where it is not inline assembly that ptxas complains of, please report it"
