"""Products of small integers packed into 32-bit words, added up: the dot product of four bytes, or of two halves and two bytes.

    dp4a(0x01020304, 0x01010101, 5)  ->  15          a byte is signed where its word is an int32

The sum wraps. It is an int32, or a uint32 where both words are unsigned.

Source: PTX ISA, dp4a, dp2a.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from stagekit.dtypes import DType, int8, int16, int32, uint8, uint16, uint32
from stagekit.intrinsics.registry import define, sig
from stagekit.intrinsics.terms import Term, expand
from stagekit.ir.intrinsic import Intrinsic
from stagekit.ir.semantics import Array

_PARTS = {(8, True): int8, (8, False): uint8, (16, True): int16, (16, False): uint16}


def _part(word: Term, bits: int, place: int) -> Term:
    """Return one field of a word, extended by its sign if the word has one."""
    field = word.bits >> place * bits
    return field.cast(uint8 if bits == 8 else uint16).bitcast(_PARTS[bits, word.dtype.is_signed]).cast(int32)


def _formula(bits: int, first: int) -> Callable[[Term, Term, Term], Term]:
    """Return the sum over the fields of `a`, of so many bits each, times bytes of `b` from `first` on."""

    def formula(a: Term, b: Term, c: Term) -> Term:
        products = [_part(a, bits, k) * _part(b, 8, first + k) for k in range(32 // bits)]
        return reduce(lambda x, y: x + y, products, c.bitcast(int32)).bitcast(c.dtype)

    return formula


def _meaning(bits: int, first: int) -> Callable[[Array, Array, Array], Array]:
    def field(word: Array, width: int, place: int) -> Array:
        unsigned = np.asarray(word).astype(np.int64) >> place * width & ((1 << width) - 1)
        is_negative = unsigned >> (width - 1) if word.dtype.kind == "i" else unsigned * 0
        return np.asarray(unsigned - (is_negative << width))

    def evaluate(a: Array, b: Array, c: Array) -> Array:
        total = np.asarray(c).astype(np.int64)
        for k in range(32 // bits):
            total = total + field(a, bits, k) * field(b, 8, first + k)
        return np.asarray(total.astype(np.uint32).astype(c.dtype))

    return evaluate


def _define(name: str, bits: int, first: int, doc: str) -> Intrinsic:
    mode = "" if bits == 8 else f".{name[5:]}"

    def instruction(a: Term, b: Term, c: Term) -> Term:
        types = ".".join("s32" if x.dtype.is_signed else "u32" for x in (a, b))
        text = f"{name[:4]}{mode}.{types} $0, $1, $2, $3;"
        (result,) = c.builder.asm(
            text, "=r,r,r,r", [a.value, b.value, c.value], (c.value.type,), has_side_effects=False, host=None
        )
        return Term(c.builder, result)

    words: tuple[DType, ...] = (int32, uint32)
    sums = {(a, b): uint32 if a is b is uint32 else int32 for a in words for b in words}
    formula = expand(_formula(bits, first))
    return define(
        name=name,
        args=("a", "b", "c"),
        sigs=tuple(sig([a, b, c], c) for (a, b), c in sums.items()),
        lower={"cuda": expand(instruction), "cpu": formula},
        evaluate=_meaning(bits, first),
        doc=doc,
        source=f"PTX ISA, {name[:4]}",
    )


dp4a = _define("dp4a", 8, 0, "`c` plus the products of the four bytes of `a` and `b`; they are signed in an int32.")
dp2a_lo = _define("dp2a_lo", 16, 0, "`c` plus the products of the two halves of `a` and bytes 0 and 1 of `b`.")
dp2a_hi = _define("dp2a_hi", 16, 2, "`c` plus the products of the two halves of `a` and bytes 2 and 3 of `b`.")
