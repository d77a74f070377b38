"""Random numbers that depend on a seed and a number alone: the same bits on every target, whatever the threads and blocks.

    keep = sk.rand(seed, offset + i) < 0.9       # i: a tile; element k of a large array has number k, whichever program asks
    words = sk.philox(seed, counter)             # the generator itself: four uint32

The generator is Philox 4x32-10: the key is the seed, of 64 bits. Word w of counter c is number 4 * c + w of the stream of a seed.

Source: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011; Box and Muller, A Note on the Generation of Random
Normal Deviates, 1958.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import stagekit as sk
from stagekit.lib.layout import recorded
from stagekit.lib.tile import Tile, Traced

_ADD, _SUBTRACT, _MULTIPLY, _AND, _OR, _XOR = map(sk._operation, ("+", "-", "*", "&", "|", "^"))
_LEFT, _RIGHT, _EQUAL, _LESS, _DIVIDE, _NEGATE = map(sk._operation, ("<<", ">>", "==", "<", "/", "neg"))

_ROUNDS = 10
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_STEPS_OF_KEY = 0x9E3779B9, 0xBB67AE85
_LOW = 0xFFFFFFFF

Words = tuple[Traced, Traced, Traced, Traced]
Key = list[tuple[Traced, Traced]]  # of each round


@sk._kernel_only
@sk._direct
def philox(seed: Any, counter: Any) -> Any:
    """Return the four random words, uint32, that Philox 4x32-10 makes of a seed and a counter; of a tile of counters, four tiles.

    seed: an integer, of which 64 bits count. counter: an integer, of which 64 bits count, or a tile of them; or a tuple of four
    words, the lowest first.
    """
    key = _key("philox", seed)
    words = counter if isinstance(counter, tuple | list) else (counter,)
    if len(words) not in (1, 4):
        sk.static_assert(False, f"philox: counter must be an integer or a tuple of four words, got {len(words)}")
    for word in words:
        _require_integer("philox", "counter", word)
    return _of_parts(_words, key, *words)


@sk._kernel_only
@sk._direct
def rand(seed: Any, offset: Any) -> Any:
    """Return number `offset` of the stream of a seed as a float32, uniform in [0, 1); of a tile of offsets, a tile.

    It is one of the 2**24 multiples of 2**-24, all equally likely: the upper 24 bits of a word of `philox(seed, offset // 4)`.
    """
    return _of_parts(_uniform, _numbers("rand", seed, offset), offset)


@sk._kernel_only
@sk._direct
def randn(seed: Any, offset: Any) -> Any:
    """Return number `offset` of the normally distributed ones of a seed, a float32 with mean 0 and variance 1; of a tile, a tile.

    Numbers 2 k and 2 k + 1 are made of one pair of words, by the method of Box and Muller; none is beyond 6.7.
    """
    return _of_parts(_normal, _numbers("randn", seed, offset), offset)


@sk._kernel_only
def randint(seed: Any, offset: Any, low: Any, high: Any = None, dtype: sk.DType | None = None) -> Any:
    """Return number `offset` of the integers of a seed, uniform from `low` to below `high`; of a tile of offsets, a tile.

    low, high: integers, the same for all elements, `low` below `high`, which is asserted where it shows at run time only;
    with one of them, from 0 to below that. Of any two results none is more likely than the other by more than a factor of
    1 + (high - low) / 2**64: number `offset` is made of 64 bits, two words of `philox(seed, offset // 2)`. dtype: of the result,
    int64 if left out.
    """
    first, end, is_known = _ends(low, high)
    if not is_known:
        assert sk.int64(first) < sk.int64(end), f"randint: no integer is from {first} to below {end}"
    return _from_to(seed, offset, first, end, dtype)


@sk._direct
def _ends(low: Any, high: Any) -> tuple[Any, Any, bool]:
    """Return from where to where `randint` goes, and whether both are known. Refused: what is no integer, and an empty range."""
    first, end = (0, low) if high is None else (low, high)
    for name, value in (("low", first), ("high", end)):
        _require_integer("randint", name, value)
        if isinstance(value, Tile):
            sk.static_assert(False, f"randint: {name} must be one number for all elements, got a tile")
    is_known = isinstance(first, int) and isinstance(end, int)
    if is_known and first >= end:
        sk.static_assert(False, f"randint: no integer is from {first} to below {end}")
    return first, end, is_known


@sk._direct
def _from_to(seed: Any, offset: Any, first: Any, end: Any, dtype: sk.DType | None) -> Any:
    span = sk.uint64(_SUBTRACT(sk.int64(end), sk.int64(first)))
    given = _numbers("randint", seed, offset), span, sk.int64(first), dtype or sk.int64
    return _of_parts(_between, given, offset)


# -- arguments ----------------------------------------------------------------------------------------------------------


def _numbers(function: str, seed: Any, offset: Any) -> Key:
    """Return the keys of a function of numbers of a stream."""
    _require_integer(function, "offset", offset)
    return _key(function, seed)


def _require_integer(function: str, name: str, value: Any) -> None:
    is_known = isinstance(value, int) and not isinstance(value, bool)
    given = value.elements[0] if isinstance(value, Tile) else value
    dtype = sk._dtype_of(given) if hasattr(given, "dtype") else None
    if not is_known and (dtype is None or not dtype.is_integer):
        sk.static_assert(False, f"{function}: {name} must be an integer, got {dtype.name if dtype else repr(value)}")


def _key(function: str, seed: Any) -> Key:
    """Return the key of each round."""
    _require_integer(function, "seed", seed)
    if isinstance(seed, Tile):
        sk.static_assert(False, f"{function}: seed must be one number for all elements, got a tile")
    wide = sk.uint64(seed & 0xFFFFFFFF_FFFFFFFF) if isinstance(seed, int) else sk.uint64(seed)
    low, high = sk.uint32(_AND(wide, _LOW)), sk.uint32(_RIGHT(wide, 32))
    first, second = _STEPS_OF_KEY
    return [(_ADD(low, r * first & _LOW), _ADD(high, r * second & _LOW)) for r in range(_ROUNDS)]


def _of_parts(function: Callable[..., Any], given: Any, *args: Any) -> Any:
    """Return `function(given, *args)` of numbers, or of the vectors of tiles: a tile, or of a tuple a tuple of tiles."""
    like = next((each for each in args if isinstance(each, Tile)), None)
    if like is None:
        return function(given, *args)
    found = [function(given, *row) for row in zip(*[like.vectors_of(each) for each in args])]
    if not isinstance(found[0], tuple):
        return like.like(found)
    return tuple([like.like(list(column)) for column in zip(*found)])


# -- the generator ------------------------------------------------------------------------------------------------------


def _counter(number: Traced) -> Words:
    """Return a counter of 64 bits as words."""
    low = sk.uint32(number)
    zero = _XOR(low, low)
    return low, sk.uint32(_RIGHT(number, 32)), zero, zero


def _philox(key: Key, counter: Words) -> Words:
    a, b, c, d = counter
    for first, second in key:
        products = [(sk.mulhi(x, m), _MULTIPLY(x, m)) for x, m in zip((a, c), _MULTIPLIERS)]
        (high_a, low_a), (high_c, low_c) = products
        a, b, c, d = _XOR(_XOR(high_c, b), first), low_c, _XOR(_XOR(high_a, d), second), low_a
    return a, b, c, d


@recorded
@sk._direct
def _words(key: Key, *words: Traced) -> Words:
    """Return what Philox makes of a counter, in one number or in four words."""
    return _philox(key, _counter(sk.uint64(words[0])) if len(words) == 1 else tuple(map(sk.uint32, words)))


def _word(key: Key, number: Traced) -> Traced:
    """Return one word of the stream."""
    words = _philox(key, _counter(_RIGHT(number, 2)))
    is_odd, is_upper = _bit(number, 0), _bit(number, 1)
    lower, upper = (sk.where(is_odd, words[k + 1], words[k]) for k in (0, 2))
    return sk.where(is_upper, upper, lower)


def _pair(words: Words, is_upper: Traced) -> tuple[Traced, Traced]:
    return sk.where(is_upper, words[2], words[0]), sk.where(is_upper, words[3], words[1])


def _bit(number: Traced, k: int) -> Traced:
    return _EQUAL(_AND(sk.uint32(number), 1 << k), 1 << k)


# -- numbers ------------------------------------------------------------------------------------------------------------


@recorded
@sk._direct
def _uniform(key: Key, number: Traced) -> Traced:
    word = _word(key, sk.uint64(number))
    return _MULTIPLY(sk.float32(_RIGHT(word, 8)), 2.0**-24)


@recorded
@sk._direct
def _normal(key: Key, number: Traced) -> Traced:
    """Return the cosine of a random angle, for an odd number its sine, times a random radius."""
    number = sk.uint64(number)
    radius, angle = _pair(_philox(key, _counter(_RIGHT(number, 2))), _bit(number, 1))
    quarter = _LEFT(_AND(sk.uint32(number), 1), 30)  # the sine is the cosine of a quarter of the circle less
    return _MULTIPLY(sk.sqrt(_minus_two_log(radius)), _cosine(_SUBTRACT(angle, quarter)))


def _minus_two_log(word: Traced) -> Traced:
    """Return -2 log(u), u being the upper 24 bits of the odd word next to a word, times 2**-32; with a relative error of 1e-7.

    Like `_cosine` it is a short series of operations that are rounded once, so that it has the same bits everywhere.
    """
    odd = _OR(word, 1)
    zeros = sk.clz(odd)
    half = _MULTIPLY(sk.float32(_RIGHT(_LEFT(odd, sk.uint32(zeros)), 8)), 2.0**-24)  # from 0.5 to below 1
    is_small = _LESS(half, math.sqrt(0.5))
    near_one = sk.where(is_small, _MULTIPLY(half, 2.0), half)
    s = _DIVIDE(_SUBTRACT(near_one, 1.0), _ADD(near_one, 1.0))
    series = _polynomial(_MULTIPLY(s, s), 4.0, 4 / 3, 4 / 5, 4 / 7, 4 / 9)
    exponent = sk.float32(_ADD(sk.int32(zeros), sk.int32(is_small)))
    return sk.fma(exponent, 2 * math.log(2), _NEGATE(_MULTIPLY(s, series)))


def _cosine(word: Traced) -> Traced:
    """Return the cosine of a word of the circle of 2**32, by the series on an eighth of it to each side; error 1e-7."""
    quadrant = _RIGHT(_ADD(word, 1 << 29), 30)
    x = _MULTIPLY(sk.float32(sk.int32(_SUBTRACT(word, _LEFT(quadrant, 30)))), math.tau * 2.0**-32)
    square = _MULTIPLY(x, x)
    cosine = _polynomial(square, 1.0, -1 / 2, 1 / 24, -1 / 720, 1 / 40320)
    sine = _MULTIPLY(x, _polynomial(square, 1.0, -1 / 6, 1 / 120, -1 / 5040, 1 / 362880))
    found = sk.where(_bit(quadrant, 0), sine, cosine)
    return sk.where(_bit(_ADD(quadrant, 1), 1), _NEGATE(found), found)


def _polynomial(x: Traced, *coefficients: float) -> Traced:
    """Return the polynomial of x with these coefficients, the lowest first."""
    return functools.reduce(lambda value, c: sk.fma(value, x, c), coefficients[-2::-1], coefficients[-1])


@recorded
@sk._direct
def _between(given: tuple[Key, Traced, Traced, sk.DType], number: Traced) -> Traced:
    """Return `first` plus the integer part of a random fraction of 64 bits times `span`."""
    key, span, first, dtype = given
    number = sk.uint64(number)
    low, high = _pair(_philox(key, _counter(_RIGHT(number, 1))), _bit(number, 0))
    below = sk.mulhi(_OR(_LEFT(sk.uint64(high), 32), sk.uint64(low)), span)
    return dtype(_ADD(sk.int64(below), first))
