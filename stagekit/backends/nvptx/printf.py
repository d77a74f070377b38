"""`print` on the GPU: the message template becomes a C format, and the operands a buffer for the driver's `vprintf`.

    "x = {:.3f}, n = {}\\n" of (f32, i64)    ->    "x = %.3f, n = %lld\\n"

`str.format` has more than printf: of what has no counterpart (`^`, `_`, `%` as a type), only width and precision are kept.
A float without a format shows 7 digits (float32), 16 (float64) or 4 (float16, bfloat16), not Python's shortest form.
Source: CUDA C++ Programming Guide, Formatted Output.
"""

from __future__ import annotations

import re
import string

from stagekit import dtypes
from stagekit.backends.llvm import arith
from stagekit.backends.llvm.writer import escape
from stagekit.backends.nvptx.state import Emitter
from stagekit.dtypes import DType
from stagekit.ir import Value, ops


def emit_print(e: Emitter, op: ops.Print) -> None:
    template = c_format(op.format, [v.type.dtype for v in op.operands_])
    arguments = [_promoted(e, v) for v in op.operands_]
    buffer = _buffer(e, arguments)
    e.w.declare("i32 @vprintf(ptr, ptr)")
    e.w.emit(f"call i32 @vprintf(ptr {_text(e, template)}, ptr {buffer})")


def _text(e: Emitter, text: str) -> str:
    """Add a C string constant and return it as a generic pointer."""
    data = text.encode() + b"\0"
    name = e.w.module.unique_name("stagekit_text", text)
    e.w.module.add_global(name, f'private addrspace(1) constant [{len(data)} x i8] c"{escape(text)}\\00"')
    return f"addrspacecast (ptr addrspace(1) @{name} to ptr)"


def _promoted(e: Emitter, value: Value) -> tuple[str, str]:
    """Return type and operand as C passes a value through `...`; a bool as the word that Python prints."""
    dtype, a = value.type.dtype, e.operands[value]
    if dtype is dtypes.bool_:
        return "ptr", e.w.emit(f"select i1 {a}, ptr {_text(e, 'True')}, ptr {_text(e, 'False')}")
    if dtype.is_float:
        single = arith.cast(e.w, dtype, dtypes.float32, None, a) if dtype.bits == 16 else a
        return "double", single if dtype is dtypes.float64 else e.w.emit(f"fpext float {single} to double")
    wide = dtypes.int64 if dtype.bits == 64 else dtypes.int32
    return f"i{wide.bits}", arith.cast(e.w, dtype, wide, None, a)


def _buffer(e: Emitter, arguments: list[tuple[str, str]]) -> str:
    """Store the operands in memory, each at a multiple of its size, and return the address."""
    if not arguments:
        return "null"
    held = f"{{ {', '.join(t for t, _ in arguments)} }}"
    buffer = e.w.emit_entry(f"alloca {held}, align 8")
    for index, (type_, operand) in enumerate(arguments):
        place = e.w.emit(f"getelementptr {held}, ptr {buffer}, i32 0, i32 {index}")
        e.w.line(f"store {type_} {operand}, ptr {place}")
    return buffer


# -- the format -------------------------------------------------------------------------------------------------------


def c_format(template: str, operands: list[DType]) -> str:
    """Return the printf format for a `str.format` template whose fields are `operands` in order."""
    remaining = iter(operands)
    return "".join(
        text.replace("%", "%%") + (_conversion(spec or "", next(remaining)) if field is not None else "")
        for text, field, spec, _ in string.Formatter().parse(template)
    )


_SPEC = re.compile(
    r"(?:.?[<>^=])?(?P<sign>[-+ ]?)z?(?P<alt>#?)(?P<zero>0?)(?P<width>\d*)[,_]?(?P<precision>(?:\.\d+)?)(?P<type>[a-zA-Z%]?)"
)
_DIGITS = {16: 4, 32: 7, 64: 16}


def _conversion(spec: str, dtype: DType) -> str:
    match = _SPEC.fullmatch(spec)
    part = match.groupdict("") if match else dict.fromkeys(_SPEC.groupindex, "")
    sign = part["sign"].replace("-", "")
    left = "-" if re.match(r".?<", spec) else ""
    length, default, allowed = _letters(dtype)
    precision = part["precision"] if dtype.is_float else ""
    kind = part["type"] if part["type"] and part["type"] in allowed else default
    if dtype.is_float and not part["type"]:
        precision, kind = precision or f".{_DIGITS[dtype.bits]}", "g"
    return f"%{left}{sign}{part['alt']}{part['zero']}{part['width']}{precision}{length}{kind}"


def _letters(dtype: DType) -> tuple[str, str, str]:
    """Return printf's length modifier, the default conversion, and those that a format may ask for."""
    if dtype is dtypes.bool_:
        return "", "s", "s"
    if dtype.is_float:
        return "", "f", "eEfFgG"
    return "ll" if dtype.bits == 64 else "", "d" if dtype.is_signed else "u", "xXo"
