"""Every block runs exactly once, whoever runs it; whatever happens meanwhile, no launch hangs and none is harmed."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stagekit.diagnostics import StagekitError
from stagekit.runtime import cpu, native_process, pool
from stagekit.runtime.errors import BarrierError
from tests.runtime.handmade import OUT, VISIT, MakeKernel

LONG = 1e6  # ns for a block: shared from the start


@pytest.fixture(autouse=True)
def four_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGEKIT_THREADS", "4")


@given(
    st.integers(1, 3000), st.sampled_from([0.0, 0.5, 1e3, LONG]), st.sampled_from([1, 2, 3, 7, 20]), st.integers(0, 100)
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_block_runs_once(
    make_kernel: MakeKernel, monkeypatch: pytest.MonkeyPatch, blocks: int, cost_ns: float, threads: int, work: int
) -> None:
    monkeypatch.setenv("STAGEKIT_THREADS", str(threads))
    kernel = make_kernel("visit", VISIT)
    kernel._cost.value = cost_ns
    out = np.zeros(blocks, np.int64)

    for _ in range(3):
        kernel.launch((out, work), kernel.request(blocks))

    np.testing.assert_array_equal(out, 3)


@pytest.mark.parametrize("worth_ns", [0, 10**15])
@pytest.mark.parametrize("blocks", [1, 2, 3, 100, 1000])
def test_the_pool_is_made_when_a_launch_lasts(
    make_kernel: MakeKernel, monkeypatch: pytest.MonkeyPatch, blocks: int, worth_ns: int
) -> None:
    kernel, made, out = make_kernel("visit", VISIT), [], np.zeros(blocks, np.int64)
    monkeypatch.setattr(cpu, "_WORTH_A_POOL_NS", worth_ns)
    monkeypatch.setattr(native_process, "has_functions", lambda: bool(made))
    monkeypatch.setattr(kernel, "_provide_pool", lambda: made.append(blocks))

    kernel.launch((out, 10), kernel.request(blocks))

    np.testing.assert_array_equal(out, 1)
    assert len(made) == (worth_ns == 0 and blocks > 1)
    assert kernel._cost.value > 0


def threads_of(kernel: object, blocks: int, work: int) -> Counter[int]:
    """Launch `who`; return how many blocks each thread has run."""
    out = np.zeros(blocks, np.int64)
    kernel.launch((out, work), kernel.request(blocks))  # type: ignore[attr-defined]
    return Counter(out.tolist())


def test_a_short_launch_stays_in_its_thread(make_kernel: MakeKernel) -> None:
    kernel = make_kernel("who", VISIT)
    kernel._cost.value = 10.0

    assert threads_of(kernel, 64, 0).keys() == {threading.get_ident()}


def most_threads(kernel: object, wanted: int = 4) -> int:
    """Launch `who` until so many threads have taken part, for 20 seconds at most: on a busy machine they come late."""
    end, most = time.monotonic() + 20, 0
    while most < wanted and time.monotonic() < end:
        used = threads_of(kernel, 400, 50)
        assert sum(used.values()) == 400
        most = max(most, len(used))
    return most


def test_a_long_launch_is_shared_by_all_threads(make_kernel: MakeKernel) -> None:
    kernel = make_kernel("who", VISIT)

    assert most_threads(kernel) == 4


def test_a_launch_that_was_slow_once_is_measured_again(make_kernel: MakeKernel) -> None:
    kernel = make_kernel("visit", VISIT)
    kernel._cost.value = 1e9

    kernel.launch((np.zeros(64, np.int64), 0), kernel.request(64))

    assert 0 < kernel._cost.value < 1e8


@pytest.mark.parametrize("threads", [2, 4, 9])
def test_blocks_may_wait_for_the_blocks_before_them(
    threads: int, make_kernel: MakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there are more threads than cores, and where none but the caller comes in time."""
    monkeypatch.setenv("STAGEKIT_THREADS", str(threads))
    kernel = make_kernel("in_turn", OUT)
    kernel._cost.value = LONG
    out = np.zeros(1, np.int64)

    kernel.launch((out,), kernel.request(100))

    assert out[0] == 100


def test_a_fault_in_any_thread_ends_the_launch(make_kernel: MakeKernel) -> None:
    kernel = make_kernel("faulty", OUT)
    kernel._cost.value = LONG
    for _ in range(3):  # the workers live on
        out = np.zeros(1, np.int64)
        with pytest.raises(BarrierError):
            kernel.launch((out,), kernel.request(100_000))
        assert out[0] < 100_000


PROGRAM = """
import os, resource, signal, threading, time, warnings
import numpy as np
import stagekit as sk

warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads

@sk.jit
def add(out: sk.Tensor((None,), sk.float32)):
    i = sk.cuda.block_idx("x") * 256 + sk.cuda.thread_idx("x")
    x = sk.float32(0)
    for _ in range(2000):
        x = x * 0.5 + 1.0
    out[i] += x

def launch():
    out = np.zeros(300 * 256, np.float32)
    add[300, 256](out)
    return out

def check(out):
    assert (out == 2).all(), out

for _ in range(3):
    check(launch())
"""


def run_alone(folder: Path, body: str, threads: int = 4) -> None:
    """Run a program in a process of its own after three launches. It must end well, and say nothing."""
    path = folder / "program.py"
    path.write_text(PROGRAM + textwrap.dedent(body))
    environment = {**os.environ, "STAGEKIT_THREADS": str(threads)}
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60, env=environment)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_launch_works_where_no_thread_can_be_started(tmp_path: Path) -> None:
    body = """
        size = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) << 10
        resource.setrlimit(resource.RLIMIT_AS, (size + (2 << 20), -1))  # no stack fits
        os.environ["STAGEKIT_THREADS"] = "4"
        threads = len(os.listdir("/proc/self/task"))
        check(launch())
        assert len(os.listdir("/proc/self/task")) == threads
    """
    run_alone(tmp_path, body, threads=1)


def test_threads_may_launch_at_the_same_time(make_kernel: MakeKernel) -> None:
    """More of them than there are jobs in the pool."""
    kernel = make_kernel("visit", VISIT)
    kernel._cost.value = LONG
    outs = [np.zeros(500, np.int64) for _ in range(12)]

    def work(out: np.ndarray) -> None:
        for _ in range(20):
            kernel.launch((out, 300), kernel.request(500))

    threads = [threading.Thread(target=work, args=(out,)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for out in outs:
        np.testing.assert_array_equal(out, 20)


@pytest.mark.parametrize("where", ["main", "thread"])
def test_a_launch_in_a_forked_child_has_workers_again(where: str, make_kernel: MakeKernel) -> None:
    kernel = make_kernel("who", VISIT)
    kernel._cost.value = LONG
    threads_of(kernel, 400, 50)
    statuses = list[int]()

    def fork() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
            child = os.fork()
        if child == 0:
            signal.alarm(40)
            os._exit(0 if most_threads(kernel, 2) >= 2 else 1)
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    if where == "main":
        fork()
    else:
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()

    assert statuses == [0]


def test_a_process_may_fork_while_others_of_its_threads_launch(tmp_path: Path) -> None:
    body = """
        is_over = False

        def go_on():
            while not is_over:
                check(launch())

        threads = [threading.Thread(target=go_on) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(40):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                check(launch())
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        is_over = True
        for thread in threads:
            thread.join()
    """
    run_alone(tmp_path, body)


def test_a_handler_that_forks_within_a_launch_is_told_in_the_child(make_kernel: MakeKernel) -> None:
    kernel = make_kernel("visit", VISIT)
    out, forked = np.zeros(2000, np.int64), list[int]()

    def fork(*_: object) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            forked.append(os.fork())

    before = signal.signal(signal.SIGALRM, fork)
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        kernel.launch((out, 2_000_000), kernel.request(2000))  # long beside the 20 ms
    except StagekitError as error:
        os._exit(0 if not forked[0] and "FORKED_LAUNCH" in str(error) else 1)
    finally:
        if forked == [0]:
            os._exit(2)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert os.waitstatus_to_exitcode(os.waitpid(forked[0], 0)[1]) == 0
    np.testing.assert_array_equal(out, 1)


@pytest.mark.parametrize("pause", [0, 0.05])
@pytest.mark.parametrize("end", ["pass", "os.kill(os.getpid(), signal.SIGINT)", "raise SystemExit(0)"])
def test_a_process_ends_while_its_workers_look_or_sleep(end: str, pause: float, tmp_path: Path) -> None:
    run_alone(tmp_path, f"try:\n    time.sleep({pause})\n    {end}\nexcept KeyboardInterrupt:\n    pass")


def test_a_process_ends_while_a_daemon_thread_launches(tmp_path: Path) -> None:
    body = """
        def go_on():
            while True:
                launch()

        threading.Thread(target=go_on, daemon=True).start()
        time.sleep(0.1)
    """
    run_alone(tmp_path, body)


def test_ctrl_c_stops_a_launch_and_leaves_nobody_running(make_kernel: MakeKernel) -> None:
    kernel = make_kernel("visit", VISIT)
    out = np.zeros(10_000, np.int64)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            kernel.launch((out, 1_000_000), kernel.request(10_000))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)  # without its handler it would end the process
        signal.signal(signal.SIGALRM, before)
    seen = out.copy()
    time.sleep(0.05)

    np.testing.assert_array_equal(out, seen)
    assert 0 < seen.sum() < 10_000
    kernel.launch((out[:10], 1), kernel.request(10))


def test_launches_that_are_interrupted_at_random_harm_no_later_one(make_kernel: MakeKernel) -> None:
    """By handlers that raise, and by some that return: those let the launch go on."""
    kernel = make_kernel("visit", VISIT)
    kernel._cost.value = LONG
    random, raised = np.random.default_rng(0), list[int]()

    def handle(*_: object) -> None:
        if random.random() < 0.5:
            raised.append(1)
            raise TimeoutError

    before = signal.signal(signal.SIGALRM, handle)
    try:
        for _ in range(30):
            out = np.zeros(400, np.int64)
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, 0.1))
                kernel.launch((out, 150_000), kernel.request(400))
                signal.setitimer(signal.ITIMER_REAL, 0)
                np.testing.assert_array_equal(out, 1)
            except TimeoutError:
                assert out.max() <= 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert raised


def test_workers_are_sent_no_signals_and_hold_no_python_thread(make_kernel: MakeKernel) -> None:
    kernel = make_kernel("who", VISIT)
    kernel._cost.value = LONG
    threads_of(kernel, 400, 50)
    tasks = [Path(task) for task in Path("/proc/self/task").iterdir()]
    workers = [task for task in tasks if (task / "comm").read_text().strip() == "stagekit"]

    assert len(workers) >= 3
    for worker in workers:
        status = dict(line.split(":\t", 1) for line in (worker / "status").read_text().splitlines() if ":\t" in line)
        assert int(status["SigBlk"], 16) & 1 << signal.SIGINT - 1
        assert int(worker.name) not in {thread.native_id for thread in threading.enumerate()}


def test_workers_without_work_sleep(make_kernel: MakeKernel) -> None:
    kernel = make_kernel("who", VISIT)
    kernel._cost.value = LONG
    threads_of(kernel, 400, 50)
    time.sleep(0.1)
    before = time.process_time()
    time.sleep(0.3)

    assert time.process_time() - before < 0.1


@pytest.mark.parametrize("scratch_bytes", [512, 200_000])
def test_each_worker_has_its_own_aligned_scratch(scratch_bytes: int, make_kernel: MakeKernel) -> None:
    kernel = make_kernel("scribble", OUT, scratch_bytes=scratch_bytes)
    out = np.full(5000, -1, np.int64)
    kernel._cost.value = LONG

    kernel.launch((out,), kernel.request(5000))

    np.testing.assert_array_equal(out, 0)


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5"])
def test_a_bad_thread_count_is_told(value: str, monkeypatch: pytest.MonkeyPatch, make_kernel: MakeKernel) -> None:
    monkeypatch.setenv("STAGEKIT_THREADS", value)
    kernel = make_kernel("visit", VISIT)

    with pytest.raises(StagekitError, match=f"BAD_SWITCH.*\n.*STAGEKIT_THREADS='{value}'"):
        kernel.launch((np.zeros(10, np.int64), 1), kernel.request(10))


def test_without_the_switch_there_is_a_thread_per_usable_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STAGEKIT_THREADS")

    assert 1 <= pool.thread_count() <= (os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("group", "files", "cores"),
    [
        ("0::/a/b", {"a/cpu.max": "150000 100000", "a/b/cpu.max": "max 100000"}, 1.5),
        ("0::/", {"cpu.max": "50000 100000"}, 0.5),
        ("0::/a", {"a/cpu.max": "nonsense"}, math.inf),
        ("4:cpu,cpuacct:/a\n1:memory:/a", {"cpu/a/cpu.cfs_quota_us": "300000", "cpu/a/cpu.cfs_period_us": "100000"}, 3),
        ("4:cpu:/a", {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, math.inf),
        (None, {}, math.inf),
    ],
)
def test_the_quota_of_a_control_group_limits_the_cores(
    group: str | None, files: dict[str, str], cores: float, tmp_path: Path
) -> None:
    if group is not None:
        (tmp_path / "cgroup").write_text(f"{group}\n")
    for name, text in files.items():
        (tmp_path / "fs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "fs" / name).write_text(f"{text}\n")

    assert pool._quota(tmp_path / "cgroup", tmp_path / "fs") == cores
