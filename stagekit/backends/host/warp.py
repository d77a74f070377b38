"""Where code is being written: one warp at one point of the kernel, with the forms of its values and the lanes that are on
there.

The op emitters write through a `Warp`; what all warps of one compilation share is in its `KernelContext`. Code that runs once
per block is written through a `Warp` too, whose values are the same in all warps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from stagekit import dtypes
from stagekit.backends.host.forms import ALL_LANES, LANES, Form, Linear, Mask, Uniform, number
from stagekit.backends.host.interleaved import Chunks
from stagekit.backends.host.linear import Regular, scalar
from stagekit.backends.host.target import HostFeatures
from stagekit.backends.llvm.writer import Writer
from stagekit.diagnostics import InternalError
from stagekit.frozen import frozen, record
from stagekit.ir import BinaryKind, Block, Fastmath, Op, Value, ops

_LONGEST = 8  # bytes of an element


@frozen()
class LocalPlace:
    """Memory for one LOCAL allocation. base: the pointer for warp 0; warp_bytes: from one warp to the next."""

    base: str
    warp_bytes: int


def leave_unless(w: Writer, condition: str, fault: int | str) -> None:
    """Write a branch that leaves the function with a fault unless the scalar `condition` holds."""
    passed, failed = w.new_label("together"), w.new_label("fault")
    w.line(f"br i1 {condition}, label %{passed}, label %{failed}")
    w.label(failed)
    w.line(f"ret i32 {fault}")
    w.label(passed)


@record()
class OpenGroup:
    """A store of vectors that has been taken apart, and is written as one. left: how many of its ops are to come. start: the
    pointer to the first element of the first lane. texts: the elements of all lanes, so far.
    """

    left: int
    start: str
    texts: list[str]


@record()
class KernelContext:
    """One compilation. block: threads per axis.

    emitters: how each kind of op is written (`compiler.py`); one gives the form of the result, or binds the results itself. fork:
    tried before each (`conditional.py`). block_idx, grid_dim: scalars of the block being run. used: the values that some op
    reads. decided: comparisons that come out alike in all threads.
    retypes_local: is LOCAL memory looked at as elements of another size, so that each lane must have its bytes side by side?
    shared, local: where each allocation begins, by its op. forced_vectors, forced_pointers, masked_loops: what earlier
    attempts at a loop found out (`loops.py`). block_values: what is computed once per block. arguments: the texts of the
    pointers that the kernel is given. unrolled_scatters: how many scatters LLVM takes apart (`memory.py`). groups: by the first
    op of a vector access that was taken apart, the others. group: the one that is being stored. picked: by op, what was loaded
    for it with its group. chunks: how groups lie in memory. brought_near: by basic block and array, the offsets for which memory
    was asked early. numbers: of the function's ops, from 1 on; a fault is the number of its op. waiting: loops that only wait.
    asking: the loops that have a safepoint.
    """

    w: Writer
    block: tuple[int, int, int]
    features: HostFeatures
    fastmath: Fastmath
    block_idx: tuple[Uniform, ...]
    grid_dim: tuple[Uniform, ...]
    emitters: Mapping[type[Op], Callable[[Warp, Any], Form | None]]
    fork: Callable[[Warp, Block, int], tuple[Form, ...] | None]
    used: frozenset[Value]
    retypes_local: bool
    numbers: Mapping[Op, int]
    waiting: frozenset[Op]
    asking: frozenset[Op]
    decided: Mapping[Value, bool] = field(default_factory=dict)
    block_values: dict[Value, Form] = field(default_factory=dict)
    arguments: frozenset[str] = frozenset()
    shared: dict[Op, str] = field(default_factory=dict)
    local: dict[Op, LocalPlace] = field(default_factory=dict)
    forced_vectors: set[Value] = field(default_factory=set)
    forced_pointers: set[Value] = field(default_factory=set)
    masked_loops: set[Op] = field(default_factory=set)
    buffers: dict[tuple[str, int, str], str] = field(default_factory=dict)
    unrolled_scatters: int = 0
    groups: Mapping[Op, Sequence[Op]] = field(default_factory=dict)
    group: OpenGroup | None = None
    picked: dict[Op, str] = field(default_factory=dict)
    chunks: Chunks = field(default_factory=Chunks)
    brought_near: dict[Any, list[int]] = field(default_factory=dict)

    @property
    def threads(self) -> int:
        x, y, z = self.block
        return x * y * z

    @property
    def warps(self) -> int:
        return -(-self.threads // LANES)

    @property
    def is_one_warp(self) -> bool:
        """Whether the block is one warp, which needs no splitting: its threads are in lockstep anyway."""
        return self.warps == 1

    def lanes_of(self, warp_number: int) -> int:
        """Return which lanes of this warp are threads, as bits."""
        return ALL_LANES >> max((warp_number + 1) * LANES - self.threads, 0)

    def buffer(self, element: str, count: int, role: str) -> str:
        """Return a stack buffer for elements that code picks one by one. Ops share it: none leaves anything for the next."""
        key = (element, count, role)
        if key not in self.buffers:
            self.buffers[key] = self.w.emit_entry(f"alloca [{count} x {element}], align 64")
        return self.buffers[key]

    def local_pitch(self, op: ops.Alloc) -> int:
        """Return for how many elements of a LOCAL array each lane has room: whole 8 bytes in a kernel that retypes some."""
        count, size = max(op.count or 1, 1), op.dtype.itemsize
        return -(-count * size // _LONGEST) * _LONGEST // size if self.retypes_local else count


@frozen()
class SharedQuotient:
    """Where all lanes have one quotient: it, and their remainders. condition: the scalar that tells."""

    quotient: Uniform
    remainders: Linear
    condition: str


@record()
class Warp:
    """What the emitters work on.

    number: of this warp in its block. values: the form of every value in sight. mask: the lanes that are on, None for
    all 32. full: the mask of the warp's threads, which differs from None in the last warp of an odd block. quotients: by
    dividends and divisor, the one quotient that they are known to have; None where they are known to have several. leaps: is this
    in a loop whose next iteration may be far from this one, in memory too?
    """

    kernel: KernelContext
    w: Writer
    number: Uniform
    values: dict[Value, Form]
    mask: Mask | None
    full: Mask | None
    copies: int = 1  # how often the code being written is there already, for loops written twice
    quotients: dict[tuple[Linear, str], SharedQuotient | None] = field(default_factory=dict)
    leaps: bool = False

    def __getitem__(self, value: Value) -> Form:
        form = self.values.get(value) or self.kernel.block_values.get(value)
        if form is None:
            raise InternalError(f"the cpu target has no form for a value of type {value.type} ({value.name})")
        return form

    def __setitem__(self, value: Value, form: Form) -> None:
        self.values[value] = form

    @contextmanager
    def under(self, mask: Mask | None) -> Iterator[None]:
        """Write code for the lanes of `mask` only."""
        outer, self.mask = self.mask, mask
        try:
            yield
        finally:
            self.mask = outer

    @contextmanager
    def in_loop(self, *, leaps: bool) -> Iterator[None]:
        """Write a loop."""
        outer, self.leaps = self.leaps, leaps
        try:
            yield
        finally:
            self.leaps = outer

    @contextmanager
    def with_quotient(self, division: tuple[Linear, str], quotient: SharedQuotient | None) -> Iterator[None]:
        """Write code, one of two copies, where `division` is known to give one quotient, or None: to give several."""
        self.quotients[division] = quotient
        self.copies *= 2
        try:
            yield
        finally:
            self.copies //= 2
            del self.quotients[division]

    def run(self, block: Block) -> tuple[Form, ...]:
        """Write the ops of `block`; gives the forms of what its terminator hands on."""
        for place, op in enumerate(block.ops[:-1]):
            is_between = self.kernel.group is not None  # accesses that are one
            forked = None if is_between else self.kernel.fork(self, block, place)
            if forked is not None:
                return forked
            self.emit(op)
        return tuple(self[value] for value in block.ops[-1].operands())

    def kept(self, values: Sequence[Value]) -> Sequence[Value]:
        """Return those results or block parameters of an op that are held here; `BlockFlow` holds the others in slots."""
        return values

    def decider(self, op: Op, value: Value) -> Form:
        """Return the form of `value`, which decides where control goes in `op`."""
        return self[value]

    def part_of(self, base: str, warp_bytes: int) -> str:
        """Return the pointer to this warp's part of memory where each warp has so many bytes."""
        offset = self._scaled(warp_bytes).text
        return base if offset == "0" else self.w.emit(f"getelementptr i8, ptr {base}, i64 {offset}")

    def _scaled(self, factor: int) -> Uniform:
        """Return the number of this warp, times `factor`."""
        return scalar(self.w, BinaryKind.MUL, dtypes.INDEX, self.number, number(factor))

    def emit(self, op: Op) -> None:
        form = self.kernel.emitters[type(op)](self, op)
        if form is not None:
            self[op.result] = form

    def thread(self) -> Regular:
        """Return the number of each thread in its block, x fastest."""
        base = self._scaled(LANES)
        if base.constant is not None:
            return Linear(number(0), tuple(range(base.constant, base.constant + LANES)))
        return Linear(base, tuple(range(LANES)))
