"""Launch a kernel on the CPU: machine code at an address.

    kernel = CpuKernel(artifact, address, closer)
    kernel.launch((x, y, 3.0), kernel.request(4))

The entry is `entry(args, grid, first, last, scratch, safepoint)`, see `artifact.py`. It runs a range of blocks, so that the pool
can share a grid among threads (`backends/launcher/support/pool.py`), each with scratch memory of its own. The pool is machine
code, which is not made for a first launch that is over sooner: until it is there, and where there can be none
(`native_process.is_available`), blocks run in the calling thread.

Where the blocks of a kernel wait for each other (`lib/grids.py`), each runs in a thread of the machine.

    fault = run_at_once(lambda block: entry(slots, grid, block, block + 1, scratch, safepoint), blocks, state_address)

A block that will never arrive must not be waited for: one that ended by a fault, one for which there was no thread or no memory,
and those of a launch that is interrupted. Then the count of blocks that have ended gets a bit that no count of blocks has, so
that no block takes itself for the last, and all that wait leave. Others leave at the next safepoint of a loop.
"""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stagekit.artifact import Artifact
from stagekit.diagnostics import InternalError, Loc, StagekitError, hide_frames
from stagekit.native_tables import FORKED, NO_MEMORY, SCRATCH_ALIGN, WAITS, WORD
from stagekit.runtime import native_process
from stagekit.runtime.checks import Reading
from stagekit.runtime.errors import BarrierError, ForkedLaunch, GridTooLarge, LaunchError, MissedBarrier, WaitsForEver
from stagekit.runtime.kernel import Buffer, Kernel, LaunchOther, Packer, WrittenLaunch, size_words
from stagekit.runtime.launch_config import NO_BRACKETS, LaunchRequest, LaunchSize
from stagekit.runtime.native_process import PreparedLaunch, State
from stagekit.runtime.records import RecordBuffer, report
from stagekit.runtime.safepoints import Safepoints
from stagekit.signature import slot_offsets

MOST_AT_ONCE = 1024  # threads of the machine for one launch
_ABANDONED = 1 << 30


def run_at_once(
    run: Callable[[int], int], blocks: int, state_address: int, stop: Callable[[], None] = lambda: None
) -> int:
    """Run all blocks and return the fault of one of them, or 0. state_address: of the two uint32 that `grid_sync` counts in.
    stop: called when blocks are to leave.

    Raises what a block, the start of its thread, or a handler of a signal raised, once no block runs any more. `Thread.join` does
    not tell that: until Python 3.13 a thread whose join was interrupted counts as ended.
    """
    from queue import SimpleQueue  # here, since few launches need threads of Python

    state = (ctypes.c_uint32 * 2).from_address(state_address)
    faults, errors = [0] * blocks, list[BaseException]()
    runs = dict[int, bool]()  # by block, decided once: by its thread, or False by the caller, who gives up before
    over, ended = set[int](), SimpleQueue[int]()

    def give_up(error: BaseException | None) -> None:
        errors.extend([error] if error else [])
        state[1] |= _ABANDONED
        stop()

    def run_one(block: int) -> None:
        if not runs.setdefault(block, True):
            return
        try:
            faults[block] = run(block)
        except BaseException as error:
            give_up(error)
        if faults[block]:
            give_up(None)
        over.add(block)
        ended.put(block)

    def wait_for(block: int) -> None:
        if errors:
            runs.setdefault(block, False)
        while block not in over and runs.get(block, True):
            ended.get()

    not_started = iter(range(blocks))
    while True:
        try:
            for block in not_started:
                threading.Thread(target=run_one, args=(block,)).start()
            for block in range(blocks):
                wait_for(block)
            break
        except BaseException as error:
            give_up(error)
            not_started = iter(())
    if any(faults) or errors:
        state[:] = [0, 0]
    if errors:
        raise errors[0]
    return max(faults)


_ENTRY_TYPE = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)

_WORTH_A_POOL_NS = 20_000_000  # about what it takes to make one


def _scratch(scratch_bytes: int) -> tuple[Any, int]:
    """Return memory, and the address in it that is aligned as scratch memory must be."""
    memory = (ctypes.c_char * (scratch_bytes + SCRATCH_ALIGN - 1))()
    return memory, ctypes.addressof(memory) + -ctypes.addressof(memory) % SCRATCH_ALIGN


class _Cost(ctypes.Structure):
    """value: of a block at the last launch, in ns; 0 before the first. waits: may blocks wait for each other?"""

    _fields_ = (("value", ctypes.c_double), ("waits", ctypes.c_int64))


class CpuKernel(Kernel):
    """A kernel in this process's memory. closer: called when the kernel is dropped, to free its machine code.

    place_of: gives the place in the source of what the entry reports. provide_pool: makes the pool, where there can be one.
    """

    def __init__(
        self,
        artifact: Artifact,
        address: int,
        closer: Callable[[], None],
        constexprs: Mapping[str, Any] | None = None,
        place_of: Callable[[int], Loc | None] = lambda fault: None,
        provide_pool: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(artifact, constexprs)
        self._place_of = place_of
        self._provide_pool = provide_pool
        if artifact.block is None:
            raise InternalError(f"{artifact.kernel_name}: a CPU kernel is compiled for one block size")
        self._address = address
        self._entry = _ENTRY_TYPE(address)
        self._packer = Packer(artifact.signature.slots, extra="3q")  # the grid follows the arguments
        self._slots_end = slot_offsets(artifact.signature.slots)[-1]
        self._free_records: list[RecordBuffer] = []
        self._cost = _Cost(waits=artifact.waits)
        weakref.finalize(self, closer).atexit = False

    def launch(self, arguments: Sequence[Any], brackets: LaunchRequest = NO_BRACKETS) -> None:
        """Run the kernel and wait for it; then print what it printed, or raise the assert that failed."""
        reading = Reading()  # lives until the kernel has run
        values = self._read(arguments, reading)
        _, _, shared_bytes, blocks = size = self._size(values, arguments, brackets)
        if blocks:
            buffer = self._packer.pack(values, size.grid)
            run = self._record if self.artifact.has_records else self._run
            at_once = self._attributes(brackets).cooperative
            run(buffer.address, buffer.address + self._slots_end, blocks, shared_bytes, at_once)

    def written_down(self, arguments: Sequence[Any], brackets: LaunchRequest, devices: Sequence[int]) -> WrittenLaunch:
        values = self._read(arguments, Reading())
        size = self._size(values, arguments, brackets)
        addresses = self._address, ctypes.addressof(self._cost)
        scratch_bytes = self.artifact.scratch_bytes + size.shared_bytes
        return WrittenLaunch(self, addresses, self._slot_words(values), size, scratch_bytes)

    def _run(self, slots: int, grid: int, blocks: int, shared_bytes: int, at_once: bool = False) -> None:
        scratch_bytes, done, fault = self.artifact.scratch_bytes + shared_bytes, 0, 0
        if at_once:
            done, fault = blocks, self._all_at_once(slots, grid, blocks, scratch_bytes)
        elif not self._has_pool():
            done, fault = self._begin_apart(slots, grid, blocks, scratch_bytes)
        if done < blocks and not fault:
            values = self._address, ctypes.addressof(self._cost), slots, grid, done, blocks, scratch_bytes
            fault = native_process.process().run_blocks(*values)
        if fault:
            self._fail(fault)

    def _has_pool(self) -> bool:
        """Return whether there is a pool. Where blocks may wait for each other, it is made if there can be one."""
        if self.artifact.waits and not native_process.has_functions():
            self._provide_pool()
        return native_process.has_functions()

    def _begin_apart(self, slots: int, grid: int, blocks: int, scratch_bytes: int) -> tuple[int, int]:
        """Do `_begin`; where there are safepoints in a thread of Python, so that the main one handles signals meanwhile."""
        if not self.artifact.has_safepoints:
            return self._begin(slots, grid, blocks, scratch_bytes, 0)
        found, unused, safepoints = list[tuple[int, int]](), ctypes.c_uint64(), Safepoints(1)
        main = threading.main_thread()
        if threading.current_thread() is not main or not main.is_alive():  # at exit no thread can be started
            return self._begin(slots, grid, blocks, scratch_bytes, safepoints.add())

        def run(_: int) -> int:
            found.append(self._begin(slots, grid, blocks, scratch_bytes, safepoints.add()))
            return 0

        run_at_once(run, 1, ctypes.addressof(unused), safepoints.stop)
        return found[0]

    def _begin(self, slots: int, grid: int, blocks: int, scratch_bytes: int, safepoint: int) -> tuple[int, int]:
        """Run blocks in this thread, twice as many each time, until there is a pool; return how many have run, and the fault."""
        _memory, scratch = _scratch(scratch_bytes)
        before, done, fault = time.perf_counter_ns(), 0, 0
        while done < blocks and not fault and not native_process.has_functions():
            last = min(2 * done or 1, blocks)
            fault, done = self._entry(slots, grid, done, last, scratch, safepoint), last
            elapsed = time.perf_counter_ns() - before
            self._cost.value = elapsed / done
            if elapsed > _WORTH_A_POOL_NS and done < blocks:
                self._provide_pool()
        return done, fault

    def _all_at_once(self, slots: int, grid: int, blocks: int, scratch_bytes: int) -> int:
        """Run blocks that wait for each other; return a fault of one of them, or 0."""
        if blocks > MOST_AT_ONCE:
            raise LaunchError(GridTooLarge(self._name, blocks, "the CPU", MOST_AT_ONCE))

        if not native_process.has_functions():
            self._provide_pool()
        safepoints = Safepoints(blocks)

        def run(block: int) -> int:
            _memory, scratch = _scratch(scratch_bytes)
            try:
                return int(self._entry(slots, grid, block, block + 1, scratch, safepoints.add()))
            finally:
                safepoints.note_end()

        unused = ctypes.c_uint64()
        state = ctypes.addressof(unused)
        for place in self.artifact.grid_state:
            state = ctypes.c_uint64.from_address(slots + slot_offsets(self.artifact.signature.slots)[place]).value
        return run_at_once(run, blocks, state, safepoints.stop)

    def _record(self, slots: int, grid: int, blocks: int, shared_bytes: int, at_once: bool = False) -> None:
        """Run a kernel that writes records. Its last parameter is record memory that no other launch uses meanwhile."""
        try:
            records = self._free_records.pop()
        except IndexError:
            records = RecordBuffer()
        buffer = Buffer([self._slots_end, self._slots_end + WORD])
        ctypes.memmove(buffer.address, slots, self._slots_end)
        buffer.memory[-1] = records.address
        # if it fails, the next launch shall not find these records
        self._run(buffer.address, grid, blocks, shared_bytes, at_once)
        try:
            report(records, self.artifact.record_sites)
        finally:
            self._free_records.append(records)

    def _fail(self, fault: int) -> None:
        """Raise what ended a launch."""
        number = fault - WAITS if fault >= WAITS else fault
        raise self.error_of(fault, self._place_of(number) if number > 0 else None)

    def error_of(self, fault: int, place: Loc | None) -> Exception:
        """Return what ended a launch. fault: as of `run_blocks`. place: in the source, where it is known."""
        if fault == NO_MEMORY:
            return MemoryError(f"no scratch memory for `{self.artifact.kernel_name}`")
        if fault == FORKED:
            return StagekitError(ForkedLaunch(self.artifact.kernel_name))
        return BarrierError((WaitsForEver if fault >= WAITS else MissedBarrier)(self.artifact.kernel_name), place)

    def native_state(self, request: LaunchRequest) -> State | None:
        if self._attributes(request).cooperative:
            return None
        if isinstance(request.size, LaunchSize) and self._is_too_much(request.size.shared_bytes):
            return None
        words = {
            "code": self._address,
            "cost": ctypes.addressof(self._cost),
            "scratch_bytes": self.artifact.scratch_bytes,
            **size_words(request),
        }
        record = {"record": hide_frames(self._record)} if self.artifact.has_records else {}
        return State(words, {"fail": hide_frames(self._fail), **record}, (self,))

    def prepare(self, args: tuple[Any, ...], brackets: LaunchRequest, launch_other: LaunchOther) -> PreparedLaunch:
        reading = Reading()
        values = self._read(args, reading)
        size = self._size(values, args, brackets)
        general = super().prepare(args, brackets, launch_other)
        asked = LaunchRequest(size, attributes=brackets.attributes)
        state = self.native_state(asked) if native_process.has_functions() else None
        if state is None:
            return general
        buffer = self._packer.pack(values, size.grid)
        words = {"slots": buffer.address}
        return native_process.make_prepared("run_prepared", self._name, general, state, words, args, reading, buffer)
