"""The typing rule of every core op, written once: the builder calls it to make results, the verifier to check them.

In: an op without results. Out: its result types. Raises `IrError` with a sentence when operands do not fit.

An elementwise op on vectors does to each lane what it does to scalars: its rule is asked for the scalars, and once for all ops
of one kind and types.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, NoReturn

from stagekit.diagnostics import InternalError
from stagekit.dtypes import DType
from stagekit.ir import ops
from stagekit.ir.core import Block, Op, Value
from stagekit.ir.intrinsic import Intrinsic
from stagekit.ir.ops import BinaryKind, UnaryKind
from stagekit.ir.types import BOOL, INDEX, VECTOR_WIDTHS, Pointer, Scalar, Space, Type, Vector


class IrError(InternalError):
    """IR that breaks a rule: a fault of whoever built it."""


def types_of(values: tuple[Value, ...]) -> tuple[Type, ...]:
    return tuple(map(_type_of, values))


_type_of = operator.attrgetter("type")


Rule = Callable[..., tuple[Type, ...]]


def infer(op: Op) -> tuple[Type, ...]:
    """Return the result types of `op`, which its operands decide; `Constant`, `Cast`, `Bitcast` and `asm` state theirs."""
    return RULES[type(op)](op)


def is_elementwise(op: Op) -> bool:
    """Return whether `op` may be done to vectors, lane by lane."""
    return op.spec.is_elementwise if isinstance(op, ops.IntrinsicOp) else type(op) in _ELEMENTWISE


def _by_lanes(cls: type[Op], rule: Rule) -> Rule:
    """Return what gives the result types of an elementwise op for a row of `_ELEMENTWISE`."""

    @functools.cache  # there are few kinds and types, and many ops
    def answer(*row: Any) -> tuple[Type, ...]:
        return _of_lanes(cls.mnemonic, rule, row) if Vector in map(type, row) else rule(*row)

    return answer


def _asked_for(answer: Rule, *fields: str) -> Rule:
    """Return the rule that asks `answer` for the fields of an op."""
    given = operator.attrgetter(*fields)
    return lambda op: answer(*given(op))


def _of_lanes(name: str, rule: Rule, row: tuple[Any, ...]) -> tuple[Type, ...]:
    types = tuple([each for each in row if isinstance(each, Type)])
    counts = {t.count if isinstance(t, Vector) else None for t in types}
    if len(counts) > 1:
        _fail(f"{name} of {listed(types)}: vectors meet only vectors of as many lanes")
    (count,) = counts
    found = rule(*[Scalar(each.dtype) if isinstance(each, Type) else each for each in row])
    return tuple([Vector(t.dtype, count) for t in found])  # type: ignore[arg-type]


def _fail(sentence: str) -> NoReturn:
    raise IrError(sentence)


def _binary(kind: BinaryKind, type_: Type, other: Type) -> tuple[Type, ...]:
    if other is not type_:
        _fail(f"operands of {kind.value} differ: {type_} and {other}")
    if not isinstance(type_, Scalar):
        _fail(f"{kind.value} needs scalars, got {type_}")
    objection = _objection(kind, type_.dtype)
    if objection:
        _fail(objection)
    return (type_,)


def _objection(kind: BinaryKind, dtype: DType) -> str | None:
    """Return why `kind` cannot be done in `dtype`, or None."""
    if dtype.is_storage_only:
        return f"{dtype.name} has no arithmetic"
    if kind in ops.BITWISE:
        return f"{kind.value} of {dtype.name}" if dtype.is_float else None
    if kind in ops.SHIFTS:
        return None if dtype.is_integer else f"{kind.value} of {dtype.name}"
    if dtype.kind == "bool":
        return f"{kind.value} of bool: convert to an integer first"
    is_integer_div = kind is BinaryKind.DIV and not dtype.is_float
    return f"div of {dtype.name}: integers use floordiv" if is_integer_div else None


def _unary(kind: UnaryKind, type_: Type) -> tuple[Type, ...]:
    if not isinstance(type_, Scalar):
        _fail(f"{kind.value} needs a scalar, got {type_}")
    dtype = type_.dtype
    if dtype.is_float if kind is UnaryKind.NOT else dtype.kind == "bool" or dtype.is_storage_only:
        _fail(f"{kind.value} of {dtype.name}")
    return (type_,)


def _compare(type_: Type, other: Type) -> tuple[Type, ...]:
    if type_ is not other:
        _fail(f"operands of a comparison differ: {type_} and {other}")
    return (BOOL,)


def _select(condition: Type, if_true: Type, if_false: Type) -> tuple[Type, ...]:
    if condition is not BOOL:
        _fail(f"select condition is {condition}")
    if if_true is not if_false:
        _fail(f"select of {if_true} and {if_false}")
    return (if_true,)


def _splat(op: ops.Splat) -> tuple[Type, ...]:
    if op.count not in VECTOR_WIDTHS or not isinstance(op.operand.type, Scalar):
        _fail(f"splat of {op.operand.type} to {op.count} lanes")
    return (Vector(op.operand.type.dtype, op.count),)


def _pack(op: ops.Pack) -> tuple[Type, ...]:
    types = types_of(op.args)
    if len(types) not in VECTOR_WIDTHS or len(set(types)) > 1 or not isinstance(types[0], Scalar):
        _fail(f"pack of {listed(types)}")
    return (Vector(types[0].dtype, len(types)),)


def _extract(op: ops.Extract) -> tuple[Type, ...]:
    type_ = op.operand.type
    if not isinstance(type_, Vector) or not 0 <= op.index < type_.count:
        _fail(f"extract of lane {op.index} of {type_}")
    return (Scalar(type_.dtype),)


def _offset(op: ops.Offset) -> tuple[Type, ...]:
    if not isinstance(op.pointer.type, Pointer):
        _fail(f"offset of {op.pointer.type}")
    if op.index.type is not INDEX:
        _fail(f"offset by {op.index.type}, must be {INDEX}")
    return (op.pointer.type,)


@functools.cache  # as of the elementwise ops
def loaded(pointer: Type, count: int | None, align: int | None, mask: Type | None, other: Type | None) -> Type:
    """Return the type of what a load gives, by the types of its operands."""
    found = _accessed("load", pointer, count, align)
    if (mask is None) != (other is None):
        _fail("load needs both mask and other, or neither")
    if mask is not None:
        if mask is not BOOL:
            _fail(f"load mask is {mask}")
        if other is not found:
            _fail(f"load other is {other}, what is loaded {found}")
    return found


def _accessed(name: str, pointer: Type, count: int | None, align: int | None) -> Type:
    """Return the type of `count` elements at a pointer; of one if that is None."""
    if not isinstance(pointer, Pointer):
        _fail(f"not a pointer: {pointer}")
    element, size = Scalar(pointer.dtype), pointer.dtype.itemsize
    if count is not None and count not in VECTOR_WIDTHS:
        _fail(f"{name} of {count} elements")
    if align is not None and (align < size or align & (align - 1)):
        _fail(f"{name} of {element} at multiples of {align} bytes")
    return element if count is None else Vector(pointer.dtype, count)


@functools.cache
def check_store(pointer: Type, value: Type, mask: Type | None, align: int | None) -> None:
    """Refuse the types of the operands of a store that does not fit."""
    if value is not _accessed("store", pointer, value.count if isinstance(value, Vector) else None, align):
        _fail(f"store of {value} to {pointer}")
    if mask is not None and mask is not BOOL:
        _fail("store mask is not bool")
    if pointer.space is Space.CONSTANT:  # type: ignore[union-attr]
        _fail(f"store to {pointer}")


def _load(op: ops.Load) -> tuple[Type, ...]:
    return (loaded(op.pointer.type, op.count, op.align, op.mask and op.mask.type, op.other and op.other.type),)


def _store(op: ops.Store) -> tuple[Type, ...]:
    check_store(op.pointer.type, op.value.type, op.mask and op.mask.type, op.align)
    return ()


def _yielded(block: Block) -> tuple[Type, ...]:
    if not block.ops or not isinstance(block.ops[-1], ops.Yield):
        _fail("body does not end in yield")
    return types_of(block.ops[-1].operands())


def _if(op: ops.If) -> tuple[Type, ...]:
    if op.condition.type is not BOOL:
        _fail(f"if condition is {op.condition.type}")
    then_types, else_types = _yielded(op.then_body), _yielded(op.else_body)
    if then_types != else_types:
        _fail(f"arms yield {listed(then_types)} and {listed(else_types)}")
    return then_types


def _for(op: ops.For) -> tuple[Type, ...]:
    bound = op.start.type
    if not isinstance(bound, Scalar) or not bound.dtype.is_integer:
        _fail(f"for over {bound}")
    if op.stop.type != bound or op.step.type != bound:
        _fail("for bounds differ in type")
    carried = types_of(op.inits)
    if types_of(op.loop_body.params) != (bound, *carried):
        _fail("for body parameters do not match bounds and inits")
    if _yielded(op.loop_body) != carried:
        _fail(f"for yields {listed(_yielded(op.loop_body))}, carries {listed(carried)}")
    return carried


def _while(op: ops.While) -> tuple[Type, ...]:
    carried = types_of(op.inits)
    if types_of(op.before.params) != carried:
        _fail("while parameters do not match inits")
    condition = op.before.ops[-1] if op.before.ops else None
    if not isinstance(condition, ops.Condition):
        _fail("while test does not end in condition")
    if condition.flag.type is not BOOL:
        _fail(f"while condition is {condition.flag.type}")
    forwarded = types_of(condition.values)
    if types_of(op.after.params) != forwarded:
        _fail("while body parameters do not match condition")
    if _yielded(op.after) != carried:
        _fail(f"while yields {listed(_yielded(op.after))}, carries {listed(carried)}")
    return forwarded


def _once(op: ops.ActOnce) -> tuple[Type, ...]:
    return _yielded(op.thread_body)


def _assert(op: ops.Assert) -> tuple[Type, ...]:
    if op.condition.type is not BOOL:
        _fail(f"assert condition is {op.condition.type}")
    return _print(op)


def _print(op: ops.Assert | ops.Print | ops.Breakpoint) -> tuple[Type, ...]:
    vectors = [str(v.type) for v in op.operands_ if isinstance(v.type, Vector)]
    if vectors:
        _fail(f"{op.mnemonic} of {vectors[0]}")
    return ()


def result_types(spec: Intrinsic, args: tuple[Value, ...], params: tuple[Any, ...]) -> tuple[Type, ...]:
    """Return the result types of a call of an intrinsic."""
    found = _overloaded(spec, types_of(args))
    if len(params) != len(spec.params):
        _fail(f"{spec.name} needs {len(spec.params)} compile-time values")
    for param, value in zip(spec.params, params, strict=True):
        if not param.allows(value):
            _fail(f"{spec.name}: {param.name} = {value!r}")
    return found


@functools.cache
def _overloaded(spec: Intrinsic, types: tuple[Type, ...]) -> tuple[Type, ...]:
    """Return the result types of a call with arguments of these types."""
    if spec.is_elementwise and Vector in map(type, types):
        return _of_lanes(ops.IntrinsicOp.mnemonic, lambda *lanes: _overloaded(spec, lanes), types)
    sig = spec.overload(types)
    if sig is None:
        _fail(f"{spec.name} has no overload for ({listed(types)})")
    return sig.results


def _alloc(op: ops.Alloc) -> tuple[Type, ...]:
    if op.count is not None and op.count < 0:
        _fail(f"alloc of {op.count} elements")
    if op.space is Space.GLOBAL and op.count != 0:
        _fail("alloc of global memory, which the launcher gives")
    if op.space is Space.CONSTANT:
        _fail("alloc of constant memory, which is a table")
    return (Pointer(op.dtype, op.space),)


def _table(op: ops.Table) -> tuple[Type, ...]:
    if len(op.data) % (2 * op.dtype.itemsize):
        _fail(f"table of {op.size_bytes} bytes of {op.dtype.name}")
    return (Pointer(op.dtype, Space.CONSTANT),)


def _constant(op: ops.Constant) -> tuple[Type, ...]:
    result = op.result.type
    if isinstance(result, Pointer):
        _fail(f"constant of {result}")
    return (result,)


def _cast(source: Type, result: Type) -> tuple[Type, ...]:
    if not isinstance(result, Scalar) or not isinstance(source, Scalar):
        _fail(f"cast of {source} to {result}")
    return (result,)


def _bitcast(source: Type, result: Type) -> tuple[Type, ...]:
    if isinstance(source, Pointer):
        fits = result == INDEX or (isinstance(result, Pointer) and result.space is source.space)
    else:
        fits = isinstance(result, Scalar) and result.dtype.bits == source.dtype.bits
    if not fits:
        _fail(f"bitcast of {source} to {result}")
    return (result,)


def _asm(op: ops.InlineAsm) -> tuple[Type, ...]:
    if op.host is not None:
        if types_of(op.host.params) != types_of(op.args):
            _fail("asm host body parameters do not match operands")
        if _yielded(op.host) != types_of(op.results):
            _fail("asm host body does not yield the results")
    return types_of(op.results)


def _nothing(op: Op) -> tuple[Type, ...]:
    return ()


def listed(types: tuple[Type, ...]) -> str:
    """Return types as an error shows them."""
    return ", ".join(map(str, types)) or "nothing"


_ELEMENTWISE: dict[type[Op], tuple[Any, ...]] = {
    ops.Binary: (_binary, "kind", "lhs.type", "rhs.type"),
    ops.Unary: (_unary, "kind", "operand.type"),
    ops.Compare: (_compare, "lhs.type", "rhs.type"),
    ops.Select: (_select, "condition.type", "if_true.type", "if_false.type"),
    ops.Cast: (_cast, "operand.type", "result.type"),
    ops.Bitcast: (_bitcast, "operand.type", "result.type"),
}
"""Per op that may be done to vectors, the rule for scalars and what it is given: the kind of the op, types of values."""

_BY_OPERANDS: list[type[Op]] = [*_ELEMENTWISE, ops.Splat, ops.Extract]

KINDS: dict[type[Op], Callable[[Any], Any]] = {
    cls: operator.attrgetter("mnemonic", *cls.ATTRIBUTE_FIELDS, *(f"{name}.type" for name, _ in cls.OPERAND_FIELDS))
    for cls in _BY_OPERANDS
}
KINDS[ops.Constant] = lambda op: ops.Constant
KINDS[ops.IntrinsicOp] = lambda op: (op.spec, op.params, types_of(op.args))
"""Per op, what decides what its results must be: its attributes and the types of its operands. Many ops agree in it."""

ANSWERS: dict[type[Op], Rule] = {cls: _by_lanes(cls, rule) for cls, (rule, *_) in _ELEMENTWISE.items()}
"""Per such op, its result types by kind and types: what the builder knows before there is an op."""

RULES: dict[type[Op], Rule] = {
    ops.Constant: _constant,
    **{cls: _asked_for(ANSWERS[cls], *fields) for cls, (_, *fields) in _ELEMENTWISE.items()},
    ops.IntrinsicOp: lambda op: result_types(op.spec, op.args, op.params),
    ops.Splat: _splat,
    ops.Pack: _pack,
    ops.Extract: _extract,
    ops.Offset: _offset,
    ops.Load: _load,
    ops.Store: _store,
    ops.Alloc: _alloc,
    ops.Table: _table,
    ops.If: _if,
    ops.For: _for,
    ops.While: _while,
    ops.ActOnce: _once,
    ops.Statement: _nothing,
    ops.Yield: _nothing,
    ops.Condition: _nothing,
    ops.Assert: _assert,
    ops.Print: _print,
    ops.Breakpoint: _print,
    ops.InlineAsm: _asm,
}
