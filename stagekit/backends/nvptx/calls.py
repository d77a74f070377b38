"""Calls of intrinsics, by what their record says about cuda: LLVM intrinsic, libdevice function, PTX text, or native."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stagekit import dtypes
from stagekit.backends.libdevice import add_libdevice
from stagekit.backends.llvm.arith import literal
from stagekit.backends.llvm.types import suffix
from stagekit.backends.llvm.writer import escape
from stagekit.backends.nvptx.inline_asm import Operand, check_asm
from stagekit.backends.nvptx.natives import NATIVES
from stagekit.backends.nvptx.state import Emitter
from stagekit.diagnostics import InternalError, StagekitError
from stagekit.ir import BOOL, Asm, Effect, Extern, Llvm, Native, Value, ops
from stagekit.passes.errors import UnsupportedOnTarget


def emit_intrinsic(e: Emitter, op: ops.IntrinsicOp) -> None:
    lowering = op.spec.lowering("cuda", tuple(v.type for v in op.args), fastmath=e.fastmath)
    rule = _RULES.get(type(lowering))
    if rule is None:
        reason = getattr(lowering, "reason", f"a {type(lowering).__name__} must be gone before emission")
        raise StagekitError(UnsupportedOnTarget(op.spec.name, "cuda", reason), op.loc)
    e.bind(op.results, rule(e, op, lowering))


def _llvm(e: Emitter, op: ops.IntrinsicOp, lowering: Llvm) -> tuple[str, ...]:
    args = [e.pair(v) for v in op.args]
    held = args[0][0] if args else e.type(op.result)
    name = lowering.name.replace("{T}", suffix(held))
    return (e.w.call(e.type(op.result), name, [*args, *lowering.immediates]),)


def _extern(e: Emitter, op: ops.IntrinsicOp, lowering: Extern) -> tuple[str, ...]:
    """A libdevice function; where C has no bool it takes and gives int."""
    add_libdevice(e.w.module, lowering.symbol, e.target.capability, op.loc)
    args = [_as_c(e, v) for v in op.args]
    is_bool = op.result.type == BOOL
    result = "i32" if is_bool else e.type(op.result)
    value = e.w.emit(f"call {result} @{lowering.symbol}({', '.join(f'{t} {a}' for t, a in args)})")
    return (e.w.emit(f"icmp ne i32 {value}, 0") if is_bool else value,)


def _as_c(e: Emitter, value: Value) -> tuple[str, str]:
    if value.type != BOOL:
        return e.pair(value)
    return "i32", e.w.emit(f"zext i1 {e.operands[value]} to i32")


def _asm(e: Emitter, op: ops.IntrinsicOp, lowering: Asm) -> tuple[str, ...]:
    is_convergent = Effect.COLLECTIVE in op.effects
    return _call_asm(e, op, lowering, op.args, is_convergent)


def _native(e: Emitter, op: ops.IntrinsicOp, lowering: Native) -> tuple[str, ...]:
    rule = NATIVES.get(lowering)
    if rule is None:
        raise InternalError(f"cuda has no form of {lowering.name}, asked for by `{op.spec.name}`")
    return rule(e, op)


def emit_inline_asm(e: Emitter, op: ops.InlineAsm) -> None:
    lowering = Asm(op.text, op.constraints, op.has_side_effects)
    e.bind(op.results, _call_asm(e, op, lowering, op.args, op.has_side_effects))


def _call_asm(
    e: Emitter, op: ops.IntrinsicOp | ops.InlineAsm, asm: Asm, args: Sequence[Value], is_convergent: bool
) -> tuple[str, ...]:
    """Write the call; half values go as i16, since PTX has one kind of 16-bit register."""
    operands = [Operand(v.type, literal(e.operands[v]) is not None) for v in args]
    check_asm(asm.text, asm.constraints, [v.type for v in op.results], operands, op.loc)
    given = ", ".join(f"{t} {a}" for t, a in (_as_register(e, v) for v in args))
    results = [_register_type(e, v) for v in op.results]
    held = {0: "void", 1: results[0] if results else ""}.get(len(results), f"{{ {', '.join(results)} }}")
    mark = "sideeffect " if asm.has_side_effects else ""
    attributes = (" convergent" if is_convergent else "") + ("" if asm.has_side_effects else " memory(none)")
    text = f'call {held} asm {mark}"{escape(asm.text)}", "{escape(asm.constraints)}"({given}) nounwind{attributes}'
    if not results:
        e.w.line(text)
        return ()
    whole = e.w.emit(text)
    parts = (
        [whole] if len(results) == 1 else [e.w.emit(f"extractvalue {held} {whole}, {i}") for i in range(len(results))]
    )
    return tuple(_from_register(e, v, part) for v, part in zip(op.results, parts, strict=True))


def _register_type(e: Emitter, value: Value) -> str:
    return "i16" if value.type.dtype is dtypes.float16 else e.type(value)


def _as_register(e: Emitter, value: Value) -> tuple[str, str]:
    held, operand = e.pair(value)
    return ("i16", e.w.emit(f"bitcast half {operand} to i16")) if held == "half" else (held, operand)


def _from_register(e: Emitter, value: Value, part: str) -> str:
    return e.w.emit(f"bitcast i16 {part} to half") if e.type(value) == "half" else part


_RULES: dict[type[Any], Callable[[Emitter, ops.IntrinsicOp, Any], tuple[str, ...]]] = {
    Llvm: _llvm,
    Extern: _extern,
    Asm: _asm,
    Native: _native,
}
