"""Libraries that are no dependency of stagekit: each is an extra, and who asks for one that is not installed is told so.

require_extra("a progress bar", "tqdm", "tune")      the module, or EXTRA_MISSING
require_all("`stagekit.jax`", "jax")                 the same for every library of an extra, and for their versions
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from typing import Any

from stagekit.diagnostics import Diagnostic, StagekitError
from stagekit.forks import importing

EXTRAS = {
    "bench": {"matplotlib": "matplotlib"},
    "jax": {"jax": "jax>=0.7.2", "jax_tvm_ffi": "jax-tvm-ffi>=0.1.2", "tvm_ffi": "apache-tvm-ffi>=0.1.8"},
    "nvtx": {"nvtx": "nvtx"},
    "torch": {"torch": "torch>=2.6"},
    "tune": {"optuna": "optuna", "tqdm": "tqdm"},
}
"""Of each extra the modules that are imported, with what pip is asked for: as `pyproject.toml` has them."""


class ExtraMissing(Diagnostic):
    title = "A library that is an extra is missing"
    label = "{what} needs `{library}`: {why}"
    help = "pip install {packages}, which the extra `{extra}` brings too"


class ExtraError(StagekitError, ImportError):
    """A library that something needs is not installed."""


def require_extra(what: str, library: str, extra: str, packages: Iterable[str] = ()) -> Any:
    """Import a library that is an extra, or say who needs it: `what`. packages: for pip, if they are more than its own."""
    name = library.partition(".")[0]
    try:
        return _imported(library, EXTRAS[extra][name])
    except ImportError as error:
        import shlex  # for this error only

        command = shlex.join(packages or [EXTRAS[extra][name]])
        raise ExtraError(ExtraMissing(what, name, str(error), command, extra)) from None


def require_all(what: str, extra: str) -> None:
    """Import the libraries of an extra, or say which is missing, or older than a version that is known to do."""
    for library in EXTRAS[extra]:
        require_extra(what, library, extra, EXTRAS[extra].values())


def _imported(library: str, requirement: str) -> Any:
    """Import a library that is new enough. A folder of its name, which Python takes for a package too, is none."""
    with importing:
        module = importlib.import_module(library)
    folders = list(getattr(module, "__path__", ()))
    if folders and getattr(module, "__file__", None) is None:
        raise ImportError(f"all that is there is a folder of that name, {folders[0]}")
    package, _, least = requirement.partition(">=")
    if least:
        _check_version(package, least)
    return module


def _check_version(package: str, least: str) -> None:
    """Refuse a library older than is asked for. One without metadata, such as a checkout, is taken as it is."""
    import importlib.metadata  # it is slow to import, and only extras need it

    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return
    if _numbers(version)[: len(_numbers(least))] < _numbers(least):
        raise ImportError(f"version {version} of `{package}` is installed, and {least} or later is needed")


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]
