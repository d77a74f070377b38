"""Where each shared allocation of a kernel lies.

Where they take up to 48 KiB together, each is a global of its own, which ptxas places. More than that must be dynamic shared
memory of the launch: all of them lie at its beginning, and what the caller of the launch asks for follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stagekit.backends.llvm.types import memory_type
from stagekit.backends.llvm.writer import Module
from stagekit.ir import Function, Space, ops, walk

STATIC_LIMIT_BYTES = 48 * 1024
"""Source: PTX ISA and CUDA C++ Programming Guide: static shared memory of a block, on every GPU."""

_DYNAMIC = "stagekit_dynamic_shared"
_DYNAMIC_ALIGN = 16


@dataclass(frozen=True, slots=True)
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
    allocs = [op for op in walk(fn.body) if isinstance(op, ops.Alloc) and op.space is Space.SHARED]
    fixed = [op for op in allocs if op.count is not None]
    dynamic = [op for op in allocs if op.count is None]
    offsets, total = [], 0  # in bytes
    for op in fixed:
        offsets.append(_round_up(total, _align(op)))
        total = offsets[-1] + (op.count or 0) * op.dtype.itemsize
    if total <= STATIC_LIMIT_BYTES:
        operands = {op: _static(module, index, op) for index, op in enumerate(fixed)}
        operands.update((op, _dynamic(module, allocs, 0)) for op in dynamic)
        return SharedPlan(operands, total, 0, bool(dynamic))
    operands = {op: _dynamic(module, allocs, offset) for op, offset in zip(fixed, offsets, strict=True)}
    start = _round_up(total, max((_align(op) for op in dynamic), default=_DYNAMIC_ALIGN))
    operands.update((op, _dynamic(module, allocs, start)) for op in dynamic)
    return SharedPlan(operands, 0, start, bool(dynamic))


def _static(module: Module, index: int, op: ops.Alloc) -> str:
    held = f"[{max(op.count or 0, 1)} x {memory_type(op.dtype, None)}]"
    return module.add_global(
        f"stagekit_shared{index}", f"internal addrspace(3) global {held} poison, align {_align(op)}"
    )


def _dynamic(module: Module, allocs: list[ops.Alloc], offset: int) -> str:
    align = max(_DYNAMIC_ALIGN, *map(_align, allocs))
    base = module.add_global(_DYNAMIC, f"external addrspace(3) global [0 x i8], align {align}")
    return f"getelementptr (i8, ptr addrspace(3) {base}, i64 {offset})" if offset else base


def _align(op: ops.Alloc) -> int:
    return max(op.align, op.dtype.itemsize)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
