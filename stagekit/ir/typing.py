"""The typing rule of every core op, written once: the builder calls it to make results, the verifier to check them.

In: an op without results. Out: its result types. Raises `IrError` with a sentence when operands do not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stagekit.diagnostics import InternalError
from stagekit.ir import ops
from stagekit.ir.core import Block, Op, Value
from stagekit.ir.ops import BinaryKind, UnaryKind
from stagekit.ir.types import BOOL, INDEX, Pointer, Scalar, Type


class IrError(InternalError):
    """IR that breaks a rule: a fault of whoever built it."""


def require(holds: bool, sentence: str) -> None:
    """Raise IrError(sentence) unless it holds."""
    if not holds:
        raise IrError(sentence)


def types_of(values: tuple[Value, ...]) -> tuple[Type, ...]:
    return tuple(v.type for v in values)


def infer(op: Op) -> tuple[Type, ...]:
    """Result types of `op`, for ops whose operands decide them; `Constant`, `Cast`, `Bitcast` and `asm` state theirs."""
    return _RULES[type(op)](op)


_BITWISE = (BinaryKind.AND, BinaryKind.OR, BinaryKind.XOR)
_SHIFTS = (BinaryKind.SHL, BinaryKind.SHR)


def _binary(op: ops.Binary) -> tuple[Type, ...]:
    require(op.lhs.type == op.rhs.type, f"operands of {op.kind.value} differ: {op.lhs.type} and {op.rhs.type}")
    require(isinstance(op.lhs.type, Scalar), f"{op.kind.value} needs scalars, got {op.lhs.type}")
    dtype = op.lhs.type.dtype
    require(not dtype.is_storage_only, f"{dtype.name} has no arithmetic")
    if op.kind in _BITWISE:
        require(not dtype.is_float, f"{op.kind.value} of {dtype.name}")
    elif op.kind in _SHIFTS:
        require(dtype.is_integer, f"{op.kind.value} of {dtype.name}")
    else:
        require(dtype.kind != "bool", f"{op.kind.value} of bool: convert to an integer first")
    require(op.kind is not BinaryKind.DIV or dtype.is_float, f"div of {dtype.name}: integers use floordiv")
    return (op.lhs.type,)


def _unary(op: ops.Unary) -> tuple[Type, ...]:
    require(isinstance(op.operand.type, Scalar), f"{op.kind.value} needs a scalar, got {op.operand.type}")
    dtype = op.operand.type.dtype
    if op.kind is UnaryKind.NOT:
        require(not dtype.is_float, f"not of {dtype.name}")
    else:
        require(dtype.kind != "bool" and not dtype.is_storage_only, f"neg of {dtype.name}")
    return (op.operand.type,)


def _compare(op: ops.Compare) -> tuple[Type, ...]:
    require(op.lhs.type == op.rhs.type, f"operands of a comparison differ: {op.lhs.type} and {op.rhs.type}")
    return (BOOL,)


def _select(op: ops.Select) -> tuple[Type, ...]:
    require(op.condition.type == BOOL, f"select condition is {op.condition.type}")
    require(op.if_true.type == op.if_false.type, f"select of {op.if_true.type} and {op.if_false.type}")
    return (op.if_true.type,)


def _offset(op: ops.Offset) -> tuple[Type, ...]:
    require(isinstance(op.pointer.type, Pointer), f"offset of {op.pointer.type}")
    require(op.index.type == INDEX, f"offset by {op.index.type}, must be {INDEX}")
    return (op.pointer.type,)


def _pointee(value: Value) -> Scalar:
    require(isinstance(value.type, Pointer), f"not a pointer: {value.type}")
    return Scalar(value.type.dtype)


def _load(op: ops.Load) -> tuple[Type, ...]:
    element = _pointee(op.pointer)
    require((op.mask is None) == (op.other is None), "load needs both mask and other, or neither")
    if op.mask is not None and op.other is not None:
        require(op.mask.type == BOOL, f"load mask is {op.mask.type}")
        require(op.other.type == element, f"load other is {op.other.type}, elements are {element}")
    return (element,)


def _store(op: ops.Store) -> tuple[Type, ...]:
    require(op.value.type == _pointee(op.pointer), f"store of {op.value.type} to {op.pointer.type}")
    require(op.mask is None or op.mask.type == BOOL, "store mask is not bool")
    return ()


def _yielded(block: Block) -> tuple[Type, ...]:
    require(bool(block.ops) and isinstance(block.ops[-1], ops.Yield), "body does not end in yield")
    return types_of(block.ops[-1].operands())


def _if(op: ops.If) -> tuple[Type, ...]:
    require(op.condition.type == BOOL, f"if condition is {op.condition.type}")
    then_types, else_types = _yielded(op.then_body), _yielded(op.else_body)
    require(then_types == else_types, f"arms yield {_show(then_types)} and {_show(else_types)}")
    return then_types


def _for(op: ops.For) -> tuple[Type, ...]:
    bound = op.start.type
    require(isinstance(bound, Scalar) and bound.dtype.is_integer, f"for over {bound}")
    require(op.stop.type == bound and op.step.type == bound, "for bounds differ in type")
    carried = types_of(op.inits)
    require(types_of(op.loop_body.params) == (bound, *carried), "for body parameters do not match bounds and inits")
    require(_yielded(op.loop_body) == carried, f"for yields {_show(_yielded(op.loop_body))}, carries {_show(carried)}")
    return carried


def _while(op: ops.While) -> tuple[Type, ...]:
    carried = types_of(op.inits)
    require(types_of(op.before.params) == carried, "while parameters do not match inits")
    require(
        bool(op.before.ops) and isinstance(op.before.ops[-1], ops.Condition), "while test does not end in condition"
    )
    condition = op.before.ops[-1]
    assert isinstance(condition, ops.Condition)
    require(condition.flag.type == BOOL, f"while condition is {condition.flag.type}")
    forwarded = types_of(condition.values)
    require(types_of(op.after.params) == forwarded, "while body parameters do not match condition")
    require(_yielded(op.after) == carried, f"while yields {_show(_yielded(op.after))}, carries {_show(carried)}")
    return forwarded


def _assert(op: ops.Assert) -> tuple[Type, ...]:
    require(op.condition.type == BOOL, f"assert condition is {op.condition.type}")
    return ()


def _intrinsic(op: ops.IntrinsicOp) -> tuple[Type, ...]:
    sig = op.spec.overload(types_of(op.args))
    if sig is None:
        raise IrError(f"{op.spec.name} has no overload for ({_show(types_of(op.args))})")
    require(len(op.params) == len(op.spec.params), f"{op.spec.name} needs {len(op.spec.params)} compile-time values")
    for param, value in zip(op.spec.params, op.params, strict=True):
        require(param.allows(value), f"{op.spec.name}: {param.name} = {value!r}")
    return sig.results


def _alloc(op: ops.Alloc) -> tuple[Type, ...]:
    require(op.count is None or op.count >= 0, f"alloc of {op.count} elements")
    return (Pointer(op.dtype, op.space),)


def _constant(op: ops.Constant) -> tuple[Type, ...]:
    (result,) = types_of(op.results)
    require(isinstance(result, Scalar), f"constant of {result}")
    return (result,)


def _cast(op: ops.Cast) -> tuple[Type, ...]:
    (result,) = types_of(op.results)
    require(
        isinstance(result, Scalar) and isinstance(op.operand.type, Scalar), f"cast of {op.operand.type} to {result}"
    )
    return (result,)


def _bitcast(op: ops.Bitcast) -> tuple[Type, ...]:
    (result,) = types_of(op.results)
    source = op.operand.type
    if isinstance(source, Pointer):
        fits = result == INDEX or (isinstance(result, Pointer) and result.space is source.space)
    else:
        fits = isinstance(result, Scalar) and result.dtype.bits == source.dtype.bits
    require(fits, f"bitcast of {source} to {result}")
    return (result,)


def _asm(op: ops.InlineAsm) -> tuple[Type, ...]:
    if op.host is not None:
        require(types_of(op.host.params) == types_of(op.args), "asm host body parameters do not match operands")
        require(_yielded(op.host) == types_of(op.results), "asm host body does not yield the results")
    return types_of(op.results)


def _nothing(op: Op) -> tuple[Type, ...]:
    return ()


def _show(types: tuple[Type, ...]) -> str:
    return ", ".join(map(str, types)) or "nothing"


_RULES: dict[type[Op], Callable[[Any], tuple[Type, ...]]] = {
    ops.Constant: _constant,
    ops.Binary: _binary,
    ops.Unary: _unary,
    ops.Compare: _compare,
    ops.Select: _select,
    ops.Cast: _cast,
    ops.Bitcast: _bitcast,
    ops.Offset: _offset,
    ops.Load: _load,
    ops.Store: _store,
    ops.Alloc: _alloc,
    ops.If: _if,
    ops.For: _for,
    ops.While: _while,
    ops.Yield: _nothing,
    ops.Condition: _nothing,
    ops.Assert: _assert,
    ops.Print: _nothing,
    ops.IntrinsicOp: _intrinsic,
    ops.InlineAsm: _asm,
}
