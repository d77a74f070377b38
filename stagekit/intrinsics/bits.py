"""Counting and moving bits of integers of 8 to 64 bits. Every result has the dtype of the argument and is exact.

    popcount(0b1011)  ->  3        clz(int32(1))  ->  31        ffs(int32(8))  ->  4

At 0: `clz` and `ctz` give the width, `ffs` gives 0. Signed integers are read as their two's complement bits.
Sources: PTX ISA sections popc, clz, brev, prmt, shf; LLVM Language Reference, bit manipulation intrinsics.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stagekit.dtypes import INTEGER_DTYPES, uint32, uint64
from stagekit.intrinsics.families import everywhere
from stagekit.intrinsics.registry import define, each_dtype, sig
from stagekit.intrinsics.terms import Term, asm, expand
from stagekit.ir.intrinsic import Expand, Intrinsic, Llvm
from stagekit.ir.semantics import Array

# -- meaning ----------------------------------------------------------------------------------------------------------


def _on_unsigned(meaning: Callable[..., Array]) -> Callable[..., Array]:
    """Return `meaning` called with unsigned arrays of the same width; its result gets the dtype of the first argument."""

    def evaluate(*args: Array) -> Array:
        with np.errstate(all="ignore"):
            result = meaning(*(np.asarray(a).view(f"u{a.dtype.itemsize}") for a in args))
        return result.astype(args[0].dtype)

    return evaluate


def _width(x: Array) -> int:
    return x.dtype.itemsize * 8


def _count_leading_zeros(x: Array) -> Array:
    for step in (1, 2, 4, 8, 16, 32):
        if step < _width(x):
            x = x | (x >> x.dtype.type(step))
    return np.asarray(np.bitwise_count(~x))


def _count_trailing_zeros(x: Array) -> Array:
    return np.asarray(np.bitwise_count(~x & (x - x.dtype.type(1))))


def _reverse_bits(x: Array) -> Array:
    one, last = x.dtype.type(1), _width(x) - 1
    return np.asarray(sum(((x >> x.dtype.type(i)) & one) << x.dtype.type(last - i) for i in range(_width(x))))


def _funnel_left(high: Array, low: Array, amount: Array) -> Array:
    left = amount % _width(high)
    right = (_width(high) - left) % _width(high)
    return np.where(left == 0, high, (high << left) | (low >> right))


def _funnel_right(high: Array, low: Array, amount: Array) -> Array:
    """Shift to the left by the width minus the amount; by 0, the result is the other half."""
    return np.where(amount % _width(high) == 0, low, _funnel_left(high, low, _width(high) - amount % _width(high)))


def _permute_bytes(low: Array, high: Array, selector: Array) -> Array:
    both = low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))
    result = np.zeros_like(both)
    for place in (0, 4, 8, 12):
        source_bits = ((selector.astype(np.uint64) >> np.uint64(place)) & np.uint64(7)) * np.uint64(8)
        result = result | ((both >> source_bits) & np.uint64(0xFF)) << np.uint64(2 * place)
    return result


# -- expansions -------------------------------------------------------------------------------------------------------


def _byte_perm(low: Term, high: Term, selector: Term) -> Term:
    both, digits = low.cast(uint64) | high.cast(uint64) << 32, selector.cast(uint64)
    result = both.like(0)
    for place in (0, 4, 8, 12):
        byte = both >> (digits >> place & 7) * 8 & 0xFF
        result = result | byte << 2 * place
    return result.cast(uint32)


def _byte_perm_cuda(low: Term, high: Term, selector: Term) -> Term:
    """`prmt` reads the fourth bit of each selector digit as "repeat the sign", which this function masks out."""
    return asm("prmt.b32 $0, $1, $2, $3;", "=r,r,r,r", low, high, selector & 0x7777, host=_byte_perm)


# -- records ----------------------------------------------------------------------------------------------------------


def _define_bits(
    name: str,
    lower: Expand | Llvm,
    meaning: Callable[..., Array],
    doc: str,
    source: str,
    args: tuple[str, ...] = ("x",),
) -> Intrinsic:
    return define(
        name=name,
        args=args,
        sigs=each_dtype(INTEGER_DTYPES, len(args)),
        lower=everywhere(lower),
        evaluate=_on_unsigned(meaning),
        doc=doc,
        source=source,
    )


popcount = _define_bits(
    "popcount",
    Llvm("llvm.ctpop.{T}"),
    lambda x: np.asarray(np.bitwise_count(x)),
    "The number of bits of `x` that are 1.",
    "PTX ISA, popc",
)
clz = _define_bits(
    "clz",
    Llvm("llvm.ctlz.{T}", immediates=(("i1", "false"),)),  # the result at 0 is the width, not poison
    _count_leading_zeros,
    "Zeros above the highest 1 of `x`; the width (8 to 64) when `x` is 0.",
    "PTX ISA, clz",
)
ctz = _define_bits(
    "ctz",
    expand(lambda x: (~x & (x - 1)).call("popcount")),  # for PTX, LLVM's own form branches on 0
    _count_trailing_zeros,
    "Zeros below the lowest 1 of `x`; the width (8 to 64) when `x` is 0.",
    "LLVM Language Reference, llvm.cttz",
)
ffs = _define_bits(
    "ffs",
    expand(lambda x: x.like(0).select_if(x.equals(0), x.call("ctz") + 1)),
    lambda x: np.where(x == 0, 0, _count_trailing_zeros(x) + 1),
    "The place of the lowest 1 of `x`, counted from 1; 0 when `x` is 0.",
    "POSIX.1-2024, ffs",
)
bit_reverse = _define_bits(
    "bit_reverse",
    Llvm("llvm.bitreverse.{T}"),
    _reverse_bits,
    "`x` with its bits in the opposite order.",
    "PTX ISA, brev",
)


def _define_funnel(name: str, lower: Llvm, meaning: Callable[..., Array], half: str, source: str) -> Intrinsic:
    doc = f"`high` and `low` side by side, shifted by `amount` modulo the width; {half} half. Same value twice: a rotation."
    return _define_bits(name, lower, meaning, doc, source, ("high", "low", "amount"))


funnel_shift_left = _define_funnel(
    "funnel_shift_left", Llvm("llvm.fshl.{T}"), _funnel_left, "to the left, the upper", "PTX ISA, shf.l.wrap"
)
funnel_shift_right = _define_funnel(
    "funnel_shift_right", Llvm("llvm.fshr.{T}"), _funnel_right, "to the right, the lower", "PTX ISA, shf.r.wrap"
)
byte_perm = define(
    name="byte_perm",
    args=("low", "high", "selector"),
    sigs=(sig([uint32] * 3, uint32),),
    lower={"cuda": expand(_byte_perm_cuda), "cpu": expand(_byte_perm)},
    evaluate=_on_unsigned(_permute_bytes),
    doc="Four of the eight bytes of `low` (bytes 0 to 3) and `high` (4 to 7): byte `i` of the result is the one that hex digit "
    "`i` of `selector` names, counted from the right, modulo 8.",
    source="PTX ISA, prmt",
)
