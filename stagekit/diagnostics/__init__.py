"""Places, errors and how they are shown. The ground that every room stands on."""

from stagekit.diagnostics.diagnostic import (
    Diagnostic,
    InternalError,
    Note,
    StagekitError,
    all_diagnostics,
    conceal,
    is_huge,
    place_of_user,
)
from stagekit.diagnostics.entry import (
    CallError,
    called,
    hide_frames,
    kernel_only,
    language_call,
    ordinary,
    public_class,
    wrong_arguments,
)
from stagekit.diagnostics.loc import Loc
from stagekit.diagnostics.render import counted, render, shown

__all__ = [
    "CallError", "Diagnostic", "InternalError", "Loc", "Note", "StagekitError",
    "all_diagnostics", "called", "conceal", "counted", "hide_frames", "is_huge", "kernel_only", "language_call", "ordinary",
    "place_of_user", "public_class", "render", "shown", "wrong_arguments",
]  # fmt: skip
