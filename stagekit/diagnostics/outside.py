"""The one error of everything that means something only while a kernel is specialised."""

from __future__ import annotations

from typing import ClassVar

from stagekit.diagnostics.diagnostic import Diagnostic, StagekitError


class OutsideKernel(Diagnostic):
    title: ClassVar[str] = "Called outside a kernel"
    label: ClassVar[str] = "`{name}` means something only inside a kernel"
    help: ClassVar[str] = "call it in a function decorated with @jit, @function or @inline"
    name: str


def outside_kernel(name: str) -> StagekitError:
    return StagekitError(OutsideKernel(name))
