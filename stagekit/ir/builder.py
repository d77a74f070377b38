"""The only way to make ops: methods that append an op to the current block, after the typing rule has accepted it.

    b = Builder(loc)
    with b.block(params) as arm:       # ops go to `arm` until the end of the `with`
        total = b.add(x, y)
        b.yield_(total)
    (r,) = b.if_(cond, arm.done(), other.done())

The next ops get `b.loc` as their place; the front end moves it from statement to statement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

from stagekit.diagnostics import Loc
from stagekit.dtypes import DType
from stagekit.ir import ops
from stagekit.ir.core import Block, Op, Value
from stagekit.ir.intrinsic import Intrinsic
from stagekit.ir.ops import BinaryKind, CompareKind, UnaryKind
from stagekit.ir.types import BOOL, INDEX, Scalar, Space, Type, Vector, of_dtype
from stagekit.ir.typing import ANSWERS, RULES, check_store, infer, loaded, result_types

_BINARY, _COMPARE, _SELECT = ANSWERS[ops.Binary], ANSWERS[ops.Compare], ANSWERS[ops.Select]
_new, _set = object.__new__, object.__setattr__


def _binary(kind: BinaryKind) -> Callable[[Builder, Value, Value], Value]:
    def method(self: Builder, lhs: Value, rhs: Value) -> Value:
        return self.binary(kind, lhs, rhs)

    return method


class OpenBlock:
    """A block under construction, to which the ops of a `with` statement go."""

    def __init__(self, params: Sequence[Value]) -> None:
        self.params = tuple(params)
        self.ops: list[Op] = []
        self.outer: OpenBlock | None = None  # the block that was open when this one was opened
        self.builder: Any = None
        self.known: dict[Any, Any] = {}  # what need not be computed again, by what it is
        self._definitions: dict[Value, Op] = {}  # of the first so many ops
        self._defined = 0

    def definitions(self) -> dict[Value, Op]:
        """Return the op that defines each value so far. What is asked for often costs one look at each op."""
        self._definitions.update((value, op) for op in self.ops[self._defined :] for value in op.results)
        self._defined = len(self.ops)
        return self._definitions

    def __enter__(self) -> Self:
        self.outer, self.builder.current = self.builder.current, self
        return self

    def __exit__(self, *error: object) -> None:
        self.builder.current = self.outer

    def done(self) -> Block:
        return Block(self.params, tuple(self.ops))


class LookedUp(NamedTuple):
    """A value that is made once in a block, by its key there, was asked for in front of the op of this number."""

    block: OpenBlock
    position: int
    loc: Loc
    key: tuple[Any, Any]


class Builder:
    """Appends ops to the innermost open block."""

    def __init__(self, loc: Loc, params: Sequence[Value] = ()) -> None:
        self.loc = loc
        self.current = OpenBlock(params)
        self.op_count = 0  # ops appended so far, in every block: what the budget counts
        self.log: list[Any] | None = None  # what code that is being recorded asks; see `LookedUp`

    def block(self, params: Sequence[Value] = ()) -> OpenBlock:
        """Open a nested block, which the caller then places into an op."""
        return self.resume(OpenBlock(params))

    def resume(self, block: OpenBlock) -> OpenBlock:
        """Append to a block that was opened before, for example to end it."""
        block.builder = self
        return block

    def append(self, op: Op) -> tuple[Value, ...]:
        self.current.ops.append(op)
        self.op_count += 1
        return op.results

    def definition_of(self, value: Value) -> Op | None:
        """Return the op that defines `value`, wherever it is in the open blocks."""
        block: OpenBlock | None = self.current
        while block is not None:
            if op := block.definitions().get(value):
                return op
            block = block.outer
        return None

    def spoil_log(self) -> None:
        """Note that what is being recorded depends on something that no log can say."""
        if self.log is not None:
            self.log.append(None)

    def _looked_up(self, key: tuple[Any, Any]) -> LookedUp:
        return LookedUp(self.current, len(self.current.ops), self.loc, key)

    def _one(self, cls: type[Op], fields: dict[str, Any], name: str = "") -> Value:
        """Append the op with these fields and return its only result, which has the type of the typing rule."""
        (type_,) = RULES[cls](cls.with_fields(fields))
        return self._typed(cls, type_, fields, name)

    def _typed(self, cls: type[Op], type_: Type, fields: dict[str, Any], name: str = "") -> Value:
        """The same for an op whose result is known to have this type."""
        result = Value(type_, name)
        fields["loc"] = self.loc
        fields["results"] = (result,)
        op = _new(cls)  # as `with_fields` and `append` do, for nearly all ops
        _set(op, "__dict__", fields)
        self.current.ops.append(op)
        self.op_count += 1
        return result

    def _many(self, cls: type[Op], fields: dict[str, Any], names: Sequence[str] = ()) -> tuple[Value, ...]:
        """The same for an op with any number of results."""
        fields["loc"] = self.loc
        op = cls.with_fields(fields)
        types = infer(op)
        hints = names if len(names) == len(types) else [""] * len(types)
        fields["results"] = tuple([Value(t, n) for t, n in zip(types, hints)])
        return self.append(op)

    # -- numbers ------------------------------------------------------------------------------------------------

    def constant(self, value: bool | float, type: DType | Scalar | Vector) -> Value:
        """Return a number, exact in its dtype (use `semantics.round_to`), in every lane of `type`; made once in a block."""
        of_type = Scalar(type) if isinstance(type, DType) else type
        key, known = (of_type, value if value and value == value else ops.exactly(value)), self.current.known
        found = known.get(key)
        if self.log is not None:
            self.log.append(self._looked_up(key))
        if found is None:
            found = known[key] = self._typed(ops.Constant, of_type, {"value": value if value == value else math.nan})
        return found

    def index(self, value: int) -> Value:
        return self.constant(value, INDEX.dtype)

    def true(self) -> Value:
        return self.constant(True, BOOL.dtype)

    def false(self) -> Value:
        return self.constant(False, BOOL.dtype)

    def binary(self, kind: BinaryKind, lhs: Value, rhs: Value) -> Value:
        (type_,) = _BINARY(kind, lhs.type, rhs.type)
        return self._typed(ops.Binary, type_, {"kind": kind, "lhs": lhs, "rhs": rhs})

    def unary(self, kind: UnaryKind, operand: Value) -> Value:
        return self._one(ops.Unary, {"kind": kind, "operand": operand})

    def compare(self, kind: CompareKind, lhs: Value, rhs: Value) -> Value:
        (type_,) = _COMPARE(lhs.type, rhs.type)
        return self._typed(ops.Compare, type_, {"kind": kind, "lhs": lhs, "rhs": rhs})

    add = _binary(BinaryKind.ADD)
    sub = _binary(BinaryKind.SUB)
    mul = _binary(BinaryKind.MUL)
    div = _binary(BinaryKind.DIV)
    and_ = _binary(BinaryKind.AND)
    or_ = _binary(BinaryKind.OR)
    xor = _binary(BinaryKind.XOR)
    shl = _binary(BinaryKind.SHL)
    shr = _binary(BinaryKind.SHR)

    def not_(self, operand: Value) -> Value:
        return self.unary(UnaryKind.NOT, operand)

    def neg(self, operand: Value) -> Value:
        return self.unary(UnaryKind.NEG, operand)

    def select(self, condition: Value, if_true: Value, if_false: Value) -> Value:
        (type_,) = _SELECT(condition.type, if_true.type, if_false.type)
        return self._typed(ops.Select, type_, {"condition": condition, "if_true": if_true, "if_false": if_false})

    def cast(self, operand: Value, dtype: DType, *, is_exact: bool = False) -> Value:
        """Convert `operand` to `dtype`, lane by lane, once in a block; return it where it has that dtype."""
        wanted = of_dtype(dtype, operand.type)
        if operand.type is wanted:
            return operand
        key, known = (operand, wanted), self.current.known
        if self.log is not None:
            self.log.append(None if is_exact else self._looked_up(key))
        if is_exact or key not in known:  # each that is exact has a place of its own, at which it is checked
            known[key] = self._stated(ops.Cast, (wanted,), operand=operand, is_exact=is_exact)[0]
        return known[key]  # type: ignore[no-any-return]

    def bitcast(self, operand: Value, to: Type) -> Value:
        return operand if operand.type == to else self._stated(ops.Bitcast, (to,), operand=operand)[0]

    def _stated(self, cls: type[Op], results: Sequence[Type], **fields: Any) -> tuple[Value, ...]:
        """Append an op whose result types are stated, as its operands do not decide them."""
        op = cls.with_fields({"loc": self.loc, "results": tuple(map(Value, results)), **fields})
        infer(op)
        return self.append(op)

    # -- vectors ------------------------------------------------------------------------------------------------

    def splat(self, operand: Value, count: int) -> Value:
        """Return a vector with `operand` in each of `count` lanes, made once in a block."""
        key, known = (operand, count), self.current.known
        found = known.get(key)
        if self.log is not None:
            self.log.append(self._looked_up(key))
        if found is None:
            found = known[key] = self._one(ops.Splat, {"count": count, "operand": operand})
        return found

    def pack(self, args: Sequence[Value]) -> Value:
        return self._one(ops.Pack, {"args": tuple(args)})

    def extract(self, operand: Value, index: int) -> Value:
        return self._one(ops.Extract, {"index": index, "operand": operand})

    def broadcast(self, *operands: Value) -> tuple[Value, ...]:
        """Return `operands`, with scalars splat to vectors where there is a vector among them."""
        for operand in operands:
            if type(operand.type) is Vector:
                return tuple([v if type(v.type) is Vector else self.splat(v, operand.type.count) for v in operands])
        return operands

    # -- memory -------------------------------------------------------------------------------------------------

    def offset(self, pointer: Value, index: Value, indexed: ops.Indexed | None = None) -> Value:
        return self._one(ops.Offset, {"pointer": pointer, "index": index, "indexed": indexed})

    def load(
        self,
        pointer: Value,
        mask: Value | None = None,
        other: Value | None = None,
        *,
        count: int | None = None,
        align: int | None = None,
        cache: str | None = None,
    ) -> Value:
        """Load an element; a vector where `count` is given, whose address is said to be a multiple of `align` bytes."""
        given = {"pointer": pointer, "mask": mask, "other": other, "count": count, "align": align, "cache": cache}
        type_ = loaded(pointer.type, count, align, mask and mask.type, other and other.type)
        return self._typed(ops.Load, type_, given)

    def store(
        self, pointer: Value, value: Value, mask: Value | None = None, *, align: int | None = None,
        cache: str | None = None,
    ) -> tuple[Value, ...]:  # fmt: skip
        check_store(pointer.type, value.type, mask and mask.type, align)
        given = {"pointer": pointer, "value": value, "mask": mask, "align": align, "cache": cache, "loc": self.loc}
        return self.append(ops.Store.with_fields({**given, "results": ()}))

    def alloc(self, dtype: DType, space: Space, count: int | None, align: int, name: str = "") -> Value:
        return self._one(ops.Alloc, {"dtype": dtype, "space": space, "count": count, "align": align}, name)

    def table(self, dtype: DType, data: str, name: str = "") -> Value:
        return self._one(ops.Table, {"dtype": dtype, "data": data}, name)

    # -- control ------------------------------------------------------------------------------------------------

    def yield_(self, *values: Value) -> None:
        self.append(ops.Yield(values=values, loc=self.loc))

    def condition(self, flag: Value, *values: Value) -> None:
        self.append(ops.Condition(flag=flag, values=values, loc=self.loc))

    def if_(self, condition: Value, then_body: Block, else_body: Block, names: Sequence[str] = ()) -> tuple[Value, ...]:
        return self._many(ops.If, {"condition": condition, "then_body": then_body, "else_body": else_body}, names)

    def for_(
        self,
        bounds: tuple[Value, Value, Value],
        inits: tuple[Value, ...],
        loop_body: Block,
        *,
        unroll: int | None = None,
        names: Sequence[str] = (),
    ) -> tuple[Value, ...]:
        start, stop, step = bounds
        given = {"start": start, "stop": stop, "step": step, "inits": inits, "unroll": unroll, "loop_body": loop_body}
        return self._many(ops.For, given, names)

    def while_(
        self, inits: tuple[Value, ...], before: Block, after: Block, names: Sequence[str] = ()
    ) -> tuple[Value, ...]:
        return self._many(ops.While, {"inits": inits, "before": before, "after": after}, names)

    def once(self, body: Block) -> tuple[Value, ...]:
        return self._many(ops.ActOnce, {"thread_body": body})

    def statement(self) -> None:
        """Begin a statement of a block-level kernel, in place of one that has emitted nothing."""
        before, op = self.current.ops, _new(ops.Statement)
        _set(op, "__dict__", {"loc": self.loc, "results": ()})
        if before and type(before[-1]) is ops.Statement:
            before[-1] = op
            return
        before.append(op)
        self.op_count += 1

    # -- the rest -----------------------------------------------------------------------------------------------

    def check(self, condition: Value, message: str, operands: tuple[Value, ...]) -> tuple[Value, ...]:
        return self._many(ops.Assert, {"condition": condition, "operands_": operands, "message": message})

    def print_(self, format: str, operands: tuple[Value, ...]) -> tuple[Value, ...]:
        return self._many(ops.Print, {"operands_": operands, "format": format})

    def breakpoint_(self, scene: int, operands: tuple[Value, ...]) -> tuple[Value, ...]:
        return self._many(ops.Breakpoint, {"operands_": operands, "scene": scene})

    def call(self, spec: Intrinsic, args: Sequence[Value], params: Sequence[Any] = ()) -> tuple[Value, ...]:
        """Call an intrinsic; argument types must match one of its signatures exactly. params: its defaults if left out."""
        given, operands = tuple(params) or spec.default_params, tuple(args)
        results = tuple(map(Value, result_types(spec, operands, given)))
        fields = {"spec": spec, "args": operands, "params": given, "loc": self.loc, "results": results}
        return self.append(ops.IntrinsicOp.with_fields(fields))

    def call_one(self, spec: Intrinsic, args: Sequence[Value], params: Sequence[Any] = ()) -> Value:
        (value,) = self.call(spec, args, params)
        return value

    def asm(
        self,
        text: str,
        constraints: str,
        args: Sequence[Value],
        results: Sequence[Type],
        *,
        has_side_effects: bool,
        host: Block | None,
    ) -> tuple[Value, ...]:
        given = {"text": text, "constraints": constraints, "has_side_effects": has_side_effects, "host": host}
        return self._stated(ops.InlineAsm, results, args=tuple(args), **given)
