"""Check inline assembly before LLVM sees it: LLVM ends the whole process when constraints and operands do not fit.

text         add.s32 $0, $1, $2;
constraints  =r,r,r                    one result, two operands, all in 32-bit registers
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from stagekit.backends.errors import AsmMismatch
from stagekit.diagnostics import Loc, StagekitError, counted
from stagekit.ir import BOOL, Pointer, Type

# Register class -> what it holds, as (kinds, bits). Source: LLVM, NVPTXTargetLowering::getRegForInlineAsmConstraint.
_REGISTERS = {
    "b": (("bool",), (1,)),
    "c": (("int", "uint"), (8,)),
    "h": (("int", "uint", "float"), (16,)),
    "r": (("int", "uint", "pointer"), (32,)),
    "l": (("int", "uint", "pointer"), (64,)),
    "f": (("float",), (32,)),
    "d": (("float",), (64,)),
}
_POINTER_BITS = 64
_REFERENCE = re.compile(r"\$(\d+)|\$\{(\d+)\}")


@dataclass(frozen=True, slots=True)
class Operand:
    """An input: its type, and whether its value is known when compiling, as the constraint `n` needs."""

    type: Type
    is_known: bool


def check_asm(text: str, constraints: str, results: Sequence[Type], args: Sequence[Operand], loc: Loc) -> None:
    """Raise StagekitError unless every operand has a constraint that holds it and `text` names only those operands."""
    reason = _fault(text, constraints, results, args)
    if reason is not None:
        raise StagekitError(AsmMismatch(reason), loc)


def _fault(text: str, constraints: str, results: Sequence[Type], args: Sequence[Operand]) -> str | None:
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
    return _bad_operand(outputs, inputs, results, args) or _bad_reference(text, len(parts))


def _bad_operand(outputs: list[str], inputs: list[str], results: Sequence[Type], args: Sequence[Operand]) -> str | None:
    for letter, type_ in zip(outputs, results, strict=True):
        if not _holds(letter, type_):
            return f"constraint `={letter}` cannot hold {type_}"
    faults = (_bad_input(letter, operand, results) for letter, operand in zip(inputs, args, strict=True))
    return next((fault for fault in faults if fault), None)


def _bad_input(letter: str, operand: Operand, results: Sequence[Type]) -> str | None:
    if letter == "n":
        return None if operand.is_known else "constraint `n` needs a value that is known when the kernel is compiled"
    if letter.isdigit():
        fits = int(letter) < len(results) and results[int(letter)] == operand.type
        return None if fits else f"input {operand.type} is tied to output {letter}, which is not of that type"
    return None if _holds(letter, operand.type) else f"constraint `{letter}` cannot hold {operand.type}"


def _holds(letter: str, type_: Type) -> bool:
    kinds, sizes = _REGISTERS.get(letter, ((), ()))
    if isinstance(type_, Pointer):
        return "pointer" in kinds and _POINTER_BITS in sizes
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
