"""Division and square root of float32, correctly rounded, without what `div.rn`, `rcp.rn` and `sqrt.rn` need.

    y = 1/b, rounded      q = a * y;  q = q + (a - b * q) * y                  a / b
    r = ~1/sqrt(x)        s = x * r;  s = s + (x - s * s) * r / 2              sqrt(x)

The remainders are exact, by `fma`, as long as nothing leaves the normal numbers. The result tells: where something has, it is
small, zero or NaN, and a branch, one for all lanes of a vector, takes another way: a / b in float64, which rounds to float32 as
the quotient does, since a quotient of float32 that is not exact is never so near to where rounding turns; sqrt(x) of a scaled x.
ptxas makes much the same of a `div.rn`, but a driver links its other way from a library, for some 7 ms, into every kernel that
has one. Many divisions share that price, and are quicker to load in the usual form.

Sources: Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", 1990, theorems 2 to 4, for
the corrections; the first quotient is within a unit wherever a / b is next to the middle of two floats, by trial of all such a
and b; Figueroa, "When is double rounding innocuous?", 1995; PTX ISA, rcp and rsqrt, for zeros and infinities.
"""

from __future__ import annotations

import functools
import math
import struct

import numpy as np

from stagekit.backends.llvm.types import Lanes, lanes_of, vector_of
from stagekit.backends.llvm.writer import Writer, escape
from stagekit.dtypes import float32
from stagekit.ir import BinaryKind, Fastmath, Function, Op, allows, ops, walk


def _text(number: float, letter: str = "f") -> str:
    """Return a constant of PTX."""
    return f"0{letter}{struct.pack('>' + letter, number).hex().upper()}"


_MOST = 32  # with more of them in a kernel, one library is less to load than all their other ways
_LEAST_DIVIDEND = 2.0**-100  # whose remainders are normal numbers, or zero
_INVERTIBLE = (2.0**-126, 2.0**126)  # known divisors, whose reciprocals are normal numbers
_LEAST_QUOTIENT, _LEAST_RECIPROCAL, _LEAST_ROOT = 2.0**-125, 2.0**-126, 2.0**-50

# Of each lane: `q` is the register of the result, `a`, `b` and `x` are those of the operands.
_INVERSE = f"""
rcp.approx.ftz.f32 y, {{b}};
neg.f32 m, {{b}};
fma.rn.f32 r, m, y, {_text(1.0)};
fma.rn.f32 y, r, y, y;"""
_QUOTIENT = """
mul.rn.f32 {q}, {a}, y;
fma.rn.f32 r, m, {q}, {a};
fma.rn.f32 {q}, r, y, {q};"""
# There is nothing to correct where the first quotient is exact, infinite or NaN.
_IN_FLOAT64 = f"""
cvt.f64.f32 A, {{a}};
cvt.f64.f32 B, {{b}};
rcp.approx.ftz.f64 Y, B;
neg.f64 B, B;
mul.rn.f64 Q, A, Y;
fma.rn.f64 R, B, Q, A;
fma.rn.f64 B, B, Y, {_text(1.0, "d")};
fma.rn.f64 Y, B, Y, Y;
fma.rn.f64 Y, R, Y, Q;
setp.gt.f64 p, R, {_text(0.0, "d")};
setp.lt.or.f64 p, R, {_text(0.0, "d")}, p;
@p mov.f64 Q, Y;
cvt.rn.f32.f64 {{q}}, Q;"""
_INVERSE_IN_FLOAT64 = f"""
cvt.f64.f32 B, {{b}};
rcp.approx.ftz.f64 Y, B;
neg.f64 B, B;
fma.rn.f64 R, B, Y, {_text(1.0, "d")};
setp.num.f64 p, R, R;
@p fma.rn.f64 Y, R, Y, Y;
fma.rn.f64 R, B, Y, {_text(1.0, "d")};
@p fma.rn.f64 Y, R, Y, Y;
cvt.rn.f32.f64 {{q}}, Y;"""
# |y|: of a negative subnormal, which counts as -0, the root would be infinite.
_ROOT = f"""
rsqrt.approx.ftz.f32 y, {{x}};
mul.rn.f32 {{q}}, {{x}}, y;
neg.f32 m, {{q}};
fma.rn.f32 r, m, {{q}}, {{x}};
abs.f32 y, y;
mul.rn.f32 y, y, {_text(0.5)};
fma.rn.f32 {{q}}, r, y, {{q}};"""
# A number below 1 is scaled. The root of a zero or an infinity is that itself.
_SCALED_ROOT = f"""
setp.lt.f32 p, {{x}}, {_text(1.0)};
selp.f32 s, {_text(2.0**96)}, {_text(1.0)}, p;
mul.rn.f32 s, {{x}}, s;{_ROOT.format(x="s", q="{q}")}
selp.f32 s, {_text(2.0**-48)}, {_text(1.0)}, p;
mul.rn.f32 {{q}}, {{q}}, s;
setp.eq.f32 p, {{x}}, {_text(0.0)};
setp.eq.or.f32 p, {{x}}, {_text(math.inf)}, p;
@p mov.f32 {{q}}, {{x}};"""


def are_few(fn: Function) -> bool:
    """Return whether a kernel has so few quotients and roots that it does without the library."""
    fastmath = fn.attribute("fastmath", False)
    found = [op.result.type for op in walk(fn.body) if is_division(op, fastmath)]
    return sum(lanes_of(type_) or 1 for type_ in found) <= _MOST


def is_division(op: Op, fastmath: Fastmath) -> bool:
    """Return whether an op is a quotient or a root of float32 that is to be correctly rounded."""
    if isinstance(op, ops.Binary):
        return op.kind is BinaryKind.DIV and op.result.type.dtype is float32 and not allows(fastmath, "division")
    is_root = isinstance(op, ops.IntrinsicOp) and op.spec.relaxed_by == "root"
    return is_root and op.result.type.dtype is float32 and not allows(fastmath, "root")


def divide(w: Writer, lanes: Lanes, a: str, b: str, shared: str | None = None) -> str:
    """Return `a / b`. shared: the scalar that all lanes of `b` have."""
    known = _number(b)
    if known is not None and abs(math.frexp(known)[0]) == 0.5:  # LLVM multiplies
        return w.emit(f"fdiv {vector_of('float', lanes)} {a}, {b}")
    if known is not None and not _INVERTIBLE[0] <= abs(known) <= _INVERTIBLE[1]:
        known = None
    if _number(a) == 1.0:
        return _call(w, lanes, _inverting(lanes or 1), _each(w, lanes, b))
    divisors = _each(w, lanes, b) if shared is None else [shared]
    return _call(w, lanes, _dividing(lanes or 1, len(divisors), known), [*_each(w, lanes, a), *divisors])


def root(w: Writer, lanes: Lanes, x: str) -> str:
    """Return the square root of `x`."""
    return _call(w, lanes, _rooting(lanes or 1), _each(w, lanes, x))


@functools.cache
def _dividing(count: int, divisors: int, known: float | None) -> str:
    usual, other = "", ""
    inverse = None if known is None else _text(float(np.float32(1) / np.float32(known)))
    for lane in range(count):
        names = {"q": f"${lane}", "a": f"${count + lane}", "b": f"${2 * count + lane % divisors}"}
        if lane < divisors:
            usual += (_INVERSE if inverse is None else f"\nmov.f32 y, {inverse};\nneg.f32 m, {{b}};").format(**names)
        usual += _QUOTIENT.format(**names)
        usual += _is_usual(names["a"], _LEAST_DIVIDEND) + _is_usual(names["q"], _LEAST_QUOTIENT)
        other += _IN_FLOAT64.format(**names)
    return _block(usual, other)


@functools.cache
def _inverting(count: int) -> str:
    usual, other = "", ""
    for lane in range(count):
        names = {"q": f"${lane}", "b": f"${count + lane}"}
        usual += _INVERSE.format(**names) + f"\nmov.f32 ${lane}, y;" + _is_usual("y", _LEAST_RECIPROCAL)
        other += _INVERSE_IN_FLOAT64.format(**names)
    return _block(usual, other)


@functools.cache
def _rooting(count: int) -> str:
    usual, other = "", ""
    for lane in range(count):
        names = {"q": f"${lane}", "x": f"${count + lane}"}
        usual += _ROOT.format(**names) + _is_usual(names["q"], _LEAST_ROOT)
        other += _SCALED_ROOT.format(**names)
    return _block(usual, other)


def _is_usual(x: str, least: float) -> str:
    """Return what clears `u` where |x| is less than `least`, or NaN."""
    return f"\nabs.f32 r, {x};\nsetp.ge.and.f32 u, r, {_text(least)}, u;"


def _block(usual: str, other: str) -> str:
    registers = "\n.reg .f32 y, m, r, s;\n.reg .f64 A, B, Y, Q, R;\n.reg .pred p, u;\nsetp.eq.u32 u, 0, 0;"
    return escape(f"{{{registers}{usual}\n@u bra usual;{other}\nusual:\n}}".replace("\n", "\n\t"))


def _call(w: Writer, lanes: Lanes, text: str, operands: list[str]) -> str:
    """Write the instructions, which give one float, or one for each lane."""
    count = lanes or 1
    constraints = ",".join(["=&f"] * count + ["f"] * len(operands))
    given = ", ".join([f"float {operand}" for operand in operands])
    held = "float" if lanes is None else f"{{ {', '.join(['float'] * count)} }}"
    found = w.emit(f'call {held} asm "{text}", "{constraints}"({given}) nounwind memory(none)')
    if lanes is None:
        return found
    packed = "poison"
    for lane in range(count):
        one = w.emit(f"extractvalue {held} {found}, {lane}")
        packed = w.emit(f"insertelement <{count} x float> {packed}, float {one}, i64 {lane}")
    return packed


def _each(w: Writer, lanes: Lanes, x: str) -> list[str]:
    if lanes is None:
        return [x]
    return [w.emit(f"extractelement <{lanes} x float> {x}, i64 {lane}") for lane in range(lanes)]


def _number(operand: str) -> float | None:
    """Return the number that a constant operand has in every lane."""
    if operand[0] == "%":
        return None
    bits = operand.rstrip(")").rpartition("0x")[2]
    return float(struct.unpack(">d", bytes.fromhex(bits))[0])
