"""Compare a batch of expressions everywhere that they can be computed.

    interp       the IR as it was built: what the others must equal, bit by bit
    optimised    the IR after the passes for compiled targets, on the interpreter; in one batch of eight
    folded       the IR with the inputs of one row as constants, folded until nothing is left to run
    cpu, cuda    machine code; three of four batches for the CPU are "plain", without LLVM's passes

A case is JSON: the seed of its inputs, how many rows of them, which rows count, and the expressions.
"""

from __future__ import annotations

import contextlib
import functools
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stagekit.diagnostics import UNKNOWN
from stagekit.dtypes import DType, dtype_named
from stagekit.intrinsics.index import block_dim, block_idx, thread_idx
from stagekit.ir import BinaryKind, Builder, Function, Pointer, Space, Value, ops, semantics
from stagekit.passes.fold import fold
from tools.fuzz.arithmetic import Array, Building, Drawing, bits_of, dtype_of, inputs
from tools.fuzz.harness import NotACase, Problem
from tools.fuzz.running import RUN, context, lower_for, run_interp
from tools.fuzz.trees import Tree, replaced, without

EXPRESSIONS = 32
THREADS = (32, 64, 32, 32, 40, 32, 64, 32)  # of a block, by the seed: one warp, several, and one that is not whole
ROWS = 128
MISSING_ROWS = 9  # of some batches, so that the last block has threads without a row
_CYCLE = 8  # what is done with a batch follows from its seed modulo this number
_WITH_LLVM = {0, 4}  # on the CPU; the others run as code that LLVM's passes have not seen, which takes half the time
_OPTIMISED = {2}
_FEWER_ROWS = {5}


@dataclass(frozen=True)
class Batch:
    """inputs_seed and all_rows make the inputs; rows: those that count."""

    inputs_seed: int
    all_rows: int
    rows: tuple[int, ...]
    expressions: tuple[Tree, ...]

    @classmethod
    def parse(cls, text: str) -> Batch:
        found = json.loads(text)
        return cls(found["inputs"], found["of"], tuple(found["rows"]), tuple(found["expressions"]))

    def text(self) -> str:
        rows = ",\n  ".join(json.dumps(tree) for tree in self.expressions)
        head = f'"inputs": {self.inputs_seed}, "of": {self.all_rows}, "rows": {json.dumps(list(self.rows))}'
        return f'{{{head}, "expressions": [\n  {rows}\n]}}\n'

    def columns(self) -> dict[tuple[str, int], Array]:
        chosen = list(self.rows)
        return {key: array[chosen] for key, array in inputs(self.inputs_seed, self.all_rows).items()}

    @property
    def cpu_ways(self) -> list[str]:
        """All for a batch that has been shrunk; for another, those that its seed says."""
        turn, is_shrunk = self.inputs_seed % _CYCLE, len(self.rows) < ROWS - MISSING_ROWS
        wanted = {"cpu": turn in _WITH_LLVM, "cpu plain": turn not in _WITH_LLVM, "optimised": turn in _OPTIMISED}
        return [way for way, is_wanted in wanted.items() if is_wanted or is_shrunk]

    @property
    def threads(self) -> int:
        return THREADS[self.inputs_seed // 8 % len(THREADS)]


Run = Callable[[Sequence[Array], int, int], None]
"""Run a kernel on these arrays, with so many blocks and threads."""

Outputs = dict[str, Array]
"""Results by dtype: one row per expression of that dtype, in the order of the batch."""


class ArithmeticFuzzer:
    """Random expressions: folded, interpreted, optimised and compiled, they give the same bits."""

    name = "arithmetic"
    suffix = ".json"

    def __init__(self, expressions: int = EXPRESSIONS) -> None:
        self.counts: Counter[str] = Counter()
        self.expressions = expressions  # of a batch

    def draw(self, seed: int) -> str:
        drawing = Drawing(random.Random(seed))
        trees = tuple(drawing.expression() for _ in range(self.expressions))
        rows = ROWS - MISSING_ROWS if seed % _CYCLE in _FEWER_ROWS else ROWS
        return Batch(seed, rows, tuple(range(rows)), trees).text()

    def problems(self, case: str, targets: Sequence[str]) -> list[Problem]:
        batch = Batch.parse(case)
        if not batch.rows or not batch.expressions:
            raise NotACase("nothing to compute")
        columns = batch.columns()
        fn = build(batch)
        as_built = lower_for("interp", fn)
        wanted = _outputs_of(batch, columns, functools.partial(run_interp, as_built))
        self.counts["batches"] += 1
        self.counts["expressions"] += len(batch.expressions)
        found = []
        for way, run in _ways(batch, fn, targets):
            actual = _outputs_of(batch, columns, run)
            self.counts[f"evaluations on {way}"] += len(batch.expressions) * len(batch.rows)
            found += _compare(way, batch, columns, wanted, actual)
        return found + self._folded(batch, columns, wanted)

    def _folded(self, batch: Batch, columns: Mapping[tuple[str, int], Array], wanted: Outputs) -> list[Problem]:
        """One row, which differs from batch to batch: folding computes one at a time."""
        found, row = [], batch.inputs_seed % len(batch.rows)
        for number, (dtype, place, value) in enumerate(_fold_row(batch, columns, row)):
            self.counts["expressions folded" if value is not None else "expressions left unfolded"] += 1
            if value is None:
                continue
            one = np.array([semantics.typed(value, dtype)], dtype.numpy)
            if bits_of(one, dtype) != bits_of(wanted[dtype.name][place, row : row + 1], dtype):
                text = f"{value!r}, interp: {wanted[dtype.name][place, row]!r}"
                found.append(_problem("folded", batch, columns, number, row, text))
        return found

    def smaller(self, case: str) -> Iterator[str]:
        batch = Batch.parse(case)
        for trees in without(batch.expressions):
            yield Batch(batch.inputs_seed, batch.all_rows, batch.rows, tuple(trees)).text()
        for rows in without(batch.rows):
            yield Batch(batch.inputs_seed, batch.all_rows, tuple(rows), batch.expressions).text()
        for trees in replaced(list(batch.expressions), _smaller_trees):
            yield Batch(batch.inputs_seed, batch.all_rows, batch.rows, tuple(trees)).text()


def _smaller_trees(tree: Tree) -> Iterator[Tree]:
    """A part of the tree that gives the same, or a plain input or number."""
    if not tree or not isinstance(tree[0], str) or tree[0] == "const":
        return
    dtype = dtype_of(tree)
    for child in tree:
        if isinstance(child, list) and dtype_of(child) is dtype:
            yield child
    if tree[0] not in ("in", "acc", "index"):
        yield ["in", dtype.name, 0]
    for text in ("False", "True") if dtype.kind == "bool" else ("0.0", "1.0") if dtype.is_float else ("0", "1"):
        yield ["const", dtype.name, text]


# -- kernels ----------------------------------------------------------------------------------------------------------


def _input_keys(batch: Batch) -> list[tuple[str, int]]:
    """The inputs that are used, each once, in order."""
    found: dict[tuple[str, int], None] = {}
    pending: list[Any] = list(batch.expressions)
    while pending:
        tree = pending.pop(0)
        if tree[0] in ("in", "at"):
            found[tree[1], tree[2]] = None
        pending += [child for child in tree if isinstance(child, list)]
    return list(found)


def _results(batch: Batch) -> list[tuple[DType, int]]:
    """Per expression its dtype, and its number among those of that dtype."""
    seen: Counter[str] = Counter()
    places = []
    for tree in batch.expressions:
        dtype = dtype_of(tree)
        places.append((dtype, seen[dtype.name]))
        seen[dtype.name] += 1
    return places


def build(batch: Batch) -> Function:
    """A kernel: one thread per row, all expressions. Parameters: the used inputs, then one output per dtype."""
    keys, places = _input_keys(batch), _results(batch)
    names = list(dict.fromkeys(dtype.name for dtype, _ in places))
    pointers = [Value(Pointer(dtype_named(n), Space.GLOBAL), f"{n}_{s}") for n, s in keys]
    outputs = {n: Value(Pointer(dtype_named(n), Space.GLOBAL), f"out_{n}") for n in names}
    b = Builder(UNKNOWN, (*pointers, *outputs.values()))
    block, thread = b.call(block_idx, (), ("x",))[0], b.call(thread_idx, (), ("x",))[0]
    row = b.add(b.mul(block, b.call(block_dim, (), ("x",))[0]), thread)
    with _guarded(b, row, batch):
        known = {"thread": thread, "block": block, "row": row}
        given = KernelInputs(b, len(batch.rows), dict(zip(keys, pointers, strict=True)), known)
        _store_all(batch, Building(b, given), outputs, row)
    b.yield_()
    return Function("batch", b.current.done())


class KernelInputs:
    """Inputs in the kernel of a batch. Columns are loaded first, before any branch."""

    def __init__(
        self, b: Builder, rows: int, pointers: Mapping[tuple[str, int], Value], indices: Mapping[str, Value]
    ) -> None:
        self.b, self.rows, self.pointers, self.indices = b, rows, pointers, indices
        self.loaded = {key: b.load(b.offset(p, indices["row"])) for key, p in pointers.items()}

    def column(self, name: str, slot: int) -> Value:
        return self.loaded[name, slot]

    def index(self, of: str) -> Value:
        return self.indices[of]

    def element(self, name: str, slot: int, index: Value) -> Value:
        is_power = self.rows & (self.rows - 1) == 0
        kind, number = (BinaryKind.AND, self.rows - 1) if is_power else (BinaryKind.MOD, self.rows)
        place = self.b.binary(kind, index, self.b.index(number))
        return self.b.load(self.b.offset(self.pointers[name, slot], place))


@contextlib.contextmanager
def _guarded(b: Builder, row: Value, batch: Batch) -> Iterator[None]:
    """Run what is built inside by those threads that have a row: by all, if they are as many as rows."""
    rows = len(batch.rows)
    if rows % batch.threads == 0:
        yield
        return
    with b.block() as body:
        yield
        b.yield_()
    with b.block() as nothing:
        b.yield_()
    b.if_(b.compare(ops.CompareKind.LT, row, b.index(rows)), body.done(), nothing.done())


def _store_all(batch: Batch, building: Building, outputs: Mapping[str, Value], row: Value) -> None:
    b = building.builder
    for tree, (dtype, place) in zip(batch.expressions, _results(batch), strict=True):
        at = b.add(b.index(place * len(batch.rows)), row)
        b.store(b.offset(outputs[dtype.name], at), building.value(tree))


def _ways(batch: Batch, fn: Function, targets: Sequence[str]) -> Iterator[tuple[str, Run]]:
    """The ways to compute a batch beside the plain one, made one after the other."""
    for target in (t for t in targets if t != "interp"):
        lowered = lower_for(target, fn)
        for way in batch.cpu_ways if target == "cpu" else (target,):
            yield way, functools.partial(RUN[way], lowered)


def _outputs_of(batch: Batch, columns: Mapping[tuple[str, int], Array], run: Run) -> Outputs:
    sizes: Counter[str] = Counter(dtype.name for dtype, _ in _results(batch))
    outputs = {name: np.zeros((count, len(batch.rows)), dtype_named(name).numpy) for name, count in sizes.items()}
    arrays = [columns[key].copy() for key in _input_keys(batch)]
    run([*arrays, *outputs.values()], -(-len(batch.rows) // batch.threads), batch.threads)
    return outputs


def _fold_row(
    batch: Batch, columns: Mapping[tuple[str, int], Array], row: int
) -> Iterator[tuple[DType, int, bool | int | float | None]]:
    """Per expression its dtype, place, and the number that folding gives; None where something was left to run."""
    places = _results(batch)
    outputs = {d.name: Value(Pointer(d, Space.GLOBAL), f"out_{d.name}") for d, _ in places}
    memory = {key: Value(Pointer(dtype_named(key[0]), Space.GLOBAL)) for key in _input_keys(batch)}
    b = Builder(UNKNOWN, (*memory.values(), *outputs.values()))
    _store_all(batch, Building(b, RowInputs(b, batch, columns, row, memory)), outputs, b.index(0))
    b.yield_()
    fn = fold(lower_for("interp", Function("row", b.current.done())), context("interp"))
    known = {op.result: op.value for op in fn.body.ops if isinstance(op, ops.Constant)}
    stores = [op for op in fn.body.ops if isinstance(op, ops.Store)]
    for (dtype, place), op in zip(places, stores, strict=True):
        yield dtype, place, known.get(op.value)


@dataclass(frozen=True)
class RowInputs:
    """Inputs of one row, as constants; what is read from memory stays to be run."""

    b: Builder
    batch: Batch
    columns: Mapping[tuple[str, int], Array]
    row: int
    memory: Mapping[tuple[str, int], Value]

    def column(self, name: str, slot: int) -> Value:
        dtype = dtype_named(name)
        return self.b.constant(semantics.to_python(self.columns[name, slot][self.row], dtype), dtype)

    def index(self, of: str) -> Value:
        block, thread = divmod(self.row, self.batch.threads)
        return self.b.index({"block": block, "thread": thread, "row": self.row}[of])

    def element(self, name: str, slot: int, index: Value) -> Value:
        return self.b.load(self.b.offset(self.memory[name, slot], index))


# -- what differs -----------------------------------------------------------------------------------------------------


def _compare(
    way: str, batch: Batch, columns: Mapping[tuple[str, int], Array], wanted: Outputs, actual: Outputs
) -> list[Problem]:
    found = []
    for number, (dtype, place) in enumerate(_results(batch)):
        a, w = actual[dtype.name][place], wanted[dtype.name][place]
        differs = np.flatnonzero(bits_of(a, dtype) != bits_of(w, dtype))
        if len(differs):
            row = int(differs[0])
            text = f"{a[row]!r}, interp: {w[row]!r}, in {len(differs)} of {len(batch.rows)} rows"
            found.append(_problem(way, batch, columns, number, row, text))
    return found


def _problem(
    way: str, batch: Batch, columns: Mapping[tuple[str, int], Array], number: int, row: int, text: str
) -> Problem:
    tree = batch.expressions[number]
    alone = Batch(batch.inputs_seed, batch.all_rows, batch.rows, (tree,))
    given = ", ".join(f"{name} {slot}: {columns[name, slot][row]!r}" for name, slot in _input_keys(alone))
    return Problem(f"{way} differs", f"{way}: {text}\n  {json.dumps(tree)}\n  where {given or 'nothing is given'}")
