"""Run a plan: control flow around barriers once per block, and each piece as a loop over the block's warps.

    for k in range(n):             scalar loop, k a scalar
        s[tid] = a[k, tid]             loop over warps, 32 lanes each
        syncthreads()                  nothing: the next loop starts when this one is done
        acc += s[..]                   loop over warps; acc lives in a slot

A condition or bound that could differ between threads is read from its slot and must be the same for all of them;
otherwise some would wait at a barrier that others never reach: the kernel ends with a fault.

A worker has scratch memory for shared arrays, values that cross barriers (slots), and LOCAL arrays.

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

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Any

from stagekit import dtypes
from stagekit.backends.host.collective import counted_at_barrier
from stagekit.backends.host.forms import LANES, Form, Mask, Uniform, Varying, constant_mask, number, unknown
from stagekit.backends.host.pieces import OncePerBlock, Piece, Plan, Region, Split
from stagekit.backends.host.pointers import full_vector, lane_pointers
from stagekit.backends.host.vectors import as_mask, mask_and, scalar_vector, splat
from stagekit.backends.host.warp import KernelContext, Warp, leave_unless
from stagekit.backends.llvm import arith
from stagekit.backends.llvm.blocks import count_up
from stagekit.backends.llvm.types import llvm_type, scalar_type
from stagekit.backends.shared_memory import BumpAllocator
from stagekit.frozen import record
from stagekit.ir import Block, CompareKind, Native, Op, Pointer, Scalar, Type, Value, flow, ops
from stagekit.ir.intervals import Interval
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


@record()
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


class BlockFlow(Warp):
    """Writes the code of one block of several warps. As a `Warp`: the values that are the same in all of them."""

    def __init__(self, kernel: KernelContext, plan: Plan, layout: BumpAllocator) -> None:
        super().__init__(kernel, kernel.w, number(0), kernel.block_values, None, None)
        self.plan = plan
        self.offsets = place_slots(plan, kernel.warps, layout)
        # By the body of a split: its region, and what takes the values that it hands on.
        self._inside: dict[Block, tuple[Region, Sequence[Value | None]]] = {}

    def run_plan(self) -> None:
        self._region(self.plan.region)

    def _region(self, region: Region) -> None:
        for step in region:
            if isinstance(step, Piece):
                self._over_warps(functools.partial(self._warp_piece, piece=step))
            elif isinstance(step, Split) and isinstance(step.op, ops.IntrinsicOp):
                self._barrier(step.op)
            else:
                if isinstance(step, Split):
                    bodies = zip(step.op.bodies(), step.bodies, flow.takers(step.op), strict=True)
                    self._inside.update((body, (inner, targets)) for body, inner, targets in bodies)
                self.emit(step.op)

    def run(self, block: Block) -> tuple[Form, ...]:
        """Write a block; return the forms of what it hands on, except for what is handed on in slots."""
        if block not in self._inside:
            return super().run(block)
        region, targets = self._inside[block]
        self._region(region)
        end, varying = block.ops[-1], self.plan.varying
        pairs = zip(end.operands(), targets, strict=True)
        return tuple([self._agreed(end, v) if t is None else self[v] for v, t in pairs if t not in varying])

    def kept(self, values: Sequence[Value]) -> Sequence[Value]:
        return [value for value in values if value not in self.plan.varying]

    def decider(self, op: Op, value: Value) -> Form:
        return self._agreed(op, value) if op.bodies()[0] in self._inside else self[value]

    # -- pieces -------------------------------------------------------------------------------------------------------

    def _warp_piece(self, warp: Warp, piece: Piece) -> None:
        for value in piece.needs:
            self._bring(warp, value)
        for op in piece.ops:
            warp.emit(op)
        for value in piece.spills:
            store_slot(warp, value, self.offsets[value], warp[value])
        copies = [(self.plan.owner(target), warp[value]) for value, target in piece.copies]
        for target, form in copies:
            store_slot(warp, target, self.offsets[target], form)

    def _bring(self, warp: Warp, value: Value) -> None:
        """Make a varying value of another piece available here."""
        if value in warp.values or value not in self.plan.varying:
            return
        owner = self.plan.owner(value)
        if owner in self.offsets:
            warp[value] = load_slot(warp, owner, self.offsets[owner])
            return
        maker = self.plan.makers[value]
        for operand in maker.operands():
            self._bring(warp, operand)
        warp.emit(maker)

    def _over_warps(self, body: Callable[[Warp], None]) -> None:
        """Write `body` for all whole warps, then for the rest of an odd block."""
        whole = self.kernel.threads // LANES

        def one(index: str) -> str:
            body(self._warp(Uniform(index, Interval(0, whole - 1)), None))
            return "1"

        if whole == 1:
            body(self._warp(number(0), None))
        elif whole:
            count_up(self.w, "i64", "0", str(whole), "warp", one)
        if self.kernel.threads % LANES:
            body(self._warp(number(whole), constant_mask(self.kernel.lanes_of(whole))))

    def _warp(self, index: Uniform, full: Mask | None) -> Warp:
        return Warp(self.kernel, self.w, index, {}, full, full)

    # -- what all threads say together --------------------------------------------------------------------------------

    def _agreed(self, op: Op, value: Value) -> Uniform:
        """Return a value as a scalar; where the threads may disagree on what decides `op`, write the check that they do not."""
        if value not in self.plan.varying:
            form = self[value]
            return form if isinstance(form, Uniform) else self._agreed_by_lanes(self, op, value, form, None)
        if is_bool(value.type):
            count = self._count(value)
            holds = self.w.emit(f"icmp ne i32 {count}, 0")
            is_full = self.w.emit(f"icmp eq i32 {count}, {self.kernel.threads}")
            leave_unless(self.w, self.w.emit(f"icmp eq i1 {holds}, {is_full}"), self.kernel.numbers[op])
            return Uniform(holds)
        owner, dtype = self.plan.owner(value), value.type.dtype
        pointer = self.w.emit(f"getelementptr i8, ptr %scratch, i64 {self.offsets[owner]}")
        first = self.w.emit(f"load {scalar_type(dtype)}, ptr {pointer}, align {dtype.itemsize}")

        def check(warp: Warp) -> None:
            self._agreed_by_lanes(warp, op, value, load_slot(warp, owner, self.offsets[owner]), first)

        self._over_warps(check)
        return Uniform(first, unknown(dtype))

    def _agreed_by_lanes(self, warp: Warp, op: Op, value: Value, form: Form, first: str | None) -> Uniform:
        """Check that `form` is one number in all lanes of a warp: `first`, or that of the first lane."""
        w, dtype = warp.w, value.type.dtype
        held, text = f"<{LANES} x {scalar_type(dtype)}>", scalar_vector(warp.w, dtype, form)
        first = first or w.emit(f"extractelement {held} {text}, i64 0")
        differs = arith.compare(w, CompareKind.NE, dtype, LANES, text, splat(w, scalar_type(dtype), first))
        differing = (mask_and(w, warp.full, Mask(differs)) or Mask(differs)).word(w)
        leave_unless(w, w.emit(f"icmp eq i32 {differing}, 0"), self.kernel.numbers[op])
        return Uniform(first, unknown(dtype))

    def _count(self, predicate: Value) -> str:
        """Return, as an i32, the number of threads for which a bool holds."""
        w, warps = self.w, self.kernel.warps
        if predicate not in self.plan.varying:
            held, whole = self[predicate], self.kernel.threads // LANES
            if isinstance(held, Uniform):
                return w.emit(f"select i1 {held.text}, i32 {self.kernel.threads}, i32 0")
            word = as_mask(w, held).word(w)
            rest = w.emit(f"and i32 {word}, {self.kernel.lanes_of(whole)}")
            counts = [w.call("i32", "llvm.ctpop.i32", [("i32", text)]) for text in (word, rest)]
            return w.emit(f"add i32 {w.emit(f'mul i32 {counts[0]}, {whole}')}, {counts[1]}")
        pointer = w.emit(f"getelementptr i8, ptr %scratch, i64 {self.offsets[self.plan.owner(predicate)]}")
        words = w.emit(f"load <{warps} x i32>, ptr {pointer}, align 4")
        lanes = ", ".join(f"i32 {dtypes.int32.wrap(self.kernel.lanes_of(warp))}" for warp in range(warps))
        threads = w.emit(f"and <{warps} x i32> {words}, <{lanes}>")
        held_type = f"<{warps} x i32>"
        counts_of_warps = w.call(held_type, f"llvm.ctpop.v{warps}i32", [(held_type, threads)])
        return w.call("i32", f"llvm.vector.reduce.add.v{warps}i32", [(held_type, counts_of_warps)])

    def _barrier(self, op: ops.IntrinsicOp) -> None:
        """Write what a barrier gives. There is nothing to wait for: the piece before it has run for every warp."""
        native: Any = op.spec.lower["cpu"]
        if native is not Native.BARRIER:
            self[op.result] = counted_at_barrier(self, native, self._count(op.args[0]))
