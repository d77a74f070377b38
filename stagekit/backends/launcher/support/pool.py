"""Launches on the CPU: in the calling thread, or shared with a pool of threads that know nothing of Python.

    run_blocks(process, code, cost, slots, grid, first, last, scratch_bytes)     from a launcher, and from Python by ctypes
    run_apart(process, code, cost, slots, grid, blocks, scratch_bytes)           from a thread of another library, such as XLA's
    ask(safepoint, place)                                                        from loops of kernels, every millisecond or so

A launch is shared where it lasts longer than handing over. Nobody knows beforehand, so the first one begins alone, and looks at
the clock; later ones go by what a block cost the time before.

A shared launch takes a JOB of the POOL (`native_tables.py`). Its blocks are cut into a range for each thread, so that a thread
finds in its cache what it left there. Each takes chunks of its own range, smaller and smaller ones, then of the ranges after it.
The caller has the first range and goes on in ascending order: all blocks below one that it has begun are taken, so that blocks
may wait for those before them, whether any other thread comes or not. The first thread that finds no chunk left closes the job,
and the caller waits for those who joined while it was open.

Workers that have nothing to do look at the POOL's ticket for a while, then sleep on it (futex). They stop looking as soon as the
system has given their core to somebody else, and never look where there are more threads than cores. In the main thread, Python's
handlers of signals run every 50 ms, between chunks and at safepoints of loops.

A kernel with loops that wait is shared block by block, as any block may wait for any other. A thread that waits for 2 ms while
there are blocks that nobody has begun has one more worker help. Where all threads wait and no block is left, nobody can end it:
after `patience_ns` that is a fault.

Source: Polychronopoulos and Kuck, Guided Self-Scheduling, 1987; Drepper, Futexes Are Tricky, 2011.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import NamedTuple

from stagekit import native_tables as tables
from stagekit.backends.launcher.registers import PTR, Reg
from stagekit.backends.launcher.routine import Routine, function
from stagekit.dtypes import bool_, float64, int32, int64

WORTH_RELEASING_NS = 5_000.0  # below, letting other Python threads run costs more than it gives
WORTH_SHARING_NS = 50_000.0  # below, a launch stays in its thread: waking the others may take as long
SCRATCH_ON_STACK = 64 * 1024  # bytes
_LEAST_NS = 0.5  # that a block is taken to cost: 0 means not known
_LEAST_CHUNK_NS, _MOST_CHUNK_NS = 5_000.0, 20_000_000.0
_SIGNALS_EVERY_NS = 50_000_000
_NEVER_NS = 1 << 62  # a time that no clock comes to: as if signals had been looked at then
_ASK_OFTEN_NS, _ASK_SELDOM_NS = 250_000, 1_000_000  # between two times that a thread asks at safepoints
_FIRST_INTERVAL, _LONGEST_INTERVAL = 256, 1 << 24  # iterations
_HELP_AFTER_NS = 2_000_000  # of waiting
_MOST_HELPERS = 1023
_TAKEN_AWAY_NS = 50_000  # between two looks at the clock: somebody else had the core
_CALLER_LOOKS = 10  # times as long as a worker: it does not wait for nothing
_PARTS = 3  # a chunk is the eighth part of what is left of a range: so many bits
_MONOTONIC = 1  # CLOCK_MONOTONIC
_SET_MASK = 2  # SIG_SETMASK
_SIGSET_BYTES = 128
_OPEN, _IS_AWAITED = 1 << 30, 1 << 29  # bits of a job's state; below them the number of helpers
_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), 0)  # the number of the system call
_WAIT, _WAKE = 128, 129  # futex operations, private to the process
_EVERYBODY, _WOKEN = 0x7FFFFFFF, 4  # threads that a call wakes


# A launch -----------------------------------------------------------------------------------------------------------


class BlockLaunch(NamedTuple):
    """What a launch is made of: the blocks from `first` to before `last`.

    cost: where it says what a block costs in ns. thread: of Python, or null while it has the GIL. waits: may blocks wait for
    others?
    """

    process: Reg
    code: Reg
    cost: Reg
    slots: Reg
    grid: Reg
    first: Reg
    last: Reg
    scratch_bytes: Reg
    scratch: Reg
    threads: Reg
    thread: Reg
    waits: Reg
    safepoint: Reg

    def run(self, r: Routine, first: Reg | int, last: Reg) -> Reg:
        """Run some blocks here; return what the kernel reports."""
        return r.call_at(self.code, int32, self.slots, self.grid, first, last, self.scratch, self.safepoint)

    def is_worth_sharing(self, blocks: Reg) -> Reg:
        return (self.cost.load(float64) * blocks.to(float64) >= WORTH_SHARING_NS) | (self.waits & (blocks > 1))

    def note_cost(self, r: Routine, time: Reg, blocks: Reg) -> None:
        measured = time.to(float64) / blocks.to(float64)
        self.cost.store((measured < _LEAST_NS).select(r.number(_LEAST_NS, float64), measured))


@function(int32, tables.PROCESS, PTR, PTR, PTR, PTR, int64, int64, int64)
def run_blocks(
    r: Routine, process: Reg, code: Reg, cost: Reg, slots: Reg, grid: Reg, first: Reg, last: Reg, scratch_bytes: Reg
) -> None:
    """Run the blocks of a launch, without the GIL unless they are brief; return 0, what the kernel reports, or a fault of
    `native_tables`. cost: what a block cost at the last launch, in ns, 0 before the first; then, whether blocks may wait for
    others.
    """
    known, count = cost.load(float64), last - first
    waits = (cost.item(1, int64) != 0) & (count > 1)
    is_brief = (known > 0.0) & (known * count.to(float64) < WORTH_RELEASING_NS) & ~waits
    threads = r.if_else(is_brief, lambda: r.number(1), lambda: thread_count.call(r, process))
    with r.if_then(threads == 0):
        r.ret(r.number(tables.RAISED, int32))
    thread = r.if_else(is_brief, lambda: r.null, lambda: r.call(PTR, "PyEval_SaveThread"))
    safepoint = _safepoint(r, process=process, thread=thread)
    launch = process, code, cost, slots, grid, first, last, scratch_bytes
    fault = _run_with_scratch(r, *launch, threads=threads, thread=thread, waits=waits, safepoint=safepoint)
    with r.if_then(thread.is_set()):
        r.call_void("PyEval_RestoreThread", thread)
    r.ret((safepoint.field("raised", int64) != 0).select(r.number(tables.RAISED, int32), fault))


@function(int32, tables.PROCESS, PTR, PTR, PTR, PTR, int64, int64)
def run_apart(
    r: Routine, process: Reg, code: Reg, cost: Reg, slots: Reg, grid: Reg, blocks: Reg, scratch_bytes: Reg
) -> None:
    """Run all blocks of a launch in a thread that need not know Python, and has no GIL: no handler of a signal runs meanwhile.

    As many threads share it as were counted last.
    """
    threads, waits = _at_least(r, process.field("threads", int64), 1), (cost.item(1, int64) != 0) & (blocks > 1)
    safepoint = _safepoint(r, process=process, looked=r.number(_NEVER_NS))
    launch = process, code, cost, slots, grid, r.number(0), blocks, scratch_bytes
    r.ret(_run_with_scratch(r, *launch, threads=threads, thread=r.null, waits=waits, safepoint=safepoint))


def _run_with_scratch(
    r: Routine,
    process: Reg,
    code: Reg,
    cost: Reg,
    slots: Reg,
    grid: Reg,
    first: Reg,
    last: Reg,
    scratch_bytes: Reg,
    **rest: Reg,
) -> Reg:
    """Run a launch with scratch memory of its own. rest: of the BlockLaunch."""
    is_large = scratch_bytes > SCRATCH_ON_STACK
    on_stack = r.alloca_here(is_large.select(r.number(1), scratch_bytes), tables.SCRATCH_ALIGN)
    scratch = r.if_else(is_large, lambda: _allocate(r, scratch_bytes), lambda: on_stack)
    launch = BlockLaunch(process, code, cost, slots, grid, first, last, scratch_bytes, scratch, **rest)
    fault = r.if_else(scratch.is_set(), lambda: _run(r, launch), lambda: r.number(tables.NO_MEMORY, int32))
    with r.if_then(is_large):
        r.call_void("free", scratch)
    return fault


def _allocate(r: Routine, size: Reg) -> Reg:
    align = tables.SCRATCH_ALIGN
    return r.call(PTR, "aligned_alloc", align, (size + (align - 1)) & -align)


@function(int64, tables.PROCESS)
def thread_count(r: Routine, process: Reg) -> None:
    """Return how many threads share a launch; 0 with an exception if the switch is no number. Python is asked when the switch
    is another object than the last time.
    """
    switch = r.call(PTR, "PyDict_GetItemWithError", process.field("environment"), process.field("threads_switch"))
    with r.if_then((process.field("threads", int64) == 0) | (switch != process.field("threads_seen"))):
        answer = r.call_python(process.field("count_threads"))
        r.require(answer.is_set())
        r.decref(answer)
    r.ret(process.field("threads", int64))


def _run(r: Routine, launch: BlockLaunch) -> Reg:
    """Run a part of the blocks here unless it is known that they last; share the rest if it does."""
    known, count, before = launch.cost.load(float64), launch.last - launch.first, _now(r)

    def begin() -> tuple[Reg, Reg]:
        tried = (known > 0.0).select(_at_least(r, count >> 6, 1), 1)
        fault = launch.run(r, launch.first, launch.first + tried)
        launch.note_cost(r, _now(r) - before, tried)
        return launch.first + tried, fault

    first, fault = r.if_else(launch.is_worth_sharing(count), lambda: (launch.first, r.number(0, int32)), begin)
    rest = launch.last - first

    def alone() -> Reg:
        fault = launch.run(r, first, launch.last)
        launch.note_cost(r, _now(r) - before, count)
        return fault

    def go_on() -> Reg:
        return r.if_else(launch.is_worth_sharing(rest), lambda: _share(r, launch, first), alone)

    return r.if_else((fault != 0) | (rest == 0), lambda: fault, go_on)


def _at_least(r: Routine, number: Reg, least: int) -> Reg:
    return (number < least).select(r.number(least, number.dtype), number)


def _now(r: Routine) -> Reg:
    """Return the time in nanoseconds."""
    time = r.alloca(2 * tables.WORD)
    r.call(int32, "clock_gettime", r.number(_MONOTONIC, int32), time)
    return time.item(0, int64) * 1_000_000_000 + time.item(1, int64)


# A shared launch ----------------------------------------------------------------------------------------------------


def _share(r: Routine, launch: BlockLaunch, first: Reg) -> Reg:
    """Run the blocks from `first` on with the pool, or alone where all its jobs are taken."""
    pool, found = launch.process.field("pool", tables.POOL), r.variable(r.null)
    with r.loop(r.number(tables.JOBS)) as place, r.if_then(found.load().is_null()):
        job = _job(pool, place)
        with r.if_then(job.address_of("is_taken").atomic("xchg", r.number(1)) == 0):
            found.store(job)
    job = found.load(tables.JOB)
    return r.if_else(
        job.is_null(), lambda: launch.run(r, first, launch.last), lambda: _run_job(r, launch, pool, job, first)
    )


def _run_job(r: Routine, launch: BlockLaunch, pool: Reg, job: Reg, first: Reg) -> Reg:
    before, per_block, count = _now(r), launch.cost.load(float64), launch.last - first
    threads = (launch.threads < count).select(launch.threads, count)
    fields = {name: getattr(launch, name) for name in ("code", "slots", "grid", "scratch_bytes")}
    fields |= {"threads": threads, "fault": r.number(0), "owner": r.call(PTR, "pthread_self")}
    fields |= {"helpers": threads - 1, "waiting": r.number(0), "changed": before, "pool": pool}
    for name, time in {"least": _LEAST_CHUNK_NS, "most": _MOST_CHUNK_NS}.items():
        fields[name] = launch.waits.select(r.number(1), _blocks_in(r, time, per_block))
    for name, value in fields.items():
        job.address_of(name).store(value)
    _cut(r, job, first, count, threads)
    launch.safepoint.address_of("job").store(job)
    with r.if_then((threads > 1) | launch.waits):
        start_workers.call(r, pool, threads - 1)
        job.address_of("state").atomic("or", r.number(_OPEN, int32))
        _announce(r, pool)
    work.call(r, job, 0, launch.scratch, launch.safepoint)
    _count_waiting(r, job, 1)  # until nobody helps any more, it can end no block
    await_helpers.call(r, pool, job, launch.safepoint)
    fault = job.field("fault", int64).to(int32)
    launch.safepoint.address_of("job").store(r.null)
    job.address_of("is_taken").atomic_store(r.number(0))
    launch.note_cost(r, (_now(r) - before) * threads, count)
    return fault


def _job(pool: Reg, place: Reg) -> Reg:
    return pool.at(place * tables.JOB_BYTES + tables.LINE, tables.JOB)


def _blocks_in(r: Routine, time: float, per_block: Reg) -> Reg:
    """Return how many blocks take so many ns, at least one."""
    return _at_least(r, (r.number(time, float64) / per_block).to(int64), 1)


def _range(job: Reg, place: Reg) -> Reg:
    return job.at(place * tables.LINE + 2 * tables.LINE, tables.RANGE)


def _cut(r: Routine, job: Reg, first: Reg, count: Reg, threads: Reg) -> None:
    """Give each thread a range: equal ones, of which the first have a block more."""
    part, longer = count // threads, count % threads
    with r.loop(threads) as place:
        begin = first + part * place + (place < longer).select(place, longer)
        _range(job, place).address_of("next").store(begin)
        _range(job, place).address_of("end").store(begin + part + (place < longer).to(int64))


def _announce(r: Routine, pool: Reg) -> None:
    """Tell workers that there is something to do."""
    pool.address_of("ticket").atomic("add", r.number(1, int32))
    _wake_some(r, pool)


@function(bool_, tables.JOB, int64, PTR, tables.SAFEPOINT)
def work(r: Routine, job: Reg, index: Reg, scratch: Reg, safepoint: Reg) -> None:
    """Run chunks until none is left, then close the job."""
    code, slots, grid = (job.field(name) for name in ("code", "slots", "grid"))
    threads, least, most = (job.field(name, int64) for name in ("threads", "least", "most"))
    with r.loop(threads) as step:
        place = index + step
        own = _range(job, (place < threads).select(place, place - threads))
        next_block, end = own.address_of("next"), own.field("end", int64)
        with r.repeat(lambda: next_block.atomic_load(int64) < end):
            part = (end - next_block.atomic_load(int64)) >> _PARTS
            part = (part < most).select(part, most)
            chunk = (part < least).select(least, part)
            start = next_block.atomic("add", chunk)
            with r.if_then(start < end):
                past = (end - start < chunk).select(end, start + chunk)
                fault = r.call_at(code, int32, slots, grid, start, past, scratch, safepoint)
                fault = r.if_else(fault == 0, lambda: _handle_signals(r, safepoint), lambda fault=fault: fault)  # type: ignore[misc]
                with r.if_then(fault != 0):
                    _stop(r, job, fault)
    job.address_of("state").atomic("and", r.number(~_OPEN, int32))
    r.ret(True)


def _stop(r: Routine, job: Reg, fault: Reg) -> None:
    """Stop the handing out of chunks."""
    job.address_of("fault").atomic_store(fault.to(int64))
    with r.loop(job.field("threads", int64)) as place:
        own = _range(job, place)
        own.address_of("next").atomic_store(own.field("end", int64))


@function(bool_, tables.POOL, tables.JOB, tables.SAFEPOINT)
def await_helpers(r: Routine, pool: Reg, job: Reg, safepoint: Reg) -> None:
    """Wait until all have left a job that is closed."""
    state, helpers = job.address_of("state"), _IS_AWAITED - 1

    def has_helpers() -> Reg:
        return (state.atomic_load(int32) & helpers) != 0

    def sleep() -> None:
        seen = state.atomic("or", r.number(_IS_AWAITED, int32)) | _IS_AWAITED
        with r.if_then((seen & helpers) != 0):
            _futex(r, state, _WAIT, seen.to(int64), _SIGNALS_EVERY_NS)
        state.atomic("and", r.number(~_IS_AWAITED, int32))
        fault = _handle_signals(r, safepoint)
        with r.if_then(fault != 0):
            _stop(r, job, fault)

    _look_then_sleep(r, pool.field("looking_ns", int64) * _CALLER_LOOKS, has_helpers, sleep)
    r.ret(True)


def _look_then_sleep(r: Routine, looking_ns: Reg, must_wait: Callable[[], Reg], sleep: Callable[[], None]) -> None:
    """Wait in a loop that looks at memory, and from some time on sleeps between two looks."""
    start = _now(r)
    last, until = r.variable(start), start + looking_ns
    with r.repeat(must_wait):
        r.pause()
        now = _now(r)
        with r.if_then((now >= until) | (now - last.load(int64) > _TAKEN_AWAY_NS)):
            sleep()
        last.store(now)


def _futex(r: Routine, address: Reg, operation: int, value: Reg | int, limit_ns: int = 0) -> None:
    """Wait or wake. limit_ns: for how long to wait at most, less than a second; 0 for ever."""
    limit = r.array_of([r.number(0), r.number(limit_ns)]) if limit_ns else r.null
    r.call(int64, "syscall", _FUTEX, address, operation, value, limit)


# Safepoints ---------------------------------------------------------------------------------------------------------


def _safepoint(r: Routine, **objects: Reg) -> Reg:
    """Return what loops of a launch in this thread look at. objects: its `process` and `thread`, or the worker's `job`."""
    safepoint = r.alloca(tables.size(tables.SAFEPOINT), tables.SAFEPOINT)
    first = r.number(_FIRST_INTERVAL)
    values = {**dict.fromkeys(tables.SAFEPOINT, r.number(0)), "countdown": first, "interval": first}
    for name, value in {**values, "ask": r.symbol(ask.symbol), **objects}.items():
        safepoint.address_of(name).store(value)
    return safepoint


@function(int32, tables.SAFEPOINT, int64)
def ask(r: Routine, safepoint: Reg, place: Reg) -> None:
    """Return 0 if a thread shall go on with its blocks, else the fault with which it leaves them. place: as in SAFEPOINT."""
    now, job, interval = _now(r), safepoint.field("job", tables.JOB), safepoint.field("interval", int64)
    elapsed = now - safepoint.field("asked", int64)
    longer = ((elapsed < _ASK_OFTEN_NS) & (interval < _LONGEST_INTERVAL)).select(interval * 2, interval)
    interval = ((elapsed > _ASK_SELDOM_NS) & (interval > 1)).select(interval >> 1, longer)
    for name, value in {"interval": interval, "countdown": interval, "asked": now}.items():
        safepoint.address_of(name).store(value)
    fault = _handle_signals(r, safepoint)
    with r.if_then(fault != 0):
        r.ret(fault)
    with r.if_then(job.is_set()):
        found = job.address_of("fault").atomic_load(int64)
        with r.if_then(found != 0):
            r.ret(found.to(int32))
    with r.if_then(place != 0):
        r.ret(wait.call(r, safepoint, place, now))
    r.ret(r.number(0, int32))


def _handle_signals(r: Routine, safepoint: Reg) -> Reg:
    """Every now and then let other threads of Python run, and in the main thread the handlers of signals that have come. Return
    RAISED where one raises, else 0.
    """
    process, thread, fault = (
        safepoint.field("process", tables.PROCESS),
        safepoint.field("thread"),
        r.variable(r.number(0, int32)),
    )
    may_raise = safepoint.field("raised", int64) == 0  # no handler runs while an exception is set
    with r.if_then(process.is_set() & may_raise):
        now, looked = _now(r), safepoint.field("looked", int64)
        with r.if_then(now - looked > _SIGNALS_EVERY_NS):
            safepoint.address_of("looked").store(now)
            with r.if_then(looked != 0):
                held = r.if_else(thread.is_null(), lambda: r.call(PTR, "PyEval_SaveThread"), lambda: thread)
                r.call_void("PyEval_RestoreThread", held)
                with r.if_then(r.call(int32, "PyErr_CheckSignals") != 0):
                    safepoint.address_of("raised").store(r.number(1))
                    fault.store(r.number(tables.RAISED, int32))
                with r.if_then(thread.is_set()):
                    r.call(PTR, "PyEval_SaveThread")
    return fault.load(int32)


@function(int32, tables.SAFEPOINT, int64, int64)
def wait(r: Routine, safepoint: Reg, place: Reg, now: Reg) -> None:
    """Go on to wait, or leave a loop that waits; return 0, or WAITS and the place if nobody else can end it."""
    job, since, nothing = safepoint.field("job", tables.JOB), safepoint.field("since", int64), r.number(0, int32)
    begins, ends = (place > 0) & (since == 0), place < 0
    with r.if_then(begins | ends):
        safepoint.address_of("since").store(ends.select(r.number(0), now))
        with r.if_then(job.is_set()):
            _count_waiting(r, job, ends.select(r.number(-1), 1))
        r.ret(nothing)
    r.call(int32, "sched_yield")
    with r.if_then(job.is_set()):
        has_more = r.variable(r.false)
        with r.loop(job.field("threads", int64)) as index:
            own = _range(job, index)
            with r.if_then(own.address_of("next").atomic_load(int64) < own.field("end", int64)):
                has_more.store(r.true)
        with r.if_then(has_more.load(bool_)):
            with r.if_then(now - since > _HELP_AFTER_NS):
                summon.call(r, job)
            r.ret(nothing)
        others = (job.address_of("state").atomic_load(int32) & (_IS_AWAITED - 1)).to(int64)
        with r.if_then(job.address_of("waiting").atomic_load(int64) <= others):
            r.ret(nothing)
        with r.if_then(
            now - job.address_of("changed").atomic_load(int64)
            > job.field("pool", tables.POOL).field("patience_ns", int64)
        ):
            r.ret((place + tables.WAITS).to(int32))
        r.ret(nothing)
    patience_ns = safepoint.field("process", tables.PROCESS).field("pool", tables.POOL).field("patience_ns", int64)
    r.ret((now - since > patience_ns).select((place + tables.WAITS).to(int32), nothing))


def _count_waiting(r: Routine, job: Reg, change: Reg | int) -> None:
    """Note that one more thread waits in a job, or one less."""
    job.address_of("changed").atomic_store(_now(r))
    job.address_of("waiting").atomic("add", change if isinstance(change, Reg) else r.number(change))


@function(bool_, tables.JOB)
def summon(r: Routine, job: Reg) -> None:
    """Have one more worker help with a job."""
    pool, helpers = job.field("pool", tables.POOL), job.address_of("helpers")
    r.require(helpers.atomic_load(int64) < _MOST_HELPERS)
    helpers.atomic("add", r.number(1))
    start_workers.call(r, pool, pool.address_of("started").atomic_load(int64) + 1)
    _announce(r, pool)
    r.ret(True)


# Workers ------------------------------------------------------------------------------------------------------------


@function(bool_, tables.POOL, int64)
def start_workers(r: Routine, pool: Reg, wanted: Reg) -> None:
    """Have so many workers, or fewer if the system gives no more threads. They are never sent a signal."""
    started, is_refused = pool.address_of("started"), r.variable(r.false)
    r.require(started.atomic_load(int64) < wanted)
    signals, before, made = r.alloca(_SIGSET_BYTES), r.alloca(_SIGSET_BYTES), r.alloca(tables.WORD)
    r.call(int32, "sigfillset", signals)
    r.call(int32, "pthread_sigmask", r.number(_SET_MASK, int32), signals, before)
    with r.repeat(lambda: (started.atomic_load(int64) < wanted) & ~is_refused.load(bool_)):
        number = started.atomic("add", r.number(1))
        is_needed = number < wanted
        with r.if_then(is_needed):
            is_refused.store(r.call(int32, "pthread_create", made, r.null, r.symbol(serve.symbol), pool) != 0)
        with r.if_then(~is_needed | is_refused.load(bool_)):
            started.atomic("sub", r.number(1))
        with r.if_then(is_needed & ~is_refused.load(bool_)):
            r.call(int32, "pthread_setname_np", made.load(), r.text("stagekit"))
            r.call(int32, "pthread_detach", made.load())
    r.call(int32, "pthread_sigmask", r.number(_SET_MASK, int32), before, r.null)
    r.ret(True)


@function(PTR, tables.POOL)
def serve(r: Routine, pool: Reg) -> None:
    """Help with jobs until the process ends."""
    index = pool.address_of("arrived").atomic("add", r.number(1)) + 1
    ticket, sleepers = pool.address_of("ticket"), pool.address_of("sleepers")
    scratch, scratch_bytes = r.variable(r.null), r.variable(r.number(0))
    with r.repeat(lambda: r.true):
        seen = ticket.atomic_load(int32)
        with r.loop(r.number(tables.JOBS)) as place:
            _help(r, pool, _job(pool, place), index, scratch, scratch_bytes)

        def sleep(seen: Reg = seen) -> None:
            sleepers.atomic("add", r.number(1))
            _futex(r, ticket, _WAIT, seen.to(int64))
            sleepers.atomic("sub", r.number(1))

        looking_ns = pool.field("looking_ns", int64)
        _look_then_sleep(r, looking_ns, lambda seen=seen: ticket.atomic_load(int32) == seen, sleep)  # type: ignore[misc]


def _help(r: Routine, pool: Reg, job: Reg, index: Reg, scratch: Reg, scratch_bytes: Reg) -> None:
    """Work on a job if it is open and lacks helpers. Whoever joined while it was open may read it: its caller waits for all to
    leave.
    """
    state = job.address_of("state")
    with r.if_then((state.atomic_load(int32) & _OPEN) != 0):
        before = state.atomic("add", r.number(1, int32))
        helpers, places = (before & (_IS_AWAITED - 1)).to(int64), job.address_of("helpers").atomic_load(int64)
        with r.if_then((before & _OPEN) != 0), r.if_then(helpers < places):
            with r.if_then(helpers + 1 < places):
                _wake_some(r, pool)
            _grow(r, scratch, scratch_bytes, job.field("scratch_bytes", int64))
            with r.if_then(scratch.load().is_null()):
                _stop(r, job, r.number(tables.NO_MEMORY, int32))
            work.call(r, job, index % job.field("threads", int64), scratch.load(), _safepoint(r, job=job))
        with r.if_then(state.atomic("sub", r.number(1, int32)) == _IS_AWAITED + 1):
            _futex(r, state, _WAKE, _EVERYBODY)


def _wake_some(r: Routine, pool: Reg) -> None:
    """Wake a few workers, each of which wakes as many: waking one takes microseconds."""
    with r.if_then(pool.address_of("sleepers").atomic_load(int64) != 0):
        _futex(r, pool.address_of("ticket"), _WAKE, _WOKEN)


def _grow(r: Routine, scratch: Reg, scratch_bytes: Reg, needed: Reg) -> None:
    """Have at least so much scratch memory. It is never cleared."""
    with r.if_then(scratch.load().is_null() | (scratch_bytes.load(int64) < needed)):
        r.call_void("free", scratch.load())
        scratch.store(_allocate(r, _at_least(r, needed, tables.SCRATCH_ALIGN)))
        scratch_bytes.store(needed)
