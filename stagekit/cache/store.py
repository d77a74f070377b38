"""Named entries in a folder, one file each, for several processes at once.

    store = open_store()                     None where there is no cache
    store.save("code-3f...", payload)        True when it was published
    store.load("code-3f...")                 the payload, or None

A name is a word and a SHA-256 digest: `entry_name("code", "all that", "decides")`. A file counts as an entry, or as an entry that
was never finished, only if its name is exactly so, and if it is a regular file of this user's. Everything else in the folder is
somebody else's, and is neither read nor removed.

A file is written under another name and moved into place, so that a reader sees all of it or nothing, whenever the writer dies.
It begins with a checksum over its name and its payload: what was cut off, changed or renamed counts as absent. No failure of
the file system is an error here; at worst a kernel is compiled again. When the entries grow beyond the bound, those that were
not used for longest go.

Machine code from the cache runs with the user's rights, so it is read only from a folder, and from files, that belong to this
user and that nobody else can write. A folder that fails this is left alone: stagekit then compiles as if there were no cache.
The folder that a user names may hold anything: entries lie in a folder of their own inside it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import stat
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from stagekit import config
from stagekit.diagnostics import Diagnostic, InternalError

OWN_FOLDER = "stagekit-v1"
_PRIVATE = 0o700
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MAGIC = b"stagekit cache 1\n"
_HEAD_BYTES = len(_MAGIC) + hashlib.sha256().digest_size
_SUFFIX = ".entry"
_ENTRY = re.compile(r"[a-z]+-[0-9a-f]{64}\.entry")
_UNFINISHED = re.compile(r"[0-9a-f]{16}\.new")
_MOST_BYTES = 1 << 28  # of an entry; code is never so large
_OPENING = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
"""How a file is opened that may be a pipe, at which a reader would wait for ever, or a link to something else."""
_ABANDONED_S = 3600  # a temporary file this old belongs to nobody
_USE_NOTED_S = 60  # how exactly uses are remembered
_KEPT = 0.75  # how full the folder is after entries were dropped
_SAVES_BETWEEN_SCANS = 32


def entry_name(kind: str, *words: str) -> str:
    """The name of an entry that follows from `words`. kind: lower-case letters."""
    return f"{kind}-{hashlib.sha256(chr(0).join(words).encode()).hexdigest()}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One file. used_s: when it was last used, in seconds since the epoch."""

    name: str
    size_bytes: int
    used_s: float


class Store:
    """The entries of one folder. limit_bytes: of all of them together."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._saves = 0

    def load(self, name: str, *, is_use: bool = True) -> bytes | None:
        """The payload of an entry that is complete, unchanged and this user's own. is_use: it counts as used now."""
        path = self._path(name)
        try:
            with open(os.open(path, _OPENING), "rb") as file:
                found = os.fstat(file.fileno())
                content = file.read() if _is_ours(found) and _is_private(found) else b""
        except OSError:
            return None
        payload = content[_HEAD_BYTES:]
        if content[:_HEAD_BYTES] != _MAGIC + _checksum(name, payload):
            return None
        if is_use and time.time() - found.st_mtime > _USE_NOTED_S:
            with contextlib.suppress(OSError):
                os.utime(path)
        return payload

    def save(self, name: str, payload: bytes) -> bool:
        """Publish an entry, replacing one of that name. False where the folder cannot take it."""
        if not _ENTRY.fullmatch(name + _SUFFIX):
            raise InternalError(f"{name!r} is no name of an entry")
        if len(payload) > _MOST_BYTES - _HEAD_BYTES:
            return False
        temporary = self.folder / f"{os.urandom(8).hex()}.new"
        try:
            with open(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(_MAGIC + _checksum(name, payload) + payload)
            os.replace(temporary, self._path(name))
        except OSError:
            _remove(temporary)
            return False
        if self._saves % _SAVES_BETWEEN_SCANS == 0:
            self.evict()
        self._saves += 1
        return True

    def entries(self) -> list[Entry]:
        """All entries, the one used last first."""
        found = [Entry(p.name.removesuffix(_SUFFIX), s.st_size, s.st_mtime) for p, s in self._files(_ENTRY)]
        return sorted(found, key=lambda entry: -entry.used_s)

    def evict(self) -> None:
        """Drop what was not used for longest until the bound is kept with room to spare; drop what dead writers left."""
        entries = self.entries()
        total = sum(e.size_bytes for e in entries)
        if total > self.limit_bytes:
            while entries and total > _KEPT * self.limit_bytes:
                total -= entries[-1].size_bytes
                _remove(self._path(entries.pop().name))
        for path, found in self._files(_UNFINISHED):
            if time.time() - found.st_mtime > _ABANDONED_S:
                _remove(path)

    def clear(self) -> int:
        """Remove all entries; gives how many went."""
        for path, _ in self._files(_UNFINISHED):
            _remove(path)
        return sum(_remove(self._path(entry.name)) for entry in self.entries())

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{_SUFFIX}"

    def _files(self, name: re.Pattern[str]) -> Iterator[tuple[Path, os.stat_result]]:
        """The files of ours whose name is exactly so."""
        try:
            with os.scandir(self.folder) as files:
                for file in files:
                    if name.fullmatch(file.name):
                        with contextlib.suppress(OSError):  # another process was faster
                            found = file.stat(follow_symlinks=False)
                            if _is_ours(found):
                                yield Path(file.path), found
        except OSError:
            return


def _checksum(name: str, payload: bytes) -> bytes:
    return hashlib.sha256(name.encode() + payload).digest()


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _is_ours(found: os.stat_result) -> bool:
    """Can this be a file that a store wrote?"""
    return stat.S_ISREG(found.st_mode) and _is_own(found) and found.st_size <= _MOST_BYTES


def _is_own(found: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or found.st_uid == os.geteuid()


def _is_private(found: os.stat_result) -> bool:
    """Does it belong to this user, and can nobody else write it? Windows keeps a user's folders private by itself."""
    return sys.platform == "win32" or (_is_own(found) and not found.st_mode & _OTHERS_WRITE)


# -- which folder -----------------------------------------------------------------------------------------------------


class NoDiskCache(Diagnostic):
    title: ClassVar[str] = "There is no disk cache"
    label: ClassVar[str] = "{why}"
    help: ClassVar[str] = (
        "each process compiles its kernels anew; name a folder that you can write by STAGEKIT_CACHE, or set it to 0"
    )


@dataclass(frozen=True, slots=True)
class Refused:
    """Why there is no cache, in words. is_wanted: the user switched it off."""

    why: str
    is_wanted: bool = False


def folder_in_use() -> Path | Refused:
    """Return the folder of the entries, which exists and is private, or why there is none."""
    wanted = config.CACHE.get()
    if wanted == "0":
        return Refused("switched off by STAGEKIT_CACHE=0", is_wanted=True)
    try:
        above = Path(wanted).expanduser() if wanted else config.platform_cache_folder()
    except RuntimeError:  # `~` of an unknown user
        return Refused(f"STAGEKIT_CACHE={wanted} names a home folder that is not known")
    if above is None:
        return Refused("this user has no home folder")
    folder = above / OWN_FOLDER
    try:
        folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        found = os.lstat(folder)  # a link could lead to files that are none of ours
    except OSError as error:
        return Refused(f"{folder}: {error.strerror}")
    if not stat.S_ISDIR(found.st_mode):
        return Refused(f"{folder} is not a folder")
    return folder if _is_private(found) else Refused(f"{folder} belongs to, or can be written by, someone else")


_warned: set[Refused] = set()


def open_store() -> Store | None:
    """Return the store in the folder that the environment names now. Who did not switch it off is told once why there is none."""
    folder = folder_in_use()
    if not isinstance(folder, Refused):
        return _store(folder, config.CACHE_MB.get())
    if not folder.is_wanted and folder not in _warned:
        _warned.add(folder)
        told = NoDiskCache(folder.why)
        warnings.warn(f"{told.title}: {told.label_text()}; {told.help_text()} [{told.id}]", stacklevel=2)
    return None


@functools.cache
def _store(folder: Path, limit_mb: str) -> Store:
    return Store(folder, int(float(limit_mb) * 1e6))
