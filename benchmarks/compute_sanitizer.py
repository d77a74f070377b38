"""NVIDIA's compute-sanitizer beside ours: the verdicts of both on every planted fault, and on every look-alike without one.

    python benchmarks/compute_sanitizer.py [--at-once 12] [--minutes 2.5] [--compute-sanitizer PATH] [NAME ...]

Needs a GPU and compute-sanitizer, which comes with the CUDA toolkit and as the wheel nvidia-cuda-sanitizer-api. All four of its
tools look at each kernel of `tests/testing/planted`. A process under a tool launches many of them, as it takes seconds to start;
where one ends the CUDA context or does not end, another process goes on behind it. Ours runs the same launches on the
interpreter, here.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import stagekit as sk

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "testing"))

import planted

CHILD = "--launch"  # this file again, under a tool
FIRST_PORT, PORTS = 49152, 16  # each of several at once needs some of its own
START_S = 60.0  # a process under a tool may take that long until its first launch

TOOLS: Mapping[str, Mapping[str, str]] = {
    "memcheck": {"--report-api-errors": "no", "--padding": "256"},
    "racecheck": {},
    "synccheck": {},
    "initcheck": {"--initcheck-address-space": "all", "--report-api-errors": "no"},
}
"""Each with options of its own."""

MAY_HANG = {"DIVERGENT_BARRIER", "BARRIER_NOT_REACHED", "LANE_NOT_HERE", "LANE_OUTSIDE_MASK", "MASKS_DIFFER"}
"""Faults that only synccheck looks at: without it a launch may wait for ever."""

SIGNS = (
    r"Invalid __\w+__ \w+ of size \d+",
    r"(?:Error|Warning): Race reported",
    r"Barrier error detected\.",
    r"Uninitialized __\w+__ ",
)
"""How a tool says that it found something, in that line or the next with the name of the kernel."""


@sk.jit
def global_memory_never_written(A, out):
    out[sk.cuda.thread_idx("x")] = A[sk.cuda.thread_idx("x")]


@sk.jit
def global_memory_written_before(A, out):
    A[sk.cuda.thread_idx("x")] = 1.0
    out[sk.cuda.thread_idx("x")] = A[sk.cuda.thread_idx("x")]


ONLY_ON_A_GPU = {k.__name__: k for k in (global_memory_never_written, global_memory_written_before)}
"""For initcheck. NumPy does not know what of an array is written, so ours has nothing to go by."""


@dataclass(frozen=True)
class Row:
    """One kernel. fault: what is wrong with it, "" for a look-alike. ours: what the interpreter finds, "" for nothing."""

    name: str
    fault: str
    ours: str

    def tools(self) -> Collection[str]:
        """Return the tools that look at it: none where it waits for ever, or is refused before it runs."""
        if self.fault == "NO_PROGRESS" or self.ours.startswith("refused"):
            return ()
        return ("synccheck",) if self.fault in MAY_HANG else TOOLS


# -- ours -------------------------------------------------------------------------------------------------------------


def all_rows(names: Sequence[str]) -> Iterator[Row]:
    """Yield every kernel, or those named, with our own verdict."""
    for case in planted.CASES:
        if (not names or case.name in names) and not callable(case.arguments):
            yield Row(case.name, case.id or "", our_verdict(case))
    for name in ONLY_ON_A_GPU:
        if not names or name in names:
            yield Row(name, "GLOBAL_NEVER_WRITTEN" * name.endswith("never_written"), "")


def our_verdict(case: Any) -> str:
    watch = sk.sanitize(case.kernel, collect=True, **{"seed": 1, **case.options})
    try:
        watch[case.brackets](**case.fresh_arguments())
    except sk.StagekitError as refused:  # before the launch, on every target
        return f"refused: {refused.id}"
    found = {finding.id for finding in watch.report.findings}
    return case.id if case.id in found else " ".join(sorted(found))


# -- theirs: the process under a tool ---------------------------------------------------------------------------------


def launch_on_gpu(names: Sequence[str]) -> None:
    """Launch kernels one after the other, and say so, until the CUDA context is lost."""
    for name in names:
        print(f"begin {name}", flush=True)
        try:
            launch(name)
            sk.cuda.synchronize()
        except sk.StagekitError as error:  # as a rule what the tool has reported
            print(f"failed {name}: {str(error).splitlines()[0]}", flush=True)
            if not context_lives():
                return
        else:
            print(f"end {name}", flush=True)


def launch(name: str) -> None:
    if name in ONLY_ON_A_GPU:
        ONLY_ON_A_GPU[name][1, 32](sk.cuda.empty(32, sk.float32), sk.cuda.to_device(np.zeros(32, np.float32)))
        return
    case = next(c for c in planted.CASES if c.name == name)
    arguments = case.fresh_arguments()
    there = {n: on_gpu(v) for n, v in arguments.items() if isinstance(v, np.ndarray)}
    case.kernel[case.brackets](**{**arguments, **there})


def on_gpu(array: np.ndarray[Any, Any]) -> Any:
    """Return a copy on the GPU with the same strides, which has what lies between the elements as well."""
    whole = array
    while not whole.flags.c_contiguous and isinstance(whole.base, np.ndarray):
        whole = whole.base
    copy = sk.cuda.to_device(whole)
    if whole is array:
        return copy
    address = copy.__cuda_array_interface__["data"][0] + array.ctypes.data - whole.ctypes.data
    return Strided(copy, {"data": (address, False), "strides": array.strides, "shape": array.shape})


class Strided:
    """Part of an array on the GPU, as `interface` says."""

    def __init__(self, whole: Any, interface: dict[str, Any]) -> None:
        self.whole = whole
        self.__cuda_array_interface__ = {**whole.__cuda_array_interface__, **interface}


def context_lives() -> bool:
    try:
        sk.cuda.to_device(np.zeros(1, np.float32))
        sk.cuda.synchronize()
    except sk.StagekitError:
        return False
    return True


# -- theirs: seen from here -------------------------------------------------------------------------------------------


@dataclass
class Batch:
    """Kernels that one tool looks at, a process after the other. verdicts: by name, "" for nothing, in brackets no answer."""

    tool: str
    names: list[str]
    port: int
    verdicts: dict[str, str] = field(default_factory=dict)


class ComputeSanitizer:
    """Runs this file under a tool. timeout_s: of one launch. until: no process goes on after that time."""

    def __init__(self, path: str, timeout_s: float, until: float, folder: Path) -> None:
        self.path = path
        self.timeout_s = timeout_s
        self.until = until
        self.folder = folder
        self.help = subprocess.run([path, "--help"], capture_output=True, text=True, check=False).stdout

    def command(self, tool: str, names: Sequence[str], port: int, log: Path) -> list[str]:
        options = {
            "--tool": tool,
            "--log-file": str(log),
            "--port": str(port),
            "--launch-timeout": "60",
            "--target-processes": "all",
            "--show-backtrace": "no",
            "--print-limit": "0",
            "--destroy-on-device-error": "kernel",
            **TOOLS[tool],
        }
        known = [word for option, value in options.items() if option in self.help for word in (option, value)]
        return [self.path, *known, sys.executable, __file__, CHILD, *names]

    def run(self, batch: Batch) -> Batch:
        """Fill in the verdicts."""
        rest = batch.names
        while rest:
            if time.monotonic() > self.until:
                batch.verdicts |= dict.fromkeys(rest, "(not run: out of time)")
                break
            rest = self._go_on(batch, rest)
        return batch

    def _go_on(self, batch: Batch, names: list[str]) -> list[str]:
        """Run one process over `names`; return those that it did not come to."""
        log = self.folder / f"{batch.port}-{len(names)}.log"
        seen, reason = self._watch(self.command(batch.tool, names, batch.port, log))
        if not seen:  # the process fails before the first, and would fail for the others
            batch.verdicts |= dict.fromkeys(names, f"({reason})")
            return []
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        batch.verdicts |= {**seen, **signs_in(text, seen)}
        return names[len(seen) :]

    def _watch(self, command: list[str]) -> tuple[dict[str, str], str]:
        """Return the kernels that a process began, each with why it gives no answer or "", and its last line."""
        environment = {**os.environ, "STAGEKIT_CACHE": str(self.folder / "cache")}
        streams: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
        process = subprocess.Popen(command, env=environment, start_new_session=True, **streams)
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        reader = threading.Thread(target=_read_lines, args=(process.stdout, lines.put))
        reader.start()
        seen: dict[str, str] = {}
        last, wait = "no output", START_S
        try:
            while line := lines.get(timeout=max(min(wait, self.until + 1 - time.monotonic()), 0.01)):
                word, _, rest = line.partition(" ")
                name, _, why = rest.partition(": ")
                if word in ("begin", "end", "failed"):
                    seen[name] = {"begin": "(ended the process)", "end": ""}.get(word, f"(failed: {why[:80]})")
                    wait = self.timeout_s
                last = line or last
            process.wait(START_S)  # the tool may still write
        except (queue.Empty, subprocess.TimeoutExpired):
            last = f"no end within {wait:.0f} s"
            seen = {name: f"({last})" if why.startswith("(ended") else why for name, why in seen.items()}
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            reader.join()
        return seen, last


def _read_lines(stream: Any, put: Callable[[str], None]) -> None:
    """Pass on each line that is not empty, and an empty one at the end."""
    for line in stream:
        if line.strip():
            put(line.strip())
    put("")


def signs_in(log: str, names: Collection[str]) -> dict[str, str]:
    """Return the first sign of each of these kernels in the log of a tool."""
    lines = log.splitlines()
    found: dict[str, str] = {}
    for number, line in enumerate(lines):
        sign = next((m[0] for each in SIGNS if (m := re.search(each, line))), "")
        if sign:
            words = re.findall(r"\w+", " ".join(lines[number : number + 3]))
            name = next((word for word in words if word in names), "")
            if name:
                found.setdefault(name, sign.strip())
    return found


def find_compute_sanitizer(given: str) -> str:
    places = (given, "compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer")
    found = next(filter(None, map(shutil.which, filter(None, places))), None)
    if found is None:
        sys.exit("no compute-sanitizer on the PATH: give its place with --compute-sanitizer")
    return found


# -- the tables -------------------------------------------------------------------------------------------------------

FORM = "{:50} {:22} {:22} {}"
Verdicts = Mapping[str, Mapping[str, str]]  # by kernel and tool


def is_found(verdict: str) -> bool:
    return bool(verdict) and not verdict.startswith("(")


def theirs_of(row: Row, verdicts: Verdicts) -> str:
    """Return what the first tool that found something says; else why one gave no answer, or "" where all found nothing."""
    mine = verdicts.get(row.name, {})
    found = [f"{tool}: {verdict}" for tool, verdict in mine.items() if is_found(verdict)]
    return next(iter([*found, *(f"{tool}: {verdict}" for tool, verdict in mine.items() if verdict)]), "")


def print_rows(rows: Sequence[Row], verdicts: Verdicts, title: str) -> None:
    print(f"\n{FORM.format(title, 'kind', 'ours', 'compute-sanitizer')}")
    for row in rows:
        theirs = theirs_of(row, verdicts) or ("nothing" if row.tools() else "not run")
        print(FORM.format(row.name, row.fault or "-", row.ours or "nothing", theirs))


def print_totals(rows: Sequence[Row], verdicts: Verdicts) -> None:
    """Print found and missed, kind by kind; of look-alikes, the false alarms of each tool."""
    form = "{:24} {:>7} {:>7} {:>7} {:>18} {:>18} {:>10}"
    print("\n" + form.format("kind", "faults", "ours", "missed", "compute-sanitizer", "missed", "no answer"))
    faults = [row for row in rows if row.fault]
    kinds = sorted({row.fault for row in faults})
    for kind, some in [*((k, [r for r in faults if r.fault == k]) for k in kinds), ("all", faults)]:
        ours = sum(bool(r.ours) for r in some)
        answers = [theirs_of(r, verdicts) for r in some]
        unanswered = sum(": (" in each for each in answers)
        theirs = sum(bool(each) for each in answers) - unanswered
        missed = len(some) - theirs - unanswered
        print(form.format(kind, len(some), ours, len(some) - ours, theirs, missed, unanswered))
    twins = [row for row in rows if not row.fault]
    by_tool = {t: sum(is_found(verdicts.get(r.name, {}).get(t, "")) for r in twins) for t in TOOLS}
    alarms = ", ".join(f"{tool} {count}" for tool, count in by_tool.items())
    print(f"\nfalse alarms on {len(twins)} look-alikes: ours {sum(bool(r.ours) for r in twins)}, {alarms}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="kernels to run; all if left out")
    parser.add_argument("--at-once", type=int, default=max((os.cpu_count() or 4) - 4, 2), help="processes at a time")
    parser.add_argument("--timeout", type=float, default=10, help="seconds that one launch may take")
    parser.add_argument("--minutes", type=float, default=2.5, help="after which no process goes on")
    parser.add_argument("--compute-sanitizer", default="", metavar="PATH")
    parser.add_argument(CHILD, dest="launch", action="store_true", help="launch the kernels on the GPU, no more")
    options = parser.parse_args()
    if options.launch:
        launch_on_gpu(options.names)
        return
    print("$", " ".join([sys.executable, *sys.argv]))
    path = find_compute_sanitizer(options.compute_sanitizer)
    with tempfile.TemporaryDirectory() as folder:
        until = time.monotonic() + options.minutes * 60
        compare(ComputeSanitizer(path, options.timeout, until, Path(folder)), options)


def compare(theirs: ComputeSanitizer, options: argparse.Namespace) -> None:
    for tool in TOOLS:
        print("$", " ".join(theirs.command(tool, ["NAME", "..."], FIRST_PORT, Path("LOG"))))
    if "--initcheck-address-space" not in theirs.help:
        print("initcheck of this version looks at global memory only")
    start = time.monotonic()
    trial = theirs.run(Batch("memcheck", ["a_guarded_access"], FIRST_PORT)).verdicts["a_guarded_access"]
    if trial:
        sys.exit(f"a kernel without a fault gives {trial!r}: does compute-sanitizer work on this machine?")
    print(f"one process takes {time.monotonic() - start:.1f} s", flush=True)
    rows = list(all_rows(options.names))
    verdicts: dict[str, dict[str, str]] = {}
    with ThreadPoolExecutor(options.at_once) as pool:
        for batch in pool.map(theirs.run, batches(rows, options.at_once)):
            for name, verdict in batch.verdicts.items():
                verdicts.setdefault(name, {})[batch.tool] = verdict
    print_rows([r for r in rows if r.fault], verdicts, "planted fault")
    print_rows([r for r in rows if not r.fault], verdicts, "look-alike")
    print_totals(rows, verdicts)
    print(f"{time.monotonic() - start:.0f} s")


def batches(rows: Sequence[Row], at_once: int) -> list[Batch]:
    """Return, for each tool, its kernels in as many parts as make all processes busy."""
    parts = max(at_once // len(TOOLS), 1)
    made: list[Batch] = []
    for tool in TOOLS:
        names = [row.name for row in rows if tool in row.tools()]
        for part in range(parts):
            if names[part::parts]:
                made.append(Batch(tool, names[part::parts], FIRST_PORT + PORTS * (len(made) + 1)))
    return made


if __name__ == "__main__":
    main()
