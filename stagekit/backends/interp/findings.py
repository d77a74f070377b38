"""What the interpreter can find wrong with a kernel: the catalogue, and how a finding names its place.

A finding is an ordinary diagnostic with the line of the op, the first thread that showed it and how many did; a race also
names the other side. `Finding.error()` makes it an exception, rendered like every other error.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from stagekit.diagnostics import Diagnostic, Loc, Note, StagekitError
from stagekit.display import ShownAsText

Index3 = tuple[int, int, int]


class SanitizerError(StagekitError):
    """Raised for a fault that the checking interpreter saw while it ran a kernel."""


@dataclass(frozen=True)
class Who:
    """One thread of a launch, x first."""

    block: Index3
    thread: Index3

    def __str__(self) -> str:
        return f"thread {self.thread} of block {self.block}"


@dataclass(frozen=True)
class Message:
    """One line that one thread printed, or the text of an `assert` that failed in it. values: its operands as Python numbers."""

    text: str
    loc: Loc
    who: Who
    values: tuple[bool | int | float, ...]


@dataclass(frozen=True, repr=False)
class Finding(ShownAsText):
    """One fault. who: the first thread that showed it, if it has one. count: how many times the launch showed it.

    context: lines that name the kernel, its constexprs and the order of the launch; whoever launches fills them in.
    """

    diagnostic: Diagnostic
    loc: Loc | None
    who: Who | None
    notes: tuple[Note, ...]
    count: int
    context: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return self.diagnostic.id

    def error(self) -> SanitizerError:
        repeats = f", seen {self.count} times" if self.count > 1 else ""
        thread = () if self.who is None else (Note(f"{self.who}{repeats}"),)
        error = SanitizerError(self.diagnostic, self.loc, (*thread, *self.notes))
        error.context = self.context
        return error

    def __repr__(self) -> str:
        error = self.error()
        return f"<stagekit finding {self.id} at {error.loc or 'no line'}: {self.diagnostic.label_text()}>"

    def __str__(self) -> str:
        return str(self.error())


class FindingSink:
    """Collects findings: it keeps the first of a kind at a place and counts the others. limit: how many it keeps."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._findings: dict[Hashable, Finding] = {}

    def report(
        self,
        diagnostic: Diagnostic,
        loc: Loc | None,
        count: int,
        *,
        key: Hashable = None,
        who: Callable[[], Who] | None = None,
        notes: tuple[Note, ...] = (),
    ) -> None:
        """Record a fault that `count` lanes showed: as a new finding, or in the count of the one with its id, `loc` and `key`."""
        place = (diagnostic.id, loc, key)
        found = self._findings.get(place)
        if found is not None:
            self._findings[place] = replace(found, count=found.count + count)
        elif len(self._findings) < self.limit:
            self._findings[place] = Finding(diagnostic, loc, who() if who else None, notes, count)

    def has(self, id: str) -> bool:
        """Return whether there is a finding with this id."""
        return any(f.id == id for f in self._findings.values())

    def findings(self) -> tuple[Finding, ...]:
        """Return every finding, in the order of discovery."""
        return tuple(self._findings.values())


# -- memory -----------------------------------------------------------------------------------------------------------


class OutOfBounds(Diagnostic):
    """An access of an element that the array does not have, or that belongs to another row. index: from the array's start."""

    title = "Access outside an array"
    label = "{verb} {element}{limit} ({space} memory)"
    help = "guard the access, as in `if i < n`, or give the load or store a mask"

    verb: str
    array: str
    element: str
    limit: str
    space: str
    index: int
    count: int
    offset_bytes: int


class MisalignedAccess(Diagnostic):
    title = "Misaligned access"
    label = "{verb} {dtype} at byte {offset_bytes} of `{array}`, {excess} bytes past a multiple of {align}"
    help = "pass an aligned array, allocate with `align=`, or read it as smaller elements"


class ReadOnlyWrite(Diagnostic):
    title = "Write to a read-only array"
    label = "{verb} element {index} of `{array}`, which is read-only"
    help = "pass a writable copy"


class FreedAccess(Diagnostic):
    title = "Access to memory that is not allocated"
    label = "{verb} element {index} of `{array}`, at address {address:#x}, where no array is alive"
    help = "keep the array alive until the kernel has ended"


class UninitialisedRead(Diagnostic):
    """A read of shared or local memory, or of an array of `outputs=`, that nothing has written."""

    title = "Read of memory never written"
    label = "reads element {index} of `{array}` ({space} memory), which nothing has written"
    help = (
        "shared, local and output memory starts with unspecified contents, shared memory at each `alloc_shared`: store first,"
        " then `syncthreads()`"
    )


class UnwrittenOutput(Diagnostic):
    title = "Output not written"
    label = "{missing} of the {count} elements of `{array}` were never written, the first at index {index}"
    help = "check the grid: does it cover the whole array, and does the mask let the last block through?"


# -- races ------------------------------------------------------------------------------------------------------------


class WarpRace(Diagnostic):
    """Two lanes of one warp touch one element with nothing that orders them: lanes need not run in step."""

    title = "Race between lanes of a warp"
    label = "{verb} element {index} of `{array}` ({space} memory), which {other} {other_verb}"
    help = "the lanes of a warp need not run in step: put `syncwarp()` between the two"


class BlockRace(WarpRace):
    title = "Race between threads of a block"
    label = "{verb} element {index} of `{array}` ({space} memory), which {other} {other_verb}, no barrier between"
    help = "put `syncthreads()` between the two, or make both atomic"


class GridRace(WarpRace):
    title = "Race between blocks"
    label = "{verb} element {index} of `{array}` ({space} memory), which {other} {other_verb}, in no order"
    help = "blocks run in any order: make both atomic, hand over by a fence and an atomic, or give each block its own element"


# -- waiting for each other -------------------------------------------------------------------------------------------


class DivergentBarrier(Diagnostic):
    title = "Barrier under a condition that differs between threads"
    label = "{present} of the {threads} threads of the block are here"
    help = "move `syncthreads()` out of the `if` or loop: every thread of the block must reach it"


class BarrierNotReached(Diagnostic):
    title = "Barrier not reached by the whole block"
    label = "{waiting} of {warps} warps wait here; the others {others}"
    help = "every thread of the block must reach the same barrier, the same number of times"


class LaneNotHere(Diagnostic):
    """A warp operation whose mask names lanes that do not take part."""

    title = "Mask names lanes that are elsewhere"
    label = "the mask {mask:#010x} names lanes {absent:#010x}, which do not run this"
    help = "give the mask of the lanes that get here, or move the call out of the condition"


class LaneOutsideMask(Diagnostic):
    title = "Lane runs a warp operation that its mask leaves out"
    label = "lane {lane} is not in its mask {mask:#010x}"
    help = "every lane that gets here must be in the mask that it gives"


class MasksDiffer(Diagnostic):
    title = "Lanes of one warp operation give different masks"
    label = "the mask {mask:#010x} of lane {lane} names lane {other}, whose mask is {other_mask:#010x}"
    help = "lanes that name each other must give the same mask: compute it before they part, as by `ballot_sync`"


class AbsentLaneRead(Diagnostic):
    title = "Shuffle reads a lane that does not take part"
    label = "lane {lane} reads lane {source}, which {why}"
    help = "read only lanes that run the shuffle, are named in its mask and exist in this block"


class NoProgress(Diagnostic):
    title = "Loop without progress"
    label = "{why}"
    help = "what this loop waits for must be done by a thread that can run: lanes of a warp wait for each other"


# -- mbarriers and copies -------------------------------------------------------------------------------------------------


class MbarrierAbsent(Diagnostic):
    title = "Use of memory that is no mbarrier"
    label = "`{operation}` of `{name}`, which is not initialised, or not any more"
    help = "let one thread call `mbarrier_init`, and put `syncthreads()` between that and the first use"


class MbarrierMisused(Diagnostic):
    title = "Misuse of an mbarrier"
    label = "{what}"
    help = "{hint}"


class MbarrierOverrun(Diagnostic):
    title = "Arrivals that an mbarrier does not wait for"
    label = "{arrivals} at `{name}`, whose {lacks}"
    help = "initialise it for as many arrivals as there are in each phase, or let fewer threads arrive"


class MbarrierStuck(Diagnostic):
    """A wait that nobody will end: all warps that can run wait. Notes name the others."""

    title = "Wait for a phase of an mbarrier that never ends"
    label = "waits for the phase of parity {parity} of `{name}`, whose {lacks}"
    help = "check the count of `mbarrier_init`, the bytes expected and copied, and that parities begin with 0 and alternate"


class MbarrierBytesLeft(Diagnostic):
    title = "Bytes expected that do not come"
    label = "when its block ends, `{name}` still counts bytes: its {lacks}"
    help = "expect as many bytes as copies bring, and wait for them"


class ClusterBarrierMisused(Diagnostic):
    title = "Misuse of the barrier of a cluster"
    label = "{what}"
    help = "{hint}"


class ClusterBarrierStuck(Diagnostic):
    """A wait that nobody will end: all warps that can run wait. Notes name the others."""

    title = "Wait for the barrier of a cluster that never opens"
    label = "waits here, and {missing} of the cluster, which have not ended, will not arrive"
    help = "let every thread of every block of the cluster arrive, the same number of times"


class NamedBarrierMisused(Diagnostic):
    title = "Misuse of a barrier of some warps"
    label = "{what}"
    help = "{hint}"


class NamedBarrierStuck(Diagnostic):
    """A wait that nobody will end: all warps that can run wait. Notes name the others."""

    title = "Wait for a barrier of some warps that never opens"
    label = "waits at barrier {number}, which lacks {threads}"
    help = "let as many threads come, by `barrier_sync` or `barrier_arrive`, as each of them says"


class RegistersMisused(Diagnostic):
    title = "Registers that a warpgroup cannot move"
    label = "{what}"
    help = "{hint}"


class RegistersStuck(Diagnostic):
    """A wait that nobody will end: all warps that can run wait. Notes name the others."""

    title = "Wait for registers that nobody gives back"
    label = "waits for {registers} registers of each thread, with {free} of the block's {total} free"
    help = "let other warpgroups give back enough by `setmaxnreg_dec`, before or meanwhile"


class NoPeer(Diagnostic):
    title = "No such block in the cluster"
    label = "rank {rank}, in a cluster of {blocks}"
    help = (
        "ranks count from 0 to `cluster_blocks() - 1`; the launch says how many there are: `LaunchConfig(cluster=...)`"
    )


class PeerEnded(Diagnostic):
    title = "Shared memory of a block that may have ended"
    label = "{verb} element {index} of `{array}` of another block, whose end nothing orders behind that"
    help = "put `cluster_sync()` behind the last access of another block's memory, so that no block ends before"


class CopyUnderWay(Diagnostic):
    title = "Access of memory that a copy works on"
    label = "{verb} element {index} of `{array}` ({space} memory), which a copy still {copies}"
    help = "wait for the copy first: for the phase of its mbarrier, or by `cp_async_bulk_wait`"


class CopyLeftBehind(Diagnostic):
    title = "Block ends before its copy"
    label = "nobody waits for this copy, which still needs `{array}`"
    help = "wait for the phase of its mbarrier, or by `cp_async_bulk_wait(read=True)`, before the block ends"


class ProxyFenceMissing(Diagnostic):
    title = "Copy of memory that was written without a proxy fence"
    label = "{verb} element {index} of `{array}`, which was written with no proxy fence since"
    help = (
        "call `fence_proxy_async()`, or after `mbarrier_init` `fence_mbarrier_init()`, in the threads that write, then a barrier,"
        " then begin the copy"
    )


class TileMisplaced(Diagnostic):
    title = "A tile that begins where the TMA unit cannot"
    label = "a tile of `{array}` begins {why}"
    help = "begin tiles at multiples of 16 bytes along the last axis, and those that are stored inside the array"


class ProductUnderWay(Diagnostic):
    title = "Write to memory that a product still reads"
    label = "{verb} element {index} of `{array}`, which a product of a warpgroup has not read yet"
    help = "wait first, by `wgmma_wait_...` for the group of that product, then at a barrier for the other warps"


class ProductLeftBehind(Diagnostic):
    title = "Block ends before its product"
    label = "nobody waits for this product"
    help = "call `wgmma_commit()` behind it, then `wgmma_wait_...`, which returns its sums"


class SumsNotThere(Diagnostic):
    title = "Read of a sum before its product is done"
    label = "reads a sum of a product under way, which no wait has returned"
    help = "wait for the group of that product first, by `sums = wgmma_wait_...(*sums)`, and use what that returns"


class FactorOverwritten(Diagnostic):
    title = "Write to registers that a product still reads"
    label = "a word of the left factor has a new value here, and a product under way may not have read the old one"
    help = "wait first, by `wgmma_wait_...` for the group of that product, or compute the next words in other variables"


class ProductMisused(Diagnostic):
    title = "Misuse of a product of a warpgroup"
    label = "{what}"
    help = "{hint}"


class BadBulkSize(Diagnostic):
    title = "Size of a bulk copy"
    label = "a copy of {size}"
    help = "a bulk copy has a positive multiple of 16 bytes; copy the rest by loads and stores"


# -- arithmetic -------------------------------------------------------------------------------------------------------


class IndexOverflow(Diagnostic):
    title = "Integer overflow in an index"
    label = "{expression} does not fit {dtype}"
    help = "compute the index in int64"


class IntegerRounded(Diagnostic):
    """`float(x)` of an integer that float32 does not hold: it has more than 24 significant bits."""

    title = "Integer rounded by `float`"
    label = "{value} becomes {rounded}: at run time `float(x)` of an integer is float32"
    help = "write `sk.float64(x)`, which holds 53 bits, or `sk.float32(x)` where rounding is meant"


class DivisionByZero(Diagnostic):
    title = "Division by zero"
    label = "{dividend} {operator} 0 gives 0 here"
    help = "guard the division, or make the divisor at least 1"


class ShiftOutOfRange(Diagnostic):
    title = "Shift out of range"
    label = "shift of {dtype} by {amount}"
    help = "an amount from 0 to {last} is defined alike everywhere"


class NanProduced(Diagnostic):
    title = "NaN from numbers"
    label = "{operation} of {operands} is NaN"
    help = "look for 0/0, inf - inf, inf * 0, or a function outside its domain"
