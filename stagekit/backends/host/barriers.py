"""Barriers in a block of one warp, and what a barrier collects. A warp is in lockstep: there is nothing to wait for.

What must be checked is that every thread is here. A barrier under a condition that only some threads took ends the
kernel with `FAULT_DIVERGENT_BARRIER`. Blocks of several warps: `blockflow.py`.
"""

from __future__ import annotations

from stagekit.backends.host.collective import ballot_word
from stagekit.backends.host.forms import ALL_LANES, Uniform
from stagekit.backends.host.spread import lane_word
from stagekit.backends.host.warp import Warp
from stagekit.diagnostics import InternalError
from stagekit.ir import Native, ops
from stagekit.ir.intervals import Interval


def emit_barrier(warp: Warp, op: ops.IntrinsicOp, native: Native) -> None:
    """Check that all threads are here."""
    if not warp.kernel.is_one_warp:
        raise InternalError("a barrier within a piece of a block of several warps")
    if warp.mask is warp.full:
        return
    w, full = warp.w, warp.kernel.lanes_of(0)
    here = lane_word(w, warp.mask) if warp.mask else "-1"
    fail_unless(warp, w.emit(f"icmp eq i32 {here}, {full - (1 << 32) if full == ALL_LANES else full}"))


def fail_unless(warp: Warp, condition: str) -> None:
    """Leave the kernel with a fault where the scalar `condition` does not hold."""
    passed = warp.w.new_label("together")
    warp.w.line(f"br i1 {condition}, label %{passed}, label %{warp.kernel.fault}")
    warp.w.label(passed)


def emit_barrier_count(warp: Warp, op: ops.IntrinsicOp, native: Native) -> None:
    emit_barrier(warp, op, native)
    word = ballot_word(warp, warp[op.args[0]])
    count = warp.w.call("i32", "llvm.ctpop.i32", [("i32", word)])
    warp[op.result] = Uniform(count, Interval(0, warp.kernel.threads))


def emit_barrier_vote(warp: Warp, op: ops.IntrinsicOp, native: Native) -> None:
    """Does the predicate hold for any thread, or for all of them?"""
    emit_barrier(warp, op, native)
    word, full = ballot_word(warp, warp[op.args[0]]), warp.kernel.lanes_of(0)
    if native is Native.BARRIER_OR:
        warp[op.result] = Uniform(warp.w.emit(f"icmp ne i32 {word}, 0"))
    else:
        everyone = -1 if full == ALL_LANES else full
        warp[op.result] = Uniform(warp.w.emit(f"icmp eq i32 {word}, {everyone}"))
