"""Every switch read from the environment: one row each. `docs/debugging.md` shows the same table."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from stagekit.diagnostics import Diagnostic, StagekitError, closest, warn
from stagekit.frozen import frozen

PREFIX = "STAGEKIT_"


class BadSwitch(Diagnostic):
    title = "An environment variable is not understood"
    label = "{name}={value!r}"
    help = "give {wanted}"


Rule = tuple[str, Callable[[str], bool]]
"""What a switch takes, in words and as a test. Every switch may also be empty."""


def _one_of(*choices: str) -> Rule:
    return f"one of: {', '.join(choices)}", choices.__contains__


def _number(wanted: str, kind: type[int | float], least: float, most: float) -> Rule:
    """Return a rule for numbers as people write them: ASCII digits, with a point where a fraction has a meaning."""
    form = r"[0-9]{1,20}" if kind is int else r"[0-9]{1,20}(\.[0-9]{0,20})?|\.[0-9]{1,20}"
    return wanted, lambda text: re.fullmatch(form, text) is not None and least <= kind(text) <= most


STAGES = (
    "trace",
    "prefetch",
    "records",
    "expand",
    "join",
    "scalarize",
    "legalize",
    "fold",
    "cse",
    "dce",
    "sink",
    "llvm",
    "ptx",
)
"""What can be looked at while a kernel is compiled: the trace, every pass, and what a backend makes of it."""

_ANYTHING: Rule = ("any text", lambda text: True)
_STAGES: Rule = (
    f"all, or some of: {', '.join(STAGES)}",
    lambda text: all(stage.strip() in (*STAGES, "all", "") for stage in text.split(",")),
)
MOST_THREADS = 4096  # more workers than this are a mistake in writing
_MOST_MB = 10_000_000  # ten terabytes
_COUNT = _number(f"a positive integer up to {MOST_THREADS}, or nothing for one per core", int, 1, MOST_THREADS)
_FOLDER: Rule = (
    "a folder, or 0 for no disk cache",
    lambda text: text.lower() not in ("1", "on", "off", "yes", "no", "true", "false", "none"),  # meant, but no folder
)
_SIZE = _number(f"a number of megabytes from 0 to {_MOST_MB}", float, 0, _MOST_MB)


def variables() -> dict[bytes, bytes] | None:
    """Return the dict in which `os.environ` keeps its variables, or None if that is not a plain dict of bytes."""
    found = getattr(os.environ, "_data", None)
    is_plain = type(found) is dict and len(found) == len(os.environ) and {*map(type, found)} <= {bytes}
    return found if is_plain else None


_VARIABLES = variables()


@frozen()
class Switch:
    """An environment variable."""

    name: str
    default: str
    help: str
    rule: Rule = _ANYTHING

    def get(self) -> str:
        """Return the value. It is read anew each time, so that tests and notebooks can change it."""
        if _VARIABLES is not None and self.name.encode() not in _VARIABLES:
            return self.default  # as most often: `os.environ` takes microseconds to say so
        value = os.environ.get(self.name)
        if not value:
            return self.default
        wanted, holds = self.rule
        if not holds(value):
            raise self.refusal(value, wanted)
        return value

    def put(self, value: str) -> None:
        """Set it for this process and for those that it starts."""
        os.environ[self.name] = value

    def refusal(self, value: str, wanted: str) -> StagekitError:
        """Return the error for a value that the switch does not take."""
        return StagekitError(BadSwitch(self.name, value, wanted))


DUMP = Switch(
    "STAGEKIT_DUMP", "", "stages to print while compiling, comma separated (trace, a pass, llvm, ptx), or all", _STAGES
)
DUMP_DIR = Switch("STAGEKIT_DUMP_DIR", "", "write the dumps to NN-stage.txt files in this folder instead of stderr")
VERIFY = Switch(
    "STAGEKIT_VERIFY",
    "end",
    "check the IR before emission (end), or after tracing and every pass too (each)",
    _one_of("end", "each"),
)
TARGET = Switch(
    "STAGEKIT_TARGET", "", "run every launch on this target, whatever the arrays", _one_of("cpu", "cuda", "interp")
)
SANITIZE = Switch(
    "STAGEKIT_SANITIZE",
    "",
    "1: check every launch on the interpreter and raise what it finds; or options, such as order=random,seed=7,nan=no",
)
THREADS = Switch("STAGEKIT_THREADS", "", "worker threads of the cpu target; empty: one per core", _COUNT)
CACHE = Switch(
    "STAGEKIT_CACHE",
    "",
    "folder in which the disk cache has its own; empty: the platform's folder of caches; 0: no disk cache",
    _FOLDER,
)
CACHE_MB = Switch("STAGEKIT_CACHE_MB", "512", "how large the disk cache may grow, in megabytes", _SIZE)
NVTX = Switch(
    "STAGEKIT_NVTX",
    "0",
    "1: NVTX ranges round traces, compiles, loads and launches, the latter of kernels that are made from now on",
    _one_of("0", "1"),
)

SWITCHES: tuple[Switch, ...] = (DUMP, DUMP_DIR, VERIFY, TARGET, SANITIZE, THREADS, CACHE, CACHE_MB, NVTX)

_told: set[str] = set()


def check_switches() -> None:
    """Refuse a value that a switch does not take, whether this run would read it or not.

    A variable that looks like a switch and is none is warned of once: another version of stagekit may know it.
    """
    for switch in SWITCHES:
        switch.get()
    unknown = {name for name in os.environ if name.startswith(PREFIX)} - {s.name for s in SWITCHES} - _told
    if unknown:
        _told.update(unknown)
        known = [switch.name for switch in SWITCHES]
        for name in sorted(unknown):
            close = closest(name, known)
            hint = f"did you mean {close}?" if close else f"the switches are {', '.join(known)}"
            warn(f"the environment variable {name} is no switch of stagekit and does nothing; {hint}")


def breakpoints_are_off() -> bool:
    """Return whether Python's own `breakpoint` does nothing now."""
    return sys.breakpointhook is sys.__breakpointhook__ and os.environ.get("PYTHONBREAKPOINT") == "0"


def platform_cache_folder() -> Path | None:
    """Return where this platform keeps a user's caches; None where the user has no home folder and nothing names another place.

    A path that is not absolute counts as not given, as the XDG Base Directory Specification has it.
    """
    variable, *parts = _CACHES.get(sys.platform, ("XDG_CACHE_HOME", ".cache"))
    named, home = os.environ.get(variable, ""), os.path.expanduser("~")
    if os.path.isabs(named):
        return Path(named)
    return Path(home, *parts) if os.path.isabs(home) and os.path.isdir(home) else None


_CACHES = {"win32": ("LOCALAPPDATA", "AppData", "Local"), "darwin": ("", "Library", "Caches")}
"""By platform: a variable that may name the folder, and where it is in the home folder otherwise."""
