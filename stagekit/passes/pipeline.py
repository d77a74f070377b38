"""What happens to a kernel between the front end and emission: one ordered list per target, and who checks it.

    lowered = lower(traced, PassContext("cpu", 0, fastmath=False, debug=False), hooks=())

In: IR as traced. Out: IR in which the target's emitter meets nothing it does not know (`illegal` says what that is).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stagekit.ir import Function, Op, ops
from stagekit.ir.verifier import Legal, verify
from stagekit.passes import expand as expanding
from stagekit.passes import legalize as legalizing
from stagekit.passes import records as recording
from stagekit.passes import scalarize as scalarizing
from stagekit.passes.cse import cse
from stagekit.passes.dce import dce
from stagekit.passes.expand import expand
from stagekit.passes.fold import fold
from stagekit.passes.legalize import legalize
from stagekit.passes.manager import Hook, Pass, PassContext, run_passes
from stagekit.passes.records import records
from stagekit.passes.scalarize import scalarize

_COMPILED: tuple[Pass, ...] = (
    records,  # before expand: it calls intrinsics
    expand,  # before legalize: expansions compute in every dtype
    scalarize,  # after expand: a formula is built once for all lanes
    legalize,
    fold,  # the first to see what the two before it have built
    cse,
    dce,
)

PASSES: dict[str, tuple[Pass, ...]] = {
    "cuda": _COMPILED,
    "cpu": _COMPILED,
    "interp": (expand, scalarize),  # it runs what was written: nothing folded, no load removed
}

_Illegal = Callable[[Any, PassContext], str | None]
_AFTER_EXPAND: dict[type[Op], _Illegal] = {ops.IntrinsicOp: expanding.illegal, ops.InlineAsm: expanding.illegal}
_COMPILABLE: dict[type[Op], _Illegal] = {
    **_AFTER_EXPAND,
    **dict.fromkeys((ops.Assert, ops.Print), recording.illegal),
    **dict.fromkeys((ops.Binary, ops.Unary, ops.Compare, ops.Cast), legalizing.illegal),
}
ILLEGAL: dict[str, dict[type[Op], _Illegal]] = {"cuda": _COMPILABLE, "cpu": _COMPILABLE, "interp": _AFTER_EXPAND}
"""Per target and op class: why the emitter would not know an op, or None."""


def lower(fn: Function, context: PassContext, hooks: Sequence[Hook]) -> Function:
    """Run the target's passes on `fn` and check what they give. hooks: from `hooks_from_config`, or one's own."""
    lowered = run_passes(fn, PASSES[context.target], context, hooks)
    verify(lowered, legal(context))
    return lowered


def legal(context: PassContext) -> Legal:
    """Says of an op why the emitter of this target would not know it, or None."""
    rules = ILLEGAL[context.target]

    def objection(op: Op) -> str | None:
        rule = rules.get(type(op))
        return (rule(op, context) if rule else None) or scalarizing.illegal(op, context)

    return objection
