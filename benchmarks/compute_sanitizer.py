"""NVIDIA's compute-sanitizer beside ours: the verdicts of both on every planted fault that one of its tools looks for.

    python benchmarks/compute_sanitizer.py [--at-once 12] [--timeout 60] [--compute-sanitizer PATH] [NAME ...]

Needs a GPU and compute-sanitizer, which comes with the CUDA toolkit and as the wheel nvidia-cuda-sanitizer-api. Each kernel
of `tests/testing/planted` is launched by a process of its own, as a fault may end the CUDA context, under the tool for its
kind: memcheck, racecheck, synccheck or initcheck. Ours runs the same launch on the interpreter, here.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import stagekit as sk

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "testing"))

import planted

ERROR_EXIT = 86
CHILD = "--launch"  # this file again, under the tool

TOOLS = {
    **dict.fromkeys(("OUT_OF_BOUNDS", "MISALIGNED_ACCESS", "INDEX_OVERFLOW"), "memcheck"),
    **dict.fromkeys(("WARP_RACE", "BLOCK_RACE"), "racecheck"),
    **dict.fromkeys(("DIVERGENT_BARRIER", "BARRIER_NOT_REACHED"), "synccheck"),
    **dict.fromkeys(("LANE_NOT_HERE", "LANE_OUTSIDE_MASK", "ABSENT_LANE_READ"), "synccheck"),
    "UNINITIALISED_READ": "initcheck",
}
"""Who looks for what. Nobody there looks for races in global memory, waiting in vain, or arithmetic."""

SHARED_ONLY = {"racecheck", "initcheck"}  # of our findings, those in shared memory
TOOLS_OF_LOOK_ALIKES = {
    **dict.fromkeys(("shared_races", "subtle", "protocols"), "racecheck"),
    **dict.fromkeys(("barriers", "warps"), "synccheck"),
    "unwritten": "initcheck",
}
"""By group; memcheck for the others."""

SIGNS = (
    r"Invalid __\w+__ \w+ of size \d+",
    r"(?:Error|Warning): Race reported.*",
    r"Barrier error detected\..*",
    r"Uninitialized __\w+__ .*",
)
"""How a tool says that it found something."""


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
    """One kernel. ours, theirs: what was found, "" for nothing. tool: None where nobody looks. is_fault: or a look-alike."""

    name: str
    is_fault: bool
    ours: str
    tool: str | None
    theirs: str = ""


# -- ours -------------------------------------------------------------------------------------------------------------


def rows_of(names: Sequence[str]) -> Iterator[Row]:
    """What is to be run, with our own verdicts; all, or those named."""
    for case in planted.CASES:
        if (not names or case.name in names) and not callable(case.arguments):
            ours, tool = our_verdict(case)
            yield Row(case.name, bool(case.id), ours, tool)
    for name in ONLY_ON_A_GPU:
        if not names or name in names:
            yield Row(name, name.endswith("never_written"), "", "initcheck")


def our_verdict(case: Any) -> tuple[str, str | None]:
    """What the interpreter finds, and the tool that looks for the same."""
    watch = sk.sanitize(case.kernel, collect=True, **{"seed": 1, **case.options})
    try:
        watch[case.brackets](**case.fresh_arguments())
    except sk.StagekitError as refused:  # before the launch, on every target
        return f"refused: {refused.id}", None
    texts = {f.id: str(f) for f in watch.report.findings}
    if not case.id:
        return " ".join(texts), TOOLS_OF_LOOK_ALIKES.get(case.kernel.__module__.rpartition(".")[2], "memcheck")
    tool = TOOLS.get(case.id)
    is_elsewhere = tool in SHARED_ONLY and "(shared memory)" not in texts.get(case.id, "")
    return case.id if case.id in texts else " ".join(texts), None if is_elsewhere else tool


# -- theirs -----------------------------------------------------------------------------------------------------------


def launch_on_gpu(name: str) -> None:
    """What the process under the tool does; its last line tells that nothing else went wrong."""
    try:
        if name in ONLY_ON_A_GPU:
            ONLY_ON_A_GPU[name][1, 32](sk.cuda.empty(32, sk.float32), sk.cuda.to_device(np.zeros(32, np.float32)))
        else:
            launch_planted(next(c for c in planted.CASES if c.name == name))
        sk.cuda.synchronize()
    except sk.StagekitError as error:  # as a rule what the tool has reported, which ends the context
        print(error)
    else:
        print(f"launched {name}")


def launch_planted(case: planted.Planted) -> None:
    arguments = case.fresh_arguments()
    there = {n: sk.cuda.to_device(v) for n, v in arguments.items() if isinstance(v, np.ndarray)}
    case.kernel[case.brackets](**{**arguments, **there})


class ComputeSanitizer:
    """Runs this file under a tool. timeout_s: of one run. until: no run is started after that time."""

    def __init__(self, path: str, timeout_s: float, until: float) -> None:
        self.path = path
        self.timeout_s = timeout_s
        self.until = until
        self.help = subprocess.run([path, "--help"], capture_output=True, text=True, check=False).stdout

    def command(self, tool: str, name: str, port: int = 49152) -> list[str]:
        """port: each of several at once needs some of its own."""
        options = {
            "--tool": tool,
            "--error-exitcode": str(ERROR_EXIT),
            "--port": str(port),
            "--launch-timeout": "60",
            "--target-processes": "all",
            "--show-backtrace": "no",
            "--print-limit": "20",
            **{
                "memcheck": {"--report-api-errors": "no"},
                "initcheck": {"--initcheck-address-space": "all", "--report-api-errors": "no"},
            }.get(tool, {}),
        }
        known = [word for option, value in options.items() if option in self.help for word in (option, value)]
        return [self.path, *known, sys.executable, __file__, CHILD, name]

    def verdict(self, tool: str, name: str, port: int) -> str:
        """What the tool finds in a kernel: "" for nothing, in brackets what kept it from an answer."""
        if time.monotonic() > self.until:
            return "(not run: out of time)"
        output, exit_code = self._run(self.command(tool, name, port))
        found = next((m[0] for sign in SIGNS if (m := re.search(sign, output))), "")
        if found:
            return found
        if exit_code is None:
            return f"(no end within {self.timeout_s:.0f} s)"
        return "" if f"launched {name}" in output and "SUMMARY" in output else f"(failed: {_last_line(output)})"

    def _run(self, command: list[str]) -> tuple[str, int | None]:
        """Output and exit code; None where it had to be stopped, with all that it started."""
        environment = {**os.environ, "STAGEKIT_CACHE": "0"}
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,
        )
        try:
            return process.communicate(timeout=self.timeout_s)[0], process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return process.communicate()[0], None


def _last_line(output: str) -> str:
    lines = [line.strip("= \t") for line in output.splitlines() if line.strip("= \t")]
    return lines[-1][:90] if lines else "no output"


def find_compute_sanitizer(given: str) -> str:
    places = (given, "compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer")
    found = next(filter(None, map(shutil.which, filter(None, places))), None)
    if found is None:
        sys.exit("no compute-sanitizer on the PATH: give its place with --compute-sanitizer")
    return found


# -- the table --------------------------------------------------------------------------------------------------------

FORM = "{:50} {:20} {:10} {}"


def told(rows: Sequence[Row], title: str) -> None:
    print(f"\n{FORM.format(title, 'ours', 'tool', 'compute-sanitizer')}")
    for row in rows:
        theirs = (row.theirs or "nothing") if row.tool else "-"
        print(FORM.format(row.name, row.ours or "nothing", row.tool or "-", theirs[:100]))


def totals(rows: Sequence[Row]) -> None:
    """Found, missed and false alarms, tool by tool."""
    print(f"\n{FORM.format('', 'ours', 'of', 'compute-sanitizer')}")
    for tool in ("memcheck", "racecheck", "synccheck", "initcheck"):
        for is_fault, word in ((True, "faults found"), (False, "look-alikes with an alarm")):
            some = [r for r in rows if r.tool == tool and r.is_fault == is_fault]
            ours = sum(bool(r.ours) for r in some)
            answered = [r for r in some if not r.theirs.startswith("(")]
            note = f", no answer on {len(some) - len(answered)}" if len(answered) < len(some) else ""
            print(FORM.format(f"{tool}: {word}", ours, len(some), f"{sum(bool(r.theirs) for r in answered)}{note}"))
    unseen = Counter(bool(r.ours) for r in rows if r.tool is None)
    print(f"no tool looks for {unseen.total()} more faults; ours finds {unseen[True]} of them")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="kernels to run; all if left out")
    parser.add_argument("--at-once", type=int, default=max((os.cpu_count() or 4) - 4, 2), help="processes at a time")
    parser.add_argument("--timeout", type=float, default=60, help="seconds that one run may take")
    parser.add_argument("--minutes", type=float, default=3, help="after which no further run is started")
    parser.add_argument("--compute-sanitizer", default="", metavar="PATH")
    parser.add_argument(CHILD, dest="launch", default="", metavar="NAME", help="launch one kernel on the GPU, no more")
    options = parser.parse_args()
    if options.launch:
        launch_on_gpu(options.launch)
        return
    print("$", " ".join([sys.executable, *sys.argv]))
    path = find_compute_sanitizer(options.compute_sanitizer)
    compare(ComputeSanitizer(path, options.timeout, time.monotonic() + options.minutes * 60), options)


def compare(theirs: ComputeSanitizer, options: argparse.Namespace) -> None:
    for tool in ("memcheck", "racecheck", "synccheck", "initcheck"):
        print("$", " ".join(theirs.command(tool, "NAME")))
    if "--initcheck-address-space" not in theirs.help:
        print("initcheck of this version looks at global memory only")
    start = time.monotonic()
    trial = theirs.verdict("memcheck", "a_guarded_access", 49152)
    if trial:
        sys.exit(f"a kernel without a fault gives {trial!r}: does compute-sanitizer work on this machine?")
    print(f"one run takes {time.monotonic() - start:.1f} s", flush=True)
    rows = list(all_rows(theirs, options))
    told([r for r in rows if r.is_fault], "planted fault")
    told([r for r in rows if not r.is_fault], "look-alike")
    totals(rows)
    print(f"{time.monotonic() - start:.0f} s")


def all_rows(theirs: ComputeSanitizer, options: argparse.Namespace) -> Iterator[Row]:
    """Theirs run side by side while ours go on here."""
    with ThreadPoolExecutor(options.at_once) as pool:
        waiting: list[tuple[Row, Future[str] | None]] = []
        for row in rows_of(options.names):
            port = 49152 + 16 * (len(waiting) % 512)
            waiting.append((row, pool.submit(theirs.verdict, row.tool, row.name, port) if row.tool else None))
        for row, future in waiting:
            yield Row(row.name, row.is_fault, row.ours, row.tool, future.result() if future else "")


if __name__ == "__main__":
    main()
