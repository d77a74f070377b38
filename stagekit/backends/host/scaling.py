"""Powers of two that formulas multiply by in two steps: processors with AVX-512 scale by an instruction.

    half = n >> 1
    (y + 1.0) * 2**half * 2**(n - half)    ->    ldexp(y + 1.0, n)

`exp` and `exp2` end like this. The bits are the same: a sum with 1 is 0, or so far from the least normal number that the first
product is exact, or the last one 0 in both. Four instructions less for each register, of the shifts that make powers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stagekit.dtypes import float32, float64, int32
from stagekit.ir import BinaryKind, Builder, Function, Intrinsic, Llvm, Op, Scalar, Sig, Value, ops, walk
from stagekit.ir.rewriter import rewrite
from stagekit.passes import PassContext
from stagekit.passes.dce import dce

_FLOATS = (Scalar(float32), Scalar(float64))
LDEXP = Intrinsic(
    name="ldexp",
    args=("x", "n"),
    sigs=tuple([Sig((each, Scalar(int32)), (each,)) for each in _FLOATS]),
    lower={"cpu": Llvm("llvm.ldexp.{T}.{last}")},
    doc="`x` times 2 to the power of `n`.",
    source="LLVM Language Reference, llvm.ldexp",
    public_in=(),
)

Makers = Mapping[Value, Op]


def with_scaling(fn: Function) -> Function:
    """Replace those products, and drop what made their powers where nothing else reads it."""
    makers = {op.results[0]: op for op in walk(fn.body) if type(op) in _MATCHED}

    def scaled(op: ops.Binary, b: Builder) -> Sequence[Value] | None:
        found = _found(op, makers) if op.kind is BinaryKind.MUL and op.result.type in _FLOATS else None
        return None if found is None else b.call(LDEXP, found)

    rewritten = rewrite(fn, {ops.Binary: scaled})
    return fn if rewritten is fn else dce(rewritten, _ANY)


_ANY = PassContext("cpu", 0, fastmath=False, debug=False)  # nothing dies or lives by it
_MATCHED = {ops.Binary, ops.Bitcast, ops.Cast, ops.Constant}


def _found(op: ops.Binary, makers: Makers) -> tuple[Value, Value] | None:
    """Return what is scaled, and the number of the power."""
    inner = _binary(op.lhs, BinaryKind.MUL, makers)
    rest = _exponent(op.rhs, makers)
    left = None if rest is None else _binary(rest, BinaryKind.SUB, makers)
    if inner is None or left is None or _exponent(inner.rhs, makers) != left.rhs:
        return None
    half, total = _binary(left.rhs, BinaryKind.SHR, makers), _binary(inner.lhs, BinaryKind.ADD, makers)
    if half is None or half.lhs != left.lhs or _number(half.rhs, makers) != 1:
        return None
    return (inner.lhs, left.lhs) if total is not None and _number(total.rhs, makers) == 1.0 else None


def _exponent(power: Value, makers: Makers) -> Value | None:
    """Return n of a value that is `power_of_two(n)` of the formulas."""
    bits = makers.get(power)
    shifted = _binary(bits.operand, BinaryKind.SHL, makers) if isinstance(bits, ops.Bitcast) else None
    raw = None if shifted is None else makers.get(shifted.lhs)
    biased = _binary(raw.operand, BinaryKind.ADD, makers) if isinstance(raw, ops.Cast) else None
    layout = power.type.dtype.layout
    if shifted is None or biased is None or _number(shifted.rhs, makers) != layout.fraction_bits:
        return None
    return biased.lhs if biased.lhs.type == Scalar(int32) and _number(biased.rhs, makers) == layout.bias else None


def _binary(value: Value, kind: BinaryKind, makers: Makers) -> ops.Binary | None:
    op = makers.get(value)
    return op if isinstance(op, ops.Binary) and op.kind is kind else None


def _number(value: Value, makers: Makers) -> float | None:
    op = makers.get(value)
    return op.value if isinstance(op, ops.Constant) else None
