"""Products of bfloat16 by AMX, the unit of some processors that multiplies tiles of 16 rows of 64 bytes.

Two tiles of rows and two of columns make four of sums at a time, so that each tile that is loaded is used twice. An entry point
says what shape all eight tiles have, which takes as long as a small product, and gives them back.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, "Programming with Intel AMX".
"""

from __future__ import annotations

from collections.abc import Sequence

from stagekit.backends.host.forms import LANES
from stagekit.backends.host.lanes import PerLane
from stagekit.backends.host.pointers import per_lane
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm.blocks import count_up, when
from stagekit.backends.llvm.writer import Module, Writer
from stagekit.intrinsics.matrix_units import BY_LANES, UNIT, warp_product_bf16
from stagekit.ir import Builder, Function, Native, Value, ops, walk
from stagekit.ir.rewriter import rewrite

_ROWS, _ROW_BYTES = 16, 64  # of a tile
_PITCH_BYTES = 2 * _ROW_BYTES  # of rows of 32 words
_SUMS, _LEFT, _RIGHT = (0, 1, 2, 3), (4, 5), (6, 7)  # numbers of tiles


def without_matrix_unit(fn: Function) -> Function:
    """Replace products for such a unit by loops, for a processor that has none."""

    def by_lanes(op: ops.IntrinsicOp, b: Builder) -> Sequence[Value] | None:
        return BY_LANES.build(b, op.args, op.params) if op.spec is warp_product_bf16 else None

    return rewrite(fn, {ops.IntrinsicOp: by_lanes})


def uses_matrix_unit(fn: Function) -> bool:
    """Return whether a function multiplies by that unit, which its entry point then sets up and gives back."""
    return any(isinstance(op, ops.IntrinsicOp) and op.spec is warp_product_bf16 for op in walk(fn.body))


def set_up(w: Writer) -> None:
    """Write what says which shape the tiles have."""
    shapes = w.module.add_global("stagekit_tile_shapes", f"internal constant [64 x i8] {_shapes()}, align 64")
    w.call("void", "llvm.x86.ldtilecfg", [("ptr", shapes)])


def give_back(w: Writer) -> None:
    """Write what lets the system no longer save the tiles."""
    w.call("void", "llvm.x86.tilerelease", [])


def emit_product(warp: Warp, op: ops.IntrinsicOp, native: Native) -> None:
    """Call the function that multiplies, which is part of the module where anything calls it."""
    (is_added,) = op.params
    name = f"stagekit_product_{'added' if is_added else 'new'}"
    if not warp.w.module.has_function(name):
        _define(warp.w.module, name, is_added=is_added)
    given = [_of_first_lane(warp, per_lane(warp, value.type, warp[value])) for value in op.args]
    warp.w.line(f"call void @{name}({', '.join(given)})")


def _of_first_lane(warp: Warp, value: PerLane) -> str:
    text = (
        value.text
        if value.is_scalar
        else warp.w.emit(f"extractelement <{LANES} x {value.element}> {value.text}, i32 0")
    )
    return f"{value.element} {text}"


def _define(module: Module, name: str, *, is_added: bool) -> None:
    w = Writer(module)
    pitch_bytes = w.emit("shl i64 %pitch, 1")

    def rows(first: str) -> str:
        sums = _tiles(w, "%sums", w.emit(f"mul i64 {first}, {_PITCH_BYTES}"), str(_ROWS * _PITCH_BYTES))
        sums = [place for row in sums for place in (row, _moved(w, row, str(_ROW_BYTES)))]
        left = w.emit(f"mul i64 {first}, {pitch_bytes}")
        below = w.emit(f"mul i64 {pitch_bytes}, {_ROWS}")
        for tile, place in zip(_SUMS, sums, strict=True):
            if is_added:
                _load(w, tile, place, str(_PITCH_BYTES))
            else:
                w.call("void", "llvm.x86.tilezero", [("i8", str(tile))])

        def depth(number: str) -> str:
            start = w.emit(f"add i64 {left}, {w.emit(f'shl i64 {number}, 1')}")
            lefts = _tiles(w, "%a", start, below)
            rights = _tiles(w, "%b", w.emit(f"mul i64 {number}, {_PITCH_BYTES // 2}"), str(_ROW_BYTES))
            for tile in _SUMS:
                row, column = divmod(tile, 2)
                if column == 0:
                    _load(w, _LEFT[row], lefts[row], pitch_bytes)
                if row == 0:
                    _load(w, _RIGHT[column], rights[column], str(_PITCH_BYTES))
                w.call("void", "llvm.x86.tdpbf16ps", [("i8", str(each)) for each in (tile, _LEFT[row], _RIGHT[column])])
            return str(UNIT)

        with when(w, w.emit("icmp sgt i64 %depth, 0")):
            count_up(w, "i64", "0", "%depth", "depth", depth)
        for tile, place in zip(_SUMS, sums, strict=True):
            w.call("void", "llvm.x86.tilestored64", [("i8", str(tile)), ("ptr", place), ("i64", str(_PITCH_BYTES))])
        return str(UNIT)

    with when(w, w.emit("icmp sgt i64 %rows, 0")):
        count_up(w, "i64", "0", "%rows", "rows", rows)
    w.line("ret void")
    head = f"define internal void @{name}(ptr %sums, ptr %a, ptr %b, i64 %rows, i64 %depth, i64 %pitch) noinline #0"
    module.add_function(name, f"{head} {{\n{w.body()}\n}}")


def _shapes() -> str:
    """Return what `ldtilecfg` reads: a palette, then by tile the bytes of a row, and the rows."""
    palette, count = 1, len(_SUMS + _LEFT + _RIGHT)
    sizes = b"".join([_ROW_BYTES.to_bytes(2, "little")] * count)
    table = bytes([palette, *bytes(15)]) + sizes.ljust(32, b"\0") + bytes([_ROWS] * count).ljust(16, b"\0")
    return f"[{', '.join(f'i8 {each}' for each in table)}]"


def _tiles(w: Writer, base: str, start: str, step: str) -> list[str]:
    """Return where a tile begins, and the next one."""
    first = _moved(w, base, start)
    return [first, _moved(w, first, step)]


def _moved(w: Writer, base: str, by: str) -> str:
    return w.emit(f"getelementptr i8, ptr {base}, i64 {by}")


def _load(w: Writer, tile: int, place: str, pitch_bytes: str) -> None:
    w.call("void", "llvm.x86.tileloadd64", [("i8", str(tile)), ("ptr", place), ("i64", pitch_bytes)])
