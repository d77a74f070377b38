"""What the interpreter can find wrong with a kernel: the catalogue, and how a finding names its place.

A finding is an ordinary diagnostic with the line of the op, the first thread that showed it and how many did; a race also
names the other side. `Finding.error()` makes it an exception, rendered like every other error.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import ClassVar

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

    title: ClassVar[str] = "Access outside an array"
    label: ClassVar[str] = "{verb} {element}{limit} ({space} memory)"
    help: ClassVar[str] = "guard the access, as in `if i < n`, or give the load or store a mask"

    verb: str
    array: str
    element: str
    limit: str
    space: str
    index: int
    count: int
    offset_bytes: int


class MisalignedAccess(Diagnostic):
    """An access at an address that is no multiple of the element's size."""

    title: ClassVar[str] = "Misaligned access"
    label: ClassVar[str] = (
        "{verb} {dtype} at byte {offset_bytes} of `{array}`, {excess} bytes past a multiple of {align}"
    )
    help: ClassVar[str] = "pass an aligned array, allocate with `align=`, or read it as smaller elements"


class ReadOnlyWrite(Diagnostic):
    """A store to a read-only array."""

    title: ClassVar[str] = "Write to a read-only array"
    label: ClassVar[str] = "{verb} element {index} of `{array}`, which is read-only"
    help: ClassVar[str] = "pass a writable copy"


class FreedAccess(Diagnostic):
    """An access through a pointer to memory that has been freed or was never allocated."""

    title: ClassVar[str] = "Access to memory that is not allocated"
    label: ClassVar[str] = "{verb} element {index} of `{array}`, at address {address:#x}, where no array is alive"
    help: ClassVar[str] = "keep the array alive until the kernel has ended"


class UninitialisedRead(Diagnostic):
    """A read of shared or local memory, or of an array of `outputs=`, that nothing has written."""

    title: ClassVar[str] = "Read of memory never written"
    label: ClassVar[str] = "reads element {index} of `{array}` ({space} memory), which nothing has written"
    help: ClassVar[str] = (
        "shared, local and output memory starts with unspecified contents: store first, then `syncthreads()`"
    )


class UnwrittenOutput(Diagnostic):
    """An output of which the launch left some elements unwritten."""

    title: ClassVar[str] = "Output not written"
    label: ClassVar[str] = (
        "{missing} of the {count} elements of `{array}` were never written, the first at index {index}"
    )
    help: ClassVar[str] = "check the grid: does it cover the whole array, and does the mask let the last block through?"


# -- races ------------------------------------------------------------------------------------------------------------


class WarpRace(Diagnostic):
    """Two lanes of one warp touch one element with nothing that orders them: lanes need not run in step."""

    title: ClassVar[str] = "Race between lanes of a warp"
    label: ClassVar[str] = "{verb} element {index} of `{array}` ({space} memory), which {other} {other_verb}"
    help: ClassVar[str] = "the lanes of a warp need not run in step: put `syncwarp()` between the two"


class BlockRace(WarpRace):
    """Two threads of a block touch one element, and no barrier orders them."""

    title: ClassVar[str] = "Race between threads of a block"
    label: ClassVar[str] = (
        "{verb} element {index} of `{array}` ({space} memory), which {other} {other_verb}, no barrier between"
    )
    help: ClassVar[str] = "put `syncthreads()` between the two, or make both atomic"


class GridRace(WarpRace):
    """Two threads of different blocks touch one element, and nothing orders them."""

    title: ClassVar[str] = "Race between blocks"
    label: ClassVar[str] = (
        "{verb} element {index} of `{array}` ({space} memory), which {other} {other_verb}, in no order"
    )
    help: ClassVar[str] = (
        "blocks run in any order: make both atomic, hand over by a fence and an atomic, or give each block its own element"
    )


# -- waiting for each other -------------------------------------------------------------------------------------------


class DivergentBarrier(Diagnostic):
    """A block barrier that some threads of the block run and others do not."""

    title: ClassVar[str] = "Barrier under a condition that differs between threads"
    label: ClassVar[str] = "{present} of the {threads} threads of the block are here"
    help: ClassVar[str] = "move `syncthreads()` out of the `if` or loop: every thread of the block must reach it"


class BarrierNotReached(Diagnostic):
    """A block barrier at which some warps wait for others that have ended or wait at another barrier."""

    title: ClassVar[str] = "Barrier not reached by the whole block"
    label: ClassVar[str] = "{waiting} of {warps} warps wait here; the others {others}"
    help: ClassVar[str] = "every thread of the block must reach the same barrier, the same number of times"


class LaneNotHere(Diagnostic):
    """A warp operation whose mask names lanes that do not take part."""

    title: ClassVar[str] = "Mask names lanes that are elsewhere"
    label: ClassVar[str] = "the mask {mask:#010x} names lanes {absent:#010x}, which do not run this"
    help: ClassVar[str] = "give the mask of the lanes that get here, or move the call out of the condition"


class LaneOutsideMask(Diagnostic):
    """A warp operation run by a lane that its own mask leaves out."""

    title: ClassVar[str] = "Lane runs a warp operation that its mask leaves out"
    label: ClassVar[str] = "lane {lane} is not in its mask {mask:#010x}"
    help: ClassVar[str] = "every lane that gets here must be in the mask that it gives"


class MasksDiffer(Diagnostic):
    """A warp operation whose mask names a lane that gives another mask."""

    title: ClassVar[str] = "Lanes of one warp operation give different masks"
    label: ClassVar[str] = "the mask {mask:#010x} of lane {lane} names lane {other}, whose mask is {other_mask:#010x}"
    help: ClassVar[str] = (
        "lanes that name each other must give the same mask: compute it before they part, as by `ballot_sync`"
    )


class AbsentLaneRead(Diagnostic):
    """A shuffle whose value comes from a lane that does not take part or does not exist."""

    title: ClassVar[str] = "Shuffle reads a lane that does not take part"
    label: ClassVar[str] = "lane {lane} reads lane {source}, which {why}"
    help: ClassVar[str] = "read only lanes that run the shuffle, are named in its mask and exist in this block"


class NoProgress(Diagnostic):
    """A loop that waits for something that no thread will do."""

    title: ClassVar[str] = "Loop without progress"
    label: ClassVar[str] = "{why}"
    help: ClassVar[str] = (
        "what this loop waits for must be done by a thread that can run: lanes of a warp wait for each other"
    )


# -- arithmetic -------------------------------------------------------------------------------------------------------


class IndexOverflow(Diagnostic):
    """Integer arithmetic that wrapped on its way to an index."""

    title: ClassVar[str] = "Integer overflow in an index"
    label: ClassVar[str] = "{expression} does not fit {dtype}"
    help: ClassVar[str] = "compute the index in int64"


class IntegerRounded(Diagnostic):
    """`float(x)` of an integer that float32 does not hold: it has more than 24 significant bits."""

    title: ClassVar[str] = "Integer rounded by `float`"
    label: ClassVar[str] = "{value} becomes {rounded}: at run time `float(x)` of an integer is float32"
    help: ClassVar[str] = "write `sk.float64(x)`, which holds 53 bits, or `sk.float32(x)` where rounding is meant"


class DivisionByZero(Diagnostic):
    """An integer `//` or `%` by zero."""

    title: ClassVar[str] = "Division by zero"
    label: ClassVar[str] = "{dividend} {operator} 0 gives 0 here"
    help: ClassVar[str] = "guard the division, or make the divisor at least 1"


class ShiftOutOfRange(Diagnostic):
    """A shift by a negative amount, or by the width or more."""

    title: ClassVar[str] = "Shift out of range"
    label: ClassVar[str] = "shift of {dtype} by {amount}"
    help: ClassVar[str] = "an amount from 0 to {last} is defined alike everywhere"


class NanProduced(Diagnostic):
    """An operation that gave NaN from operands that were not."""

    title: ClassVar[str] = "NaN from numbers"
    label: ClassVar[str] = "{operation} of {operands} is NaN"
    help: ClassVar[str] = "look for 0/0, inf - inf, inf * 0, or a function outside its domain"
