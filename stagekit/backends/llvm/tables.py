"""Tables: numbers that are part of the code, each a global of its own, and one for all tables of the same bytes."""

from __future__ import annotations

from stagekit.backends.llvm.types import pointer_type
from stagekit.backends.llvm.writer import Module
from stagekit.ir import ops


def define_table(module: Module, op: ops.Table, space: int) -> str:
    """Add the table to a module, in an address space of LLVM's; return its address."""
    name = module.unique_name("stagekit_table", op.data)
    text = "\\" + (bytes.fromhex(op.data) or b"\0").hex("\\")
    where = pointer_type(space).removeprefix("ptr").strip()
    held = f'[{max(op.size_bytes, 1)} x i8] c"{text}"'
    return module.add_global(name, f"internal {where} constant {held}, align {ops.TABLE_ALIGN}".replace("  ", " "))
