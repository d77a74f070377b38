"""Replace arithmetic that no target has: what is left computes on integers, bool, float32 and float64 only.

    %r = add %a, %b : f16        ->  %x = cast %a : f32;  %y = cast %b : f32;  %s = add %x, %y;  %r = cast %s : f16
    %r = floordiv %a, %b : f32   ->  NumPy's algorithm over an exact remainder
    %r = cast %a : f64 to f16    ->  round to odd in f32, then cast

Casts left: among bool, integers, f32 and f64; f16 from and to f32, f16 to f64; bf16 from and to f32. For all others both
targets run the same integer code, so that results are the same bits and no compiler runtime library is called.
On cuda, vectors of f16, and from compute capability 9.0 on of bf16, keep +, - and *: instructions do them that round once, as
the way through f32 does. Vectors of f8 become f16 by an instruction from then on, and f32 becomes f8.

Relies on: intrinsics already expanded (they make such arithmetic). Keeps: meaning, bit for bit. Linear in the number of ops.
Sources: `ir/semantics.py` for the meaning; for rounding twice safely, Boldo and Melquiond, "Emulation of FMA and correctly
rounded sums", 2008; Open Compute Project, "8-bit floating point specification", 2023, for the two float8.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from stagekit import dtypes
from stagekit.dtypes import (
    ALL_DTYPES,
    DType,
    FloatFormat,
    bfloat16,
    float16,
    float32,
    float64,
    int32,
    uint8,
    uint16,
    uint32,
)
from stagekit.intrinsics import expansions
from stagekit.intrinsics.terms import Term
from stagekit.ir import BinaryKind, Builder, Function, Op, Pointer, Scalar, Type, UnaryKind, Value, Vector, walk
from stagekit.ir.ops import Binary, Cast, Compare, Unary
from stagekit.ir.rewriter import Rule, rewrite
from stagekit.passes import PassContext

Replacement = Sequence[Value] | None

_NARROW = (float16, bfloat16)
_UNPACKED = (dtypes.float8_e4m3fn, dtypes.float8_e5m2)
_FLOAT8 = tuple(dtype for dtype in ALL_DTYPES if dtype.is_float and dtype.bits == 8)
_LEGAL_NARROW_CASTS = {
    (float16, float32),
    (float16, float64),
    (float32, float16),
    (bfloat16, float32),
    (float32, bfloat16),
}


def legalize(fn: Function, context: PassContext) -> Function:
    """Replace ops that the emitter does not know by ops that it knows."""
    binary, cast = (functools.partial(rule, capability=context.capability) for rule in (_binary, _cast))
    rules: dict[type[Op], Rule] = {Binary: binary, Unary: _unary, Compare: _compare, Cast: cast}
    return rewrite(fn, rules) if any(type(op) in rules and illegal(op, context) for op in walk(fn.body)) else fn


def is_legal_cast(source: DType, target: DType) -> bool:
    """Return whether the emitter converts `source` to `target` in one step."""
    return (_is_plain(source) and _is_plain(target)) or (source, target) in _LEGAL_NARROW_CASTS


def illegal(op: Any, context: PassContext) -> str | None:
    """Return why `legalize` would not leave `op` as it is, or None."""
    what, operand = (op.result.type, op.operand) if isinstance(op, Cast) else (op.kind, op.operands()[0])
    return _objection(context.capability, op.mnemonic, what, operand.type)


@functools.cache
def _objection(capability: int, mnemonic: str, what: Any, operand: Type) -> str | None:
    """Return what `illegal` does. what: the kind of an op, or the type that a cast gives."""
    if isinstance(operand, Pointer) or _is_packed(what, operand, capability):
        return None
    dtype = operand.dtype
    if mnemonic == Cast.mnemonic:
        is_unpacked = unpacks_float8(operand, capability) and what.dtype is float16
        return (
            None if is_unpacked or is_legal_cast(dtype, what.dtype) else f"cast of {dtype.short} to {what.dtype.short}"
        )
    is_formula = what in _FLOAT_BINARY and dtype.is_float
    return f"{mnemonic} of {dtype.short}" if is_formula or not _is_plain(dtype) else None


def _is_plain(dtype: DType) -> bool:
    return dtype not in _NARROW and dtype not in _FLOAT8


# -- arithmetic -------------------------------------------------------------------------------------------------------

_FLOAT_BINARY: dict[BinaryKind, Callable[[Term, Term], Term]] = {
    BinaryKind.FLOORDIV: expansions.floor_divide,
    BinaryKind.MOD: expansions.floor_modulo,
}


_PACKED = (BinaryKind.ADD, BinaryKind.SUB, BinaryKind.MUL)


_PACKED_SINCE = {float16: 75, bfloat16: 90}


def _is_packed(kind: Any, operand: Type, capability: int) -> bool:
    """Return whether cuda has an instruction for two lanes of `kind` at once. Source: PTX ISA, add, sub, mul."""
    since = _PACKED_SINCE.get(operand.dtype) if isinstance(operand, Vector) and kind in _PACKED else None
    return since is not None and capability >= since


def unpacks_float8(operand: Type, capability: int) -> bool:
    """Return whether cuda converts two lanes of `operand` to float16 by one instruction. Source: PTX ISA, cvt."""
    return capability >= 90 and isinstance(operand, Vector) and operand.dtype in _UNPACKED


def packs_float8(target: Type, capability: int) -> bool:
    """Return whether cuda converts float32 to `target` by an instruction. Source: PTX ISA, cvt."""
    return capability >= 90 and isinstance(target, Scalar) and target.dtype in _UNPACKED


def _binary(op: Binary, b: Builder, *, capability: int) -> Replacement:
    dtype = op.lhs.type.dtype
    if not dtype.is_float or _is_packed(op.kind, op.lhs.type, capability):
        return None
    formula = _FLOAT_BINARY.get(op.kind)
    if formula is None and _is_plain(dtype):
        return None
    x, y = _to_plain(Term(b, op.lhs)), _to_plain(Term(b, op.rhs))
    result = formula(x, y) if formula else Term(b, b.binary(op.kind, x.value, y.value))
    return (_from_plain(result, dtype).value,)


def _unary(op: Unary, b: Builder) -> Replacement:
    """Negate a 16-bit float by its sign bit."""
    x = Term(b, op.operand)
    if op.kind is not UnaryKind.NEG or x.dtype not in _NARROW:
        return None
    return ((x.bits ^ 0x8000).bitcast(x.dtype).value,)


def _compare(op: Compare, b: Builder) -> Replacement:
    if isinstance(op.lhs.type, Pointer) or _is_plain(op.lhs.type.dtype):
        return None
    x, y = _to_plain(Term(b, op.lhs)), _to_plain(Term(b, op.rhs))
    return (b.compare(op.kind, x.value, y.value),)


# -- casts ------------------------------------------------------------------------------------------------------------


def _cast(op: Cast, b: Builder, *, capability: int) -> Replacement:
    source, target = op.operand.type.dtype, op.result.type.dtype
    if is_legal_cast(source, target):
        return None
    if unpacks_float8(op.operand.type, capability):
        half = Term(b, op.operand).cast(float16)  # which holds all of its numbers
        return None if target is float16 else (_from_plain(half.cast(float32), target).value,)
    plain = _to_plain(Term(b, op.operand))
    if packs_float8(op.result.type, capability):
        return (_by_instruction(_to_odd_float32(plain), target),)
    return (_from_plain(plain, target).value,)


def _by_instruction(x: Term, target: DType) -> Value:
    """Convert a float32 to float8. Source: PTX ISA, cvt.rn.satfinite.e4m3x2.f32, which converts two.

    The instruction gives the largest number for what is too large, where the meaning is `overflow`.
    """
    text = f"cvt.rn.satfinite.{_PAIRS[target]}.f32 $0, $1, $1;"
    (pair,) = x.builder.asm(text, "=h,f", (x.value,), (Scalar(uint16),), has_side_effects=False, host=None)
    sign, is_beyond = (x.bits >> 24 & 0x80).cast(uint8), expansions.absolute(x) > _LARGEST[target]
    code = (sign | target.layout.overflow).select_if(is_beyond, Term(x.builder, pair).cast(uint8))
    return code.bitcast(target).value


_PAIRS = {dtypes.float8_e4m3fn: "e4m3x2", dtypes.float8_e5m2: "e5m2x2"}
_LARGEST = {  # what still rounds to the largest number: half a step beyond it, unless that goes to an even neighbour
    dtypes.float8_e4m3fn: 464.0,
    dtypes.float8_e5m2: 61439.99609375,
}


def _to_plain(x: Term) -> Term:
    """Return a float of 16 or 8 bits as float32, exactly; anything else as it is."""
    if x.dtype in _NARROW:
        return x.cast(float32)
    return _from_bits(x) if x.dtype in _FLOAT8 else x


def _from_plain(x: Term, target: DType) -> Term:
    """Return a plain value as any dtype, rounded once."""
    if _is_plain(target):
        return x.cast(target)
    if target is float16 and not x.dtype.is_float and x.dtype.bits >= 32:
        return _clamped(x).cast(int32).cast(float32).cast(float16)
    single = _to_odd_float32(x)
    return single.cast(target) if target in _NARROW else _to_bits(single, target)


def _clamped(x: Term) -> Term:
    """Limit a wide integer to 17 bits, which float32 holds exactly: to 65535, which float16 rounds to infinity.

    Besides, LLVM 22.1 takes an integer with few significant bits for exact in float16 even where it is out of range, as 2**31.
    """
    x = x.select_if(x <= _BEYOND_FLOAT16, _BEYOND_FLOAT16)
    return x.select_if(x >= -_BEYOND_FLOAT16, -_BEYOND_FLOAT16) if x.dtype.is_signed else x


_BEYOND_FLOAT16 = 65535


def _to_odd_float32(x: Term) -> Term:
    """Return a plain value as float32: exact where it fits, else with a sticky last bit, so that the next rounding is right."""
    if x.dtype is float32:
        return x
    if x.dtype is float64:
        return _odd_from_float64(x)
    if x.dtype.bits == 64:
        return _odd_from_float64(_with_sticky_bit(x, width=53).cast(float64))
    if x.dtype.bits == 32:
        return _with_sticky_bit(x, width=24).cast(float32)
    return x.cast(float32)


def _odd_from_float64(x: Term) -> Term:
    """Round towards zero, then set the last bit where that was not exact."""
    near = x.cast(float32)
    back = near.cast(float64)
    is_beyond = expansions.absolute(back) > expansions.absolute(x)
    is_inexact = back.differs(x) & ~expansions.is_nan(x)
    toward_zero = near.bits - is_beyond.cast(uint32)
    return (toward_zero | is_inexact.cast(uint32)).bitcast(float32)


def _with_sticky_bit(x: Term, width: int) -> Term:
    """Return a wide integer in its `width` highest bits: the lower ones become one bit that says whether any was set.

    Small numbers fit as they are. In large ones the lower bits lie below every place where a narrow float rounds.
    """
    dropped = x.dtype.bits - width + 1
    low_mask = (1 << dropped) - 1
    low = x & low_mask
    sticky = low.like(1 << (dropped - 1)).select_if(low.differs(0), 0)
    return ((x & ~low_mask) | sticky).select_if(_is_large(x, width), x)


def _is_large(x: Term, bits: int) -> Term:
    """Return whether the magnitude is at least 2**bits."""
    above = x >= 1 << bits
    return above | (x <= -(1 << bits)) if x.dtype.is_signed else above


# -- narrow floats by their bits ---------------------------------------------------------------------------------------


def soften_halves(fn: Function) -> Function:
    """Replace casts of float16, from and to other floats, for a processor that has no instructions for them."""

    def soften(op: Cast, b: Builder) -> Replacement:
        source, target = op.operand.type.dtype, op.result.type.dtype
        if source is float16 and (source, target) in _LEGAL_NARROW_CASTS:
            return (_from_bits(Term(b, op.operand)).cast(target).value,)
        return (_to_bits(Term(b, op.operand), target).value,) if target is float16 else None

    return rewrite(fn, {Cast: soften})


def _to_bits(x: Term, target: DType) -> Term:
    """Round float32 to a narrow float, to nearest even: as an integer, whose carry goes into the exponent."""
    layout, dropped = target.layout, 32 - target.bits
    magnitude = x.bits & 0x7FFFFFFF
    shift = 23 - layout.fraction_bits
    rebased = magnitude - ((127 - layout.bias) << 23)
    normal = (rebased + ((1 << (shift - 1)) - 1) + (rebased >> shift & 1)) >> shift
    smallest_normal = (128 - layout.bias) << 23
    code = normal.select_if(magnitude >= smallest_normal, _subnormal_code(magnitude, layout))
    code = code.select_if(code < layout.overflow, layout.overflow)
    code = code.like(layout.nan).select_if(magnitude > 0x7F800000, code)
    return (x.bits >> dropped & 0x80000000 >> dropped | code).cast(target.unsigned).bitcast(target)


def _subnormal_code(magnitude: Term, layout: FloatFormat) -> Term:
    """Add a power of two whose last place is the smallest narrow number: the sum rounds there, and its low bits are the code."""
    small = magnitude.bitcast(float32)
    anchor = small.like(2.0 ** (24 - layout.bias - layout.fraction_bits))
    return (small + anchor).bits - anchor.bits


def _from_bits(x: Term) -> Term:
    """Return a narrow float as float32, exactly. A float8 with the exponent of float16 is the upper half of a float16."""
    layout, dropped = x.dtype.layout, 32 - x.dtype.bits
    if x.dtype.bits == 8 and layout.bias == float16.layout.bias:
        return (x.bits.cast(uint16) << 8).bitcast(float16).cast(float32)
    code, shift = x.bits.cast(uint32), 23 - layout.fraction_bits
    magnitude = code & (1 << x.dtype.bits - 1) - 1
    normal = ((magnitude << shift) + ((127 - layout.bias) << 23)).bitcast(float32)
    subnormal = magnitude.cast(float32) * 2.0 ** (1 - layout.bias - layout.fraction_bits)
    value = normal.select_if(magnitude >= 1 << layout.fraction_bits, subnormal)
    if layout.has_infinity:  # infinity and every NaN have the highest exponent, which float32's takes the place of
        special = ((magnitude << shift) | 0x7F800000).bitcast(float32)
        value = value.select_if(magnitude < layout.infinity, special)
    else:
        value = value.select_if(magnitude.differs(layout.nan), float("nan"))
    return expansions.copy_sign(value, (code << dropped).bitcast(float32))
