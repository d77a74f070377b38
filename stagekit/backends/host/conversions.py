"""Conversions of numbers, where the processor may lack an instruction that LLVM would replace by a call into libgcc.

Without F16C the conversions between float16 and float32 are calls to `__extendhfsf2` and `__truncsfhf2`, which nothing
in the process need provide. So they are written here in integer arithmetic, for scalars and vectors alike. No processor but
the newest converts float64 to float16; `legalize` leaves no such conversion, and `convert` keeps LLVM from making one.
"""

from __future__ import annotations

from collections.abc import Callable

from stagekit import dtypes
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm import arith
from stagekit.backends.llvm.types import Lanes, llvm_type
from stagekit.backends.llvm.writer import Writer
from stagekit.dtypes import DType


def convert(warp: Warp, source: DType, target: DType, lanes: Lanes, text: str) -> str:
    """Convert `text` of `source` to `target`, as `arith.cast` does, without calls.

    Of `copysign(x, y)` in float64, rounded to float32 and then to float16, LLVM 22.1 rounds x and y alone, and y at once: by a
    call. A fence around the first rounding hides it from the second. (Of vectors LLVM does not take the sign apart.)
    """
    cast = arith.cast if warp.kernel.features.has_half_conversions else without_calls
    converted = cast(warp.w, source, target, lanes, text)
    if lanes is None and (source, target) == (dtypes.float64, dtypes.float32):
        return warp.w.call("float", "llvm.arithmetic.fence.f32", [("float", converted)])
    return converted


def without_calls(w: Writer, source: DType, target: DType, lanes: Lanes, text: str) -> str:
    """The same on any processor."""
    rule = _SOFT.get((source, target))
    return rule(w, lanes, text) if rule else arith.cast(w, source, target, lanes, text)


def _half_to_float(w: Writer, lanes: Lanes, text: str) -> str:
    """Put exponent and fraction where a float has them, then scale by 2**112: exact, subnormals included.

    Infinity and NaN have the highest exponent, which scaling would not keep; they get it by an or.
    """
    word, real = llvm_type(dtypes.uint32, lanes), llvm_type(dtypes.float32, lanes)
    bits = w.emit(
        f"zext {llvm_type(dtypes.uint16, lanes)} {_as(w, dtypes.float16, dtypes.uint16, lanes, text)} to {word}"
    )
    magnitude = w.emit(f"and {word} {bits}, {_word(lanes, 0x7FFF)}")
    shifted = w.emit(f"shl {word} {magnitude}, {_word(lanes, 13)}")
    scaled = w.emit(
        f"fmul {real} {w.emit(f'bitcast {word} {shifted} to {real}')}, {arith.constant(dtypes.float32, lanes, 2.0**112)}"
    )
    is_special = w.emit(f"icmp uge {word} {magnitude}, {_word(lanes, 0x7C00)}")
    special = w.emit(f"or {word} {shifted}, {_word(lanes, 0x7F800000)}")
    scaled_bits = w.emit(f"bitcast {real} {scaled} to {word}")
    chosen = arith.select(w, dtypes.uint32, lanes, is_special, special, scaled_bits)
    sign = w.emit(f"shl {word} {w.emit(f'and {word} {bits}, {_word(lanes, 0x8000)}')}, {_word(lanes, 16)}")
    return w.emit(f"bitcast {word} {w.emit(f'or {word} {chosen}, {sign}')} to {real}")


def _float_to_half(w: Writer, lanes: Lanes, text: str) -> str:
    """To nearest even. A number below 2**-14 is rounded by adding 0.5, whose last bit is the half's smallest step."""
    word, real = llvm_type(dtypes.uint32, lanes), llvm_type(dtypes.float32, lanes)
    bits = w.emit(f"bitcast {real} {text} to {word}")
    magnitude = w.emit(f"and {word} {bits}, {_word(lanes, 0x7FFFFFFF)}")
    size = w.emit(f"bitcast {word} {magnitude} to {real}")
    half = w.emit(f"fadd {real} {size}, {arith.constant(dtypes.float32, lanes, 0.5)}")
    small = w.emit(f"sub {word} {w.emit(f'bitcast {real} {half} to {word}')}, {_word(lanes, 0x3F000000)}")
    odd = w.emit(f"and {word} {w.emit(f'lshr {word} {magnitude}, {_word(lanes, 13)}')}, {_word(lanes, 1)}")
    # Move the exponent's bias from 127 to 15 and add half a step less the bit that decides ties.
    moved = w.emit(f"add {word} {magnitude}, {_word(lanes, ((15 - 127) << 23) % 2**32 + 0xFFF)}")
    normal = w.emit(f"lshr {word} {w.emit(f'add {word} {moved}, {odd}')}, {_word(lanes, 13)}")
    is_small = w.emit(f"icmp ult {word} {magnitude}, {_word(lanes, 113 << 23)}")
    result = arith.select(w, dtypes.uint32, lanes, is_small, small, normal)
    is_large = w.emit(f"icmp uge {word} {magnitude}, {_word(lanes, 143 << 23)}")
    is_nan = w.emit(f"icmp ugt {word} {magnitude}, {_word(lanes, 0x7F800000)}")
    large = arith.select(w, dtypes.uint32, lanes, is_nan, _word(lanes, 0x7E00), _word(lanes, 0x7C00))
    result = arith.select(w, dtypes.uint32, lanes, is_large, large, result)
    sign = w.emit(f"lshr {word} {w.emit(f'sub {word} {bits}, {magnitude}')}, {_word(lanes, 16)}")
    joined = w.emit(f"or {word} {result}, {sign}")
    narrow = w.emit(f"trunc {word} {joined} to {llvm_type(dtypes.uint16, lanes)}")
    return _as(w, dtypes.uint16, dtypes.float16, lanes, narrow)


def _half_to_double(w: Writer, lanes: Lanes, text: str) -> str:
    return arith.cast(w, dtypes.float32, dtypes.float64, lanes, _half_to_float(w, lanes, text))


def _as(w: Writer, source: DType, target: DType, lanes: Lanes, text: str) -> str:
    return w.emit(f"bitcast {llvm_type(source, lanes)} {text} to {llvm_type(target, lanes)}")


def _word(lanes: Lanes, value: int) -> str:
    return arith.constant(dtypes.uint32, lanes, value)


_SOFT: dict[tuple[DType, DType], Callable[[Writer, Lanes, str], str]] = {
    (dtypes.float16, dtypes.float32): _half_to_float,
    (dtypes.float16, dtypes.float64): _half_to_double,
    (dtypes.float32, dtypes.float16): _float_to_half,
}
