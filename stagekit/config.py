"""Every switch read from the environment: one row each. `docs/debugging.md` shows the same table."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from stagekit.diagnostics import Diagnostic, StagekitError


class BadSwitch(Diagnostic):
    title: ClassVar[str] = "An environment variable is not understood"
    label: ClassVar[str] = "{name}={value!r}"
    help: ClassVar[str] = "give one of: {choices}"
    name: str
    value: str
    choices: str


@dataclass(frozen=True, slots=True)
class Switch:
    """An environment variable. `choices` empty: free text."""

    name: str
    default: str
    help: str
    choices: tuple[str, ...] = ()

    def get(self) -> str:
        """The value now; read anew each time so that tests and notebooks can change it."""
        value = os.environ.get(self.name) or self.default
        if self.choices and value not in self.choices:
            raise StagekitError(BadSwitch(self.name, value, ", ".join(c for c in self.choices if c)))
        return value


DUMP = Switch(
    "STAGEKIT_DUMP", "", "stages to print while compiling, comma separated (trace, a pass, llvm, ptx), or all"
)
DUMP_DIR = Switch("STAGEKIT_DUMP_DIR", "", "write the dumps to NN-stage.txt files in this folder instead of stderr")
VERIFY = Switch(
    "STAGEKIT_VERIFY",
    "ends",
    "check the IR after tracing and before emission (ends), or after every pass",
    ("ends", "each"),
)
TARGET = Switch(
    "STAGEKIT_TARGET", "", "run every launch on this target, whatever the arrays", ("", "cpu", "cuda", "interp")
)
SANITIZE = Switch(
    "STAGEKIT_SANITIZE",
    "",
    "1: check every launch on the interpreter and raise what it finds; or options, such as order=random,seed=7,nan=no",
)
THREADS = Switch("STAGEKIT_THREADS", "", "worker threads of the cpu target; empty: one per core")
CACHE = Switch(
    "STAGEKIT_CACHE", "", "folder of the disk cache; empty: stagekit in the platform's cache folder; 0: no disk cache"
)
CACHE_MB = Switch("STAGEKIT_CACHE_MB", "512", "how large the disk cache may grow, in megabytes")

SWITCHES: tuple[Switch, ...] = (DUMP, DUMP_DIR, VERIFY, TARGET, SANITIZE, THREADS, CACHE, CACHE_MB)


def platform_cache_folder() -> Path:
    """Where this platform keeps a user's caches."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
