"""`for` and `while` as LLVM blocks.

    for:    br (start before stop), body, exit        while:  head: phis; the test; br flag, body, exit
    body:   phis; ...; br (one more fits), body, exit         body: ...; br head
    exit:   phis                                              exit:

The test for one more iteration never computes a value past `stop` that it then reads: `range(0, 2**63 - 1, 5)` ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stagekit.backends.llvm.arith import literal
from stagekit.backends.nvptx.state import Emitter
from stagekit.dtypes import DType
from stagekit.ir import Value, ops


def emit_for(e: Emitter, op: ops.For) -> None:
    w = e.w
    steps = _Steps(e, op)
    before, body, exit_ = w.block, w.new_label("for"), w.new_label("endfor")
    w.line(f"br i1 {steps.is_entered()}, label %{body}, label %{exit_}")
    w.label(body)
    index, *carried = op.loop_body.params
    phis = [w.hole() for _ in op.loop_body.params]
    e.bind(op.loop_body.params, [w.fresh() for _ in phis])
    nexts = e.run_body(op.loop_body)
    following, has_more = steps.advance(e.operands[index])
    w.line(f"br i1 {has_more}, label %{body}, label %{exit_}{_unrolling(e, op.unroll)}")
    latch = w.block
    inits = tuple(e.operands[v] for v in (op.start, *op.inits))
    _fill_phis(e, phis, op.loop_body.params, _Edges(before, inits, latch, (following, *nexts)))
    w.label(exit_)
    for result, param, init, after in zip(op.results, carried, inits[1:], nexts, strict=True):
        e.operands[result] = w.emit(f"phi {e.type(param)} [ {init}, %{before} ], [ {after}, %{latch} ]")


class _Steps:
    """The counting of one loop: the sign of its step is known now, or is a value (`is_up`)."""

    def __init__(self, e: Emitter, op: ops.For) -> None:
        self.w = e.w
        self.dtype: DType = op.start.type.dtype
        self.held = e.type(op.start)
        self.start, self.stop, self.step = (e.operands[v] for v in (op.start, op.stop, op.step))
        self.known_step = literal(self.step)
        if self.known_step is None and self.dtype.is_signed:
            self.is_up = self.w.emit(f"icmp sgt {self.held} {self.step}, 0")
            self.size = self.w.call(self.held, f"llvm.abs.{self.held}", [(self.held, self.step), ("i1", "false")])

    def is_entered(self) -> str:
        """Is there a first iteration?"""
        if self.known_step == 0:
            return "false"
        if self.known_step is not None:
            return self._before(self.start, self.stop, is_up=self.known_step > 0)
        is_moving = self._compare("ne", self.step, "0")
        up = self._before(self.start, self.stop, is_up=True)
        if not self.dtype.is_signed:
            return self.w.emit(f"and i1 {up}, {is_moving}")
        down = self.w.emit(f"and i1 {self._before(self.start, self.stop, is_up=False)}, {is_moving}")
        return self.w.emit(f"select i1 {self.is_up}, i1 {up}, i1 {down}")

    def advance(self, index: str) -> tuple[str, str]:
        """The next index, and whether it is still before `stop`. Past the end the index is poison, and nobody reads it."""
        wrap = "nsw" if self.dtype.is_signed else "nuw"
        following = self.w.emit(f"add {wrap} {self.held} {index}, {self.step}")
        return following, self._has_more(index, following)

    def _has_more(self, index: str, following: str) -> str:
        step = self.known_step
        if step is None:
            return self._fits(index)
        if abs(step) == 1 or self._cannot_pass_the_end(step):
            return self._before(following, self.stop, is_up=step > 0)
        distance = self._distance(index, is_up=step > 0)
        return self._compare("ugt", distance, str(abs(step)))

    def _fits(self, index: str) -> str:
        """For a step known only at run time: is more than one step left between `index` and `stop`?"""
        up = self._distance(index, is_up=True)
        if not self.dtype.is_signed:
            return self._compare("ugt", up, self.step)
        left = self.w.emit(
            f"select i1 {self.is_up}, {self.held} {up}, {self.held} {self._distance(index, is_up=False)}"
        )
        return self._compare("ugt", left, self.size)

    def _cannot_pass_the_end(self, step: int) -> bool:
        """Is `stop` known and so far from the end of the dtype that no index wraps?"""
        stop = literal(self.stop)
        return stop is not None and self.dtype.holds(stop + step)

    def _distance(self, index: str, *, is_up: bool) -> str:
        """From `index` to `stop`, as an unsigned number; never wraps, as `index` is before `stop`."""
        ends = (self.stop, index) if is_up else (index, self.stop)
        return self.w.emit(f"sub {self.held} {ends[0]}, {ends[1]}")

    def _before(self, a: str, b: str, *, is_up: bool) -> str:
        sign = "s" if self.dtype.is_signed else "u"
        return self._compare(sign + ("lt" if is_up else "gt"), a, b)

    def _compare(self, predicate: str, a: str, b: str) -> str:
        return self.w.emit(f"icmp {predicate} {self.held} {a}, {b}")


def _unrolling(e: Emitter, factor: int | None) -> str:
    """The metadata that asks for `factor` copies of the body; 1 forbids unrolling."""
    if factor is None:
        return ""
    module = e.w.module
    wish = '!"llvm.loop.unroll.disable"' if factor == 1 else f'!"llvm.loop.unroll.count", i32 {factor}'
    node = module.metadata("{self}, " + module.metadata(wish), is_distinct=True)
    return f", !llvm.loop {node}"


def emit_while(e: Emitter, op: ops.While) -> None:
    w = e.w
    before, head, body, exit_ = w.block, w.new_label("while"), w.new_label("do"), w.new_label("endwhile")
    w.line(f"br label %{head}")
    w.label(head)
    phis = [w.hole() for _ in op.before.params]
    e.bind(op.before.params, [w.fresh() for _ in phis])
    flag, *forwarded = (e.operands[v] for v in e.run(op.before).operands())
    w.line(f"br i1 {flag}, label %{body}, label %{exit_}")
    w.label(body)
    e.bind(op.after.params, forwarded)
    nexts = e.run_body(op.after)
    w.line(f"br label %{head}")
    inits = tuple(e.operands[v] for v in op.inits)
    _fill_phis(e, phis, op.before.params, _Edges(before, inits, w.block, nexts))
    w.label(exit_)
    e.bind(op.results, forwarded)


@dataclass(frozen=True, slots=True)
class _Edges:
    """The two ways into a loop's head: block and values, from outside and from its own end."""

    entry: str
    inits: tuple[str, ...]
    latch: str
    nexts: tuple[str, ...]


def _fill_phis(e: Emitter, places: Sequence[int], params: Sequence[Value], edges: _Edges) -> None:
    """Write the phis of a loop's head, now that the values of the back edge are known."""
    for place, param, init, after in zip(places, params, edges.inits, edges.nexts, strict=True):
        incoming = f"[ {init}, %{edges.entry} ], [ {after}, %{edges.latch} ]"
        e.w.fill(place, f"{e.operands[param]} = phi {e.type(param)} {incoming}")
