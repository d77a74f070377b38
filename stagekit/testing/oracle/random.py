"""What the random numbers of the language are, for a kernel that CPython runs: Philox 4x32-10 on NumPy's uint64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import stagekit as sk
from stagekit import dtypes
from stagekit.dtypes import DType
from stagekit.testing.oracle.values import Array, OracleValue, elements_in, plain, value_of

_WORD = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def _bits(value: Any) -> Any:
    """Return an integer, or a tile of them, as 64 bits."""
    return np.uint64(value % 2**64) if isinstance(value, int) else elements_in(value, dtypes.uint64)


def _block(seed: Any, words: list[Any]) -> list[Array]:
    """Return the four words that the generator makes of a counter, as uint64 below 2**32."""
    key = int(_bits(seed))
    a, b, c, d = (np.asarray(word, np.uint64) for word in words)
    for r in range(10):
        k0, k1 = ((key >> shift) + r * step & 0xFFFFFFFF for shift, step in ((0, 0x9E3779B9), (32, 0xBB67AE85)))
        p, q = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (q >> _32) ^ b ^ np.uint64(k0), q & _WORD, (p >> _32) ^ d ^ np.uint64(k1), p & _WORD
    return [a, b, c, d]


def _of_counter(seed: Any, counter: Any) -> list[Array]:
    return _block(seed, [counter & _WORD, counter >> _32, np.uint64(0), np.uint64(0)])


def _word(seed: Any, number: Any) -> Array:
    """Return one word of the stream of a seed."""
    found: Array = np.choose((number % np.uint64(4)).astype(np.int64), _of_counter(seed, number // np.uint64(4)))
    return found


def _philox(_: Any, seed: Any, counter: Any) -> tuple[OracleValue, ...]:
    words = [_bits(word) & _WORD for word in counter] if isinstance(counter, tuple | list) else None
    found = _of_counter(seed, _bits(counter)) if words is None else _block(seed, words)
    return tuple(value_of(word, dtypes.uint32) for word in found)


def _rand(_: Any, seed: Any, offset: Any) -> OracleValue:
    return value_of((_word(seed, _bits(offset)) >> np.uint64(8)) / 2.0**24, dtypes.float32)


def _randn(_: Any, seed: Any, offset: Any) -> OracleValue:
    """Its last bit is that of the exact number, of a kernel's that of two short series."""
    number, one = _bits(offset), np.uint64(1)
    radius, angle = (_word(seed, each) for each in (number & ~one, number | one))
    fraction, exponent = np.frexp((radius | one).astype(np.float64))
    logarithm = np.log(np.ldexp(np.floor(fraction * 2**24), exponent - 56))  # 24 bits count
    turn = math.tau * (angle / 2.0**32 - (number & one) / 4.0)
    return value_of(np.sqrt(-2 * logarithm) * np.cos(turn), dtypes.float32)


def _randint(_: Any, seed: Any, offset: Any, low: Any, high: Any = None, dtype: DType = dtypes.int64) -> OracleValue:
    start, end = (0, plain(low)) if high is None else (plain(low), plain(high))
    if start >= end:
        raise AssertionError(f"randint: no integer is from {start} to below {end}")
    number = _bits(offset)
    words = _of_counter(seed, number >> np.uint64(1))
    pair = [np.where(number & np.uint64(1), words[k + 2], words[k]) for k in range(2)]
    exact = [start + ((int(b) << 32 | int(a)) * (end - start) >> 64) for a, b in zip(*map(np.ravel, pair))]
    return value_of(np.array(exact, np.int64).reshape(np.shape(number)), dtypes.int64).to(dtype)


RANDOM: dict[Any, Callable[..., Any]] = {sk.philox: _philox, sk.rand: _rand, sk.randn: _randn, sk.randint: _randint}
