"""Calls of intrinsics, as their records say for cuda, and inline assembly, which is checked before LLVM sees it.

LLVM ends the whole process when constraints and operands do not fit:

    text         add.s32 $0, $1, $2;
    constraints  =r,r,r                    one result, two operands, all in 32-bit registers
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from stagekit.backends.errors import AsmMismatch
from stagekit.backends.libdevice import add_libdevice
from stagekit.backends.llvm.arith import literal
from stagekit.backends.llvm.types import lanes_of, suffix
from stagekit.backends.llvm.writer import APPROXIMATE, escape
from stagekit.backends.nvptx import division
from stagekit.backends.nvptx.natives import NATIVES
from stagekit.backends.nvptx.state import Emitter
from stagekit.diagnostics import InternalError, StagekitError, counted
from stagekit.dtypes import float32
from stagekit.ir import BOOL, FLUSHING, Extern, Llvm, Native, Pointer, Type, allows, ops
from stagekit.ir.typing import types_of


def emit_intrinsic(e: Emitter, op: ops.IntrinsicOp) -> None:
    """Write what the record says for cuda. `expand` has replaced expansions, and refused what cuda cannot do."""
    match op.spec.lowering("cuda", types_of(op.args), fastmath=e.fastmath):
        case Llvm() as function:
            operand = _llvm(e, op, function)
        case Extern(symbol):
            operand = _extern(e, op, symbol)
        case Native() as native:
            operand = NATIVES[native](e, op)
        case other:
            raise InternalError(f"`{op.spec.name}` is emitted as {type(other).__name__}")
    e.bind(op.results, (operand,) if op.results else ())


def _llvm(e: Emitter, op: ops.IntrinsicOp, function: Llvm) -> str:
    args = [e.pair(v) for v in op.args]
    held = args[0][0] if args else e.type(op.result)
    if e.has_few_divisions and division.is_division(op, e.fastmath):
        return division.root(e.w, lanes_of(op.result.type), args[0][1])
    is_root = function.name == _ROOT and allows(e.fastmath, "root") and op.result.type.dtype is float32
    name, flags = function.name.replace("{T}", suffix(held)), e.w.flags + APPROXIMATE if is_root else ""
    return e.w.call(e.type(op.result), name, [*args, *function.immediates], flags=flags)


_ROOT = "llvm.sqrt.{T}"


def _extern(e: Emitter, op: ops.IntrinsicOp, symbol: str) -> str:
    """Call a libdevice function, which takes and returns int where the record has bool."""
    add_libdevice(e.w.module, symbol, e.target.capability, op.loc)
    args = [("i32", e.w.emit(f"zext i1 {e.operands[v]} to i32")) if v.type == BOOL else e.pair(v) for v in op.args]
    is_bool = op.result.type == BOOL
    result = "i32" if is_bool else e.type(op.result)
    value = e.w.emit(f"call {result} @{symbol}({', '.join(f'{t} {a}' for t, a in args)})")
    return e.w.emit(f"icmp ne i32 {value}, 0") if is_bool else value


# -- inline assembly --------------------------------------------------------------------------------------------------


def emit_inline_asm(e: Emitter, op: ops.InlineAsm) -> None:
    """Write inline assembly. A half is passed as i16, since PTX has one kind of 16-bit register."""
    ptx = op.text.replace(FLUSHING, ".ftz" if allows(e.fastmath, "flush") else "")
    known = tuple([literal(e.operands[v]) is not None for v in op.args])
    if fault := _fault(ptx, op.constraints, types_of(op.results), types_of(op.args), known):
        raise StagekitError(AsmMismatch(fault), op.loc)
    given = [e.pair(v) for v in op.args]
    given = [("i16", e.w.emit(f"bitcast half {a} to i16")) if t == "half" else (t, a) for t, a in given]
    results = ["i16" if (held := e.type(v)) == "half" else held for v in op.results]
    held = {0: "void", 1: results[0] if results else ""}.get(len(results), f"{{ {', '.join(results)} }}")
    mark, attributes = ("sideeffect ", " convergent") if op.has_side_effects else ("", " willreturn memory(none)")
    asm = f'asm {mark}"{escape(ptx)}", "{escape(op.constraints)}"'
    text = f"call {held} {asm}({', '.join(f'{t} {a}' for t, a in given)}) nounwind{attributes}"
    if not results:
        e.w.line(text)
        return
    parts = [e.w.emit(text)]
    if len(results) > 1:
        parts = [e.w.emit(f"extractvalue {held} {parts[0]}, {i}") for i in range(len(results))]
    for value, part in zip(op.results, parts, strict=True):
        e.operands[value] = e.w.emit(f"bitcast i16 {part} to half") if e.type(value) == "half" else part


# What each class of registers holds, as (kinds, bits). Source: LLVM, NVPTXTargetLowering::getRegForInlineAsmConstraint.
_REGISTERS = {
    "b": (("bool",), (1,)),
    "c": (("int", "uint"), (8,)),
    "h": (("int", "uint", "float"), (16,)),
    "r": (("int", "uint", "pointer"), (32,)),
    "l": (("int", "uint", "pointer"), (64,)),
    "f": (("float",), (32,)),
    "d": (("float",), (64,)),
}
_REFERENCE = re.compile(r"\$(\d+)|\$\{(\d+)\}")


@functools.lru_cache(256)  # a kernel has few texts, and many ops of each
def _fault(
    text: str, constraints: str, results: tuple[Type, ...], args: tuple[Type, ...], known: tuple[bool, ...]
) -> str | None:
    """Return why operands do not fit their constraints, or the text names others, or None. known: which ones are constants."""
    if foreign := next((c for c in text + constraints if not c.isascii()), None):
        return f"{foreign!a} is no ASCII character, and PTX is written in these alone"
    parts = [p.strip() for p in constraints.split(",")] if constraints else []
    parts = [p for p in parts if not (p.startswith("~{") and p.endswith("}"))]
    outputs = [p[1:].lstrip("&") for p in parts if p.startswith("=")]
    inputs = [p for p in parts if not p.startswith("=")]
    if parts[: len(outputs)] != [p for p in parts if p.startswith("=")]:
        return "an output constraint stands after an input"
    if len(outputs) != len(results) or len(inputs) != len(args):
        return (
            f"{counted(len(outputs), 'output')} and {counted(len(inputs), 'input')} in {constraints!r}, "
            f"but {counted(len(results), 'result')} and {counted(len(args), 'operand')}"
        )
    for letter, type_ in zip(outputs, results, strict=True):
        if not _holds(letter, type_):
            return f"constraint `={letter}` cannot hold {type_}"
    faults = (_bad_input(*each, results) for each in zip(inputs, args, known, strict=True))
    return next((fault for fault in faults if fault), None) or _bad_reference(text, len(parts))


def _bad_input(letter: str, type_: Type, is_known: bool, results: Sequence[Type]) -> str | None:
    if letter == "n":
        return None if is_known else "constraint `n` needs a value that is known when the kernel is compiled"
    if letter.isdigit():
        fits = int(letter) < len(results) and results[int(letter)] == type_
        return None if fits else f"input {type_} is tied to output {letter}, which is not of that type"
    return None if _holds(letter, type_) else f"constraint `{letter}` cannot hold {type_}"


def _holds(letter: str, type_: Type) -> bool:
    kinds, sizes = _REGISTERS.get(letter, ((), ()))
    if isinstance(type_, Pointer):
        return "pointer" in kinds and 64 in sizes
    return type_.dtype.kind in kinds and (type_ == BOOL or type_.dtype.bits in sizes)


def _bad_reference(text: str, operand_count: int) -> str | None:
    rest = text.replace("$$", "")
    for match in _REFERENCE.finditer(rest):
        number = int(match.group(1) or match.group(2))
        if number >= operand_count:
            return f"`${number}` is not an operand; there are {operand_count}"
    if "$" in _REFERENCE.sub("", rest):
        return "a `$` that does not name an operand"
    return None
