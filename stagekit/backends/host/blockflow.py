"""Run a plan: control flow around barriers once per block, and each piece as a loop over the block's warps.

    for k in range(n):             scalar loop, k a scalar
        s[tid] = a[k, tid]             loop over warps, 32 lanes each
        syncthreads()                  nothing: the next loop starts when this one is done
        acc += s[..]                   loop over warps; acc lives in a slot

A condition or bound that could differ between threads is read from its slot and must be the same for all of them;
otherwise some would wait at a barrier that others never reach: the kernel ends with a fault.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from stagekit import dtypes
from stagekit.backends.host.collective import counted_at_barrier
from stagekit.backends.host.forms import LANES, Form, Mask, Uniform, constant_mask, number, unknown
from stagekit.backends.host.pieces import Piece, Plan, Region, Split
from stagekit.backends.host.slots import is_bool, load_slot, place_slots, store_slot
from stagekit.backends.host.vectors import as_mask, mask_and, scalar_vector, splat
from stagekit.backends.host.warp import KernelContext, Warp, leave_unless
from stagekit.backends.llvm import arith
from stagekit.backends.llvm.blocks import count_up
from stagekit.backends.llvm.types import scalar_type
from stagekit.backends.shared_memory import BumpAllocator
from stagekit.ir import Block, CompareKind, Native, Op, Value, flow, ops
from stagekit.ir.intervals import Interval


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
