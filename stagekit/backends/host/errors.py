"""What the CPU target may have to tell the user."""

from __future__ import annotations

from typing import ClassVar

from stagekit.diagnostics import Diagnostic


class NoHostCode(Diagnostic):
    """Inline assembly without a `host` body has a meaning on cuda only."""

    title: ClassVar[str] = "Inline assembly without a meaning on the CPU"
    label: ClassVar[str] = "`{text}` is PTX, and no `host` function says what it computes"
    help: ClassVar[str] = "give `host=`, a function of the same operands, or launch the kernel on a GPU"

    text: str
