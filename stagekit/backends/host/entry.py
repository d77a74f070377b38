"""The function that the runtime calls, around the code of one block: parameters, the loop over blocks, the exit.

    i32 entry(ptr args, ptr grid, i64 first, i64 last, ptr scratch)

args: 8-byte slots, one per kernel parameter. grid: three int64. first, last: a range of linear block numbers, x fastest.
scratch: `HostCode.scratch_bytes` and the dynamic shared memory, aligned to 64. Gives 0, or a fault (`warp.FAULT_...`).
Nothing is kept between calls, so any number of threads may be in it.
"""

from __future__ import annotations

from collections.abc import Callable

from stagekit import dtypes
from stagekit.backends.host.branches import OpenPhi, open_phi
from stagekit.backends.host.facts import Facts, anything
from stagekit.backends.host.forms import Form, Uniform
from stagekit.backends.host.pointers import at
from stagekit.backends.host.warp import FAULT_DIVERGENT_BARRIER
from stagekit.backends.llvm.types import llvm_type
from stagekit.backends.llvm.writer import Writer
from stagekit.ir import Pointer, Type, Value

MAX_GRID = (1 << 31) - 1  # blocks per axis, as on a GPU; the launcher refuses more

SIGNATURE = (
    "i32 @{name}(ptr noalias readonly %args, ptr noalias readonly %grid, i64 %first, i64 %last, ptr noalias %scratch)"
)

Triple = tuple[Uniform, Uniform, Uniform]


def load_params(w: Writer, params: tuple[Value, ...]) -> dict[Value, Form]:
    """Read every parameter from its slot."""
    return {param: _load_param(w, index, param.type) for index, param in enumerate(params)}


def _load_param(w: Writer, index: int, type_: Type) -> Form:
    slot = w.emit(f"getelementptr i64, ptr %args, i64 {index}")
    if isinstance(type_, Pointer):
        return at(w.emit(f"load ptr, ptr {slot}, align 8"))
    if type_.dtype is dtypes.bool_:
        return Uniform(w.emit(f"icmp ne i8 {w.emit(f'load i8, ptr {slot}, align 8')}, 0"))
    text = w.emit(f"load {llvm_type(type_, None)}, ptr {slot}, align 8")
    return Uniform(text, anything(type_.dtype) if type_.dtype.is_integer else None)


def load_grid(w: Writer) -> Triple:
    """The grid's extents."""
    x, y, z = (_load_extent(w, axis) for axis in range(3))
    return x, y, z


def _load_extent(w: Writer, axis: int) -> Uniform:
    slot = w.emit(f"getelementptr i64, ptr %grid, i64 {axis}")
    return Uniform(w.emit(f"load i64, ptr {slot}, align 8"), Facts(1, MAX_GRID))


def write_block_loop(w: Writer, grid: Triple, body: Callable[[Triple], None]) -> None:
    """Run `body(block index)` for the blocks `%first` to `%last - 1`, and end the function."""
    begin, head, done = w.new_label("begin"), w.new_label("block"), w.new_label("done")
    w.line(f"br i1 {w.emit('icmp slt i64 %first, %last')}, label %{begin}, label %{done}")
    w.label(begin)
    start = _coordinates(w, grid)
    w.line(f"br label %{head}")
    w.label(head)
    number = open_phi(w, "i64", "%first", begin)
    slots = [open_phi(w, "i64", text, begin) for text in start]
    x, y, z = (Uniform(slot.name, Facts(0, MAX_GRID - 1)) for slot in slots)
    body((x, y, z))
    following = w.emit(f"add nsw i64 {number.name}, 1")
    _close_coordinates(w, grid, slots)
    number.close(w, following, w.block)
    w.line(f"br i1 {w.emit(f'icmp slt i64 {following}, %last')}, label %{head}, label %{done}")
    w.label(done)
    w.line("ret i32 0")
    w.label("fault")
    w.line(f"ret i32 {FAULT_DIVERGENT_BARRIER}")


def _coordinates(w: Writer, grid: Triple) -> tuple[str, str, str]:
    """The indices of block number `%first`."""
    rows = w.emit(f"udiv i64 %first, {grid[0].text}")
    x = w.emit(f"urem i64 %first, {grid[0].text}")
    return x, w.emit(f"urem i64 {rows}, {grid[1].text}"), w.emit(f"udiv i64 {rows}, {grid[1].text}")


def _close_coordinates(w: Writer, grid: Triple, slots: list[OpenPhi]) -> None:
    """The next block's indices: x counts up, and where it wraps y does, and so on."""
    x, y, z = slots
    next_x, ends_row = _count_up(w, x.name, "true", grid[0])
    next_y, ends_plane = _count_up(w, y.name, ends_row, grid[1])
    next_z = w.emit(f"add nsw i64 {z.name}, {w.emit(f'zext i1 {ends_plane} to i64')}")
    for slot, text in zip(slots, (next_x, next_y, next_z), strict=True):
        slot.close(w, text, w.block)


def _count_up(w: Writer, index: str, by_one: str, extent: Uniform) -> tuple[str, str]:
    """`index` plus one if `by_one`, back to 0 at `extent`; and whether it wrapped."""
    moved = w.emit(f"add nsw i64 {index}, {w.emit(f'zext i1 {by_one} to i64')}")
    wraps = w.emit(f"icmp eq i64 {moved}, {extent.text}")
    return w.emit(f"select i1 {wraps}, i64 0, i64 {moved}"), wraps
