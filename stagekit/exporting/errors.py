"""What cannot be exported."""

from __future__ import annotations

from stagekit.diagnostics import Diagnostic, StagekitError


class NotExported(Diagnostic):
    title = "A kernel that cannot be exported"
    label = "`{name}`: {why}"
    help = "{hint}"


class ExportError(StagekitError, ValueError):
    """A kernel, or a place, that nothing can be exported from or to."""


def refuse(name: str, why: str, hint: str) -> ExportError:
    return ExportError(NotExported(name, why, hint))
