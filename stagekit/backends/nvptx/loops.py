"""`for` and `while` as LLVM blocks.

    for:    br (start before stop), body, exit        while:  head: phis; the test; br flag, body, exit
    body:   phis; ...; br (one more fits), body, exit         body: ...; br head
    exit:   phis                                              exit:

`ir.trips` says when a `for` begins and goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stagekit.backends.llvm import arith
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
    index, *carried = op.loop_body.params
    phis = [w.hole() for _ in op.loop_body.params]
    e.bind(op.loop_body.params, [w.fresh() for _ in phis])
    nexts = e.run_body(op.loop_body)
    following = trips.following(e.operands[index])
    w.line(
        f"br i1 {trips.goes_on(e.operands[index], following)}, label %{body}, label %{exit_}{_unrolling(e, op.unroll)}"
    )
    latch = w.block
    inits = tuple(e.operands[v] for v in (op.start, *op.inits))
    _fill_phis(e, phis, op.loop_body.params, _Edges(before, inits, latch, (following, *nexts)))
    w.label(exit_)
    for result, param, init, after in zip(op.results, carried, inits[1:], nexts, strict=True):
        e.operands[result] = w.emit(f"phi {e.type(param)} [ {init}, %{before} ], [ {after}, %{latch} ]")


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


def _unrolling(e: Emitter, factor: int | None) -> str:
    """Return the metadata that asks for `factor` copies of the body; 1 forbids unrolling."""
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
