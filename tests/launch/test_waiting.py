"""No launch on the CPU hangs without a report: blocks may wait for each other, whoever waits in vain says so, and a handler of a
signal that raises ends every loop.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import stagekit as sk
from stagekit.backends.host.safepoints import asking_loops, waiting_loops
from stagekit.ir import ops, walk
from stagekit.jit.native_launchers import provide_support
from stagekit.runtime import native_process, pool

pytestmark = pytest.mark.stagekit_unchecked(reason="it is about the threads of the CPU target")


@sk.jit
def for_the_next(flags, out):
    """Each block but the last waits for the one after it."""
    b = sk.cuda.block_idx("x")
    if b + 1 < sk.cuda.grid_dim("x"):
        while sk.load(flags.ptr_to(b + 1), order="acquire") == 0:
            pass
    out[b] += b
    sk.store(flags.ptr_to(b), 1, order="release")


@sk.jit
def for_each_other(flags, out):
    b = sk.cuda.block_idx("x")
    while sk.load(flags.ptr_to(b), order="acquire") == 0:
        pass
    sk.store(flags.ptr_to(1 - b), 1, order="release")


@sk.jit
def for_another_warp(flags, out):
    t = sk.cuda.thread_idx("x")
    if t < 32:
        while sk.load(flags.ptr_to(0), order="acquire") == 0:
            pass
    if t == 32:
        sk.store(flags.ptr_to(0), 1, order="release")


@sk.jit
def for_another_lane(flags, out):
    """One lane gets the lock, and gives it back when all have left the loop."""
    while sk.atomic_cas(flags.ptr_to(0), 0, 1) != 0:
        sk.nanosleep(20)
    out[0] += 1
    sk.atomic_exchange(flags.ptr_to(0), 0)


@sk.jit
def behind_a_grid_barrier(flags, out, state):
    sk.grid_sync(state)
    while sk.load(flags.ptr_to(0), order="acquire") == 0:
        pass


@sk.jit
def counts_for_ever(flags, out):
    x = sk.float32(0)
    while x < 1e30:  # which adding one does not reach
        x += 1
    out[0] = x.to(sk.int32)


@sk.jit
def counts_for_long(flags, out):
    x = sk.int64(0)
    for k in range(sk.int64(1) << 40):
        x = x * 3 + k
    out[0] = x.to(sk.int32)


@sk.jit
def has_barriers(flags, out):
    t, x = sk.cuda.thread_idx("x"), sk.int32(0)
    part = sk.alloc_shared((64,), sk.int32)
    while x >= 0:
        part[t] = x
        sk.syncthreads()
        x = part[63 - t] + (x & 1)
        sk.syncthreads()
    out[0] = x


LAUNCHES = {
    for_each_other: (2, 32),
    for_another_warp: (3, 64),
    for_another_lane: (1, 32),
    behind_a_grid_barrier: (3, 64),
    counts_for_ever: (1, 32),
    counts_for_long: (5, 32),
    has_barriers: (1, 64),
}
IN_VAIN = [for_each_other, for_another_warp, for_another_lane, behind_a_grid_barrier]
by_name = pytest.mark.parametrize("kernel", LAUNCHES, ids=lambda kernel: kernel.__name__)


def launch(kernel: sk.JitFunction) -> None:
    state = [np.zeros(2, np.uint32)] if kernel is behind_a_grid_barrier else []
    kernel[LAUNCHES[kernel]](np.zeros(8, np.int32), np.zeros(8, np.int32), *state)


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("blocks", [1, 2, 40])
def test_blocks_may_wait_for_those_after_them(blocks, threads, monkeypatch):
    monkeypatch.setenv("STAGEKIT_THREADS", threads)
    out = np.zeros(blocks, np.int32)

    for turn in range(1, 3):
        for_the_next[blocks, 32](np.zeros(blocks, np.int32), out)
        np.testing.assert_array_equal(out, np.arange(blocks) * turn)


@pytest.fixture
def impatient():
    provide_support()
    native_process.process().pool.be_patient(150_000_000)
    yield
    native_process.process().pool.be_patient(pool.PATIENCE_NS)


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("kernel", IN_VAIN, ids=lambda kernel: kernel.__name__)
def test_who_waits_in_vain_is_reported(kernel, threads, impatient, monkeypatch):
    monkeypatch.setenv("STAGEKIT_THREADS", threads)

    with pytest.raises(sk.BarrierError, match=r"WAITS_FOR_EVER.*(\n.*)*\n[0-9 ]+\| +while .*") as caught:
        launch(kernel)
    assert kernel.__name__ in str(caught.value)


@pytest.fixture
def alarm():
    """Send SIGALRM after a while; its first handler returns, and the one after that raises."""
    seen = []

    def handle(*_):
        seen.append(time.perf_counter())
        if len(seen) > 1:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handle)
    yield seen
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@by_name
def test_a_handler_that_raises_ends_every_loop(kernel, alarm, monkeypatch):
    """Where there are no native launchers, and where there are; one that returns lets the launch go on."""
    provide_support()
    before = threading.active_count()
    turns = {(lambda: False): 5, native_process.has_functions: 1}  # seconds; the first may interrupt a compile
    for has_functions, limit_s in turns.items():
        monkeypatch.setattr(native_process, "has_functions", has_functions)
        alarm.clear()
        signal.setitimer(signal.ITIMER_REAL, 0.03, 0.07)

        with pytest.raises(KeyboardInterrupt):
            launch(kernel)

        signal.setitimer(signal.ITIMER_REAL, 0)
        assert time.perf_counter() - alarm[1] < limit_s
        while threading.active_count() > before and time.perf_counter() - alarm[1] < limit_s + 2:
            time.sleep(0.001)  # a thread that has said that its block is over may not have ended
        assert threading.active_count() == before


def test_a_launch_that_is_known_as_brief_ends_too(alarm):
    flags, out = np.ones(8, np.int32), np.zeros(8, np.int32)
    for _ in range(3):
        for_another_warp[1, 64](flags, out)
    flags[0] = 0
    signal.setitimer(signal.ITIMER_REAL, 0.03, 0.07)

    with pytest.raises(KeyboardInterrupt):
        for_another_warp[1, 64](flags, out)


def test_another_thread_of_python_may_end_the_wait():
    flags, out = np.zeros(8, np.int32), np.zeros(8, np.int32)
    for_another_warp[1, 64](np.ones(8, np.int32), out)
    threading.Timer(0.05, lambda: flags.fill(1)).start()

    for_another_warp[1, 64](flags, out)


AT_EXIT = """
import atexit
import numpy as np
import stagekit as sk


@sk.jit
def halve(x):
    while x[0] > 1:
        x[0] //= 2


x = np.full(1, 1000)
atexit.register(lambda: print(x))
atexit.register(lambda: halve[1, 1](x))
"""


def test_a_first_launch_at_exit_has_no_need_of_a_thread(tmp_path):
    (tmp_path / "program.py").write_text(AT_EXIT)

    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("[1]\n", "")


# -- which loops wait, and which have safepoints ----------------------------------------------------------------------


def takes_a_lock_and_works(x, n):
    done = False
    while not done:
        if sk.atomic_cas(x.ptr_to(0), 0, 1) == 0:
            x[1] += 1
            sk.atomic_exchange(x.ptr_to(0), 0)
            done = True


def breaks(x, n):
    while True:
        if sk.load(x.ptr_to(0), order="acquire") != 0:
            break
        sk.nanosleep(10)


def tries_again(x, n):
    old = x[0]
    while True:
        seen = sk.atomic_cas(x.ptr_to(0), old, old + 1)
        if seen == old:
            break
        old = seen


def gives_up(x, n):
    tries = 0
    while sk.load(x.ptr_to(0), order="acquire") == 0 and tries < n:
        tries += 1


def takes_tasks(x, n):
    while sk.atomic_add(x.ptr_to(0), 1) < n:
        x[1] += 1


def follows(x, n):
    at = 0
    while at >= 0:
        at = x[at]


def counts_down_in_memory(x, n):
    while x[0] > 0:
        x[0] -= 1


def goes_through(x, n):
    for i in range(n):
        for j in range(1000):
            x[i] += j


def is_short(x, n):
    for i in range(100):
        for j in range(100):
            x[i] += j


def is_long(x, n):
    for i in range(1000):
        for j in range(1000):
            x[i] += j


@pytest.mark.parametrize(
    ("loop", "waits", "asks"),
    [
        (takes_a_lock_and_works, 0, 1),
        (breaks, 1, 1),
        (tries_again, 0, 1),
        (gives_up, 0, 1),
        (takes_tasks, 0, 1),
        (follows, 0, 1),
        (counts_down_in_memory, 0, 1),
        (goes_through, 0, 1),
        (is_short, 0, 0),
        (is_long, 0, 1),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_which_loops_wait_and_which_ask(loop, waits, asks):
    ir = sk.jit(loop).specialize(x=sk.Tensor((None,), sk.int32), n=sk.int32).trace().function

    assert len(waiting_loops(ir)) == waits
    assert len(asking_loops(ir)) == asks
    assert {type(op) for op in waiting_loops(ir)} <= {ops.While}
    assert asking_loops(ir) <= {*walk(ir.body)}


# -- atomics that are used to read ------------------------------------------------------------------------------------

READS = {
    "add": (lambda p: sk.atomic_add(p, 0), "int32"),
    "add of floats": (lambda p: sk.atomic_add(p, 0), "float32"),
    "add of halves": (lambda p: sk.atomic_add(p, 0), "float16"),
    "add of two halves": (lambda p: sk.atomic_add_pair(p, 0, 0)[0], "float16"),
    "sub": (lambda p: sk.atomic_sub(p, 0), "int32"),
    "max": (lambda p: sk.atomic_max(p, 0), "int32"),
    "max of floats": (lambda p: sk.atomic_max(p, 0), "float32"),
    "min": (lambda p: sk.atomic_min(p, 100), "int64"),
    "and": (lambda p: sk.atomic_and(p, -1), "int32"),
    "or": (lambda p: sk.atomic_or(p, 0), "uint32"),
    "xor": (lambda p: sk.atomic_xor(p, 0), "int32"),
    "inc": (lambda p: sk.atomic_inc(p, 0), "uint32"),
    "dec": (lambda p: sk.atomic_dec(p, 0), "uint32"),
    "exchange": (lambda p: sk.atomic_exchange(p, 0), "int32"),
    "cas": (lambda p: sk.atomic_cas(p, 7, 7), "int32"),
    "cas of floats": (lambda p: sk.atomic_cas(p, 7, 7), "float32"),
    "cas of pairs": (lambda p: sk.atomic_cas_pair(p, 7, 7, 7, 7)[0], "int64"),
    "exchange of pairs": (lambda p: sk.atomic_exchange_pair(p, 0, 0)[0], "int64"),
}


def polls(read):
    def polls_before(x):
        while read(x.ptr_to(0)) == 0:
            pass

    return polls_before


def polls_inside(read):
    def polls_until(x):
        while True:
            if read(x.ptr_to(0)) != 0:
                break
            sk.nanosleep(10)

    return polls_until


@pytest.mark.parametrize("form", [polls, polls_inside])
@pytest.mark.parametrize("name", READS)
def test_who_polls_by_an_atomic_waits(name, form, impatient):
    read, dtype = READS[name]

    with pytest.raises(sk.BarrierError, match="WAITS_FOR_EVER"):
        sk.jit(form(read))[2, 32](np.zeros(2, dtype))


def goes_up(x, n):
    while sk.atomic_max(x.ptr_to(0), x[1]) < n:
        pass


def counts_up(x, n):
    k = 0
    while sk.atomic_max(x.ptr_to(0), k) < n:
        k += 1


def turns_bits(x, n):
    while sk.atomic_xor(x.ptr_to(0), n) != 0:
        pass


def asks_for_a_bit(x, n):
    while (sk.atomic_or(x.ptr_to(0), 1 << n) >> n) & 1 == 0:
        pass


@pytest.mark.parametrize(("loop", "waits"), [(goes_up, 0), (counts_up, 0), (turns_bits, 0), (asks_for_a_bit, 1)])
def test_an_atomic_that_moves_on_is_no_wait(loop, waits):
    ir = sk.jit(loop).specialize(x=sk.Tensor((None,), sk.int32), n=sk.int32).trace().function

    assert len(waiting_loops(ir)) == waits
