"""Which function writes which op. Every op class is here; the table is the exhaustive match that Python lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stagekit.backends.host.compute import emit_binary, emit_bitcast, emit_cast, emit_compare, emit_constant, emit_unary
from stagekit.backends.host.conditional import emit_if
from stagekit.backends.host.intrinsic import emit_intrinsic
from stagekit.backends.host.loops import emit_for, emit_while
from stagekit.backends.host.memory import emit_alloc, emit_load, emit_store
from stagekit.backends.host.pointers import emit_offset
from stagekit.backends.host.selection import emit_select
from stagekit.backends.host.warp import Warp
from stagekit.diagnostics import InternalError
from stagekit.ir import Op, ops


def _misplaced(warp: Warp, op: Op) -> None:
    raise InternalError(f"`{op.mnemonic}` reached the cpu target, which needs it expanded or at the end of a body")


EMITTERS: Mapping[type[Op], Callable[[Warp, Any], None]] = {
    ops.Constant: emit_constant,
    ops.Binary: emit_binary,
    ops.Unary: emit_unary,
    ops.Compare: emit_compare,
    ops.Select: emit_select,
    ops.Cast: emit_cast,
    ops.Bitcast: emit_bitcast,
    ops.Offset: emit_offset,
    ops.Load: emit_load,
    ops.Store: emit_store,
    ops.Alloc: emit_alloc,
    ops.If: emit_if,
    ops.For: emit_for,
    ops.While: emit_while,
    ops.IntrinsicOp: emit_intrinsic,
    ops.InlineAsm: _misplaced,
    ops.Assert: _misplaced,
    ops.Print: _misplaced,
    ops.Yield: _misplaced,
    ops.Condition: _misplaced,
}
