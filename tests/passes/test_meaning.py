"""Passes keep meaning: random programs do the same before and after, by an evaluator that knows `semantics` and nothing else.

A program is one thread of a kernel. What it does is what it leaves in memory and what it reports by `print` and `assert`.
Bits of a NaN do not count, so no program turns a float into its bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit import dtypes
from stagekit import records as layout
from stagekit.artifact import RecordSite
from stagekit.diagnostics.loc import UNKNOWN
from stagekit.dtypes import DType
from stagekit.intrinsics import by_name
from stagekit.ir import (
    INDEX,
    BinaryKind,
    Block,
    Builder,
    CompareKind,
    Expand,
    Function,
    IrError,
    Native,
    Op,
    Pointer,
    Scalar,
    Space,
    Type,
    UnaryKind,
    Value,
    ops,
    semantics,
)
from stagekit.ir.equal import same_ir
from stagekit.ir.parser import parse_function
from stagekit.ir.printer import print_function
from stagekit.ir.verifier import verify
from stagekit.passes.manager import PassContext
from stagekit.passes.pipeline import PASSES, lower

CPU = PassContext("cpu", 0, fastmath=False, debug=False)
CUDA = PassContext("cuda", 90, fastmath=False, debug=False)

LENGTH = 8  # elements of every buffer of a program
RECORD_WORDS = 4096

# -- random programs --------------------------------------------------------------------------------------------------

DTYPES = (
    *(dtypes.bool_, dtypes.int8, dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.uint64),
    *(dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64),
)
INTEGERS = (0, 1, -1, 2, 3, 7, -128, 127, 255, 2**31 - 1, -(2**63), 2**64 - 1)
FLOATS = (0.0, -0.0, 1.0, -1.5, 0.1, 3e9, 65520.0, 1e-45, 1e300, float("inf"), float("-inf"), float("nan"))
SAME_SIZE = {
    dtypes.int8: dtypes.uint8,
    dtypes.int64: dtypes.uint64,
    dtypes.uint64: dtypes.float64,
    dtypes.int32: dtypes.float32,
}
POINTERS = tuple(Pointer(d, Space.GLOBAL) for d in (dtypes.int32, dtypes.float32, dtypes.float16, dtypes.bool_))
PARAMS: tuple[Type, ...] = (*POINTERS, *map(Scalar, DTYPES))


@dataclass
class Generator:
    """Draws statements into a builder. values: what is visible, innermost scope last."""

    draw: Callable[[st.SearchStrategy[Any]], Any]
    builder: Builder
    values: list[Value]
    depth: int = 0

    def pick(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def value(self, *wanted: Type) -> Value:
        """A visible value of one of these types; there is one of each among the parameters."""
        return self.pick([v for v in self.values if v.type in wanted])

    def scalar(self) -> Value:
        return self.pick([v for v in self.values if isinstance(v.type, Scalar)])

    def of(self, dtype: DType) -> Value:
        return self.value(Scalar(dtype))

    def statements(self, most: int) -> None:
        for _ in range(self.draw(st.integers(1, most))):
            made = self.pick(STATEMENTS if self.depth < 2 else SIMPLE)(self)
            self.values.extend(made or ())

    @contextmanager
    def body(self, params: Sequence[Value]) -> Iterator[Callable[[], Block]]:
        outer, self.values = self.values, [*self.values, *params]
        self.depth += 1
        with self.builder.block(params) as opened:
            yield opened.done
        self.depth -= 1
        self.values = outer

    # -- statements, each giving the values it defines ------------------------------------------------------------

    def constant(self) -> Sequence[Value]:
        dtype = self.pick(DTYPES)
        number = self.pick(FLOATS if dtype.is_float else INTEGERS)
        return (self.builder.constant(semantics.round_to(number, dtype), dtype),)

    def binary(self) -> Sequence[Value]:
        lhs = self.scalar()
        try:
            return (self.builder.binary(self.pick(list(BinaryKind)), lhs, self.value(lhs.type)),)
        except IrError:
            return ()  # not for this dtype

    def unary(self) -> Sequence[Value]:
        try:
            return (self.builder.unary(self.pick(list(UnaryKind)), self.scalar()),)
        except IrError:
            return ()

    def compare(self) -> Sequence[Value]:
        lhs = self.scalar()
        return (self.builder.compare(self.pick(list(CompareKind)), lhs, self.value(lhs.type)),)

    def select(self) -> Sequence[Value]:
        first = self.scalar()
        return (self.builder.select(self.of(dtypes.bool_), first, self.value(first.type)),)

    def cast(self) -> Sequence[Value]:
        return (self.builder.cast(self.scalar(), self.pick(DTYPES)),)

    def bitcast(self) -> Sequence[Value]:
        source = self.pick(list(SAME_SIZE))
        return (self.builder.bitcast(self.of(source), Scalar(SAME_SIZE[source])),)

    def pointer(self) -> Value:
        b = self.builder
        pointer = self.pick([v for v in self.values if isinstance(v.type, Pointer)])
        return b.offset(pointer, b.and_(self.value(INDEX), b.index(LENGTH - 1)))

    def load(self) -> Sequence[Value]:
        pointer = self.pointer()
        if self.draw(st.booleans()):
            return (self.builder.load(pointer),)
        return (self.builder.load(pointer, self.of(dtypes.bool_), self.of(pointer.type.dtype)),)

    def store(self) -> Sequence[Value]:
        pointer = self.pointer()
        mask = self.of(dtypes.bool_) if self.draw(st.booleans()) else None
        self.builder.store(pointer, self.of(pointer.type.dtype), mask)
        return ()

    def intrinsic(self) -> Sequence[Value]:
        name, dtype, count, params = self.pick(INTRINSICS)
        return self.builder.call(by_name(name), [self.of(dtype) for _ in range(count)], params)

    def print_(self) -> Sequence[Value]:
        self.builder.print_("{} {}", (self.scalar(), self.scalar()))
        return ()

    def assert_(self) -> Sequence[Value]:
        self.builder.check(self.of(dtypes.bool_), "{}", (self.scalar(),))
        return ()

    def alloc(self) -> Sequence[Value]:
        if self.depth:
            return ()
        dtype = self.pick((dtypes.int32, dtypes.float32))
        pointer = self.builder.alloc(dtype, Space.LOCAL, LENGTH, 16)
        for index in range(LENGTH):
            self.builder.store(self.builder.offset(pointer, self.builder.index(index)), self.of(dtype))
        return (pointer,)

    def asm(self) -> Sequence[Value]:
        operand = self.of(dtypes.int32)
        with self.body((Value(operand.type),)) as done:
            self.values = [*self.values[-1:]]  # asm sees its operands only
            self.builder.yield_(self.builder.not_(self.values[0]))
        given = {"has_side_effects": self.draw(st.booleans()), "host": done()}
        return self.builder.asm("not.b32 $0, $1;", "=r,r", (operand,), (operand.type,), **given)

    def if_(self) -> Sequence[Value]:
        types = [self.scalar().type for _ in range(self.draw(st.integers(0, 2)))]
        arms = [self.yielding((), types) for _ in range(2)]
        return self.builder.if_(self.of(dtypes.bool_), *arms)

    def for_(self) -> Sequence[Value]:
        b = self.builder
        start, stop, step = (b.index(self.pick(bounds)) for bounds in ((-1, 0, 3), (0, 2, 3), (1, 2, -1, 0)))
        if self.draw(st.booleans()):
            stop = b.and_(self.value(INDEX), b.index(3))
        inits = self.carried()
        params = [Value(INDEX), *(Value(v.type) for v in inits)]
        return b.for_((start, stop, step), inits, self.yielding(params, [v.type for v in inits]))

    def while_(self) -> Sequence[Value]:
        """Counts down: the first carried value is how often it still runs."""
        b = self.builder
        inits = (b.and_(self.value(INDEX), b.index(3)), *self.carried())
        before_params, after_params = (tuple(Value(v.type) for v in inits) for _ in range(2))
        with self.body(before_params) as before:
            left = b.sub(before_params[0], b.index(1))
            self.statements(2)
            b.condition(b.compare(CompareKind.GE, left, b.index(0)), left, *(self.value(v.type) for v in inits[1:]))
        with self.body(after_params) as after:
            self.statements(3)
            b.yield_(after_params[0], *(self.value(v.type) for v in inits[1:]))
        return b.while_(inits, before(), after())

    def carried(self) -> tuple[Value, ...]:
        return tuple(self.scalar() for _ in range(self.draw(st.integers(0, 2))))

    def yielding(self, params: Sequence[Value], types: Sequence[Type]) -> Block:
        with self.body(params) as done:
            self.statements(4)
            self.builder.yield_(*(self.value(t) for t in types))
        return done()


INTRINSICS = (
    ("thread_idx", dtypes.int64, 0, ("x",)),
    ("program_id", dtypes.int64, 0, (1,)),
    ("block_dim", dtypes.int64, 0, ("y",)),
    ("popcount", dtypes.uint8, 1, ()),
    ("clz", dtypes.int32, 1, ()),
    ("minimum", dtypes.float32, 2, ()),
    ("maximum", dtypes.float16, 2, ()),
    ("sqrt", dtypes.float32, 1, ()),
)
SIMPLE = (
    *(Generator.constant, Generator.binary, Generator.binary, Generator.unary, Generator.compare, Generator.select),
    *(Generator.cast, Generator.cast, Generator.bitcast, Generator.load, Generator.store, Generator.intrinsic),
    *(Generator.print_, Generator.assert_),
)
STATEMENTS = (*SIMPLE, Generator.alloc, Generator.asm, Generator.if_, Generator.if_, Generator.for_, Generator.while_)


@st.composite
def programs(draw: Callable[[st.SearchStrategy[Any]], Any]) -> str:
    """The text of a program: what is shown of a counterexample can be read, and kept as a test."""
    params = tuple(Value(t) for t in PARAMS)
    builder = Builder(UNKNOWN, params)
    Generator(draw, builder, list(params)).statements(12)
    builder.yield_()
    return print_function(Function("program", builder.current.done(), (("block", (4, 5, 6)),)))


# -- the evaluator ----------------------------------------------------------------------------------------------------

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
    return (arms[not condition],)


def _offset(t: Thread, op: ops.Offset) -> Any:
    place, index = t.read(*op.operands())
    return (Place(place.buffer, place.index + int(index)),)


def _load(t: Thread, op: ops.Load) -> Any:
    if op.mask is not None and not t.values[op.mask]:
        return t.read(op.other)
    place = t.values[op.pointer]
    return (place.buffer[place.index],)


def _store(t: Thread, op: ops.Store) -> Any:
    if op.mask is None or t.values[op.mask]:
        place = t.values[op.pointer]
        place.buffer[place.index] = t.values[op.value]
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
    while flag:
        flag, *forwarded = t.block(op.before, t.block(op.after, forwarded))
    return forwarded


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


EVALUATE: dict[type[Op], Callable[[Thread, Any], Any]] = {
    ops.Constant: lambda t, op: (semantics.typed(op.value, op.result.type.dtype),),
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


# -- the claims -------------------------------------------------------------------------------------------------------


def parsed(text: str) -> Function:
    return parse_function(text, by_name)


@given(text=programs())
@settings(max_examples=50, deadline=None)
def test_programs_are_valid_and_read_back(text: str) -> None:
    fn = parsed(text)

    verify(fn)
    assert text == print_function(fn)
    assert same_ir(fn, parsed(text))


@given(text=programs(), seed=st.integers(0, 3))
@settings(max_examples=100, deadline=None)
def test_every_pass_keeps_meaning(text: str, seed: int) -> None:
    fn = parsed(text)
    expected = behaviour(fn, seed)
    for each in PASSES["cpu"]:
        fn = each(fn, CPU)
        verify(fn)
        assert expected == behaviour(fn, seed), f"after {each.__name__}"


@given(text=programs(), seed=st.integers(0, 3))
@settings(max_examples=50, deadline=None)
def test_cuda_keeps_meaning_but_for_asserts(text: str, seed: int) -> None:
    fn = parsed(text)
    expected = behaviour(fn, seed)
    expected.reports = [r for r in expected.reports if r[0] == "print"]

    assert expected == behaviour(lower(fn, CUDA, hooks=()), seed)


@given(text=programs(), order=st.permutations(["fold", "cse", "dce"]))
@settings(max_examples=50, deadline=None)
def test_simplifying_passes_keep_meaning_in_any_order(text: str, order: list[str]) -> None:
    """On IR as traced as well, narrow floats and all."""
    fn = parsed(text)
    expected = behaviour(fn, 1)
    for each in sorted(PASSES["cpu"], key=lambda p: order.index(p.__name__) if p.__name__ in order else -1)[-3:]:
        fn = each(fn, CPU)
        verify(fn)
        assert expected == behaviour(fn, 1), f"after {each.__name__}"
