"""Where each shared allocation of a kernel lies.

Where they take up to 48 KiB together, each is a global of its own, which ptxas places in order. Arrays that share memory are one
global, and so are those of which one is aligned only if it lies as far from the other as planned.
More than that must be dynamic shared memory of the launch: all of them lie at its beginning, and what the caller of the launch
asks for follows.
"""

from __future__ import annotations

from collections.abc import Mapping

from stagekit.backends.llvm.writer import Module
from stagekit.backends.shared_memory import BumpAllocator, alignment, place_shared, separable, size_of
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
    offsets, total = place_shared(fn, fn.attribute("block"))
    known = {op: offset for op, offset in offsets.items() if offset is not None}
    dynamic = [op for op, offset in offsets.items() if offset is None]
    align = max([_DYNAMIC_ALIGN, *map(alignment, offsets)])
    if total <= STATIC_LIMIT_BYTES:
        return SharedPlan(
            _static(module, known) | {op: _dynamic(module, align) for op in dynamic}, total, 0, bool(dynamic)
        )
    start = BumpAllocator(total).take(0, max(map(alignment, dynamic), default=_DYNAMIC_ALIGN))
    places = known | dict.fromkeys(dynamic, start)
    operands = {op: _moved(_dynamic(module, align), offset) for op, offset in places.items()}
    return SharedPlan(operands, 0, start, bool(dynamic))


def _static(module: Module, offsets: Mapping[ops.Alloc, int]) -> dict[ops.Alloc, str]:
    """Define a global for each array that can lie anywhere, and one for those that cannot lie apart."""
    operands: dict[ops.Alloc, str] = {}
    for index, together in enumerate(separable(offsets)):
        start, align = offsets[together[0]], max(map(alignment, together))
        end = max(offsets[op] + size_of(op) for op in together)
        definition = f"internal addrspace(3) global [{max(end - start, 1)} x i8] poison, align {align}"
        name = module.add_global(f"stagekit_shared{index}", definition)
        operands |= {op: _moved(name, offsets[op] - start) for op in together}
    return operands


def _dynamic(module: Module, align: int) -> str:
    return module.add_global(_DYNAMIC, f"external addrspace(3) global [0 x i8], align {align}")


def _moved(base: str, offset: int) -> str:
    return f"getelementptr (i8, ptr addrspace(3) {base}, i64 {offset})" if offset else base
