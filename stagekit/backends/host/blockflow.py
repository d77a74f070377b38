"""Run a plan: control flow around barriers once per block, and each piece as a loop over the block's warps.

    for k in range(n):             scalar loop, k a scalar
        s[tid] = a[k, tid]             loop over warps, 32 lanes each
        syncthreads()                  nothing: the next loop starts when this one is done
        acc += s[..]                   loop over warps; acc lives in a slot

A condition or bound that could differ between threads is read from its slot and must be the same for all of them;
otherwise some would wait at a barrier that others never reach: the kernel ends with `FAULT_DIVERGENT_BARRIER`.
"""

from __future__ import annotations

from collections.abc import Callable

from stagekit.backends.host.barriers import fail_unless
from stagekit.backends.host.branches import KEEP_ROLLED, loop_hint, open_phi
from stagekit.backends.host.carried import until_it_fits
from stagekit.backends.host.conditional import size_of
from stagekit.backends.host.counting import trip_of
from stagekit.backends.host.forms import LANES, Form, Mask, Uniform, constant_mask, number
from stagekit.backends.host.joins import end_arm, join
from stagekit.backends.host.lifetimes import place_slots
from stagekit.backends.host.loops import Range, scalar_loop, scalar_while
from stagekit.backends.host.pieces import Once, Piece, Plan, Region, Split
from stagekit.backends.host.slots import Layout, is_bool, load_slot, store_slot
from stagekit.backends.host.spread import dtype_of, lane_word, mask_and, splat
from stagekit.backends.host.warp import Kernel, Warp
from stagekit.backends.llvm import arith
from stagekit.backends.llvm.types import scalar_type
from stagekit.diagnostics import InternalError
from stagekit.ir import Block, CompareKind, Native, Value, ops
from stagekit.ir.intervals import Interval

MAX_UNROLLED_WARPS = 4
MAX_UNROLLED_OPS = 64


class BlockFlow:
    """Writes the code of one block of several warps."""

    def __init__(self, kernel: Kernel, plan: Plan, layout: Layout) -> None:
        self.kernel, self.plan, self.w = kernel, plan, kernel.w
        self.offsets = place_slots(plan, kernel.warps, layout)
        self.once = Warp(kernel, kernel.w, number(0), kernel.block_values, None, None)

    def run(self) -> None:
        self._region(self.plan.region)

    def _region(self, region: Region) -> None:
        for step in region:
            if isinstance(step, Once):
                self.once.emit(step.op)
            elif isinstance(step, Piece):
                self._piece(step)
            else:
                self._split(step)

    # -- pieces -------------------------------------------------------------------------------------------------------

    def _piece(self, piece: Piece) -> None:
        size = size_of(Block((), tuple(piece.ops)))
        self._over_warps(lambda warp: self._warp_piece(warp, piece), is_small=size <= MAX_UNROLLED_OPS)

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

    def _over_warps(self, body: Callable[[Warp], None], *, is_small: bool) -> None:
        """Write `body` for all whole warps, then for the rest of an odd block."""
        whole = self.kernel.threads // LANES
        if whole == 1 or (whole <= MAX_UNROLLED_WARPS and is_small):
            for index in range(whole):
                body(self._warp(number(index), None))
        elif whole:
            self._warp_loop(whole, body)
        if self.kernel.threads % LANES:
            body(self._warp(number(whole), constant_mask(self.kernel.lanes_of(whole))))

    def _warp(self, index: Uniform, full: Mask | None) -> Warp:
        return Warp(self.kernel, self.w, index, {}, full, full)

    def _warp_loop(self, whole: int, body: Callable[[Warp], None]) -> None:
        w = self.w
        head, end, entry = w.new_label("warp"), w.new_label("endwarps"), w.block
        w.line(f"br label %{head}")
        w.label(head)
        index = open_phi(w, "i64", "0", entry)
        body(self._warp(Uniform(index.name, Interval(0, whole - 1)), None))
        following = w.emit(f"add nuw nsw i64 {index.name}, 1")
        index.close(w, following, w.block)
        goes_on = w.emit(f"icmp ult i64 {following}, {whole}")
        w.line(f"br i1 {goes_on}, label %{head}, label %{end}{loop_hint(w, KEEP_ROLLED)}")
        w.label(end)

    # -- control flow around barriers ---------------------------------------------------------------------------------

    def _split(self, split: Split) -> None:
        op = split.op
        if isinstance(op, ops.If):
            self._if(op, split)
        elif isinstance(op, ops.For):
            self._for(op, split)
        elif isinstance(op, ops.While):
            self._while(op, split)
        elif isinstance(op, ops.IntrinsicOp):
            self._barrier(op)
        else:
            raise InternalError(f"a barrier in `{op.mnemonic}`")

    def _uniform(self, value: Value) -> Uniform:
        """A scalar that all threads agree on, checked where it is not known."""
        if value in self.plan.varying:
            return self._agreed(value)
        form = self.once[value]
        if not isinstance(form, Uniform):
            raise InternalError(f"{form} once per block")
        return form

    def _handed_on(self, values: tuple[Value, ...], results: tuple[Value, ...]) -> tuple[Form, ...]:
        """The forms of those `values` whose `results` are uniform; the others are in slots."""
        return tuple([self.once[v] for v, r in zip(values, results, strict=True) if r not in self.plan.varying])

    def _uniform_ones(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple([v for v in values if v not in self.plan.varying])

    def _if(self, op: ops.If, split: Split) -> None:
        w, condition = self.w, self._uniform(op.condition)
        then, other, end = w.new_label("then"), w.new_label("else"), w.new_label("endif")
        w.line(f"br i1 {condition.text}, label %{then}, label %{other}")
        arms, forms = [], []
        for label, region, body in zip((then, other), split.bodies, op.bodies(), strict=True):
            w.label(label)
            self._region(region)
            forms.append(self._handed_on(body.ops[-1].operands(), op.results))
            arms.append(end_arm(self.once, end))
        w.label(end)
        for result, *each in zip(self._uniform_ones(op.results), *forms, strict=True):
            self.once[result] = join(self.once, result.type, tuple(arms), tuple(each))

    def _for(self, op: ops.For, split: Split) -> None:
        bounds = [self._uniform(v) for v in (op.start, op.stop, op.step)]
        trip = trip_of(self.once, dtype_of(op.start.type), bounds)
        params = op.loop_body.params[1:]
        inits = self._handed_on(op.inits, params)

        def body() -> tuple[Form, ...]:
            self._region(split.bodies[0])
            return self._handed_on(op.loop_body.ops[-1].operands(), params)

        def attempt() -> tuple[Form, ...] | None:
            return scalar_loop(self.once, op, Range(trip), self._uniform_ones(params), inits, body)

        forms = until_it_fits(self.once, attempt)
        for result, form in zip(self._uniform_ones(op.results), forms, strict=True):
            self.once[result] = form

    def _while(self, op: ops.While, split: Split) -> None:
        before, after = split.bodies
        params = op.before.params
        inits = self._handed_on(op.inits, params)
        flag, *forwarded = op.before.ops[-1].operands()

        def test() -> tuple[Form, ...]:
            self._region(before)
            return (self._uniform(flag), *self._handed_on(tuple(forwarded), op.after.params))

        def body(forms: tuple[Form, ...]) -> tuple[Form, ...]:
            for param, form in zip(self._uniform_ones(op.after.params), forms, strict=True):
                self.once[param] = form
            self._region(after)
            return self._handed_on(op.after.ops[-1].operands(), params)

        def attempt() -> tuple[Form, ...] | None:
            return scalar_while(self.once, op, self._uniform_ones(params), inits, test, body)

        forms = until_it_fits(self.once, attempt)
        for result, form in zip(self._uniform_ones(op.results), forms, strict=True):
            self.once[result] = form

    # -- what all threads say together --------------------------------------------------------------------------------

    def _agreed(self, value: Value) -> Uniform:
        if is_bool(value.type):
            count = self._count(value)
            holds = self.w.emit(f"icmp ne i32 {count}, 0")
            is_full = self.w.emit(f"icmp eq i32 {count}, {self.kernel.threads}")
            fail_unless(self.once, self.w.emit(f"icmp eq i1 {holds}, {is_full}"))
            return Uniform(holds)
        owner, dtype = self.plan.owner(value), dtype_of(value.type)
        element, offset = scalar_type(dtype), self.offsets[owner]
        pointer = self.w.emit(f"getelementptr i8, ptr %scratch, i64 {offset}")
        first = self.w.emit(f"load {element}, ptr {pointer}, align {dtype.itemsize}")

        def check(warp: Warp) -> None:
            here, one = load_slot(warp, owner, offset), splat(warp.w, element, first)
            text = arith.compare(warp.w, CompareKind.NE, dtype, LANES, here.text, one)  # type: ignore[union-attr]
            differs = mask_and(warp.w, warp.full, Mask(text))
            word = lane_word(warp.w, differs) if differs else "0"
            fail_unless(warp, warp.w.emit(f"icmp eq i32 {word}, 0"))

        self._over_warps(check, is_small=True)
        return Uniform(first, Interval.of(dtype))

    def _count(self, predicate: Value) -> str:
        """i32: the number of threads for which a bool holds."""
        w, warps = self.w, self.kernel.warps
        if predicate not in self.plan.varying:
            held = self._uniform(predicate)
            return w.emit(f"select i1 {held.text}, i32 {self.kernel.threads}, i32 0")
        pointer = w.emit(f"getelementptr i8, ptr %scratch, i64 {self.offsets[self.plan.owner(predicate)]}")
        words = w.emit(f"load <{warps} x i32>, ptr {pointer}, align 4")
        last = self.kernel.lanes_of(warps - 1)
        lanes = ", ".join(["i32 -1"] * (warps - 1) + [f"i32 {last if last < 1 << 31 else -1}"])
        threads = w.emit(f"and <{warps} x i32> {words}, <{lanes}>")
        held_type = f"<{warps} x i32>"
        counts = w.call(held_type, f"llvm.ctpop.v{warps}i32", [(held_type, threads)])
        return w.call("i32", f"llvm.vector.reduce.add.v{warps}i32", [(held_type, counts)])

    def _barrier(self, op: ops.IntrinsicOp) -> None:
        """Nothing to wait for: the piece before has run for every warp."""
        native = op.spec.lower["cpu"]
        if native is Native.BARRIER:
            return
        count = self._count(op.args[0])
        if native is Native.BARRIER_COUNT:
            self.once[op.result] = Uniform(count, Interval(0, self.kernel.threads))
        elif native is Native.BARRIER_OR:
            self.once[op.result] = Uniform(self.w.emit(f"icmp ne i32 {count}, 0"))
        else:
            self.once[op.result] = Uniform(self.w.emit(f"icmp eq i32 {count}, {self.kernel.threads}"))
