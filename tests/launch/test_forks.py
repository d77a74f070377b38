"""A process is forked while its other threads trace and compile (R21): its children go on as if these had never begun."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stagekit.forks import cached_property, importing, new_lock

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

PROGRAM = """
import faulthandler, gc, os, sys, threading, time
import numpy as np
import stagekit as sk

@sk.jit
def fill(out, V: sk.constexpr):
    for i in sk.static_range(20):
        out[i] = out[i] * V + i

def value(v):
    out = np.ones(20, np.float32)
    fill[1, 1](out, v)
    assert out[3] == v + 3

value(0)
limit, latest, is_over = sys.getrecursionlimit(), [0], threading.Event()

def compile_on_and_on():
    while not is_over.is_set():
        latest[0] += 1
        value(latest[0])

threads = [threading.Thread(target=compile_on_and_on) for _ in range(2)]
for thread in threads:
    thread.start()
for trial in range(int(sys.argv[1])):
    time.sleep(0.003 * (trial % 7))
    child = os.fork()
    if not child:
        faulthandler.dump_traceback_later(60, exit=True)
        code = 1
        try:
            value(latest[0])  # which another thread was making when it was lost
            value(-trial - 1)
            assert gc.isenabled(), "it was off while that thread traced"
            assert sys.getrecursionlimit() == limit
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
is_over.set()
for thread in threads:
    thread.join()
assert gc.isenabled()
assert sys.getrecursionlimit() == limit
print("well")
"""


def check(tmp_path: Path, children: int) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "program.py", str(children)]
    around = {**os.environ, "STAGEKIT_CACHE": "0"}
    done = subprocess.run(command, cwd=tmp_path, env=around, capture_output=True, text=True, timeout=500, check=False)
    assert done.stdout == "well\n", done.stderr


def test_children_compile_what_the_lost_threads_were_compiling(tmp_path: Path) -> None:
    check(tmp_path, 12)


@pytest.mark.slow
def test_many_children_compile_what_the_lost_threads_were_compiling(tmp_path: Path) -> None:
    check(tmp_path, 200)


def status_of_child(work: object) -> int:
    child = os.fork()
    if not child:
        try:
            os._exit(int(not work()))  # type: ignore[operator]
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1]


def test_a_lock_of_another_thread_is_free_in_a_child() -> None:
    lock, is_taken, may_go = new_lock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            is_taken.set()
            may_go.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    is_taken.wait()
    status = status_of_child(lambda: lock.acquire(timeout=5))
    may_go.set()
    thread.join()

    assert status == 0


def test_a_property_that_another_thread_computes_is_computed_in_a_child() -> None:
    is_begun, may_go = threading.Event(), threading.Event()

    class Slow:
        @cached_property
        def value(self) -> int:
            is_begun.set()
            may_go.wait(20)
            return 1

    thread = threading.Thread(target=lambda: Slow().value)
    thread.start()
    is_begun.wait()

    def compute() -> int:
        may_go.set()
        return Slow().value

    try:
        assert status_of_child(compute) == 0
    finally:
        may_go.set()
        thread.join()


def test_a_lock_of_the_thread_that_forks_stays_its_own() -> None:
    lock = new_lock()

    def release() -> bool:
        lock.release()
        return True

    with lock:
        assert status_of_child(release) == 0


def test_a_fork_waits_until_no_thread_imports_a_module() -> None:
    """The locks of modules are CPython's: a child would wait for ever for one that a lost thread has half imported."""
    is_taken, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        with importing:
            is_taken.set()
            is_over.wait(0.2)
            is_over.set()

    thread = threading.Thread(target=hold)
    thread.start()
    is_taken.wait()
    status = status_of_child(is_over.is_set)
    thread.join()

    assert status == 0
