"""Places, errors and how they are shown. The ground that every room stands on."""

from stagekit.diagnostics.diagnostic import (
    Diagnostic,
    InternalError,
    Note,
    StagekitError,
    all_diagnostics,
    conceal,
    hide_frames,
    place_of_user,
)
from stagekit.diagnostics.loc import Loc
from stagekit.diagnostics.outside import outside_kernel
from stagekit.diagnostics.render import render

__all__ = [
    "Diagnostic", "InternalError", "Loc", "Note", "StagekitError",
    "all_diagnostics", "conceal", "hide_frames", "outside_kernel", "place_of_user", "render",
]  # fmt: skip
