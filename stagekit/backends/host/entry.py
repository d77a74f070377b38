"""The function that the runtime calls, around the code of a block: it loops over blocks.

    i32 entry(ptr args, ptr grid, i64 first, i64 last, ptr scratch, ptr safepoint)

args: 8-byte slots, one per kernel parameter. grid: three int64. first, last: a range of linear block numbers, x fastest.
scratch: `HostCode.scratch_bytes` and the dynamic shared memory, aligned to 64. safepoint: a SAFEPOINT (`native_tables.py`). It
gives 0, or a fault: the number, from 1 on, of the op at which the threads of a block parted before a barrier, or what a safepoint
gave. Nothing is kept between calls, so any number of threads may be in them.

Blocks are run row by row along x, up to 512 at once: y and z are fixed, and whatever can be is asked once per row: the code of a
block may be there twice, without the guards that hold in the whole row (`guards.py`), and with them. The first and
the last block along x are rows of their own: where a guard or a clamp matters, it mostly matters there. A row of blocks that loop
over the whole grid is run round by round (`rounds.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from stagekit import dtypes
from stagekit.backends.host import safepoints
from stagekit.backends.host.adjacent import are_apart, regroup
from stagekit.backends.host.forms import Form, Gep, Uniform, scalar_text, unknown
from stagekit.backends.host.guards import Bounds, RowSpan, all_of, decide
from stagekit.backends.host.matrix_unit import give_back, set_up, uses_matrix_unit
from stagekit.backends.host.pointers import at
from stagekit.backends.host.rounds import rounds_of, whole_rounds
from stagekit.backends.host.warp import leave_unless
from stagekit.backends.llvm.blocks import branch, count_up, when
from stagekit.backends.llvm.types import llvm_type
from stagekit.backends.llvm.writer import Module, Writer
from stagekit.frozen import frozen
from stagekit.ir import Function, Pointer, Scalar, Type, Value, walk
from stagekit.ir.intervals import Interval
from stagekit.limits import GRID_LIMITS

MAX_GRID = max(GRID_LIMITS)  # blocks per axis; the launcher refuses more
LONGEST_ROW = 512
BIG_BLOCK_OPS = 400  # a larger block is a function, or LLVM would keep its constants in registers over all blocks

_ENTRY = "define i32 @{name}(ptr noalias readonly %args, ptr noalias readonly %grid, i64 %first, i64 %last, {memory})"
_MEMORY = "ptr noalias %scratch, ptr noalias %safepoint"


@frozen()
class BlockFrame:
    """What the code of a block starts from. decided: comparisons that come out alike in all its threads, and how."""

    w: Writer
    fn: Function
    params: Mapping[Value, Form]
    index: tuple[Uniform, ...]
    grid: tuple[Uniform, ...]
    decided: Mapping[Value, bool]


@frozen()
class BlockRow:
    """The blocks `begin` to `past - 1` along x, at least one, with y and z fixed."""

    begin: str
    past: str
    y: str
    z: str


class EntryWriter:
    """Adds the function of one kernel to a module; `write_block` writes what a block does."""

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
        self._w = w = Writer(module)
        self._params = {param: _load_param(w, index, param.type) for index, param in enumerate(fn.params)}
        slots = [w.emit(f"getelementptr i64, ptr %grid, i64 {axis}") for axis in range(3)]
        self._grid = tuple([w.emit(f"load i64, ptr {slot}, align 8") for slot in slots])
        self._extents = tuple([Uniform(text, Interval(1, MAX_GRID)) for text in self._grid])
        self._rounds = rounds_of(fn)

    def write(self) -> None:
        """Run the rows that hold the blocks `%first` to `%last - 1`."""
        w = self._w
        multiplies = uses_matrix_unit(self._fn)
        if multiplies:
            set_up(w)
        with when(w, w.emit("icmp slt i64 %first, %last")):
            count_up(w, "i64", "%first", "%last", "row", self._row)
        if multiplies:
            give_back(w)
        w.line("ret i32 0")
        self._end(w, f"{_ENTRY.format(name=self._name, memory=_MEMORY)} #0", self._name)

    def _row(self, number: str) -> str:
        """Run the row that begins with block `number`; gives how many blocks it has."""
        w = self._w
        rest, x = self._divided(number, self._grid[0])
        z, y = self._divided(rest, self._grid[1])
        to_last = w.emit(f"sub nsw i64 {w.emit(f'sub nsw i64 {self._grid[0]}, {x}')}, 1")
        count = w.emit(f"select i1 {w.emit(f'icmp eq i64 {x}, 0')}, i64 1, i64 {LONGEST_ROW}")
        count = w.call("i64", "llvm.smin.i64", [("i64", count), ("i64", w.emit(f"sub nsw i64 %last, {number}"))])
        count = w.call("i64", "llvm.smin.i64", [("i64", count), ("i64", to_last)])
        count = w.call("i64", "llvm.smax.i64", [("i64", count), ("i64", "1")])
        past = w.emit(f"add nsw i64 {x}, {count}")
        self._all_rounds(BlockRow(x, past, y, z))
        return count

    def _divided(self, number: str, extent: str) -> tuple[str, str]:
        quotient = self._w.emit(f"udiv i64 {number}, {extent}")
        return quotient, self._w.emit(f"sub i64 {number}, {self._w.emit(f'mul i64 {quotient}, {extent}')}")

    def _all_rounds(self, row: BlockRow) -> None:
        """Write the blocks of a row: as they are, or round by round and then what is left of their loop."""
        w, rounds = self._w, self._rounds
        whole = None if rounds is None else whole_rounds(w, rounds, self._params, self._span(row))
        if rounds is None or whole is None:
            self._versions(row, self._fn, self._params)
            return
        blocks = w.emit(f"sub nsw i64 {row.past}, {row.begin}")

        def run(number: str) -> str:
            self._versions(row, rounds.each, {**self._params, rounds.shift: whole.shift(w, number)})
            safepoints.count(w, blocks)
            return "1"

        with when(w, w.emit(f"icmp slt i64 0, {whole.count}")):
            count_up(w, "i64", "0", whole.count, "round", run)
        with when(w, whole.has_more):
            self._versions(row, rounds.rest, {**self._params, rounds.shift: whole.shift(w, whole.count)})

    def _span(self, row: BlockRow) -> RowSpan:
        x, y, z = (Bounds(index, index) for index in map(_block_index, (row.begin, row.y, row.z)))
        last = _block_index(self._w.emit(f"sub nsw i64 {row.past}, 1"))
        return RowSpan(self._block, (Bounds(x.low, last), y, z), self._extents)

    def _versions(self, row: BlockRow, fn: Function, params: Mapping[Value, Form]) -> None:
        """Write the blocks of a row twice: without the guards that the row decides and with adjacent accesses together, and as
        they are for rows of which that does not hold.
        """
        span = self._span(row)
        decided = decide(self._w, fn, params, span)
        outcomes, condition = ({}, "true") if decided is None else (decided.outcomes, decided.condition)
        regrouped = regroup(fn, outcomes)
        apart = None if regrouped is None else are_apart(self._w, regrouped, params, span)
        if regrouped is None or apart is None:
            straight = fn
        else:
            straight, condition = regrouped.fn, all_of(self._w, (condition, apart))
        if condition == "true":
            self._blocks(row, straight, params, outcomes)
            return
        versions = [functools.partial(self._blocks, row, f, params, d) for f, d in ((straight, outcomes), (fn, {}))]
        branch(self._w, condition, ("unguarded", "guarded", "next"), versions)

    def _blocks(self, row: BlockRow, fn: Function, params: Mapping[Value, Form], decided: Mapping[Value, bool]) -> None:
        """Run each block of a row."""

        def run(x: str) -> str:
            index = (x, row.y, row.z)
            if len(walk(fn.body)) > BIG_BLOCK_OPS:
                self._call_block(index, fn, params, decided)
            else:
                place = tuple(map(_block_index, index))
                self._write_block(BlockFrame(self._w, fn, params, place, self._extents, decided))
            return "1"

        count_up(self._w, "i64", row.begin, row.past, "block", run)

    def _call_block(
        self, index: tuple[str, ...], fn: Function, params: Mapping[Value, Form], decided: Mapping[Value, bool]
    ) -> None:
        """Write a block as a function that has the same names for what it is given, and call it."""
        w = self._w
        inner = w.beside()
        self._write_block(BlockFrame(inner, fn, params, tuple(map(_block_index, index)), self._extents, decided))
        name = f"{self._name}.block{len(decided)}"
        texts = [scalar_text(form.base if isinstance(form, Gep) else form) for form in params.values()]
        held = [llvm_type(param.type, None) for param in params]
        given = [*zip(held, texts, strict=True), *(("i64", text) for text in (*index, *self._grid))]
        operands = ", ".join(f"{type_} {text}" for type_, text in given)
        inner.line("ret i32 0")
        self._end(inner, f"define internal i32 @{name}({operands}, {_MEMORY}) noinline #0", name)
        fault = w.emit(f"call i32 @{name}({operands}, ptr %scratch, ptr %safepoint)")
        leave_unless(w, w.emit(f"icmp eq i32 {fault}, 0"), fault)

    def _end(self, w: Writer, head: str, name: str) -> None:
        self._module.add_function(name, f"{head} {{\n{w.body()}\n}}")


def _block_index(text: str) -> Uniform:
    return Uniform(text, Interval(0, MAX_GRID - 1))


def _load_param(w: Writer, index: int, type_: Type) -> Form:
    """Load a parameter from its slot."""
    slot, held = w.emit(f"getelementptr i64, ptr %args, i64 {index}"), llvm_type(type_, None)
    if isinstance(type_, Scalar) and type_.dtype is dtypes.bool_:
        return Uniform(w.emit(f"icmp ne i8 {w.emit(f'load i8, ptr {slot}, align 8')}, 0"))
    text = w.emit(f"load {held}, ptr {slot}, align 8")
    return at(text) if isinstance(type_, Pointer) else Uniform(text, unknown(type_.dtype))
