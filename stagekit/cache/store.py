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
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stagekit import config
from stagekit.cache.folder import Refused, folder_in_use, is_private, warn_once
from stagekit.diagnostics import InternalError

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
                content = file.read() if _is_ours(found) and is_private(found) else b""
        except OSError:
            return None
        payload = _payload(name, content)
        if is_use and payload is not None and time.time() - found.st_mtime > _USE_NOTED_S:
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


def open_store() -> Store | None:
    """The store in the folder that the environment names now."""
    folder = folder_in_use()
    if isinstance(folder, Refused):
        warn_once(folder)
        return None
    return _store(folder, config.CACHE_MB.get())


@functools.cache
def _store(folder: Path, limit_mb: str) -> Store:
    return Store(folder, int(float(limit_mb) * 1e6))


def _is_ours(found: os.stat_result) -> bool:
    """Can this be a file that a store wrote?"""
    is_own = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
    return stat.S_ISREG(found.st_mode) and is_own and found.st_size <= _MOST_BYTES


def _checksum(name: str, payload: bytes) -> bytes:
    digest = hashlib.sha256(name.encode())
    digest.update(payload)
    return digest.digest()


def _payload(name: str, content: bytes) -> bytes | None:
    """What follows the checksum, if it is right."""
    payload = content[_HEAD_BYTES:]
    is_whole = content[:_HEAD_BYTES] == _MAGIC + _checksum(name, payload)
    return payload if is_whole else None


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True
