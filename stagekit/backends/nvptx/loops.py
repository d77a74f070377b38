"""`for` and `while` as LLVM blocks.

    for:    br (start before stop), body, exit        while:  head: phis; the test; br flag, body, exit
    body:   phis; ...; br (one more fits), body, exit         body: ...; br head
    exit:   phis                                              exit:

`ir.trips` says when a `for` begins and goes on.
"""

from __future__ import annotations

from collections.abc import Sequence

from stagekit.backends.llvm import arith
from stagekit.backends.llvm.blocks import OpenPhi, open_phi, unroll_hint
from stagekit.backends.llvm.types import scalar_type
from stagekit.backends.nvptx.state import Emitter
from stagekit.ir import BinaryKind, CompareKind, Value, ops
from stagekit.ir.intervals import Interval
from stagekit.ir.trips import Trips


def emit_for(e: Emitter, op: ops.For) -> None:
    w = e.w
    trips = Trips(_Scalars(e, op), *(e.operands[bound] for bound in (op.start, op.stop, op.step)))
    begins = trips.enter().begins()
    before, body, exit_ = w.block, w.new_label("for"), w.new_label("endfor")
    w.line(f"br i1 {begins}, label %{body}, label %{exit_}")
    w.label(body)
    phis = _open_phis(e, op.loop_body.params, (op.start, *op.inits), before)
    nexts = e.run_body(op.loop_body)
    index = phis[0].name
    following = trips.following(index)
    hint = unroll_hint(w, op.unroll) if op.unroll else ""
    w.line(f"br i1 {trips.goes_on(index, following)}, label %{body}, label %{exit_}{hint}")
    latch = w.block
    for phi, latest in zip(phis, (following, *nexts), strict=True):
        phi.close(w, latest, latch)
    w.label(exit_)
    e.bind(op.results, [phi.after(w, latest, latch) for phi, latest in zip(phis[1:], nexts, strict=True)])


def _open_phis(e: Emitter, params: Sequence[Value], inits: Sequence[Value], before: str) -> list[OpenPhi]:
    """Begin the phis of a loop's head, which the block `before` leads to, and bind them to the parameters."""
    phis = [open_phi(e.w, e.type(p), e.operands[init], before) for p, init in zip(params, inits, strict=True)]
    e.bind(params, [phi.name for phi in phis])
    return phis


class _Scalars:
    """`ir.trips.LoopArithmetic` on LLVM's scalars. It knows the intervals of the bounds of one loop."""

    def __init__(self, e: Emitter, op: ops.For) -> None:
        self.w, self.dtype = e.w, op.start.type.dtype
        self._intervals = {e.operands[bound]: e.intervals[bound] for bound in (op.start, op.stop, op.step)}

    def interval(self, value: str) -> Interval:
        return self._intervals[value]

    def number(self, value: int) -> str:
        return str(value)

    def add(self, a: str, b: str) -> str:
        """Write the next index. Past the end it may be poison, which nothing reads."""
        return self.w.emit(f"add {'nsw' if self.dtype.is_signed else 'nuw'} {scalar_type(self.dtype)} {a}, {b}")

    def sub(self, a: str, b: str) -> str:
        return arith.binary(self.w, BinaryKind.SUB, self.dtype, None, a, b)

    def compare(self, kind: CompareKind, a: str, b: str) -> str:
        return arith.compare(self.w, kind, self.dtype, None, a, b)

    def is_longer(self, a: str, b: str) -> str:
        return arith.compare(self.w, CompareKind.GT, self.dtype.unsigned, None, a, b)

    def select(self, condition: str, if_true: str, if_false: str) -> str:
        return arith.select(self.w, self.dtype, None, condition, if_true, if_false)

    def both(self, a: str, b: str) -> str:
        return self.w.emit(f"and i1 {a}, {b}")


def emit_while(e: Emitter, op: ops.While) -> None:
    w = e.w
    before, head, body, exit_ = w.block, w.new_label("while"), w.new_label("do"), w.new_label("endwhile")
    w.jump(head)
    phis = _open_phis(e, op.before.params, op.inits, before)
    flag, *forwarded = (e.operands[v] for v in e.run(op.before).operands())
    w.line(f"br i1 {flag}, label %{body}, label %{exit_}")
    w.label(body)
    e.bind(op.after.params, forwarded)
    nexts = e.run_body(op.after)
    w.line(f"br label %{head}")
    for phi, latest in zip(phis, nexts, strict=True):
        phi.close(w, latest, w.block)
    w.label(exit_)
    e.bind(op.results, forwarded)
