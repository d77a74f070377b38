"""Which folder holds the cache, and whether what lies there may be run.

Machine code from the cache runs with the user's rights, so it is read only from a folder, and from files, that belong to this
user and that nobody else can write. A folder that fails this is left alone: stagekit then compiles as if there were no cache.

The folder that a user names may hold anything. Entries lie in a folder of their own inside it, and nothing outside that one is
ever read, written or removed.
"""

from __future__ import annotations

import os
import stat
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from stagekit import config
from stagekit.diagnostics import Diagnostic

OWN_FOLDER = "stagekit-v1"
_PRIVATE = 0o700
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class NoDiskCache(Diagnostic):
    title: ClassVar[str] = "There is no disk cache"
    label: ClassVar[str] = "{why}"
    help: ClassVar[str] = (
        "each process compiles its kernels anew; name a folder that you can write by STAGEKIT_CACHE, or set it to 0"
    )
    why: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Why there is no cache, in words. is_wanted: the user switched it off."""

    why: str
    is_wanted: bool = False


def folder_in_use() -> Path | Refused:
    """The folder of the entries, which exists and is private, or why there is none."""
    wanted = config.CACHE.get()
    if wanted == "0":
        return Refused("switched off by STAGEKIT_CACHE=0", is_wanted=True)
    above = _expanded(Path(wanted)) if wanted else config.platform_cache_folder()
    if above is None:
        return Refused(f"STAGEKIT_CACHE={wanted} names a home folder that is not known" if wanted else _NO_HOME)
    return _own_folder(above / OWN_FOLDER)


_NO_HOME = "this user has no home folder"


def _expanded(folder: Path) -> Path | None:
    try:
        return folder.expanduser()
    except RuntimeError:  # `~` of an unknown user
        return None


def _own_folder(folder: Path) -> Path | Refused:
    try:
        folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        found = os.lstat(folder)  # a link could lead to files that are none of ours
    except OSError as error:
        return Refused(f"{folder}: {error.strerror}")
    if not stat.S_ISDIR(found.st_mode):
        return Refused(f"{folder} is not a folder")
    return folder if is_private(found) else Refused(f"{folder} belongs to, or can be written by, someone else")


def is_private(found: os.stat_result) -> bool:
    """Does it belong to this user, and can nobody else write it? Windows keeps a user's folders private by itself."""
    if sys.platform == "win32":
        return True
    return found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_WRITE


_warned: set[Refused] = set()


def warn_once(refused: Refused) -> None:
    """Tell a user who did not ask for it that nothing is kept on disk; once for each reason in a process."""
    if not refused.is_wanted and refused not in _warned:
        _warned.add(refused)
        told = NoDiskCache(refused.why)
        warnings.warn(f"{told.title}: {told.label_text()}; {told.help_text()} [{told.id}]", stacklevel=2)
