"""Random programs: valid IR over every core op, as text, so that a counterexample can be read and kept as a test.

A program is one thread of a kernel with buffers of `LENGTH` elements; it ends, and it stays inside its buffers. No program
turns a float into its bits: those of a NaN are nobody's promise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from stagekit import dtypes
from stagekit.diagnostics import UNKNOWN
from stagekit.dtypes import DType
from stagekit.intrinsics import by_name
from stagekit.ir import (
    INDEX,
    BinaryKind,
    Block,
    Builder,
    CompareKind,
    Function,
    IrError,
    Pointer,
    Scalar,
    Space,
    Type,
    UnaryKind,
    Value,
    Vector,
    of_dtype,
    semantics,
)
from stagekit.ir.printer import print_function

LENGTH = 8

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
    """Draws statements into a builder. dtypes: those of this program. values: what is visible, innermost scope last."""

    draw: Callable[[st.SearchStrategy[Any]], Any]
    builder: Builder
    dtypes: Sequence[DType]
    values: list[Value]
    depth: int = 0

    def pick(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def value(self, wanted: Type) -> Value:
        """A visible value of this type, rather a late one (there is one among the parameters), or a new constant."""
        if not isinstance(wanted, Pointer) and self.draw(st.integers(0, 3)) == 0:
            return self.new_constant(wanted)
        found = [v for v in self.values if v.type == wanted]
        if not found and isinstance(wanted, Vector):
            return self.builder.splat(self.of(wanted.dtype), wanted.count)
        return self.pick(found[-3:])

    def number(self) -> Value:
        """A scalar or a vector."""
        if self.draw(st.integers(0, 2)):
            return self.scalar()
        return self.value(Vector(self.pick(self.dtypes), self.pick((2, 4))))

    def scalar(self) -> Value:
        return self.value(Scalar(self.pick(self.dtypes)))

    def of(self, dtype: DType) -> Value:
        return self.value(Scalar(dtype))

    def new_constant(self, type_: Scalar | Vector) -> Value:
        number = self.pick(FLOATS if type_.dtype.is_float else INTEGERS)
        return self.builder.constant(semantics.round_to(number, type_.dtype), type_)

    def statements(self, most: int) -> None:
        """Some statements, and a report of half of what they computed: a value that nobody sees tests only `dce`."""
        outer = len(self.values)
        for _ in range(self.draw(st.integers(1, most))):
            made = self.pick(STATEMENTS if self.depth < 2 else SIMPLE)(self)
            self.values.extend(made)
        lanes = [self.builder.extract(v, 1) if isinstance(v.type, Vector) else v for v in self.values[outer:]]
        seen = [v for v in lanes if isinstance(v.type, Scalar) and self.draw(st.booleans())]
        self.builder.print_(" ".join(["{}"] * len(seen)), seen)

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
        return (self.new_constant(Scalar(self.pick(self.dtypes))),)

    def splat(self) -> Sequence[Value]:
        return (self.builder.splat(self.scalar(), self.pick((2, 4))),)

    def pack(self) -> Sequence[Value]:
        first = self.scalar()
        return (self.builder.pack([first, *(self.value(first.type) for _ in range(self.pick((1, 3))))]),)

    def extract(self) -> Sequence[Value]:
        vector = self.value(Vector(self.pick(self.dtypes), self.pick((2, 4))))
        return [self.builder.extract(vector, lane) for lane in range(vector.type.count)]

    def binary(self) -> Sequence[Value]:
        lhs = self.number()
        try:
            return (self.builder.binary(self.pick(list(BinaryKind)), lhs, self.value(lhs.type)),)
        except IrError:
            return ()  # not for this dtype

    def unary(self) -> Sequence[Value]:
        try:
            return (self.builder.unary(self.pick(list(UnaryKind)), self.number()),)
        except IrError:
            return ()

    def compare(self) -> Sequence[Value]:
        lhs = self.number()
        return (self.builder.compare(self.pick(list(CompareKind)), lhs, self.value(lhs.type)),)

    def select(self) -> Sequence[Value]:
        first = self.number()
        return (self.builder.select(self.value(of_dtype(dtypes.bool_, first.type)), first, self.value(first.type)),)

    def cast(self) -> Sequence[Value]:
        return (self.builder.cast(self.number(), self.pick(self.dtypes)),)

    def bitcast(self) -> Sequence[Value]:
        source = self.pick(list(SAME_SIZE))
        operand = self.value(of_dtype(source, self.number().type))
        return (self.builder.bitcast(operand, of_dtype(SAME_SIZE[source], operand.type)),)

    def pointer(self, count: int | None) -> Value:
        """The address of an element, or of so many in a row."""
        b = self.builder
        pointer = self.pick([v for v in self.values if isinstance(v.type, Pointer)])
        return b.offset(pointer, b.and_(self.value(INDEX), b.index(LENGTH - (count or 1))))

    def load(self) -> Sequence[Value]:
        count = self.pick((None, None, 2, 4))
        pointer = self.pointer(count)
        if self.draw(st.booleans()):
            return (self.builder.load(pointer, count=count),)
        dtype = pointer.type.dtype
        other = self.of(dtype) if count is None else self.value(Vector(dtype, count))
        return (self.builder.load(pointer, self.of(dtypes.bool_), other, count=count),)

    def store(self) -> Sequence[Value]:
        count = self.pick((None, None, 2, 4))
        pointer = self.pointer(count)
        mask = self.of(dtypes.bool_) if self.draw(st.booleans()) else None
        dtype = pointer.type.dtype
        self.builder.store(pointer, self.of(dtype) if count is None else self.value(Vector(dtype, count)), mask)
        return ()

    def intrinsic(self) -> Sequence[Value]:
        name, dtype, count, params = self.pick(INTRINSICS)
        type_ = of_dtype(dtype, self.number().type)
        return self.builder.call(by_name(name), [self.value(type_) for _ in range(count)], params)

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
        types = [self.number().type for _ in range(self.draw(st.integers(0, 2)))]
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
        return tuple(self.number() for _ in range(self.draw(st.integers(0, 2))))

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
    *(Generator.splat, Generator.pack, Generator.extract, Generator.assert_),
)
STATEMENTS = (*SIMPLE, Generator.alloc, Generator.asm, Generator.if_, Generator.if_, Generator.for_, Generator.while_)


@st.composite
def programs(draw: Callable[[st.SearchStrategy[Any]], Any]) -> str:
    """The text of a program: what is shown of a counterexample can be read, and kept as a test."""
    params = tuple(Value(t) for t in PARAMS)
    builder = Builder(UNKNOWN, params)
    dtypes_here = draw(st.lists(st.sampled_from(DTYPES), min_size=1, max_size=4, unique=True))
    Generator(draw, builder, dtypes_here, list(params)).statements(12)
    builder.yield_()
    return print_function(Function("program", builder.current.done(), (("block", (4, 5, 6)),)))
