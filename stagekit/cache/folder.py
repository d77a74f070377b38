"""Which folder holds the cache, and whether what lies there may be run.

Machine code from the cache runs with the user's rights, so it is read only from a folder, and from files, that belong to this
user and that nobody else can write. A folder that fails this is left alone: stagekit then compiles as if there were no cache.
"""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from stagekit import config

_PRIVATE = 0o700
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Refused:
    """Why there is no cache, in words."""

    why: str


def folder_in_use() -> Path | Refused:
    """The folder, which exists and is private, or why there is none."""
    wanted = config.CACHE.get()
    if wanted == "0":
        return Refused("switched off by STAGEKIT_CACHE=0")
    folder = Path(wanted).expanduser() if wanted else config.platform_cache_folder() / "stagekit"
    try:
        folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        found = os.stat(folder)
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
