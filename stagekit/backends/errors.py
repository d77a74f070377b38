"""The diagnostics of backends."""

from __future__ import annotations

from typing import ClassVar

from stagekit.diagnostics import Diagnostic


class LibdeviceMissing(Diagnostic):
    """A function of NVIDIA's device library is needed, and the library is not installed."""

    title: ClassVar[str] = "NVIDIA's device library is not installed"
    label: ClassVar[str] = "`{symbol}` comes from libdevice"
    help: ClassVar[str] = "pip install nvidia-nvvm, or install a CUDA toolkit"


class AsmMismatch(Diagnostic):
    """Inline assembly whose text, constraints and operands do not fit each other."""

    title: ClassVar[str] = "Inline assembly does not fit its operands"
    label: ClassVar[str] = "{reason}"
    help: ClassVar[str] = (
        'constraints are those of LLVM, outputs first: "=r,r,r"; `$0` is the first output; write `$$` for a dollar sign'
    )


class ToolMissing(Diagnostic):
    """A program that reports on machine code is not installed."""

    title: ClassVar[str] = "A tool is not installed"
    label: ClassVar[str] = "`{tool}` was not found"
    help: ClassVar[str] = "pip install {package}, or install a CUDA toolkit"


class ToolFailed(Diagnostic):
    """A program that reports on machine code cannot read it."""

    title: ClassVar[str] = "A tool failed"
    label: ClassVar[str] = "`{tool}`: {message}"
    help: ClassVar[str] = "it may be older than ptxas: pip install --upgrade {package}"


class PtxRefused(Diagnostic):
    """ptxas refuses the PTX; the usual reason is inline assembly, which ptxas is the first to read."""

    title: ClassVar[str] = "ptxas refuses the kernel"
    label: ClassVar[str] = "{message}"
    help: ClassVar[str] = "look at `.ptx`; where it is not inline assembly that ptxas complains of, please report it"
