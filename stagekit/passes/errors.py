"""What a pass may have to tell the user."""

from __future__ import annotations

from typing import ClassVar

from stagekit.diagnostics import Diagnostic


class UnsupportedOnTarget(Diagnostic):
    """The kernel asks for something that its target cannot do."""

    title: ClassVar[str] = "Not available on this target"
    label: ClassVar[str] = "`{name}` on {target}: {reason}"
    help: ClassVar[str] = "choose by target while the kernel is specialised, or launch it where this exists"
