"""Libraries that are no dependency of stagekit: each is an extra, and who asks for one that is not installed is told so.

require_extra("a progress bar", "tqdm", "tune")      the module, or EXTRA_MISSING
"""

from __future__ import annotations

import importlib
import re
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


def require_version(what: str, library: str, package: str, extra: str, least: tuple[int, ...]) -> None:
    """Refuse a library that is missing, or older than a version that is known to do. package: which brings it."""
    require_extra(what, library, extra)
    import importlib.metadata  # it is slow to import, and only extras need it

    version = importlib.metadata.version(package)
    if tuple(int(part) for part in re.findall(r"\d+", version)[: len(least)]) < least:
        why = f"version {version} of `{package}` is installed, and {'.'.join(map(str, least))} or later is needed"
        raise ExtraError(ExtraMissing(what, library, why, extra))
