"""A small interpreter of one thread: every core op by `semantics`, intrinsics by their own meaning, in the order written.

behaviour(fn, seed)      what `fn` leaves in memory and what it reports, on arguments that `seed` decides
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stagekit import dtypes
from stagekit import records as layout
from stagekit.artifact import RecordSite
from stagekit.diagnostics import UNKNOWN
from stagekit.dtypes import DType
from stagekit.intrinsics import by_name
from stagekit.ir import Block, Builder, Expand, Function, Native, Op, Value, Vector, ops, semantics
from tests.passes.programs import DTYPES, LENGTH, POINTERS

RECORD_WORDS = 4096
MOST_TURNS = 100  # of a while loop: programs run a few, a broken one for ever

NATIVES = {Native.THREAD_IDX: (3, 4, 5), Native.BLOCK_IDX: (7, 0, 9), Native.BLOCK_DIM: (4, 5, 6)}


@dataclass(frozen=True)
class Place:
    """A pointer: a buffer and an index into it."""

    buffer: np.ndarray[Any, Any]
    index: int


@dataclass
class Thread:
    """Runs ops one after the other. reports: (kind, format, values as text) of each `print` and failed `assert`."""

    values: dict[Value, Any] = field(default_factory=dict)
    reports: list[tuple[str, ...]] = field(default_factory=list)

    def read(self, *operands: Value) -> list[Any]:
        return [self.values[v] for v in operands]

    def block(self, block: Block, args: Sequence[Any]) -> list[Any]:
        """Run `block`; what its terminator hands out."""
        self.values.update(zip(block.params, args, strict=True))
        for op in block.ops[:-1]:
            results = EVALUATE[type(op)](self, op)
            self.values.update(zip(op.results, results, strict=True))
        return self.read(*block.ops[-1].operands())

    def report(self, kind: str, format: str, operands: Sequence[Value]) -> None:
        texts = [repr(semantics.to_python(self.values[v], v.type.dtype)) for v in operands]
        self.reports.append((kind, format, *texts))


def _binary(t: Thread, op: ops.Binary) -> Any:
    return (semantics.binary(op.kind, op.lhs.type.dtype, *t.read(op.lhs, op.rhs)),)


def _compare(t: Thread, op: ops.Compare) -> Any:
    return (semantics.compare(op.kind, op.lhs.type.dtype, *t.read(op.lhs, op.rhs)),)


def _cast(t: Thread, op: ops.Cast) -> Any:
    return (semantics.cast(t.values[op.operand], op.operand.type.dtype, op.result.type.dtype),)


def _bitcast(t: Thread, op: ops.Bitcast) -> Any:
    return (t.values[op.operand].view(op.result.type.dtype.numpy),)


def _select(t: Thread, op: ops.Select) -> Any:
    condition, *arms = t.read(*op.operands())
    return (np.where(condition, *arms) if isinstance(op.result.type, Vector) else arms[not condition],)


def _offset(t: Thread, op: ops.Offset) -> Any:
    place, index = t.read(*op.operands())
    return (Place(place.buffer, place.index + int(index)),)


def _load(t: Thread, op: ops.Load) -> Any:
    if op.mask is not None and not t.values[op.mask]:
        return t.read(op.other)
    place = t.values[op.pointer]
    if op.count is not None:
        return (place.buffer[place.index : place.index + op.count].copy(),)
    return (place.buffer[place.index],)


def _store(t: Thread, op: ops.Store) -> Any:
    if op.mask is None or t.values[op.mask]:
        place = t.values[op.pointer]
        count = op.value.type.count if isinstance(op.value.type, Vector) else 1
        place.buffer[place.index : place.index + count] = t.values[op.value]
    return ()


def _if(t: Thread, op: ops.If) -> Any:
    return t.block(op.then_body if t.values[op.condition] else op.else_body, ())


def _for(t: Thread, op: ops.For) -> Any:
    start, stop, step = (int(v) for v in t.read(op.start, op.stop, op.step))
    carried = t.read(*op.inits)
    for i in range(start, stop, step) if step else ():
        carried = t.block(op.loop_body, (op.start.type.dtype.numpy.type(i), *carried))
    return carried


def _while(t: Thread, op: ops.While) -> Any:
    flag, *forwarded = t.block(op.before, t.read(*op.inits))
    for _ in range(MOST_TURNS):
        if not flag:
            return forwarded
        flag, *forwarded = t.block(op.before, t.block(op.after, forwarded))
    raise AssertionError("an endless loop")


def _assert(t: Thread, op: ops.Assert) -> Any:
    if not t.values[op.condition]:
        t.report("assert", op.message, op.operands_)
    return ()


def _print(t: Thread, op: ops.Print) -> Any:
    t.report("print", op.format, op.operands_)
    return ()


def _intrinsic(t: Thread, op: ops.IntrinsicOp) -> Any:
    lowering, args = op.spec.lower["cpu"], t.read(*op.args)
    if isinstance(lowering, Native) and lowering in NATIVES:
        return (np.int64(NATIVES[lowering]["xyz".index(op.params[0])]),)
    if op.spec is by_name("atomic_add"):
        place, value = args
        old = place.buffer[place.index]
        place.buffer[place.index] = old + value
        return (old,)
    if op.spec.evaluate is not None:
        return (np.asarray(op.spec.evaluate(*args))[()],)
    assert isinstance(lowering, Expand)
    b = Builder(UNKNOWN)
    b.yield_(*lowering.build(b, op.args, op.params))
    return t.block(b.current.done(), ())


def _constant(t: Thread, op: ops.Constant) -> Any:
    number = semantics.typed(op.value, op.result.type.dtype)
    return (np.full(op.result.type.count, number) if isinstance(op.result.type, Vector) else number,)


EVALUATE: dict[type[Op], Callable[[Thread, Any], Any]] = {
    ops.Constant: _constant,
    ops.Splat: lambda t, op: (np.full(op.count, t.values[op.operand]),),
    ops.Pack: lambda t, op: (np.array(t.read(*op.args)),),
    ops.Extract: lambda t, op: (t.values[op.operand][op.index],),
    ops.Binary: _binary,
    ops.Unary: lambda t, op: (semantics.unary(op.kind, op.operand.type.dtype, t.values[op.operand]),),
    ops.Compare: _compare,
    ops.Select: _select,
    ops.Cast: _cast,
    ops.Bitcast: _bitcast,
    ops.Offset: _offset,
    ops.Load: _load,
    ops.Store: _store,
    ops.Alloc: lambda t, op: (Place(np.zeros(op.count, op.dtype.numpy), 0),),
    ops.If: _if,
    ops.For: _for,
    ops.While: _while,
    ops.Assert: _assert,
    ops.Print: _print,
    ops.Breakpoint: lambda t, op: (),
    ops.IntrinsicOp: _intrinsic,
    ops.InlineAsm: lambda t, op: t.block(op.host, t.read(*op.args)) if op.host else [~t.values[op.args[0]]],
}


@dataclass
class Behaviour:
    """What a run leaves: the buffers, as text so that every NaN is the same, and the reports, whichever way they went."""

    memory: list[str]
    reports: list[tuple[str, ...]]


def behaviour(fn: Function, seed: int) -> Behaviour:
    """Run `fn` on arguments that `seed` decides."""
    random = np.random.default_rng(seed)
    buffers = [np.zeros(LENGTH, t.dtype.numpy) for t in POINTERS]
    for buffer in buffers:
        buffer[...] = random.integers(-3, 9, LENGTH)
    scalars = [semantics.typed(random.choice([0, 1, 5, 200]), d) for d in DTYPES]
    records = record_buffer(RECORD_WORDS)
    thread = Thread()
    args = [*(Place(b, 0) for b in buffers), *scalars, Place(records, 0)]
    thread.block(fn.body, args[: len(fn.params)])
    sites = fn.attribute("record_sites", ())
    return Behaviour([repr(b.tolist()) for b in buffers], thread.reports + read_records(records, sites))


def record_buffer(words: int) -> np.ndarray[Any, Any]:
    records = np.zeros(words, np.uint64)
    records[[layout.NEXT, layout.CAPACITY]] = layout.HEADER_WORDS, words
    return records


def read_records(words: np.ndarray[Any, Any], sites: Sequence[RecordSite]) -> list[tuple[str, ...]]:
    found, at = [], layout.HEADER_WORDS
    while at < min(words[layout.NEXT], words[layout.CAPACITY]) and words[at + layout.SITE]:
        site = sites[int(words[at + layout.SITE]) - 1]
        assert [*NATIVES[Native.BLOCK_IDX]] == words[at + layout.BLOCK :][:3].tolist()
        assert [*NATIVES[Native.THREAD_IDX]] == words[at + layout.THREAD :][:3].tolist()
        payload = words[at + layout.PAYLOAD :][: len(site.dtypes)]
        found.append((site.kind, site.format, *map(payload_text, payload, site.dtypes)))
        at += layout.record_words(len(site.dtypes))
    return found


def payload_text(word: np.uint64, dtype: DType) -> str:
    if dtype.is_float:
        return repr(float(word.view(np.float64)))
    return repr(bool(word) if dtype is dtypes.bool_ else int(word.view(np.int64) if dtype.is_signed else word))
