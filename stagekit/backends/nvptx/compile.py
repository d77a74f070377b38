"""The door of this backend: one legalised function in, PTX out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stagekit.backends.errors import SharedMemoryExceeded
from stagekit.backends.llvm.writer import Module, Writer
from stagekit.backends.nvptx.emit import RULES
from stagekit.backends.nvptx.shared import SharedPlan, plan_shared
from stagekit.backends.nvptx.state import Emitter, gpu_abilities
from stagekit.backends.nvptx.target import TRIPLE, GpuTarget
from stagekit.diagnostics import StagekitError
from stagekit.ir import BOOL, Function, Value


@dataclass(frozen=True, slots=True)
class CudaCode:
    """PTX, and the LLVM text it came from.

    entry: the kernel's symbol. shared_bytes: static shared memory. dynamic_bytes: shared memory that every launch must add
    to what its caller asks for, since the kernel's own allocations exceed what can be static. uses_dynamic_shared: the
    kernel reads the dynamic shared memory that its caller asks for.
    """

    ptx: str
    llvm: str
    entry: str
    shared_bytes: int
    dynamic_bytes: int
    uses_dynamic_shared: bool


def compile(fn: Function, capability: int, *, is_arch_specific: bool = False) -> CudaCode:
    """PTX of `fn` for GPUs of this compute capability (times ten) and later; `is_arch_specific`: for that very one.

    Raises StagekitError where the kernel asks for something that this GPU or this installation lacks.
    """
    target = GpuTarget(capability, is_arch_specific)
    entry = entry_name(fn.name)
    text, shared = _llvm_text(fn, entry, target)
    _check_shared(shared, target)
    ptx = target.assemble(text)
    return CudaCode(ptx, text, entry, shared.static_bytes, shared.dynamic_bytes, shared.uses_dynamic)


def _check_shared(shared: SharedPlan, target: GpuTarget) -> None:
    if shared.total_bytes > target.shared_limit_bytes:
        capability = str(target.capability / 10)
        raise StagekitError(SharedMemoryExceeded(shared.total_bytes, capability, target.shared_limit_bytes))


def entry_name(name: str) -> str:
    """`name` as a PTX identifier that nothing else in the module has."""
    is_usable = re.match(r"[A-Za-z]", name) and not _TAKEN.match(name)
    return re.sub(r"[^A-Za-z0-9_$]", "_", name if is_usable else f"k_{name}")


_TAKEN = re.compile(
    r"WARP_SZ$|vprintf$|stagekit_"
)  # PTX's one reserved word without a mark, and what emission declares


def _llvm_text(fn: Function, entry: str, target: GpuTarget) -> tuple[str, SharedPlan]:
    fastmath = bool(fn.attribute("fastmath", False))
    module = Module(gpu_abilities(target, fastmath=fastmath))
    shared = plan_shared(fn, module)
    w = Writer(module)
    e = Emitter(w, RULES, target, shared, fn.attribute("block"), fastmath)
    names = [f"%p{i}" for i in range(len(fn.params))]
    parameters = ", ".join(f"{_parameter_type(e, v)} noundef {n}" for v, n in zip(fn.params, names, strict=True))
    e.bind(fn.params, [_parameter(e, v, n) for v, n in zip(fn.params, names, strict=True)])
    e.run(fn.body)
    w.line("ret void")
    module.add_function(entry, f"define ptx_kernel void @{entry}({parameters}) {_attributes(fn)} {{\n{w.body()}\n}}")
    return f'target triple = "{TRIPLE}"\n{module.text()}', shared


def _parameter_type(e: Emitter, value: Value) -> str:
    return "i8" if value.type == BOOL else e.type(value)


def _parameter(e: Emitter, value: Value, name: str) -> str:
    return e.w.emit(f"icmp ne i8 {name}, 0") if value.type == BOOL else name


def _attributes(fn: Function) -> str:
    """`reqntid` and not `maxntid` for a fixed block: a launch with any other block is then refused instead of wrong."""
    block, max_registers = fn.attribute("block"), fn.attribute("max_registers")
    wanted = {
        "nvvm.reqntid": ",".join(map(str, block)) if block else None,
        "nvvm.maxnreg": str(max_registers) if max_registers else None,
    }
    return " ".join(("nounwind", *(f'"{key}"="{value}"' for key, value in wanted.items() if value)))
