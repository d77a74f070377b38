"""Libraries that are no dependency of stagekit: each is an extra, and who asks for one that is not installed is told so.

require_extra("a progress bar", "tqdm", "tune")      the module, or EXTRA_MISSING
"""

from __future__ import annotations

import importlib
from typing import Any

from stagekit.diagnostics import Diagnostic, StagekitError
from stagekit.forks import importing


class ExtraMissing(Diagnostic):
    title = "A library that is an extra is missing"
    label = "{what} needs `{library}`: {why}"
    help = "install the package `{library}`, or stagekit with its extra `{extra}`"


class ExtraError(StagekitError, ImportError):
    """A library that something needs is not installed."""


def require_extra(what: str, library: str, extra: str) -> Any:
    """Import a library that is an extra. what: who needs it, for the error where it is missing."""
    with importing:
        try:
            return importlib.import_module(library)
        except ImportError as error:
            raise ExtraError(ExtraMissing(what, library.partition(".")[0], str(error), extra)) from None
