"""The functions around the code of a block: the entry that the runtime calls, which loops over blocks, and the frame of
the function that runs one.

    i32 entry(ptr args, ptr grid, i64 first, i64 last, ptr scratch)
    i32 entry.block(<one per parameter>, i64 x, y, z, i64 grid x, y, z, ptr scratch)

args: 8-byte slots, one per kernel parameter. grid: three int64. first, last: a range of linear block numbers, x fastest.
scratch: `HostCode.scratch_bytes` and the dynamic shared memory, aligned to 64. Both give 0, or a fault
(`warp.FAULT_...`). Nothing is kept between calls, so any number of threads may be in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stagekit import dtypes
from stagekit.backends.host.branches import OpenPhi, open_phi
from stagekit.backends.host.facts import Facts, anything
from stagekit.backends.host.forms import Form, Uniform
from stagekit.backends.host.pointers import at
from stagekit.backends.host.warp import FAULT_DIVERGENT_BARRIER
from stagekit.backends.llvm.types import llvm_type
from stagekit.backends.llvm.writer import Module, Writer
from stagekit.ir import Function, Pointer, Scalar, Type, Value, walk

MAX_GRID = (1 << 31) - 1  # blocks per axis, as on a GPU; the launcher refuses more

BIG_BLOCK_OPS = (
    400  # a larger block function stays a function: within the loop over blocks, LLVM's passes are not linear
)

Triple = tuple[Uniform, Uniform, Uniform]

_ENTRY = "define i32 @{name}(ptr noalias readonly %args, ptr noalias readonly %grid, i64 %first, i64 %last, ptr noalias %scratch)"
_INDICES = ("%x", "%y", "%z")
_EXTENTS = ("%grid_x", "%grid_y", "%grid_z")


def write_entry(module: Module, name: str, fn: Function, write_block: Callable[[BlockFrame], None]) -> None:
    """Add both functions to `module`; `write_block` writes what a block does."""
    frame = _open_block(module, fn)
    write_block(frame)
    _close_block(module, f"{name}.block", fn, frame)
    w = Writer(module)
    args = [_load_param(w, index, param.type) for index, param in enumerate(fn.params)]
    grid = [_load_extent(w, axis) for axis in range(3)]
    _write_block_loop(w, grid, lambda index: _call_block(w, f"{name}.block", [*args, *index, *grid]))
    module.add_function(name, f"{_ENTRY.format(name=name)} #0 {{\n{w.body()}\n}}")


@dataclass(frozen=True, slots=True)
class BlockFrame:
    """What the code of a block starts from."""

    w: Writer
    params: dict[Value, Form]
    index: Triple
    grid: Triple


def _open_block(module: Module, fn: Function) -> BlockFrame:
    w = Writer(module)
    params = {param: _param_form(f"%p{place}", param.type) for place, param in enumerate(fn.params)}
    x, y, z = (Uniform(text, Facts(0, MAX_GRID - 1)) for text in _INDICES)
    grid_x, grid_y, grid_z = (Uniform(text, Facts(1, MAX_GRID)) for text in _EXTENTS)
    return BlockFrame(w, params, (x, y, z), (grid_x, grid_y, grid_z))


def _param_form(text: str, type_: Type) -> Form:
    if isinstance(type_, Pointer):
        return at(text)
    return Uniform(text, anything(type_.dtype) if type_.dtype.is_integer else None)


def _close_block(module: Module, name: str, fn: Function, frame: BlockFrame) -> None:
    w = frame.w
    w.line("ret i32 0")
    w.label("fault")
    w.line(f"ret i32 {FAULT_DIVERGENT_BARRIER}")
    params = [f"{llvm_type(param.type, None)} %p{place}" for place, param in enumerate(fn.params)]
    indices = [f"i64 {text}" for text in (*_INDICES, *_EXTENTS)]
    inlining = "noinline" if sum(1 for _ in walk(fn.body)) > BIG_BLOCK_OPS else "alwaysinline"
    head = f"define internal i32 @{name}({', '.join((*params, *indices, 'ptr noalias %scratch'))}) {inlining} #0"
    module.add_function(name, f"{head} {{\n{w.body()}\n}}")


def _load_param(w: Writer, index: int, type_: Type) -> tuple[str, str]:
    """(LLVM type, text) of a parameter, from its slot."""
    slot, held = w.emit(f"getelementptr i64, ptr %args, i64 {index}"), llvm_type(type_, None)
    if isinstance(type_, Scalar) and type_.dtype is dtypes.bool_:
        return held, w.emit(f"icmp ne i8 {w.emit(f'load i8, ptr {slot}, align 8')}, 0")
    return held, w.emit(f"load {held}, ptr {slot}, align 8")


def _load_extent(w: Writer, axis: int) -> tuple[str, str]:
    slot = w.emit(f"getelementptr i64, ptr %grid, i64 {axis}")
    return "i64", w.emit(f"load i64, ptr {slot}, align 8")


def _call_block(w: Writer, name: str, args: list[tuple[str, str]]) -> None:
    operands = ", ".join(f"{type_} {text}" for type_, text in (*args, ("ptr", "%scratch")))
    fault = w.emit(f"call i32 @{name}({operands})")
    passed, failed = w.new_label("passed"), w.new_label("failed")
    w.line(f"br i1 {w.emit(f'icmp eq i32 {fault}, 0')}, label %{passed}, label %{failed}")
    w.label(failed)
    w.line(f"ret i32 {fault}")
    w.label(passed)


def _write_block_loop(w: Writer, grid: list[tuple[str, str]], body: Callable[[list[tuple[str, str]]], None]) -> None:
    """Run `body(block index)` for the blocks `%first` to `%last - 1`, and end the function."""
    extents = [text for _, text in grid]
    begin, head, done = w.new_label("begin"), w.new_label("block"), w.new_label("done")
    w.line(f"br i1 {w.emit('icmp slt i64 %first, %last')}, label %{begin}, label %{done}")
    w.label(begin)
    start = _coordinates(w, extents)
    w.line(f"br label %{head}")
    w.label(head)
    number = open_phi(w, "i64", "%first", begin)
    slots = [open_phi(w, "i64", text, begin) for text in start]
    body([("i64", slot.name) for slot in slots])
    following = w.emit(f"add nsw i64 {number.name}, 1")
    _close_coordinates(w, extents, slots)
    number.close(w, following, w.block)
    w.line(f"br i1 {w.emit(f'icmp slt i64 {following}, %last')}, label %{head}, label %{done}")
    w.label(done)
    w.line("ret i32 0")


def _coordinates(w: Writer, extents: list[str]) -> tuple[str, str, str]:
    """The indices of block number `%first`."""
    rows = w.emit(f"udiv i64 %first, {extents[0]}")
    x = w.emit(f"urem i64 %first, {extents[0]}")
    return x, w.emit(f"urem i64 {rows}, {extents[1]}"), w.emit(f"udiv i64 {rows}, {extents[1]}")


def _close_coordinates(w: Writer, extents: list[str], slots: list[OpenPhi]) -> None:
    """The next block's indices: x counts up, and where it wraps y does, and so on."""
    x, y, z = slots
    next_x, ends_row = _count_up(w, x.name, "true", extents[0])
    next_y, ends_plane = _count_up(w, y.name, ends_row, extents[1])
    next_z = w.emit(f"add nsw i64 {z.name}, {w.emit(f'zext i1 {ends_plane} to i64')}")
    for slot, text in zip(slots, (next_x, next_y, next_z), strict=True):
        slot.close(w, text, w.block)


def _count_up(w: Writer, index: str, by_one: str, extent: str) -> tuple[str, str]:
    """`index` plus one if `by_one`, back to 0 at `extent`; and whether it wrapped."""
    moved = w.emit(f"add nsw i64 {index}, {w.emit(f'zext i1 {by_one} to i64')}")
    wraps = w.emit(f"icmp eq i64 {moved}, {extent}")
    return w.emit(f"select i1 {wraps}, i64 0, i64 {moved}"), wraps
