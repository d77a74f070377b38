"""From a lowered function to an object file: plan, write LLVM text, optimise, generate code, check its symbols.

    compile(fn, (256, 1, 1))  ->  HostCode

The text grows linearly with the kernel: code is written twice at most where a block is not a multiple of 32, and for small
guarded bodies and strided loops.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from stagekit.backends.host.blockflow import BlockFlow
from stagekit.backends.host.compute import constant_form, emit_binary, emit_bitcast, emit_cast, emit_compare, emit_unary
from stagekit.backends.host.conditional import emit_if, fork
from stagekit.backends.host.entry import BlockFrame, EntryWriter
from stagekit.backends.host.forms import LANES, Form, Gep, constant_mask, number
from stagekit.backends.host.interleaved import groups_of
from stagekit.backends.host.intrinsic import emit_intrinsic
from stagekit.backends.host.joins import emit_select
from stagekit.backends.host.matrix_unit import without_matrix_unit
from stagekit.backends.host.memory import emit_alloc, emit_load, emit_store, emit_table
from stagekit.backends.host.pieces import Plan, plan
from stagekit.backends.host.pointers import emit_offset
from stagekit.backends.host.safepoints import asking_loops, waiting_loops
from stagekit.backends.host.scaling import with_scaling
from stagekit.backends.host.sums import sum_in_parts
from stagekit.backends.host.target import OPTIMISATION_LEVEL, Processor, check_symbols, generator, this_processor
from stagekit.backends.host.warp import KernelContext, LocalPlace, Warp
from stagekit.backends.host.whole import take_apart
from stagekit.backends.llvm import llvm, optimize
from stagekit.backends.llvm.writer import Abilities, Module
from stagekit.backends.shared_memory import BumpAllocator, place_shared
from stagekit.diagnostics import InternalError
from stagekit.frozen import frozen
from stagekit.ir import Fastmath, Function, Op, Pointer, Space, Value, ops, walk
from stagekit.limits import MAX_THREADS
from stagekit.native_tables import SCRATCH_ALIGN
from stagekit.passes.legalize import soften_halves


def _misplaced(warp: Warp, op: Op) -> None:
    raise InternalError(f"`{op.mnemonic}` reached the cpu target, which needs it expanded or at the end of a body")


def _loop(warp: Warp, op: ops.For | ops.While) -> None:
    from stagekit.backends.host import loops  # here, as many kernels do without its two modules

    if isinstance(op, ops.For):
        loops.emit_for(warp, op)
    else:
        loops.emit_while(warp, op)


EMITTERS: Mapping[type[Op], Callable[[Warp, Any], Form | None]] = {
    ops.Constant: lambda warp, op: constant_form(op.result.type.dtype, op.value),
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
    ops.Table: emit_table,
    ops.If: emit_if,
    ops.For: _loop,
    ops.While: _loop,
    ops.IntrinsicOp: emit_intrinsic,
    ops.InlineAsm: _misplaced,
    ops.Assert: _misplaced,
    ops.Print: _misplaced,
    ops.Breakpoint: _misplaced,
    ops.Yield: _misplaced,
    ops.Condition: _misplaced,
}


MAX_STACK_BYTES = 64 * 1024  # for the LOCAL allocations of one warp; what does not fit goes to the scratch memory


@frozen()
class HostCode:
    """object_code: an object file for this machine, with the symbol `entry` (see `entry.py`).

    shared_bytes: of the static shared memory. scratch_bytes: what the caller gives per worker, dynamic shared memory
    not included. llvm: the text before optimisation, for people. has_safepoints: may it run for long? waits: may its blocks wait
    for each other?
    """

    object_code: bytes
    entry: str
    shared_bytes: int
    scratch_bytes: int
    llvm: str
    has_safepoints: bool
    waits: bool


def compile(fn: Function, block: tuple[int, int, int], level: int = OPTIMISATION_LEVEL) -> HostCode:
    """Compile a lowered function for this machine and a block of this shape. level: how much LLVM optimises, 0 for nothing."""
    return compile_for(fn, block, this_processor(), level)


def compile_for(
    fn: Function, block: tuple[int, int, int], processor: Processor, level: int = OPTIMISATION_LEVEL
) -> HostCode:
    """Do what `compile` does, for a named processor of this machine's architecture."""
    threads = block[0] * block[1] * block[2]
    if min(block) < 1 or threads > MAX_THREADS:
        raise InternalError(f"a block of {block} threads")
    if not processor.host_features.has_half_conversions:
        fn = soften_halves(fn)
    if not processor.host_features.has_matrix_unit:
        fn = without_matrix_unit(fn)
    if processor.host_features.has_avx512:
        fn = with_scaling(fn)
    fn = sum_in_parts(take_apart(fn, block), processor.host_features.vector_bytes)
    entry = re.sub(r"\W", "_", f"stagekit_{fn.name}", flags=re.ASCII)
    waiting, asking = waiting_loops(fn), asking_loops(fn)
    text, shared_bytes, scratch_bytes = _write(fn, block, processor, entry)
    machine = generator(processor, level)
    module = optimize.parse(text, llvm.create_context())  # the global one would keep what each compile leaves in it
    if level:
        has_local = [op for op in walk(fn.body) if isinstance(op, ops.Alloc) and op.space is Space.LOCAL]
        optimize.run(module, machine, optimize.LOCAL_VECTORS if has_local else optimize.VECTORS)
    code = bytes(machine.emit_object(module))
    check_symbols(code, entry)
    return HostCode(code, entry, shared_bytes, scratch_bytes, text, bool(asking), bool(waiting))


def _write(fn: Function, block: tuple[int, int, int], processor: Processor, entry: str) -> tuple[str, int, int]:
    """Return the LLVM text, and how many bytes of static shared memory and of scratch memory in all it uses."""
    fastmath = fn.attribute("fastmath", False)
    module = Module(Abilities(fastmath=fastmath, finds_again=True))
    shared, shared_bytes = place_shared(fn, block)
    layouts: list[BumpAllocator] = []  # one per version of the block

    def write_block(frame: BlockFrame) -> None:
        layout = BumpAllocator(shared_bytes)
        layouts.append(layout)
        kernel = _context(frame, block, processor, fastmath)
        _write_block(kernel, frame.fn, layout, shared)

    EntryWriter(module, entry, fn, block, write_block).write()
    module.add_tail(f"attributes #0 = {{ {processor.attributes()} }}")
    return module.text(), shared_bytes, max(layout.take(0, SCRATCH_ALIGN) for layout in layouts)


def _context(frame: BlockFrame, block: tuple[int, int, int], processor: Processor, fastmath: Fastmath) -> KernelContext:
    every = walk(frame.fn.body)
    return KernelContext(
        frame.w,
        block,
        processor.host_features,
        fastmath,
        frame.index,
        frame.grid,
        EMITTERS,
        fork,
        used=frozenset([value for op in every for value in op.operands()]),
        retypes_local=any(map(_retypes_local, [op for op in every if isinstance(op, ops.Bitcast)])),
        numbers={op: number for number, op in enumerate(every, 1)},
        waiting=waiting_loops(frame.fn),
        asking=asking_loops(frame.fn),
        block_values=dict(frame.params),
        arguments=frozenset([form.base.text for form in frame.params.values() if isinstance(form, Gep)]),
        decided=frame.decided,
        groups=groups_of(frame.fn),
    )


def _retypes_local(op: Op) -> bool:
    """Return whether `op` turns a pointer to LOCAL memory into one to elements of another size."""
    match op:
        case ops.Bitcast(operand=Value(type=Pointer() as source), result=Value(type=Pointer() as target)):
            return source.space is Space.LOCAL and source.dtype.itemsize != target.dtype.itemsize
    return False


def _write_block(
    kernel: KernelContext, fn: Function, layout: BumpAllocator, shared: dict[ops.Alloc, int | None]
) -> None:
    cut = Plan() if kernel.is_one_warp else plan(fn, kernel.block)
    flow = BlockFlow(kernel, cut, layout)
    _place_local(kernel, fn, layout, is_one_piece=not cut.has_splits)
    for op, offset in shared.items():
        place = layout.take(0, SCRATCH_ALIGN) if offset is None else offset
        kernel.shared[op] = kernel.w.emit(f"getelementptr i8, ptr %scratch, i64 {place}")
    if not kernel.is_one_warp:
        flow.run_plan()
        return
    lanes = kernel.lanes_of(0)
    full = None if lanes == (1 << LANES) - 1 else constant_mask(lanes)
    Warp(kernel, kernel.w, number(0), {}, full, full).run(fn.body)


def _place_local(kernel: KernelContext, fn: Function, layout: BumpAllocator, *, is_one_piece: bool) -> None:
    """Place LOCAL arrays: on the stack where one warp is done with them before the next begins, else in the scratch memory."""
    stack_bytes = 0
    for op in walk(fn.body):
        if not isinstance(op, ops.Alloc) or op.space is not Space.LOCAL:
            continue
        if op.count is None:
            raise InternalError("a LOCAL allocation needs a size")
        size = kernel.local_pitch(op) * LANES * op.dtype.itemsize
        if is_one_piece and stack_bytes + size <= MAX_STACK_BYTES:
            stack_bytes += size
            kernel.local[op] = LocalPlace(kernel.w.emit_entry(f"alloca [{size} x i8], align {SCRATCH_ALIGN}"), 0)
            continue
        warp_bytes = 0 if is_one_piece else -(-size // SCRATCH_ALIGN) * SCRATCH_ALIGN
        offset = layout.take(max(size, warp_bytes * kernel.warps), SCRATCH_ALIGN)
        kernel.local[op] = LocalPlace(kernel.w.emit(f"getelementptr i8, ptr %scratch, i64 {offset}"), warp_bytes)
