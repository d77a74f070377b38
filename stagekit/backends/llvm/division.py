"""Integer `//` and `%` in LLVM IR: flooring, and without a trap or an undefined result for any operands.

x // 0 and x % 0 are 0; INT_MIN // -1 is INT_MIN and INT_MIN % -1 is 0. A divisor known now needs no guard, and LLVM turns the
division by it into shifts or a multiplication.
"""

from __future__ import annotations

from stagekit import dtypes
from stagekit.backends.llvm.operands import constant, literal, select
from stagekit.backends.llvm.types import Lanes, llvm_type
from stagekit.backends.llvm.writer import Writer
from stagekit.dtypes import DType


def floor_divide(w: Writer, dtype: DType, lanes: Lanes, a: str, b: str) -> str:
    known = literal(b)
    if known is not None:
        return _floor_divide_by(w, dtype, lanes, a, known)
    held, zero = llvm_type(dtype, lanes), constant(dtype, lanes, 0)
    is_zero = w.emit(f"icmp eq {held} {b}, {zero}")
    divisor = (
        _safe_divisor(w, dtype, lanes, a, b, is_zero) if dtype.is_signed else _not_zero(w, dtype, lanes, b, is_zero)
    )
    quotient = _quotient(w, dtype, lanes, a, divisor)
    if dtype.is_signed:
        rest = _rest(w, held, a, quotient, divisor)
        quotient = _lowered(w, held, lanes, quotient, _has_other_sign(w, dtype, lanes, rest, divisor))
    return select(w, dtype, lanes, is_zero, zero, quotient)


def modulo(w: Writer, dtype: DType, lanes: Lanes, a: str, b: str) -> str:
    known = literal(b)
    if known is not None:
        return _modulo_by(w, dtype, lanes, a, known)
    held, zero = llvm_type(dtype, lanes), constant(dtype, lanes, 0)
    # A bad divisor becomes 1, whose remainder 0 is already the answer for x % 0 and INT_MIN % -1.
    divisor = _safe_divisor(w, dtype, lanes, a, b, w.emit(f"icmp eq {held} {b}, {zero}"))
    rest = _rest(w, held, a, _quotient(w, dtype, lanes, a, divisor), divisor)
    if not dtype.is_signed:
        return rest
    correction = select(w, dtype, lanes, _has_other_sign(w, dtype, lanes, rest, divisor), divisor, zero)
    return w.emit(f"add {held} {rest}, {correction}")


def _safe_divisor(w: Writer, dtype: DType, lanes: Lanes, a: str, b: str, is_zero: str) -> str:
    """`b`, or 1 where a machine's division would trap: x / 0 and INT_MIN / -1."""
    held, flag = llvm_type(dtype, lanes), llvm_type(dtypes.bool_, lanes)
    is_bad = is_zero
    if dtype.is_signed:
        is_lowest = w.emit(f"icmp eq {held} {a}, {constant(dtype, lanes, dtype.min)}")
        is_minus_one = w.emit(f"icmp eq {held} {b}, {constant(dtype, lanes, -1)}")
        is_bad = w.emit(f"or {flag} {is_zero}, {w.emit(f'and {flag} {is_lowest}, {is_minus_one}')}")
    return select(w, dtype, lanes, is_bad, constant(dtype, lanes, 1), b)


def _not_zero(w: Writer, dtype: DType, lanes: Lanes, b: str, is_zero: str) -> str:
    """`b`, or 2 in place of 0, where the quotient does not count.

    2 and not 1: for vectors with AVX-512, LLVM 22.1 moves `select c, 1, b` behind the division that alone uses it, since x / 1
    is x, and so divides by the zeros as well. It sees through to the `select` where the zeros are those of `33 << n`.
    """
    return select(w, dtype, lanes, is_zero, constant(dtype, lanes, 2), b)


def _quotient(w: Writer, dtype: DType, lanes: Lanes, a: str, divisor: str) -> str:
    """`a / divisor` towards zero; the divisor is safe.

    Vectors go through a float with more bits than the operands have: a quotient below an integer is below it by
    1 / a of itself at least, which is more than one rounding can hide, so truncating is exact.
    """
    held, opcode = llvm_type(dtype, lanes), "sdiv" if dtype.is_signed else "udiv"
    via = _DIVIDES_THROUGH.get(dtype.bits) if lanes is not None else None
    if via is None:
        return w.emit(f"{opcode} {held} {a}, {divisor}")
    real, to_real, back = llvm_type(via, lanes), *(("sitofp", "fptosi") if dtype.is_signed else ("uitofp", "fptoui"))
    wide_a, wide_b = (w.emit(f"{to_real} {held} {x} to {real}") for x in (a, divisor))
    return w.emit(f"{back} {real} {w.emit(f'fdiv {real} {wide_a}, {wide_b}')} to {held}")


# Width of the operands -> the float with enough bits for their quotients.
_DIVIDES_THROUGH = {8: dtypes.float32, 16: dtypes.float32, 32: dtypes.float64}


def _rest(w: Writer, held: str, a: str, quotient: str, divisor: str) -> str:
    return w.emit(f"sub {held} {a}, {w.emit(f'mul {held} {quotient}, {divisor}')}")


def _has_other_sign(w: Writer, dtype: DType, lanes: Lanes, rest: str, divisor: str) -> str:
    """Is the remainder not 0 and of the other sign than the divisor, so that flooring differs from truncating?"""
    held, flag, zero = llvm_type(dtype, lanes), llvm_type(dtypes.bool_, lanes), constant(dtype, lanes, 0)
    differs = w.emit(f"icmp slt {held} {w.emit(f'xor {held} {rest}, {divisor}')}, {zero}")
    return w.emit(f"and {flag} {differs}, {w.emit(f'icmp ne {held} {rest}, {zero}')}")


def _lowered(w: Writer, held: str, lanes: Lanes, quotient: str, condition: str) -> str:
    """`quotient - 1` where `condition` holds."""
    minus_one = w.emit(f"sext {llvm_type(dtypes.bool_, lanes)} {condition} to {held}")
    return w.emit(f"add {held} {quotient}, {minus_one}")


def _floor_divide_by(w: Writer, dtype: DType, lanes: Lanes, a: str, divisor: int) -> str:
    """A divisor known now: no guard, and LLVM turns the division into shifts or a multiplication."""
    held = llvm_type(dtype, lanes)
    by = constant(dtype, lanes, divisor)
    if divisor == 0:
        return constant(dtype, lanes, 0)
    if divisor == -1:
        return w.emit(f"sub {held} {constant(dtype, lanes, 0)}, {a}")
    if not dtype.is_signed:
        return w.emit(f"udiv {held} {a}, {by}")
    if _is_power_of_two(divisor):
        return w.emit(f"ashr {held} {a}, {constant(dtype, lanes, divisor.bit_length() - 1)}")
    quotient = w.emit(f"sdiv {held} {a}, {by}")
    return _lowered(w, held, lanes, quotient, _must_floor(w, dtype, lanes, a, divisor)[1])


def _modulo_by(w: Writer, dtype: DType, lanes: Lanes, a: str, divisor: int) -> str:
    held = llvm_type(dtype, lanes)
    if divisor in (0, 1, -1):
        return constant(dtype, lanes, 0)
    if not dtype.is_signed:
        return w.emit(f"urem {held} {a}, {constant(dtype, lanes, divisor)}")
    if _is_power_of_two(divisor):
        return w.emit(f"and {held} {a}, {constant(dtype, lanes, divisor - 1)}")
    rest, must_floor = _must_floor(w, dtype, lanes, a, divisor)
    by, zero = constant(dtype, lanes, divisor), constant(dtype, lanes, 0)
    return w.emit(f"add {held} {rest}, {select(w, dtype, lanes, must_floor, by, zero)}")


def _must_floor(w: Writer, dtype: DType, lanes: Lanes, a: str, divisor: int) -> tuple[str, str]:
    """The remainder of a signed division by a known divisor, and whether it has the wrong sign.

    As an `srem`, so that LLVM sees the sign of a remainder of something that is never negative, such as a thread index.
    """
    held = llvm_type(dtype, lanes)
    rest = w.emit(f"srem {held} {a}, {constant(dtype, lanes, divisor)}")
    predicate = "slt" if divisor > 0 else "sgt"
    return rest, w.emit(f"icmp {predicate} {held} {rest}, {constant(dtype, lanes, 0)}")


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0
