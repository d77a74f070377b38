"""Operands of LLVM ops as text: numbers, the number behind a text, and the choice between two.

Examples:
    constant(float32, None, 0.5)   ->  0x3FE0000000000000
    constant(int32, 32, 7)         ->  splat (i32 7)
    literal("splat (i32 7)")       ->  7
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from stagekit import dtypes
from stagekit.backends.llvm.types import Lanes, llvm_type, scalar_type
from stagekit.backends.llvm.writer import Writer
from stagekit.dtypes import DType
from stagekit.ir import Type


def constant(dtype: DType, lanes: Lanes, value: bool | float) -> str:
    """The operand text of a number, in every lane."""
    text = _CONSTANTS.get(dtype, _bits_constant)(dtype, value)
    return text if lanes is None else f"splat ({scalar_type(dtype)} {text})"


def _double_constant(dtype: DType, value: float) -> str:
    # LLVM spells a float constant by the bits of the double of the same value.
    return f"0x{struct.pack('>d', value).hex().upper()}"


def _half_constant(dtype: DType, value: float) -> str:
    return f"0xH{struct.pack('>e', value).hex().upper()}"


def _bool_constant(dtype: DType, value: float) -> str:
    return "true" if value else "false"


def _bits_constant(dtype: DType, value: float) -> str:
    """Integers as they are; floats that are held as bits by their bits."""
    return str(int.from_bytes(dtype(value).tobytes(), "little") if dtype.is_float else int(value))


_CONSTANTS: dict[DType, Callable[[DType, float], str]] = {
    dtypes.bool_: _bool_constant,
    dtypes.float16: _half_constant,
    dtypes.float32: _double_constant,
    dtypes.float64: _double_constant,
}


def literal(operand: str) -> int | None:
    """The integer that a constant operand spells in every lane, or None."""
    if operand[0] == "%":
        return None
    try:
        return int(operand.removesuffix(")").rpartition(" ")[2])
    except ValueError:
        return None


def select(w: Writer, type_: DType | Type, lanes: Lanes, condition: str, if_true: str, if_false: str) -> str:
    """`if_true` where `condition` holds; every operand has `lanes` lanes."""
    held = w.type(type_, lanes)
    return w.emit(f"select {llvm_type(dtypes.bool_, lanes)} {condition}, {held} {if_true}, {held} {if_false}")
