"""Compile one legalised function to PTX: the function that other rooms call."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

from stagekit.backends.llvm import optimize
from stagekit.backends.llvm.writer import Abilities, Module, Writer
from stagekit.backends.nvptx import division, ptxas_faults
from stagekit.backends.nvptx.emit import RULES
from stagekit.backends.nvptx.lineinfo import LineInfo
from stagekit.backends.nvptx.natives import tensor_map_operand
from stagekit.backends.nvptx.shared import SharedPlan, plan_shared
from stagekit.backends.nvptx.state import Emitter, spaces_of
from stagekit.backends.nvptx.target import TRIPLE, GpuTarget
from stagekit.backends.shared_memory import refuse_shared
from stagekit.frozen import frozen
from stagekit.ir import BOOL, INDEX, Block, Function, Op, Space, Value, Vector, allows, ops, walk
from stagekit.ir.intervals import Interval, Intervals, makers
from stagekit.limits import MOST_ELEMENTS, TENSOR_MAP_ALIGN, TENSOR_MAP_BYTES


@frozen()
class CudaCode:
    """PTX, and the LLVM text it came from.

    entry: the kernel's symbol. shared_bytes: static shared memory. dynamic_bytes: shared memory that every launch must add
    to what its caller asks for, where the kernel's own allocations exceed what can be static. uses_dynamic_shared: whether
    the kernel reads the dynamic shared memory that its caller asks for.
    """

    ptx: str
    llvm: str
    entry: str
    shared_bytes: int
    dynamic_bytes: int
    uses_dynamic_shared: bool


def compile(fn: Function, capability: int) -> CudaCode:
    """Compile `fn` to PTX for GPUs of this compute capability (times ten) and later.

    Reads the attributes `block`, `fastmath`, `max_registers`, `min_blocks`, `lineinfo`, `align` (per parameter the alignment of
    its address, or 0) and `tensor_maps` (the numbers of those that follow the parameters). Raises StagekitError where the
    kernel asks for what this GPU or this installation lacks.
    """
    target = GpuTarget(capability)
    entry = entry_name(fn.name)
    text, shared = _llvm_text(fn, entry, target)
    refuse_shared(fn, shared.total_bytes, f"compute capability {target.capability / 10} has", target.shared_limit_bytes)
    ptx = ptxas_faults.avoid(target.assemble(text, _pipeline(fn, text)))
    return CudaCode(ptx, text, entry, shared.static_bytes, shared.dynamic_bytes, shared.uses_dynamic)


def _pipeline(fn: Function, text: str) -> optimize.Pipeline:
    """Return the fewest of LLVM's passes that do for `fn` what all do: those of its most demanding op.

    What the last passes of a whole pipeline do, and earlier ones would undo, needs all of it: reciprocals of divisors are taken
    out of loops under `fastmath`.
    """
    every = walk(fn.body)
    invariants = 0 if any(type(v.type) is Vector for op in every for v in op.results) else most_invariants(fn.body)
    powers = {op.result for op in every if type(op) is ops.Constant and op.value in _POWERS_OF_TWO}
    needs_all = "@__nv_" in text or invariants >= _MANY
    need = max([_ALL * needs_all, *[_NEEDS[type(op)](op, powers) for op in every if type(op) in _NEEDS]])
    divides = any(type(op) is ops.Binary and op.kind is _DIV for op in every)
    if need and divides and allows(fn.attribute("fastmath", False), "division"):
        return need
    return _PIPELINES[need]


def most_invariants(block: Block) -> int:
    """Return how many ops in one loop compute the same in each of its rounds, of the loop that has most.

    Only the whole pipeline moves them out. They take registers then, so that for a few it is not worth it. Addresses do not
    count: ptxas folds their constant parts into accesses and moves the rest itself.
    """
    loops = [
        (loop, [op for body in loop.bodies() for op in walk(body)]) for loop in walk(block) if type(loop) in _LOOPS
    ]
    return max([_invariants(loop, inside) for loop, inside in loops], default=0)


def _invariants(loop: Op, inside: Sequence[Op]) -> int:
    varying = {value for body in loop.bodies() for value in body.params}
    count = 0
    for op in inside:
        if op.effects or op.BODY_FIELDS or not varying.isdisjoint(op.operands()):
            varying.update(op.results)
            varying.update(value for body in op.bodies() for value in body.params)
        else:
            is_address = type(op) is ops.Offset or INDEX in [value.type for value in op.results]
            count += type(op) is not ops.Constant and not is_address
    return count


_MANY = 16  # measured on an H200: the key of each round of a random generator, 20, is worth it
_LOOPS = (ops.For, ops.While)
_DIV = ops.BinaryKind.DIV
_LOOP, _ALL = 1, 2
_PIPELINES: tuple[optimize.Pipeline, ...] = (optimize.STRAIGHT, optimize.LOOPS, 2)
_NEEDS: dict[type[Op], Callable[[Any, set[Value]], int]] = {
    **dict.fromkeys((ops.For, ops.While), lambda op, _: _LOOP),
    # its elements become registers; what its alignment says of addresses in it
    ops.Alloc: lambda op, _: _ALL * (op.space is Space.LOCAL or op.align > op.dtype.itemsize),
    # it is narrowed; by a power of two it is a shift or a mask in any width
    ops.Binary: lambda op, powers: (
        _ALL * (op.kind in ops.DIVISIONS and op.result.type is INDEX and op.rhs not in powers)
    ),
    # the bound of an index that a condition implies is dropped
    ops.Select: lambda op, _: _ALL * (op.result.type is INDEX),
}
_POWERS_OF_TWO = frozenset(1 << bit for bit in range(63))


def entry_name(name: str) -> str:
    """Return `name` as a PTX identifier that nothing else in the module has."""
    is_usable = re.match(r"[A-Za-z]", name) and not _TAKEN.match(name)
    return re.sub(r"[^A-Za-z0-9_$]", "_", name if is_usable else f"k_{name}")


# The one word that PTX reserves without a mark, and what emission declares.
_TAKEN = re.compile(r"WARP_SZ$|vprintf$|stagekit_")


def _llvm_text(fn: Function, entry: str, target: GpuTarget) -> tuple[str, SharedPlan]:
    fastmath = fn.attribute("fastmath", False)
    # Compute capability 8.0 brought an instruction that rounds to bfloat16.
    module = Module(Abilities(spaces_of(fn), has_bfloat_rounding=target.capability >= 80, fastmath=fastmath))
    shared = plan_shared(fn, module)
    w = Writer(module)
    lines = LineInfo(fn, module) if fn.attribute("lineinfo") else None
    intervals, are_few = Intervals(makers(fn.body).get), division.are_few(fn)
    e = Emitter(w, RULES, target, shared, fn.attribute("block"), fastmath, lines, intervals, are_few)
    parameters = _bind_parameters(e, fn)
    e.run(fn.body)
    w.line("ret void")
    attributes = _attributes(fn) + (f" !dbg {lines.kernel}" if lines else "")
    module.add_function(entry, f"define ptx_kernel void @{entry}({parameters}) {attributes} {{\n{w.body()}\n}}")
    return f'target triple = "{TRIPLE}"\n{module.text()}', shared


def _bind_parameters(e: Emitter, fn: Function) -> str:
    """Bind the parameters of `fn` and return the text of their list; a bool arrives as a byte."""
    aligns = itertools.chain(fn.attribute("align", ()), itertools.repeat(0))  # 0: of a parameter that a pass has added
    constant = itertools.chain(fn.attribute("constant", ()), itertools.repeat(False))
    sizes, texts = fn.attribute("sizes", ()), []
    for index, (value, align, is_constant) in enumerate(zip(fn.params, aligns, constant)):
        name, is_bool = f"%p{index}", value.type == BOOL
        known = f"{f'align {align} ' if align else ''}{'noalias readonly ' if is_constant else ''}"
        if index in sizes:
            known += f"range(i64 0, {MOST_ELEMENTS + 1}) "
            e.intervals.known[value] = Interval(0, MOST_ELEMENTS)
        texts.append(f"{'i8' if is_bool else e.type(value)} noundef {known}{name}")
        if align:
            e.alignments[value] = align
        e.operands[value] = e.w.emit(f"icmp ne i8 {name}, 0") if is_bool else name
    texts += [f"{_TENSOR_MAP} {tensor_map_operand(number)}" for number in fn.attribute("tensor_maps", ())]
    return ", ".join(texts)


# A grid constant stays where it is; else LLVM copies it to memory of the thread, where no copy can read it.
_TENSOR_MAP = f'ptr byval([{TENSOR_MAP_BYTES} x i8]) align {TENSOR_MAP_ALIGN} "nvvm.grid_constant"'


_FLUSHED = "preserve-sign,preserve-sign"  # of results and of operands: PTX's .ftz


def _attributes(fn: Function) -> str:
    """Return the attributes of the kernel. `reqntid`, not `maxntid`: so the driver refuses a launch with another block."""
    block, max_registers, min_blocks = map(fn.attribute, ("block", "max_registers", "min_blocks"))
    if block and not (max_registers or min_blocks) and _moves_registers(fn):
        min_blocks = 1  # else ptxas does not know how many registers there are at first, and ignores `setmaxnreg`
    wanted = {
        "nvvm.reqntid": ",".join(map(str, block)) if block else None,
        "nvvm.maxnreg": str(max_registers) if max_registers else None,
        "nvvm.minctasm": str(min_blocks) if min_blocks else None,
        "denormal-fp-math-f32": _FLUSHED if allows(fn.attribute("fastmath", False), "flush") else None,
    }
    return " ".join(("nounwind", *(f'"{key}"="{value}"' for key, value in wanted.items() if value)))


def _moves_registers(fn: Function) -> bool:
    return any(isinstance(op, ops.InlineAsm) and op.text.startswith("setmaxnreg.") for op in walk(fn.body))
