"""Signals, forks, threads and ends of processes around launches on the CPU: everything is counted, nothing may hang or be wrong.

    python -m tests.launch.stress [--interrupts 200] [--forks 1000] [--ends 100]

Each trial runs in a process of its own with a limit of time. One is right if what was launched afterwards gives the right values,
nobody runs on, and the process ends.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.launch.test_forks import PROGRAM as FORKS

PRELUDE = """
import faulthandler, os, random, signal, sys, threading, time
import numpy as np
import stagekit as sk

count, seed = int(sys.argv[1]), int(sys.argv[2])
faulthandler.dump_traceback_later(float(sys.argv[3]), exit=True)
random.seed(seed)


@sk.jit
def rounds(out, n, turns):
    i = sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")
    x = sk.int64(0)
    for k in range(turns):
        x = x * 3 + i + k
    if i < n:
        out[i] = x


@sk.jit
def tiled(x, out, BLOCK: sk.constexpr):
    g, i = sk.program_id(0), sk.arange(0, BLOCK)
    out[g] = sk.reduce_sum(sk.load(x + g * BLOCK + i))


@sk.jit
def in_vain(flags):
    while sk.load(flags.ptr_to(sk.program_id(0)), order="acquire") == 0:
        pass


@sk.jit
def made_anew(out, V: sk.constexpr):
    out[sk.cuda.thread_idx("x")] = V


def expected(n, turns):
    x, i = np.zeros(n, np.int64), np.arange(n)
    for k in range(turns):
        x = x * 3 + i + k
    return x


RIGHT = expected(4096, 20)
ONES = np.ones(64 * 256, np.float32)


def check():
    out = np.zeros(4096, np.int64)
    rounds[128, 32](out, 4096, 20)
    assert (out == RIGHT).all()
    sums = np.zeros(64, np.float32)
    tiled[64](ONES, sums, 256)
    assert (sums == 256).all()


check()
"""

INTERRUPTS = (
    PRELUDE
    + """
class Stopped(BaseException):
    pass


def handle(*_):
    seen[0] += 1
    if random.random() < 0.7:
        raise Stopped


seen, raised, is_over = [0], 0, threading.Event()


def beside():
    while not is_over.is_set():
        check()


threads = [threading.Thread(target=beside) for _ in range(2)]
for thread in threads:
    thread.start()
signal.signal(signal.SIGALRM, handle)
large = np.zeros(200_000, np.int64)
while seen[0] < count:
    what = random.randrange(4)
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, 0.05), 0.05 * (what == 3))
        if what == 3:
            in_vain[random.randrange(1, 9)](np.zeros(8, np.int32))  # until the handler raises
        elif what == 0:
            rounds[6250, 32](large, len(large), 2000)
        elif what == 1:
            tiled[64](ONES, np.zeros(64, np.float32), 256)
        else:
            out = np.zeros(8, np.int64)
            made_anew[1, 8](out, seen[0] * 1000 + random.randrange(1000))
    except Stopped:
        raised += 1
    while True:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
            break
        except Stopped:
            raised += 1
    check()
is_over.set()
for thread in threads:
    thread.join()
before = large.copy()
time.sleep(0.05)
assert (before == large).all()
assert raised > count // 4
print("well", seen[0], raised)
"""
)

ENDS = (
    PRELUDE
    + """
def go_on():
    while True:
        check()


for k in range(2):
    threading.Thread(target=go_on, daemon=True).start()
threading.Thread(target=lambda: [made_anew[1, 8](np.zeros(8, np.int64), v) for v in range(3)]).start()
time.sleep(random.uniform(0, 0.2))
how = seed % 4
print("well", flush=True)
if how == 1:
    sys.exit(0)
if how == 2:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
    except KeyboardInterrupt:
        pass
if how == 3:
    faulthandler.cancel_dump_traceback_later()  # its lock is none that a child could take
    if not os.fork():
        faulthandler.dump_traceback_later(45, exit=True)
        check()
        os._exit(0)
    assert os.wait()[1] == 0
"""
)


def trial(folder: Path, name: str, program: str, *args: int, limit_s: float) -> str:
    """Run one program; return what it printed, or raise with what went wrong."""
    path = folder / f"{name}.py"
    path.write_text(program)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(path), *map(str, args), str(limit_s - 10)]
    around = {**os.environ, "STAGEKIT_CACHE": "0"}
    done = subprocess.run(command, env=around, capture_output=True, text=True, timeout=limit_s, check=False)
    if done.returncode or not done.stdout.startswith("well"):
        raise AssertionError(f"{name} {args} ended with {done.returncode}: {done.stdout}{done.stderr[-3000:]}")
    return done.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--interrupts", type=int, default=200)
    parser.add_argument("--forks", type=int, default=1000)
    parser.add_argument("--ends", type=int, default=100)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, begun = Path(name), time.perf_counter()

        def told(what: str) -> None:
            print(f"{time.perf_counter() - begun:7.1f} s  {what}", flush=True)  # noqa: T201

        for seed in range(given.ends):
            trial(folder, "ends", ENDS, 0, seed, limit_s=90)
        told(f"{given.ends} processes ended in the middle of launches")
        told(f"interrupts: {trial(folder, 'interrupts', INTERRUPTS, given.interrupts, 1, limit_s=500)}")
        for first in range(0, given.forks, 50):
            trial(folder, "forks", FORKS, min(50, given.forks - first), limit_s=500)
        told(f"{given.forks} children of processes that compiled meanwhile")


if __name__ == "__main__":
    main()
