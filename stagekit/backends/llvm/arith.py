"""The arithmetic of the language in LLVM IR, one text for scalars and for vectors of `lanes` values.

In: operands as bare text ("%t3", "7", "splat (i32 7)") of `llvm_type(dtype, lanes)`. Out: the result's name.

    binary(w, BinaryKind.SHL, int32, None, "%x", "%n")
        %t0 = icmp ult i32 %n, 32
        %t1 = shl i32 %x, %n
        %t2 = select i1 %t0, i32 %t1, i32 0

Nothing here is undefined or a trap for any operand: `semantics.py` is the meaning. Integer `//` and `%` floor: x // 0 and
x % 0 are 0, INT_MIN // -1 is INT_MIN and INT_MIN % -1 is 0; a divisor known now needs no guard, and LLVM turns the division by
it into shifts or a multiplication. Those of floats, and arithmetic on 16-bit floats, are legalised away before. No fast-math
flag is set unless the writer's module asks for it. Vector forms are chosen by measurement on x86, which scalarises vector
integer division and the saturating conversions.
"""

from __future__ import annotations

from collections.abc import Callable

from stagekit import dtypes
from stagekit.backends.llvm.types import Lanes, llvm_type, suffix, vector_of
from stagekit.backends.llvm.writer import Writer, constant, literal, select
from stagekit.dtypes import DType
from stagekit.ir import BinaryKind, CompareKind, Native, Pointer, Type, UnaryKind


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
    """Return whether flooring differs from truncating: the remainder is not 0, and its sign is not the divisor's."""
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


# -- binary -----------------------------------------------------------------------------------------------------------

_INTEGER_OPCODES = {
    BinaryKind.ADD: "add",
    BinaryKind.SUB: "sub",
    BinaryKind.MUL: "mul",
    BinaryKind.AND: "and",
    BinaryKind.OR: "or",
    BinaryKind.XOR: "xor",
}
FLOAT_OPCODES = {BinaryKind.ADD: "fadd", BinaryKind.SUB: "fsub", BinaryKind.MUL: "fmul", BinaryKind.DIV: "fdiv"}


def binary(w: Writer, kind: BinaryKind, dtype: DType, lanes: Lanes, a: str, b: str) -> str:
    """`a kind b` for operands of `dtype`: integers, bool, float32 or float64; `//` and `%` of integers only."""
    opcode = (FLOAT_OPCODES if dtype.is_float else _INTEGER_OPCODES).get(kind)
    if opcode is None:
        return _IRREGULAR[kind](w, dtype, lanes, a, b)
    flags = "" if not dtype.is_float else w.division_flags if kind is BinaryKind.DIV else w.flags
    return w.emit(f"{opcode} {flags}{llvm_type(dtype, lanes)} {a}, {b}")


def _shift_to_zero(w: Writer, opcode: str, dtype: DType, lanes: Lanes, a: str, amount: str) -> str:
    """Shift by `shl` or `lshr`; too far gives 0."""
    known, held = literal(amount), llvm_type(dtype, lanes)
    zero = constant(dtype, lanes, 0)
    if known is not None:
        return w.emit(f"{opcode} {held} {a}, {amount}") if 0 <= known < dtype.bits else zero
    is_near = w.emit(f"icmp ult {held} {amount}, {constant(dtype, lanes, dtype.bits)}")
    return select(w, dtype, lanes, is_near, w.emit(f"{opcode} {held} {a}, {amount}"), zero)


def _shift_right(w: Writer, dtype: DType, lanes: Lanes, a: str, amount: str) -> str:
    """Arithmetic on signed integers, where too far is as far as `bits - 1`."""
    if not dtype.is_signed:
        return _shift_to_zero(w, "lshr", dtype, lanes, a, amount)
    known, held, farthest = literal(amount), llvm_type(dtype, lanes), constant(dtype, lanes, dtype.bits - 1)
    if known is None:
        amount = w.call(held, f"llvm.umin.{suffix(held)}", [(held, amount), (held, farthest)])
    elif not 0 <= known < dtype.bits:
        amount = farthest
    return w.emit(f"ashr {held} {a}, {amount}")


_IRREGULAR: dict[BinaryKind, Callable[[Writer, DType, Lanes, str, str], str]] = {
    BinaryKind.FLOORDIV: floor_divide,
    BinaryKind.MOD: modulo,
    BinaryKind.SHL: lambda w, *operands: _shift_to_zero(w, "shl", *operands),
    BinaryKind.SHR: _shift_right,
}

# -- unary, compare ---------------------------------------------------------------------------------------------------


def unary(w: Writer, kind: UnaryKind, dtype: DType, lanes: Lanes, a: str) -> str:
    """`kind a` for an operand of `dtype`: integers, bool, float32 or float64."""
    held = llvm_type(dtype, lanes)
    if kind is UnaryKind.NOT:
        return w.emit(f"xor {held} {a}, {constant(dtype, lanes, 1 if dtype is dtypes.bool_ else -1)}")
    if dtype.is_float:
        return w.emit(f"fneg {w.flags}{held} {a}")
    return w.emit(f"sub {held} {constant(dtype, lanes, 0)}, {a}")


_ORDERS = {CompareKind.LT: "lt", CompareKind.LE: "le", CompareKind.GT: "gt", CompareKind.GE: "ge"}
_FLOAT_PREDICATES = {CompareKind.EQ: "oeq", CompareKind.NE: "une", **{k: f"o{v}" for k, v in _ORDERS.items()}}
_UNSIGNED_PREDICATES = {CompareKind.EQ: "eq", CompareKind.NE: "ne", **{k: f"u{v}" for k, v in _ORDERS.items()}}
_SIGNED_PREDICATES = {CompareKind.EQ: "eq", CompareKind.NE: "ne", **{k: f"s{v}" for k, v in _ORDERS.items()}}


def compare(w: Writer, kind: CompareKind, type_: DType | Type, lanes: Lanes, a: str, b: str) -> str:
    """`a kind b` as bool: of integers, bool, float32, float64 or pointers."""
    held = w.type(type_, lanes)
    dtype = type_ if isinstance(type_, DType | Pointer) else type_.dtype
    if isinstance(dtype, Pointer) or not (dtype.is_float or dtype.is_signed):
        return w.emit(f"icmp {_UNSIGNED_PREDICATES[kind]} {held} {a}, {b}")
    if dtype.is_float:
        return w.emit(f"fcmp {w.flags}{_FLOAT_PREDICATES[kind]} {held} {a}, {b}")
    return w.emit(f"icmp {_SIGNED_PREDICATES[kind]} {held} {a}, {b}")


_ATOMICS_OF_LLVM = {Native.ATOMIC_EXCHANGE: "xchg", Native.ATOMIC_INC: "uinc_wrap", Native.ATOMIC_DEC: "udec_wrap"}


def atomic_operation(native: Native, dtype: DType) -> str:
    """Return what `atomicrmw` calls an atomic on `dtype`: `add`, `fadd`, `umin`, `xchg`."""
    if native in _ATOMICS_OF_LLVM:
        return _ATOMICS_OF_LLVM[native]
    name = native.value.removeprefix("atomic_")
    if dtype.is_float:
        return f"f{name}"
    return f"u{name}" if name in ("min", "max") and not dtype.is_signed else name


def order_if_failed(order: str) -> str:
    """Return the order of a swap that finds something else, and so only reads, as LLVM spells it."""
    return {"acq_rel": "acquire", "release": "monotonic", "relaxed": "monotonic"}.get(order, order)


# -- casts ------------------------------------------------------------------------------------------------------------


def cast(w: Writer, source: DType, target: DType, lanes: Lanes, a: str) -> str:
    """`a` of `source` as `target`: among bool, integers, float32 and float64, and the pairs of `_NARROW_FLOAT_CASTS`."""
    if source is target:
        return a
    rule = _NARROW_FLOAT_CASTS.get((source, target)) or _CASTS[_cast_kind(source), _cast_kind(target)]
    return rule(w, source, target, lanes, a)


def bitcast(w: Writer, source: Type, target: Type, lanes: Lanes, a: str) -> str:
    """The same bits as another type; a pointer as an integer is its address."""
    old, new = w.type(source, lanes), w.type(target, lanes)
    if old == new:
        return a
    return w.emit(f"{'ptrtoint' if isinstance(source, Pointer) else 'bitcast'} {old} {a} to {new}")


def _cast_kind(dtype: DType) -> str:
    return "int" if dtype.is_integer else dtype.kind


def _convert(w: Writer, opcode: str, source: DType, target: DType, lanes: Lanes, a: str) -> str:
    return w.emit(f"{opcode} {llvm_type(source, lanes)} {a} to {llvm_type(target, lanes)}")


def _integer_to_integer(w: Writer, source: DType, target: DType, lanes: Lanes, a: str) -> str:
    if source.bits == target.bits:
        return a
    if target.bits < source.bits:
        return _convert(w, "trunc", source, target, lanes, a)
    return _convert(w, "sext" if source.is_signed else "zext", source, target, lanes, a)


def _number_to_bool(w: Writer, source: DType, target: DType, lanes: Lanes, a: str) -> str:
    return compare(w, CompareKind.NE, source, lanes, a, constant(source, lanes, 0))


def _integer_to_float(w: Writer, source: DType, target: DType, lanes: Lanes, a: str) -> str:
    return _convert(w, "sitofp" if source.is_signed else "uitofp", source, target, lanes, a)


def _float_to_float(w: Writer, source: DType, target: DType, lanes: Lanes, a: str) -> str:
    return _convert(w, "fptrunc" if target.bits < source.bits else "fpext", source, target, lanes, a)


def _float_to_integer(w: Writer, source: DType, target: DType, lanes: Lanes, a: str) -> str:
    """Saturating, NaN to 0."""
    if lanes is not None:
        return _clamped_to_integer(w, source, target, lanes, a)
    real, integer = llvm_type(source, None), llvm_type(target, None)
    name = "fptosi" if target.is_signed else "fptoui"
    return w.call(integer, f"llvm.{name}.sat.{suffix(integer)}.{suffix(real)}", [(real, a)])


def _clamped_to_integer(w: Writer, source: DType, target: DType, lanes: Lanes, a: str) -> str:
    """The vector form: x86 turns the intrinsic into one conversion per lane."""
    real = llvm_type(source, lanes)
    dropped_bits = max(target.max.bit_length() - source.layout.precision, 0)
    high = float(target.max >> dropped_bits << dropped_bits)  # the largest that `target` holds
    low_limit, high_limit = constant(source, lanes, float(target.min)), constant(source, lanes, high)
    # NaN compares false and so becomes the low limit: the conversion itself never sees it.
    raised = select(w, source, lanes, w.emit(f"fcmp ogt {real} {a}, {low_limit}"), a, low_limit)
    inside = select(w, source, lanes, w.emit(f"fcmp olt {real} {raised}, {high_limit}"), raised, high_limit)
    result = _convert(w, "fptosi" if target.is_signed else "fptoui", source, target, lanes, inside)
    if int(high) != target.max:
        is_above = w.emit(f"fcmp ogt {real} {a}, {high_limit}")
        result = select(w, target, lanes, is_above, constant(target, lanes, target.max), result)
    if target.min == 0:
        return result
    is_nan = w.emit(f"fcmp uno {real} {a}, {a}")
    return select(w, target, lanes, is_nan, constant(target, lanes, 0), result)


def _bfloat_to_float(w: Writer, source: DType, target: DType, lanes: Lanes, a: str) -> str:
    word = llvm_type(dtypes.uint32, lanes)
    wide = _convert(w, "zext", dtypes.uint16, dtypes.uint32, lanes, a)
    high = w.emit(f"shl {word} {wide}, {constant(dtypes.uint32, lanes, 16)}")
    return w.emit(f"bitcast {word} {high} to {llvm_type(target, lanes)}")


def _float_to_bfloat(w: Writer, source: DType, target: DType, lanes: Lanes, a: str) -> str:
    """To nearest even: add half a unit less the bit that decides ties; the carry also makes infinity from overflow."""
    word, half = llvm_type(dtypes.uint32, lanes), llvm_type(dtypes.uint16, lanes)
    if w.abilities.has_bfloat_rounding:
        bfloat = vector_of("bfloat", lanes)
        rounded = w.emit(f"fptrunc {llvm_type(source, lanes)} {a} to {bfloat}")
        return w.emit(f"bitcast {bfloat} {rounded} to {half}")
    sixteen, one = constant(dtypes.uint32, lanes, 16), constant(dtypes.uint32, lanes, 1)
    bits = w.emit(f"bitcast {llvm_type(source, lanes)} {a} to {word}")
    odd = w.emit(f"and {word} {w.emit(f'lshr {word} {bits}, {sixteen}')}, {one}")
    bias = w.emit(f"add {word} {odd}, {constant(dtypes.uint32, lanes, 0x7FFF)}")
    rounded = w.emit(f"lshr {word} {w.emit(f'add {word} {bits}, {bias}')}, {sixteen}")
    narrow = w.emit(f"trunc {word} {rounded} to {half}")
    is_nan = w.emit(f"fcmp uno {llvm_type(source, lanes)} {a}, {a}")
    return select(w, target, lanes, is_nan, constant(dtypes.uint16, lanes, _BFLOAT_NAN), narrow)


_BFLOAT_NAN = 0x7FC0

CastRule = Callable[[Writer, DType, DType, Lanes, str], str]

_CASTS: dict[tuple[str, str], CastRule] = {
    ("bool", "int"): _integer_to_integer,
    ("bool", "float"): _integer_to_float,
    ("int", "bool"): _number_to_bool,
    ("int", "int"): _integer_to_integer,
    ("int", "float"): _integer_to_float,
    ("float", "bool"): _number_to_bool,
    ("float", "int"): _float_to_integer,
    ("float", "float"): _float_to_float,
}

_NARROW_FLOAT_CASTS: dict[tuple[DType, DType], CastRule] = {
    (dtypes.float16, dtypes.float32): _float_to_float,
    (dtypes.float16, dtypes.float64): _float_to_float,
    (dtypes.float32, dtypes.float16): _float_to_float,
    (dtypes.bfloat16, dtypes.float32): _bfloat_to_float,
    (dtypes.float32, dtypes.bfloat16): _float_to_bfloat,
}

__all__ = ["binary", "bitcast", "cast", "compare", "constant", "literal", "select", "unary"]
