"""The scratch memory of a worker: shared arrays, values that cross barriers (slots), and LOCAL arrays.

    [ shared arrays | slots | LOCAL arrays ]  then, from `scratch_bytes` on, the dynamic shared memory

A slot keeps one value for each thread of the block, while the block's warps run one piece after another. It holds warp after
warp, padded to whole warps so that every access is a full vector; a bool takes a bit, and a warp's bools one 32-bit word. Two
values share memory if no piece needs both. Time counts the steps of the plan:

    piece 1: spill a              a is in use from 1 to 2
    piece 2: needs a; spill b     b from 2 to 3: beside a
    piece 3: needs b; spill c     c from 3 on: where a was

A loop comes back to its beginning: what is in use there and touched in the loop stays in use until the loop ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from stagekit import dtypes
from stagekit.backends.host.forms import LANES, Form, Mask, Varying, unknown
from stagekit.backends.host.pieces import OncePerBlock, Piece, Plan, Region, Split
from stagekit.backends.host.pointers import full_vector, lane_pointers
from stagekit.backends.host.vectors import as_mask
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm.types import llvm_type
from stagekit.backends.shared_memory import BumpAllocator
from stagekit.ir import Pointer, Scalar, Type, Value, ops
from stagekit.native_tables import SCRATCH_ALIGN

_POINTER_BYTES = 8


def is_bool(type_: Type) -> bool:
    return isinstance(type_, Scalar) and type_.dtype is dtypes.bool_


def warp_bytes(type_: Type) -> int:
    """Return how many bytes one warp takes in a slot."""
    if is_bool(type_):
        return 4
    return LANES * (_POINTER_BYTES if isinstance(type_, Pointer) else type_.dtype.itemsize)


def load_slot(warp: Warp, value: Value, offset_bytes: int) -> Form:
    """Load what the warp's threads have in the slot of `value`."""
    pointer, type_ = _pointer(warp, value, offset_bytes), value.type
    if is_bool(type_):
        word = warp.w.emit(f"load i32, ptr {pointer}, align 4")
        return Mask(warp.w.emit(f"bitcast i32 {word} to <{LANES} x i1>"))
    text = warp.w.emit(f"load {llvm_type(type_, LANES)}, ptr {pointer}, align {_alignment(type_)}")
    if isinstance(type_, Pointer):
        return lane_pointers(text)
    return Varying(text, unknown(type_.dtype))


def store_slot(warp: Warp, value: Value, offset_bytes: int, form: Form) -> None:
    """Put `form` into the slot of `value`; lanes that are no threads get anything."""
    pointer, type_ = _pointer(warp, value, offset_bytes), value.type
    if is_bool(type_):
        warp.w.line(f"store i32 {as_mask(warp.w, form).word(warp.w)}, ptr {pointer}, align 4")
        return
    held = llvm_type(type_, LANES)
    warp.w.line(f"store {held} {full_vector(warp, type_, form)}, ptr {pointer}, align {_alignment(type_)}")


def _alignment(type_: Type) -> int:
    return min(warp_bytes(type_), SCRATCH_ALIGN)


def _pointer(warp: Warp, value: Value, offset_bytes: int) -> str:
    start = warp.w.emit(f"getelementptr i8, ptr %scratch, i64 {offset_bytes}")
    return warp.part_of(start, warp_bytes(value.type))


# -- when each slot is in use -----------------------------------------------------------------------------------------


def place_slots(plan: Plan, warps: int, layout: BumpAllocator) -> dict[Value, int]:
    """Return an offset in the scratch memory for each slot."""
    times = _Times(plan)
    times.region(plan.region)
    free: dict[int, list[int]] = {}  # by size in bytes
    busy: list[tuple[int, int, int]] = []  # (last time, size, offset)
    offsets: dict[Value, int] = {}
    for value in sorted(times.first, key=times.first.__getitem__):
        for ended in [entry for entry in busy if entry[0] < times.first[value]]:
            busy.remove(ended)
            free.setdefault(ended[1], []).append(ended[2])
        size = warp_bytes(value.type) * warps
        reusable = free.get(size)
        offsets[value] = reusable.pop() if reusable else layout.take(size, SCRATCH_ALIGN)
        busy.append((times.last[value], size, offsets[value]))
    return offsets


@dataclass
class _Times:
    """A step of the plan is one tick of the clock."""

    plan: Plan
    first: dict[Value, int] = field(default_factory=dict)
    last: dict[Value, int] = field(default_factory=dict)
    now: int = 0
    slots: frozenset[Value] = frozenset()

    def __post_init__(self) -> None:
        self.slots = frozenset(self.plan.slots)

    def touch(self, values: Iterable[Value]) -> None:
        for value in values:
            owner = self.plan.owner(value)
            if owner in self.slots:
                self.first.setdefault(owner, self.now)
                self.last[owner] = self.now

    def region(self, region: Region) -> None:
        for step in region:
            self.now += 1
            if isinstance(step, Piece):
                self.touch((*step.needs, *step.spills))
                self.touch(value for pair in step.copies for value in pair)
                self._touch_sources(step.needs)
            elif isinstance(step, Split):
                self._split(step)
            else:
                assert isinstance(step, OncePerBlock)

    def _touch_sources(self, values: Iterable[Value]) -> None:
        """Touch what is read when a value is computed again."""
        for value in values:
            maker = self.plan.makers.get(value)
            if maker is not None and self.plan.owner(value) not in self.slots:
                self.touch(maker.operands())
                self._touch_sources(maker.operands())

    def _split(self, split: Split) -> None:
        op, began = split.op, self.now
        self.touch(op.operands())
        self.touch(op.results)
        self.touch(param for body in op.bodies() for param in body.params)
        for region in split.bodies:
            self.region(region)
            self.now += 1
            self.touch(split.read_after(region))
        self.touch(op.results)
        if isinstance(op, ops.For | ops.While):
            self.touch(param for body in op.bodies() for param in body.params)
            self.touch([v for v in self.first if self.first[v] < began <= self.last[v]])
