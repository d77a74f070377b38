"""Threads, processes, sudden deaths and sick disks around the disk cache; everything is counted and nothing may go wrong.

    python -m tests.cache.stress [--kills 200] [--damages 200]

Children are forked, so that a thousand of them cost seconds. A trial is right if a kernel that was made afterwards on the same
folder gives the right values and nothing was raised.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import errno
import functools
import itertools
import linecache
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np

import stagekit as sk
from stagekit import cache
from stagekit.cache import OWN_FOLDER
from stagekit.jit import history, native_launchers

NOBODY = 65534
VALUES = (1, 2, 3)
SICKNESSES = (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES, errno.EIO)


@sk.inline
def half(x: Any) -> Any:
    return x * 0.5


def new_kernel() -> Any:
    @sk.jit
    def fill(out: sk.Tensor((None,), sk.float32), V: sk.constexpr):  # type: ignore[no-untyped-def, valid-type]
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=4))
        out[sk.cuda.thread_idx("x")] = half(V) + sk.cuda.thread_idx("x")

    return fill


def results(values: tuple[int, ...] = VALUES, launches: int = 3) -> list[list[float]]:
    """By a new kernel, through whatever the folder holds; launched often enough to have its launcher from there too."""
    kernel, found = new_kernel(), []
    for value in values:
        out = np.zeros(4, np.float32)
        for _ in range(launches):
            out[:] = -1
            kernel.specialize(V=value)(out)
        found.append(out.tolist())
    return found


def right(values: tuple[int, ...] = VALUES) -> list[list[float]]:
    return [[0.5 * value + i for i in range(4)] for value in values]


def judge(values: tuple[int, ...] = VALUES) -> str:
    """One trial in a word."""
    native_launchers._codes.clear()  # launchers are shared by kernels that are alike: this one shall find its own on disk
    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # that there is no cache is no fault here
            return "right" if results(values) == right(values) else "WRONG"
    except Exception as error:  # whatever it is, it is counted
        return f"RAISED {type(error).__name__}"


@contextlib.contextmanager
def cache_in(folder: Path | str) -> Iterator[Path]:
    """Gives the folder of the entries."""
    before = os.environ.get("STAGEKIT_CACHE")
    os.environ["STAGEKIT_CACHE"] = str(folder)
    try:
        yield Path(folder, OWN_FOLDER)
    finally:
        os.environ.pop("STAGEKIT_CACHE")
        if before is not None:
            os.environ["STAGEKIT_CACHE"] = before


@contextlib.contextmanager
def new_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as above, cache_in(above) as folder:
        yield folder


# Every step of publishing --------------------------------------------------------------------------------------------


class Steps:
    """Counts the steps in which entries are published, and lets something happen before one of them."""

    def __init__(self, at: int, happen: Callable[[], None]) -> None:
        self._numbers = itertools.count(1)
        self._at = at
        self._happen = happen
        self.count = 0

    def take(self) -> None:
        self.count = next(self._numbers)
        if self.count == self._at:
            self._happen()


class _File:
    """A file that writes in two halves."""

    def __init__(self, file: Any, steps: Steps) -> None:
        self._file = file
        self._steps = steps

    def write(self, content: bytes) -> None:
        middle = len(content) // 2
        self._file.write(content[:middle])
        self._file.flush()
        self._steps.take()
        self._file.write(content[middle:])

    def read(self) -> bytes:
        return bytes(self._file.read())

    def fileno(self) -> int:
        return int(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


@contextlib.contextmanager
def watched(steps: Steps) -> Iterator[None]:
    """Before each `os.open`, in the middle of each write, before and after each `os.replace`; before each `mkdir` and `utime`."""
    kept = {name: getattr(os, name) for name in ("open", "replace", "mkdir", "utime")}

    def watch(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            steps.take()
            result = kept[name](*args, **kwargs)
            if name == "replace":
                steps.take()
            return result

        return call

    for name in kept:
        setattr(os, name, watch(name))
    cache.open = lambda *args: _File(open(*args), steps)  # type: ignore[attr-defined]  # noqa: SIM115
    try:
        yield
    finally:
        del cache.open  # type: ignore[attr-defined]
        for name, function in kept.items():
            setattr(os, name, function)


def steps_of_publishing() -> int:
    with new_folder():
        native_launchers._codes.clear()
        steps = Steps(0, lambda: None)
        with watched(steps):
            results()
    return steps.count


def in_child(work: Callable[[], str]) -> str:
    """Do it in a forked child: what it says, or how it died."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        try:
            os.write(writer, work().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answers:
        said = answers.read().decode()
    _, status = os.waitpid(child, 0)
    return said if os.WIFEXITED(status) else signal.Signals(os.WTERMSIG(status)).name


# Checks --------------------------------------------------------------------------------------------------------------


def threads(values: tuple[int, ...]) -> Counter[str]:
    """As many threads as values ask at once; how often was something traced and compiled?"""
    with new_folder():
        kernel, barrier, before = new_kernel(), threading.Barrier(len(values)), history.counts()

        def work(value: int) -> list[float]:
            barrier.wait()
            out = np.zeros(4, np.float32)
            kernel.specialize(V=value)(out)
            return out.tolist()

        with concurrent.futures.ThreadPoolExecutor(len(values)) as pool:
            is_right = list(pool.map(work, values)) == right(values)
        return Counter(history.counts()) - Counter(before) + Counter({"right" if is_right else "WRONG": len(values)})


PROCESS = """
import sys
from tests.cache import stress
print(stress.judge(tuple(map(int, sys.argv[1:]))))
"""


def processes(count: int = 8) -> Counter[str]:
    """Processes that begin at once on a cold folder, with keys in common."""
    with new_folder():
        root = Path(__file__).parents[2]
        started = [
            subprocess.Popen(
                [sys.executable, "-c", PROCESS, str(i % 2), "2", "3"], cwd=root, stdout=subprocess.PIPE, text=True
            )
            for i in range(count)
        ]
        return Counter(process.communicate()[0].strip() or "RAISED" for process in started)


def kills(count: int) -> Counter[str]:
    """SIGKILL in each step of publishing, in turn; then the same folder is used. What the dead left unfinished stays there."""
    found: Counter[str] = Counter()
    total = steps_of_publishing()
    with new_folder() as folder:
        for trial in range(count):
            for entry in folder.glob("*.entry"):  # so that there is everything to publish
                entry.unlink()
            steps = Steps(1 + trial % total, lambda: os.kill(os.getpid(), signal.SIGKILL))
            found[f"child: {in_child(functools.partial(_watched_judge, steps))}"] += 1
            found[f"after it: {judge()}"] += 1
    return found


def kills_at_random(count: int, seed: int = 0) -> Counter[str]:
    """SIGKILL whenever it comes, while other processes go on compiling into the folder."""
    rng, found = random.Random(seed), Counter[str]()
    with new_folder() as folder:
        for _ in range(count):
            child = os.fork()
            if not child:
                while True:
                    judge()
                    for entry in folder.glob("*.entry"):
                        with contextlib.suppress(FileNotFoundError):
                            entry.unlink()
            threading.Event().wait(rng.uniform(0.005, 0.1))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            found[f"after it: {judge()}"] += 1
    return found


def _watched_judge(steps: Steps) -> str:
    with watched(steps):
        return judge()


def damages(count: int, seed: int = 0) -> Counter[str]:
    """Entries cut off, or with a bit turned over."""
    rng, found = random.Random(seed), Counter[str]()
    with new_folder() as folder:
        for trial in range(count):
            if judge() != "right":
                found["WRONG before"] += 1
            for path in folder.glob("*.entry"):
                _damage(path, rng, is_cut=bool(trial % 2))
            found[f"{'cut off' if trial % 2 else 'a bit turned'}: {judge()}"] += 1
    return found


def _damage(path: Path, rng: random.Random, *, is_cut: bool) -> None:
    content = bytearray(path.read_bytes())
    if is_cut:
        os.truncate(path, rng.randrange(len(content)))
        return
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def sick_disks() -> Counter[str]:
    """Each error of a full, read-only or broken disk, in each step of publishing; and in all steps from there on."""
    found: Counter[str] = Counter()
    total = steps_of_publishing()
    for number in SICKNESSES:
        for at in range(1, total + 1):
            with new_folder():
                native_launchers._codes.clear()

                def fail(number: int = number) -> None:
                    raise OSError(number, os.strerror(number))

                found[f"{errno.errorcode[number]} once: {_watched_judge(Steps(at, fail))}"] += 1
                found[f"after it: {judge()}"] += 1
    return found


def full_disk() -> Counter[str]:
    """Files that cannot grow beyond so many bytes: the kernel of the system refuses the write."""

    def work(limit: int) -> str:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        return judge()

    found: Counter[str] = Counter()
    for limit in (0, 1, 17, 49, 100, 1000, 3000, 10_000):
        with new_folder():
            found[f"no file beyond {limit} bytes: {in_child(functools.partial(work, limit))}"] += 1
            found[f"after it: {judge()}"] += 1
    return found


def read_only_folder() -> Counter[str]:
    """As a user who is not root, whom modes of files bind."""
    found: Counter[str] = Counter()
    for has_entries in (False, True):
        for mode in (0o500, 0o400, 0o000):
            with new_folder() as folder:
                folder.parent.chmod(0o711)
                folder.mkdir(mode=0o700)
                if has_entries:
                    judge()
                for path in (folder, *folder.iterdir()):
                    if not os.geteuid():
                        os.chown(path, NOBODY, NOBODY)
                folder.chmod(mode)
                state = "with entries" if has_entries else "empty"
                found[f"mode {mode:03o}, {state}: {in_child(_as_nobody)}"] += 1
                folder.chmod(0o700)
    return found


def _as_nobody() -> str:
    if not os.geteuid():
        # The sources may lie where only their owner looks; what was read of them stays.
        linecache.checkcache = lambda filename=None: None
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    return judge()


def is_well(found: Counter[str]) -> bool:
    """Nothing wrong, nothing raised."""
    return not any("WRONG" in name or "RAISED" in name for name in found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--damages", type=int, default=200)
    given = parser.parse_args()
    judge()  # whatever is imported later is imported now
    checks: dict[str, Callable[[], Counter[str]]] = {
        "eight threads on one new key": lambda: threads((6,) * 8),
        "eight threads on eight keys that share a fragment": lambda: threads(tuple(range(8))),
        "eight processes on a cold folder": processes,
        f"{given.kills} times SIGKILL in a step of publishing": lambda: kills(given.kills),
        f"{given.kills} times SIGKILL at random": lambda: kills_at_random(given.kills),
        f"{given.damages} times damaged entries": lambda: damages(given.damages),
        "errors of the disk in each step": sick_disks,
        "a full disk": full_disk,
        "a read-only folder": read_only_folder,
    }
    is_all_well = True
    for name, check in checks.items():
        found = check()
        is_all_well &= is_well(found)
        sys.stdout.write(f"{name}\n" + "".join(f"  {n:6}  {what}\n" for what, n in sorted(found.items())))
        sys.stdout.flush()
    return 0 if is_all_well else 1


if __name__ == "__main__":
    sys.exit(main())
