"""Where each shared allocation of a kernel lies.

Where they take up to 48 KiB together, each is a global of its own, which ptxas places. More than that must be dynamic shared
memory of the launch: all of them lie at its beginning, and what the caller of the launch asks for follows.
"""

from __future__ import annotations

from collections.abc import Mapping

from stagekit.backends.llvm.types import memory_type
from stagekit.backends.llvm.writer import Module
from stagekit.backends.shared_memory import BumpAllocator, alignment, place_shared
from stagekit.frozen import frozen
from stagekit.ir import Function, ops

STATIC_LIMIT_BYTES = 48 * 1024
"""Source: PTX ISA and CUDA C++ Programming Guide: static shared memory of a block, on every GPU."""

_DYNAMIC = "stagekit_dynamic_shared"
_DYNAMIC_ALIGN = 16


@frozen()
class SharedPlan:
    """operands: LLVM operand per allocation. static_bytes: what the code itself reserves. dynamic_bytes: what every launch
    must add for the kernel's own allocations. uses_dynamic: the kernel reads what the caller of a launch asks for.
    """

    operands: Mapping[ops.Alloc, str]
    static_bytes: int
    dynamic_bytes: int
    uses_dynamic: bool

    @property
    def total_bytes(self) -> int:
        return self.static_bytes + self.dynamic_bytes


def plan_shared(fn: Function, module: Module) -> SharedPlan:
    """Lay out the shared memory of `fn` and add the globals it needs to `module`."""
    memory = BumpAllocator()
    offsets = place_shared(fn, memory)
    total, is_static = memory.size_bytes, memory.size_bytes <= STATIC_LIMIT_BYTES
    dynamic = [op for op, offset in offsets.items() if offset is None]
    start = 0 if is_static else memory.take(0, max(map(alignment, dynamic), default=_DYNAMIC_ALIGN))
    align = max([_DYNAMIC_ALIGN, *map(alignment, offsets)])
    operands = {
        op: _static(module, index, op)
        if is_static and offset is not None
        else _dynamic(module, align, start if offset is None else offset)
        for index, (op, offset) in enumerate(offsets.items())
    }
    return SharedPlan(operands, total if is_static else 0, start, bool(dynamic))


def _static(module: Module, index: int, op: ops.Alloc) -> str:
    held = f"[{max(op.count or 0, 1)} x {memory_type(op.dtype, None)}]"
    definition = f"internal addrspace(3) global {held} poison, align {alignment(op)}"
    return module.add_global(f"stagekit_shared{index}", definition)


def _dynamic(module: Module, align: int, offset: int) -> str:
    base = module.add_global(_DYNAMIC, f"external addrspace(3) global [0 x i8], align {align}")
    return f"getelementptr (i8, ptr addrspace(3) {base}, i64 {offset})" if offset else base
