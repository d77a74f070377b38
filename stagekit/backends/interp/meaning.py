"""How the interpreter does a call of an intrinsic: its record's `evaluate`, or one of the things only a target can do."""

from __future__ import annotations

from stagekit.ir import Native, ops


def native_of(op: ops.IntrinsicOp) -> Native | None:
    """What the interpreter itself must do for `op`; None where the record's `evaluate` says it all."""
    if "interp" not in op.spec.lower:
        return None
    found = op.spec.lowering("interp", tuple(v.type for v in op.args), fastmath=False)
    return found if isinstance(found, Native) else None
