"""The closed set of core ops: what passes and control flow must understand. Everything else is an `Intrinsic`.

Typing rules live in `typing.py` (for `builder.py`, which makes ops, and `verifier.py`); meaning lives in `semantics.py`.
Control flow is structured: `If`, `For` and `While` carry values through `Yield`.

    %r = if %c { yield %a } else { yield %b }
    %r = for %i = %lo to %hi step %s carry(%acc = %init) { ... yield %next }
    %r = while carry(%x = %init) { ... condition %go, %x } do(%y) { ... yield %next }
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from stagekit.dtypes import DType
from stagekit.ir.core import (
    PURE,
    Block,
    Effect,
    Effects,
    Op,
    Value,
    attribute,
    body,
    op,
    operand,
    operand_list,
    optional_operand,
)
from stagekit.ir.intrinsic import Intrinsic
from stagekit.ir.types import Space


class _Kind(Enum):
    """Base of the kinds below. They are keys of tables, and `Enum` would hash the name at each look-up."""

    __hash__ = object.__hash__


class BinaryKind(_Kind):
    """Arithmetic on two operands of one dtype; the exact meaning of each is a row of `semantics.BINARY`."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"  # floats only, correctly rounded; `/` on integers converts first
    FLOORDIV = "floordiv"  # rounds towards minus infinity, x // 0 == 0 for integers
    MOD = "mod"  # sign of the divisor, x % 0 == 0 for integers
    AND = "and"
    OR = "or"
    XOR = "xor"
    SHL = "shl"  # amount >= width gives 0
    SHR = "shr"  # arithmetic on signed; amount >= width gives 0 or -1


DIVISIONS = (BinaryKind.FLOORDIV, BinaryKind.MOD)
BITWISE = (BinaryKind.AND, BinaryKind.OR, BinaryKind.XOR)
SHIFTS = (BinaryKind.SHL, BinaryKind.SHR)


class UnaryKind(_Kind):
    NEG = "neg"
    NOT = "not"  # bitwise on integers, logical on bool


class CompareKind(_Kind):
    """Ordered comparison giving bool; with a NaN everything is false but NE."""

    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"

    @property
    def opposite(self) -> CompareKind:
        """The comparison that holds for two integers where this one does not."""
        return _OPPOSITE[self]


BELOW = (CompareKind.LT, CompareKind.LE)

_OPPOSITE = {
    CompareKind.EQ: CompareKind.NE,
    CompareKind.LT: CompareKind.GE,
    CompareKind.GT: CompareKind.LE,
    CompareKind.NE: CompareKind.EQ,
    CompareKind.GE: CompareKind.LT,
    CompareKind.LE: CompareKind.GT,
}


@op("const")
class Constant(Op):
    """A number, in every lane of the result: a Python bool, int or float that its dtype has exactly, of NaNs `math.nan` alone."""

    value: bool | int | float = attribute()


def exactly(value: bool | float) -> Any:
    """Return what is equal for equal constants of one dtype: 0.0 equals -0.0, and a NaN not itself."""
    return value if value and value == value else repr(value)


@op("binary")
class Binary(Op):
    """`lhs kind rhs` on two operands of one dtype."""

    kind: BinaryKind = attribute()
    lhs: Value = operand()
    rhs: Value = operand()


@op("unary")
class Unary(Op):
    """`kind operand`."""

    kind: UnaryKind = attribute()
    operand: Value = operand()


@op("compare")
class Compare(Op):
    """`lhs kind rhs` as a bool, on two operands of one type."""

    kind: CompareKind = attribute()
    lhs: Value = operand()
    rhs: Value = operand()


@op("select")
class Select(Op):
    """`if_true` where `condition` holds, else `if_false`; both are evaluated."""

    condition: Value = operand()
    if_true: Value = operand()
    if_false: Value = operand()


@op("cast")
class Cast(Op):
    """Convert to the result's dtype: to nearest even, saturating from float to integer (NaN gives 0), wrapping between
    integers, `!= 0` to bool. is_exact: the sanitizer reports an operand that is rounded. For checks only, like `loc`.
    """

    operand: Value = operand()
    is_exact: bool = False


@op("bitcast")
class Bitcast(Op):
    """The same bits as another type of the same size: scalar to scalar, pointer to pointer of one space, pointer to i64."""

    operand: Value = operand()


@op("splat")
class Splat(Op):
    """A vector whose `count` lanes are all `operand`."""

    count: int = attribute()
    operand: Value = operand()


@op("pack")
class Pack(Op):
    """The vector whose lanes are `args`, scalars of one dtype."""

    args: tuple[Value, ...] = operand_list()


@op("extract")
class Extract(Op):
    """Lane `index` of a vector."""

    index: int = attribute()
    operand: Value = operand()


class Indexed(NamedTuple):
    """`array[indices]` as it was written, with the size of each axis: i64 values, or numbers known at compile time.

    An index is None where a slice keeps the axis, which a later index of the view addresses. strides: in elements, where a
    pointer is taken from a view, whose axes are all kept; it may reach these elements only. Else empty.
    """

    array: str
    indices: tuple[Value | int | None, ...]
    shape: tuple[Value | int, ...]
    strides: tuple[Value | int, ...] = ()

    def values(self) -> set[Value]:
        return {each for part in self[1:] for each in part if isinstance(each, Value)}

    def of(self, mapping: Mapping[Value, Value]) -> Indexed:
        """Return the same with other values."""
        parts: Any = self[1:]
        return Indexed(self.array, *[tuple([mapping.get(each, each) for each in part]) for part in parts])


@op("offset")
class Offset(Op):
    """`pointer` moved by `index` elements (i64). indexed: how the user wrote it; for messages and checks only, like `loc`."""

    pointer: Value = operand()
    index: Value = operand()
    indexed: Indexed | None = None

    def with_operands(self, mapping: Mapping[Value, Value]) -> Op:
        """Return the op with operands replaced, and the values that say how it was written."""
        op = super().with_operands(mapping)
        if self.indexed is None:
            return op
        named = self.indexed.of(mapping)
        return op if named == self.indexed else op.replace(indexed=named)


@op("load", effects=frozenset({Effect.READ}))
class Load(Op):
    """Read one element, or a vector of `count` neighbours. Where `mask`, one bool, is false nothing is touched and the result is
    `other` (both or neither given).

    align: bytes of which the address is a multiple, a claim of whoever makes the op. None: the size of an element.
    cache: how a GPU is to keep what is accessed in global memory, as PTX writes it (`cg`, `L1::evict_last`); changes no value.
    covers: the elements of a vector access that has been taken apart, of whose first this is the op; 0 in the ops of the others.
    For checks and measurements only, like `loc`.
    """

    pointer: Value = operand()
    mask: Value | None = optional_operand()
    other: Value | None = optional_operand()
    count: int | None = attribute()
    align: int | None = attribute()
    cache: str | None = attribute()
    covers: int = 1


@op("store", effects=frozenset({Effect.WRITE}))
class Store(Op):
    """Write one element, or a vector to neighbours, where `mask`, one bool, holds. align, cache, covers: as in `Load`."""

    pointer: Value = operand()
    value: Value = operand()
    mask: Value | None = optional_operand()
    align: int | None = attribute()
    cache: str | None = attribute()
    covers: int = 1


@op("alloc")
class Alloc(Op):
    """Memory of `count` elements in SHARED (one per block) or LOCAL (one per thread) space.

    count None: the dynamic shared memory of the launch, whose size in bytes the launch gives. align: bytes.
    Not initialised. Two executions of one SHARED `Alloc` op with a count give the same memory, and the second leaves nothing of
    what the first one's threads wrote; see `lifetimes.py`. In GLOBAL space `count` is 0: a pointer that stands for none where
    paths meet, which no path follows.
    """

    dtype: DType = attribute()
    space: Space = attribute()
    count: int | None = attribute()
    align: int = attribute()


TABLE_ALIGN = 64  # bytes: a cache line of the CPU, and more than the widest access of a GPU needs


@op("table")
class Table(Op):
    """The address of numbers that are part of the code, in CONSTANT space, at a multiple of 64 bytes. data: their bytes, as
    hexadecimal text.
    """

    dtype: DType = attribute()
    data: str = attribute()

    @property
    def size_bytes(self) -> int:
        return len(self.data) // 2


@op("if")
class If(Op):
    """Run the body that `condition` chooses; the results are what it yields."""

    condition: Value = operand()
    then_body: Block = body()
    else_body: Block = body()


@op("for")
class For(Op):
    """Run `loop_body` for i in range(start, stop, step). Parameters of the body: i, then the carried values.

    start, stop, step and i share one integer dtype; step is not 0 (a step known only at run time that is 0 runs no
    iteration). unroll: None leaves it to the target, else the factor asked for.
    """

    start: Value = operand()
    stop: Value = operand()
    step: Value = operand()
    inits: tuple[Value, ...] = operand_list()
    unroll: int | None = attribute()
    loop_body: Block = body()


@op("while")
class While(Op):
    """Run `before`, which ends in a `Condition`; while its flag holds, run `after` with the values that it forwards.

    Parameters of `before`: the carried values. Parameters of `after` and the results: what `Condition` forwards.
    """

    inits: tuple[Value, ...] = operand_list()
    before: Block = body()
    after: Block = body()


@op("once")
class ActOnce(Op):
    """Run `thread_body` in one thread of the block; every thread gets what it yields. Only while a kernel is being traced."""

    thread_body: Block = body()


@op("statement")
class Statement(Op):
    """A statement of a block-level kernel begins here, before which threads may have to wait. Only while it is being traced."""


@op("yield", is_terminator=True)
class Yield(Op):
    """End a body and hand its values to the op it belongs to."""

    values: tuple[Value, ...] = operand_list()


@op("condition", is_terminator=True)
class Condition(Op):
    """End the `before` body of a `While`."""

    flag: Value = operand()
    values: tuple[Value, ...] = operand_list()


@op("assert", effects=frozenset({Effect.HOST}))
class Assert(Op):
    """Report `message` with the values of `operands` when `condition` is false; the kernel goes on.

    message: a format string with one `{}` (or `{:spec}`) per operand.
    """

    condition: Value = operand()
    operands_: tuple[Value, ...] = operand_list()
    message: str = attribute()


@op("print", effects=frozenset({Effect.HOST}))
class Print(Op):
    """Print one line per thread that reaches it. `format`: as in `Assert`, with its line ending."""

    operands_: tuple[Value, ...] = operand_list()
    format: str = attribute()


@op("breakpoint", effects=frozenset({Effect.HOST}))
class Breakpoint(Op):
    """Stop in a debugger, which sees `operands`, once for the threads that run together. `scene`: the number of what it shows."""

    operands_: tuple[Value, ...] = operand_list()
    scene: int = attribute()


@op("intrinsic")
class IntrinsicOp(Op):
    """A call of a record in `stagekit.intrinsics`. `params`: its compile-time arguments, in the record's order."""

    spec: Intrinsic = attribute()
    params: tuple[Any, ...] = attribute()
    args: tuple[Value, ...] = operand_list()

    if TYPE_CHECKING:

        @property
        def effects(self) -> Effects: ...
    else:
        effects = property(operator.attrgetter("spec.effects"))  # which calls no function of Python's


@op("asm")
class InlineAsm(Op):
    """PTX text with LLVM constraints (`"=r,r,r"`); one result per output constraint. `host` says what it means elsewhere:
    a body whose parameters are the operands and which yields the results, or None where only cuda can run it.
    """

    text: str = attribute()
    constraints: str = attribute()
    has_side_effects: bool = attribute()
    args: tuple[Value, ...] = operand_list()
    host: Block | None = body()

    @property
    def effects(self) -> Effects:
        return _ASM if self.has_side_effects else PURE


_ASM: Effects = frozenset({Effect.READ, Effect.WRITE, Effect.COLLECTIVE})
