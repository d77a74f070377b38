"""Formulas over IR values: operators that call a builder, so that an expansion reads like the mathematics it is.

    x = Term(builder, value)
    (x * x + 1.0).select_if(x > 0, 0.0)      ->  mul, add, compare, select; a literal takes the other operand's dtype

A formula makes only core ops and calls of records by name. Two terms never compare with `==`: use `equals`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stagekit.dtypes import DType
from stagekit.frozen import frozen
from stagekit.intrinsics.registry import by_name
from stagekit.ir import semantics
from stagekit.ir.builder import Builder
from stagekit.ir.core import Block, Value
from stagekit.ir.intrinsic import Expand
from stagekit.ir.ops import BinaryKind, CompareKind
from stagekit.ir.types import of_dtype


def _operator(
    op: Callable[[Builder, Any, Value, Value], Value], kind: BinaryKind | CompareKind
) -> Callable[[Term, Operand], Term]:
    """Return the method that applies `op` of this kind to a term and an operand."""

    def apply(self: Term, other: Operand) -> Term:
        return Term(self.builder, op(self.builder, kind, self.value, self.like(other).value))

    return apply


@frozen(eq=False)
class Term:
    """A value, and the builder that appends what is computed from it."""

    builder: Builder
    value: Value

    @property
    def dtype(self) -> DType:
        return self.value.type.dtype

    def like(self, number: Operand) -> Term:
        """Return `number` as a term of this dtype, correctly rounded."""
        if isinstance(number, Term):
            return number
        payload = semantics.round_to(number, self.dtype)
        return Term(self.builder, self.builder.constant(payload, of_dtype(self.dtype, self.value.type)))

    def __rsub__(self, other: Operand) -> Term:
        return self.like(other) - self

    def __rtruediv__(self, other: Operand) -> Term:
        return self.like(other) / self

    def __neg__(self) -> Term:
        return Term(self.builder, self.builder.neg(self.value))

    def __invert__(self) -> Term:
        return Term(self.builder, self.builder.not_(self.value))

    __add__ = _operator(Builder.binary, BinaryKind.ADD)
    __sub__ = _operator(Builder.binary, BinaryKind.SUB)
    __mul__ = _operator(Builder.binary, BinaryKind.MUL)
    __truediv__ = _operator(Builder.binary, BinaryKind.DIV)
    __and__ = _operator(Builder.binary, BinaryKind.AND)
    __or__ = _operator(Builder.binary, BinaryKind.OR)
    __xor__ = _operator(Builder.binary, BinaryKind.XOR)
    __lshift__ = _operator(Builder.binary, BinaryKind.SHL)
    __rshift__ = _operator(Builder.binary, BinaryKind.SHR)
    __lt__ = _operator(Builder.compare, CompareKind.LT)
    __le__ = _operator(Builder.compare, CompareKind.LE)
    __gt__ = _operator(Builder.compare, CompareKind.GT)
    __ge__ = _operator(Builder.compare, CompareKind.GE)
    equals = _operator(Builder.compare, CompareKind.EQ)
    differs = _operator(Builder.compare, CompareKind.NE)

    def select_if(self, condition: Term, otherwise: Operand) -> Term:
        """Return this where `condition` holds, else `otherwise`; both are computed."""
        chosen = self.builder.select(condition.value, self.value, self.like(otherwise).value)
        return Term(self.builder, chosen)

    def cast(self, dtype: DType) -> Term:
        return Term(self.builder, self.builder.cast(self.value, dtype))

    def bitcast(self, dtype: DType) -> Term:
        return Term(self.builder, self.builder.bitcast(self.value, of_dtype(dtype, self.value.type)))

    @property
    def bits(self) -> Term:
        """The bits as an unsigned integer of the same width."""
        return self.bitcast(self.dtype.unsigned)

    def call(self, name: str, *others: Operand) -> Term:
        """Call the intrinsic `name` on this and `others`."""
        args = (self, *map(self.like, others))
        return Term(self.builder, self.builder.call_one(by_name(name), [a.value for a in args]))

    def fma(self, factor: Operand, addend: Operand) -> Term:
        return self.call("fma", factor, addend)


Operand = Term | bool | int | float
Terms = tuple[Term, ...]


def expand(formula: Callable[..., Term]) -> Expand:
    """Return the lowering that a formula over terms describes: `expand(lambda x, y: x * y)`."""

    def build(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> tuple[Value]:
        return (formula(*(Term(b, a) for a in args)).value,)

    return Expand(build, is_formula=True)


def asm(text: str, constraints: str, *args: Term, host: Callable[..., Term] | None = None) -> Term:
    """Append PTX without effects whose result has the type of its first argument. host: its formula, for other targets."""
    b, type_ = args[0].builder, args[0].value.type
    params = tuple(Value(a.value.type) for a in args)
    meaning = _closed(b, params, lambda: (host(*(Term(b, p) for p in params)),)) if host else None
    values = [a.value for a in args]
    (result,) = b.asm(text, constraints, values, (type_,), has_side_effects=False, host=meaning)
    return Term(b, result)


def branch(condition: Term, then: Callable[[], Terms], otherwise: Callable[[], Terms]) -> Terms:
    """Append a branch and return the terms of the arm that is run."""
    b = condition.builder
    results = b.if_(condition.value, _closed(b, (), then), _closed(b, (), otherwise))
    return tuple(Term(b, r) for r in results)


def repeat_while(carried: Terms, test: Callable[..., Term], step: Callable[..., Terms]) -> Terms:
    """Append a loop that replaces `carried` by `step(*carried)` while `test(*carried)` holds, and return them after it."""
    b = carried[0].builder
    params = tuple(Value(c.value.type) for c in carried)
    with b.block(params) as before:
        b.condition(test(*(Term(b, p) for p in params)).value, *params)
    inner = tuple(Value(c.value.type) for c in carried)
    after = _closed(b, inner, lambda: step(*(Term(b, p) for p in inner)))
    results = b.while_(tuple(c.value for c in carried), before.done(), after)
    return tuple(Term(b, r) for r in results)


def _closed(b: Builder, params: tuple[Value, ...], build: Callable[[], Terms]) -> Block:
    """Return a block with `params` that computes and yields the terms of `build`."""
    with b.block(params) as opened:
        b.yield_(*(t.value for t in build()))
    return opened.done()
