"""The functions around the code of a block: the entry that the runtime calls, which loops over blocks, and the frame of
the functions that run one.

    i32 entry(ptr args, ptr grid, i64 first, i64 last, ptr scratch)
    i32 entry.block(<one per parameter>, i64 x, y, z, i64 grid x, y, z, ptr scratch)
    i32 entry.whole(...)      the same block without the guards that a row of blocks can be asked for (`guards.py`)

args: 8-byte slots, one per kernel parameter. grid: three int64. first, last: a range of linear block numbers, x fastest.
scratch: `HostCode.scratch_bytes` and the dynamic shared memory, aligned to 64. All give 0, or a fault
(`warp.FAULT_...`). Nothing is kept between calls, so any number of threads may be in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stagekit import dtypes
from stagekit.backends.host.forms import Form, Uniform, unknown
from stagekit.backends.host.guards import Decided, Place, Range, decide
from stagekit.backends.host.pointers import at
from stagekit.backends.host.rows import Row, RunBlock, write_blocks, write_rows
from stagekit.backends.host.warp import FAULT_DIVERGENT_BARRIER
from stagekit.backends.llvm.types import llvm_type
from stagekit.backends.llvm.writer import Module, Writer
from stagekit.ir import Function, Pointer, Scalar, Type, Value, walk
from stagekit.ir.intervals import Interval
from stagekit.limits import GRID_LIMITS

MAX_GRID = max(GRID_LIMITS)  # blocks per axis; the launcher refuses more

BIG_BLOCK_OPS = (
    400  # a larger block function stays a function: within the loop over blocks, LLVM's passes are not linear
)

Triple = tuple[Uniform, Uniform, Uniform]

_ENTRY = "define i32 @{name}(ptr noalias readonly %args, ptr noalias readonly %grid, i64 %first, i64 %last, ptr noalias %scratch)"
_INDICES = ("%x", "%y", "%z")
_EXTENTS = ("%grid_x", "%grid_y", "%grid_z")


@dataclass(frozen=True, slots=True)
class BlockFrame:
    """What the code of a block starts from. decided: how comparisons come out in all its threads."""

    w: Writer
    params: dict[Value, Form]
    index: Triple
    grid: Triple
    decided: Mapping[Value, bool]


class EntryWriter:
    """Adds the functions of one kernel to a module; `write_block` writes what a block does."""

    def __init__(
        self,
        module: Module,
        name: str,
        fn: Function,
        block: tuple[int, int, int],
        write_block: Callable[[BlockFrame], None],
    ) -> None:
        self._module, self._name, self._fn, self._block = module, name, fn, block
        self._write_block = write_block
        self._w = Writer(module)
        self._args = [_load_param(self._w, index, param.type) for index, param in enumerate(fn.params)]
        self._grid = (_load_extent(self._w, 0), _load_extent(self._w, 1), _load_extent(self._w, 2))

    def write(self) -> None:
        write_rows(self._w, self._grid, self._row)
        text = f"{_ENTRY.format(name=self._name)} #0 {{\n{self._w.body()}\n}}"
        self._module.add_function(self._name, text)

    def _row(self, row: Row) -> None:
        decided = self._decided(row)
        if decided is not None:
            self._either(row, decided)
        else:
            self._blocks(row, self._block_function("block", {}))

    def _decided(self, row: Row) -> Decided | None:
        params = {p: _param_form(text, p.type) for p, (_, text) in zip(self._fn.params, self._args, strict=True)}
        x, last, y, z = (_block_index(text) for text in (row.begin, row.last, row.y, row.z))
        place = Place(self._block, (Range(x, last), Range(y, y), Range(z, z)), _extents(self._grid))
        return decide(self._w, self._fn, params, place)

    def _either(self, row: Row, decided: Decided) -> None:
        """Code without guards for a row that is decided, else code with them."""
        w = self._w
        whole, mixed, end = w.new_label("whole"), w.new_label("mixed"), w.new_label("next")
        w.line(f"br i1 {decided.condition}, label %{whole}, label %{mixed}")
        versions: tuple[tuple[str, str, Mapping[Value, bool]], ...] = (
            (whole, "whole", decided.outcomes),
            (mixed, "block", {}),
        )
        for label, suffix, outcomes in versions:
            w.label(label)
            self._blocks(row, self._block_function(suffix, outcomes))
            w.line(f"br label %{end}")
        w.label(end)

    def _blocks(self, row: Row, run: RunBlock) -> None:
        write_blocks(self._w, row, run)

    def _block_function(self, suffix: str, decided: Mapping[Value, bool]) -> RunBlock:
        """Add the function of a block; gives what calls it."""
        name = f"{self._name}.{suffix}"
        frame = _open_block(self._module, self._fn, decided)
        self._write_block(frame)
        _close_block(self._module, name, self._fn, frame)
        return lambda *index: self._call(name, index)

    def _call(self, name: str, index: tuple[str, ...]) -> None:
        w = self._w
        numbers = [("i64", text) for text in (*index, *self._grid)]
        operands = ", ".join(f"{type_} {text}" for type_, text in (*self._args, *numbers, ("ptr", "%scratch")))
        fault = w.emit(f"call i32 @{name}({operands})")
        passed, failed = w.new_label("passed"), w.new_label("failed")
        w.line(f"br i1 {w.emit(f'icmp eq i32 {fault}, 0')}, label %{passed}, label %{failed}")
        w.label(failed)
        w.line(f"ret i32 {fault}")
        w.label(passed)


def _block_index(text: str) -> Uniform:
    return Uniform(text, Interval(0, MAX_GRID - 1))


def _extents(texts: tuple[str, ...]) -> Triple:
    x, y, z = (Uniform(text, Interval(1, MAX_GRID)) for text in texts)
    return x, y, z


def _open_block(module: Module, fn: Function, decided: Mapping[Value, bool]) -> BlockFrame:
    params = {param: _param_form(f"%p{place}", param.type) for place, param in enumerate(fn.params)}
    x, y, z = (_block_index(text) for text in _INDICES)
    return BlockFrame(Writer(module), params, (x, y, z), _extents(_EXTENTS), decided)


def _param_form(text: str, type_: Type) -> Form:
    if isinstance(type_, Pointer):
        return at(text)
    return Uniform(text, unknown(type_.dtype))


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


def _load_extent(w: Writer, axis: int) -> str:
    slot = w.emit(f"getelementptr i64, ptr %grid, i64 {axis}")
    return w.emit(f"load i64, ptr {slot}, align 8")
