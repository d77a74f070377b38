"""Places, errors and how they are shown. The ground that every room stands on."""

from stagekit.diagnostics.diagnostic import UNKNOWN, Diagnostic, InternalError, Loc, Note, all_diagnostics, is_huge
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
from stagekit.diagnostics.error import StagekitError, conceal, counted, place_of_user, shown

__all__ = [
    "UNKNOWN", "CallError", "Diagnostic", "InternalError", "Loc", "Note", "StagekitError",
    "all_diagnostics", "called", "conceal", "counted", "hide_frames", "is_huge", "kernel_only", "language_call", "ordinary",
    "place_of_user", "public_class", "shown", "wrong_arguments",
]  # fmt: skip
