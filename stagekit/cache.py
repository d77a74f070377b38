"""The disk cache: compiled kernels kept between processes, as data that can be checked, never as pickles.

    store = open_store()                     None where there is no cache
    store.save("code-3f...", payload)        True when it was published
    store.load("code-3f...")                 the payload, or None
    read_or_make("code", words, ...)         what these words name, from disk where it is there

It knows the data of the ground floor only; `jit/compilation.py` decides what is kept under which key.

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
import dataclasses
import functools
import importlib.util
import itertools
import json
import os
import platform
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from stagekit import config
from stagekit.artifact import Artifact, RecordSite
from stagekit.diagnostics import Diagnostic, InternalError, Loc, is_huge, warn
from stagekit.dtypes import ALL_DTYPES, EXTENSION, DType
from stagekit.forks import importing
from stagekit.frozen import frozen
from stagekit.hostexpr import HostOp, Slot
from stagekit.signature import (
    ArraySpec,
    Fact,
    KernelEntry,
    LaunchAttributes,
    LaunchSpec,
    NoneSpec,
    ParamSlot,
    PointerSpec,
    ScalarSpec,
    Signature,
    TensorMapSpec,
)

T = TypeVar("T")
_IMPORTED_AT_S = time.time()

OWN_FOLDER = "stagekit-v1"
_PRIVATE = 0o700
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MAGIC = b"stagekit cache 1\n"
_HEAD_BYTES = len(_MAGIC) + 32  # the bytes of a digest
_ENTRY = r"[a-z]+-[0-9a-f]{64}\.entry"
_UNFINISHED = r"[0-9a-f]{16}\.new"
_MOST_BYTES = 1 << 28  # of an entry; code is never so large
_OPENING = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
"""Flags for opening a file that may be a pipe, at which a reader would wait for ever, or a link to something else."""
_ABANDONED_S = 3600  # a temporary file this old belongs to nobody
_USE_NOTED_S = 60  # how exactly uses are remembered
_FULL_AFTER_EVICTION = 0.75  # of the bound
_SAVES_BETWEEN_SCANS = 32


def entry_name(kind: str, *words: str) -> str:
    """Return the name of an entry that follows from `words`. kind: lower-case letters."""
    return f"{kind}-{sha256(chr(0).join(words).encode()).hexdigest()}"


def sha256(data: bytes) -> Any:
    """Return the digest of `data` so far, as `hashlib` does, whose import takes 3 ms that only the disk needs."""
    with importing:
        import hashlib

    return hashlib.sha256(data)


@frozen()
class Entry:
    """One file. used_s: when it was last used, in seconds since the epoch."""

    name: str
    size_bytes: int
    used_s: float


class EntryStore:
    """The entries of one folder. limit_bytes: of all of them together."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._saves = 0

    def load(self, name: str, *, is_use: bool = True) -> bytes | None:
        """Return the payload of an entry that is complete, unchanged and this user's own. is_use: it counts as used now."""
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
        if not re.fullmatch(_ENTRY, name + ".entry"):
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
        """Return all entries, the one used last first."""
        found = [Entry(p.name.removesuffix(".entry"), s.st_size, s.st_mtime) for p, s in self._files(_ENTRY)]
        return sorted(found, key=lambda entry: -entry.used_s)

    def evict(self) -> None:
        """Drop what was not used for longest until the bound is kept with room to spare; drop what dead writers left."""
        entries = self.entries()
        total = sum(e.size_bytes for e in entries)
        if total > self.limit_bytes:
            while entries and total > _FULL_AFTER_EVICTION * self.limit_bytes:
                total -= entries[-1].size_bytes
                _remove(self._path(entries.pop().name))
        for path, found in self._files(_UNFINISHED):
            if time.time() - found.st_mtime > _ABANDONED_S:
                _remove(path)

    def clear(self) -> int:
        """Remove all entries, and return how many there were."""
        for path, _ in self._files(_UNFINISHED):
            _remove(path)
        return sum(_remove(self._path(entry.name)) for entry in self.entries())

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.entry"

    def _files(self, name: str) -> Iterator[tuple[Path, os.stat_result]]:
        """Yield the files whose whole name matches the pattern `name` and that a store can have written."""
        try:
            with os.scandir(self.folder) as files:
                for file in files:
                    if re.fullmatch(name, file.name):
                        with contextlib.suppress(OSError):  # another process was faster
                            found = file.stat(follow_symlinks=False)
                            if _is_ours(found):
                                yield Path(file.path), found
        except OSError:
            return


def _checksum(name: str, payload: bytes) -> bytes:
    return sha256(name.encode() + payload).digest()  # type: ignore[no-any-return]


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _is_ours(found: os.stat_result) -> bool:
    """Return whether a store can have written this file."""
    return stat.S_ISREG(found.st_mode) and _is_own(found) and found.st_size <= _MOST_BYTES


def _is_own(found: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or found.st_uid == os.geteuid()


def _is_private(found: os.stat_result) -> bool:
    """Return whether only this user can write it. Windows keeps a user's folders private by itself."""
    return sys.platform == "win32" or (_is_own(found) and not found.st_mode & _OTHERS_WRITE)


# -- which folder -----------------------------------------------------------------------------------------------------


class NoDiskCache(Diagnostic):
    title = "There is no disk cache"
    label = "{why}"
    help = "each process compiles its kernels anew; name a folder that you can write by STAGEKIT_CACHE, or set it to 0"


@frozen()
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


def open_store() -> EntryStore | None:
    """Return the store in the folder that the environment names now; warn once where there is none that was not switched off."""
    folder = folder_in_use()
    if not isinstance(folder, Refused):
        return _store(folder, config.CACHE_MB.get())
    if not folder.is_wanted and folder not in _warned:
        _warned.add(folder)
        told = NoDiskCache(folder.why)
        warn(f"{told.title}: {told.label_text()}; {told.help_text()} [{told.id}]")
    return None


@functools.cache
def _store(folder: Path, limit_mb: str) -> EntryStore:
    return EntryStore(folder, int(float(limit_mb) * 1e6))


# -- an artifact as bytes ---------------------------------------------------------------------------------------------
#
# A line of JSON, then its code and its texts as they are:
#
#     {"fields": {...}, "notes": {...}, "sizes": [["code", 4512], ["ir", 310], ["llvm", 9121]]}\n<code><ir><llvm>
#     to_plain((1, HostOp("add", (Slot(0), 2))))         [1, {"HostOp": ["add", [{"Slot": [0]}, 2]]}]
#
# notes: what a reader should check besides, such as the state of a library's file; plain strings and numbers.
#
# In JSON a list stands for a tuple. Only the classes named here are ever made when reading, each by its fields: text from a file
# cannot name anything else. `NotPlain` says that a value has no such form, `ValueError` that a text is not one.

_CLASSES: tuple[type, ...] = (
    Slot, HostOp,
    ArraySpec, PointerSpec, ScalarSpec, NoneSpec, ParamSlot, Fact, Signature, LaunchSpec, LaunchAttributes, TensorMapSpec,
    RecordSite, Loc,
)  # fmt: skip
_BY_NAME = {cls.__name__: (cls, tuple(f.name for f in dataclasses.fields(cls))) for cls in _CLASSES}
_DTYPES = {dtype.name: dtype for dtype in ALL_DTYPES}
_ATOMS = (bool, int, float, str, type(None))
_AFTER_THE_LINE = ("code", "stages")
_FIELDS = tuple(f.name for f in dataclasses.fields(Artifact) if f.name not in _AFTER_THE_LINE)


class NotPlain(Exception):
    """Raised for a value that has no form in a file, such as a default of a class of the user's own."""


def to_plain(value: Any) -> Any:
    """Return what `json.dumps` takes."""
    kind = type(value)
    if is_huge(value):
        raise NotPlain("an integer that Python does not write")
    if kind in _ATOMS:
        return value
    if kind is tuple:
        return [to_plain(v) for v in value]
    if kind is DType:
        return {"DType": value.name}
    if kind is KernelEntry:
        return {"KernelEntry": value.value}
    if value is ...:
        return {"...": []}
    cls, fields = _BY_NAME.get(kind.__name__, (None, ()))
    if cls is not kind:
        raise NotPlain(f"a {kind.__name__} has no form in a file")
    return {kind.__name__: [to_plain(getattr(value, name)) for name in fields]}


def from_plain(plain: Any) -> Any:
    """Return the value that `to_plain` was given. Raises ValueError for anything else."""
    if type(plain) is list:
        return tuple(map(from_plain, plain))
    if type(plain) is not dict:
        return plain
    if len(plain) != 1:
        raise ValueError("an object with one member stands for a value")
    ((name, content),) = plain.items()
    if name == "...":
        return ...
    if name == "DType" and content in _DTYPES:
        return _DTYPES[content]
    if name == "KernelEntry":
        return KernelEntry(content)
    cls, fields = _BY_NAME.get(name, (None, ()))
    if cls is None or type(content) is not list or len(content) != len(fields):
        raise ValueError(f"{name!r} of {content!r} stands for nothing")
    return cls(*map(from_plain, content))


def to_bytes(artifact: Artifact, notes: Mapping[str, Any]) -> bytes:
    """Return an artifact as bytes. Raises NotPlain where a default or a record has no form in a file."""
    fields = {name: to_plain(getattr(artifact, name)) for name in _FIELDS}
    parts = [("code", artifact.code), *((name, text.encode()) for name, text in artifact.stages.items())]
    sizes = [(name, len(content)) for name, content in parts]
    line = json.dumps({"fields": fields, "notes": notes, "sizes": sizes}, separators=(",", ":"))
    return b"".join((line.encode(), b"\n", *(content for _, content in parts)))


def from_bytes(payload: bytes) -> tuple[Artifact, dict[str, Any]]:
    """Return the artifact and its notes. Raises ValueError where the bytes are something else."""
    line, _, rest = payload.partition(b"\n")
    try:
        header = json.loads(line)
        fields = {name: from_plain(header["fields"][name]) for name in _FIELDS}
        sizes = header["sizes"]
        ends = [0, *itertools.accumulate(size for _, size in sizes)]
        parts = {name: rest[start:end] for (name, _), start, end in zip(sizes, ends, ends[1:])}
        code = parts.pop("code")
        stages = {name: content.decode() for name, content in parts.items()}
        return Artifact(code=code, stages=stages, **fields), dict(header["notes"])
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("not an artifact") from error


# -- what is kept under which name --------------------------------------------------------------------------------------
#
# The versions of all that shapes code are part of every name. The package is known by the contents of its files rather than by
# its version, so that work on stagekit itself never meets its own past, and two copies never share what only one of them made.


def read_or_make(
    kind: str,
    words: Sequence[str],
    make: Callable[[], T],
    read: Callable[[bytes], T | None],
    write: Callable[[T], bytes | None],
) -> tuple[T, bool]:
    """Return what `make` gives, from disk where it is there; and whether it was there.

    kind: the first part of the entry's name. words: all that decides about it, except the versions. read: gives None for what is
    to be made anew. write: gives None for what cannot be kept.
    """
    store = open_store()
    ours = versions() if store else None
    if store is None or ours is None:
        return make(), False
    name = entry_name(kind, ours, *words)
    payload = store.load(name)
    found = None if payload is None else read(payload)
    if found is not None:
        return found, True
    made = make()
    written = write(made)
    if written is not None:
        store.save(name, written)
    return made, False


def cached_code(kind: str, words: Sequence[str], make: Callable[[], bytes]) -> bytes:
    """Return machine code that follows from a text alone, such as that of launchers."""
    code, _ = read_or_make(kind, words, make, bytes, bytes)
    return code


@functools.cache
def versions() -> str | None:
    """Return a digest of the package, Python, and what folds constants, NumPy and ml_dtypes; None where a file cannot be read.

    It is made when the disk is first used.
    """
    found = sha256("\n".join((sys.version, platform.machine(), np.__version__)).encode())
    loader = getattr(__spec__, "loader", None)
    archive = getattr(loader, "archive", None)  # the zip file that the package is imported from
    root = os.path.dirname(archive or __file__)
    paths = {path: path.removeprefix(root) for path in ([archive] if archive else _module_files(root))}
    if (extension := importlib.util.find_spec(EXTENSION)) and extension.origin:
        paths[extension.origin] = EXTENSION  # this file says its version; to import it would take long
    try:
        for path, name in paths.items():
            with open(path, "rb") as file:
                if os.fstat(file.fileno()).st_mtime > _IMPORTED_AT_S:  # what runs here is not what lies there now
                    return None
                content = file.read()
            found.update(f"\n{name} {len(content)}\n".encode() + content)
    except OSError:
        return None
    return found.hexdigest() if archive or __file__ in paths else None


def _module_files(root: str) -> Iterator[str]:
    """Yield the modules' paths in a fixed order. A module may be there as bytecode only."""
    for folder, names, files in os.walk(root):
        names[:] = sorted(n for n in names if n != "__pycache__")
        yield from (os.path.join(folder, file) for file in sorted(files) if file.endswith((".py", ".pyc")))
