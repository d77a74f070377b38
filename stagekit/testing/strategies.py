"""What Hypothesis draws for a kernel: block sizes, lengths, dtypes, arrays, and whole launches.

Everything shrinks to what is easy to read: block 1, length 0, `1, 2, 3, ...` in one dimension without gaps.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from stagekit import dtypes as known
from stagekit.dtypes import ALL_DTYPES, ARITHMETIC_DTYPES, DType, dtype_from_numpy
from stagekit.limits import MAX_THREADS, WARP
from stagekit.testing.launching import Array, Launch, element_strides, strided

Values = Literal["finite", "any", "exact"]

_EXACT = 8  # sums of some hundreds of integers up to this are exact in every float with a sum
_SEEDS = 2**32 - 1


def block_sizes(largest: int = MAX_THREADS) -> SearchStrategy[int]:
    """Draw block sizes from 1, powers of two or not; those about a warp and about `largest` more often than others."""
    marks = (1, 2, WARP, 2 * WARP, largest)
    near = sorted({mark + step for mark in marks for step in (-1, 0, 1) if 1 <= mark + step <= largest})
    return st.integers(1, largest) | st.sampled_from(near)


def lengths(block: int, *, least: int = 0, most_blocks: int = 3) -> SearchStrategy[int]:
    """Draw lengths of an array that blocks of this size share, around multiples of it more often than elsewhere."""
    largest = max(block * most_blocks + 1, least)
    near = {n * block + step for n in range(most_blocks + 1) for step in (-1, 0, 1)}
    marks = sorted(n for n in near if least <= n <= largest)
    return st.integers(least, largest) | st.sampled_from(marks or [least])


_SIMPLEST = (known.float32, known.int32)


def dtypes(*kinds: Any) -> SearchStrategy[DType]:
    """Draw dtypes: those given, those of the kinds given ("bool", "int", "uint", "float"), or all that have arithmetic."""
    wanted = [d for d in ALL_DTYPES if d in kinds or d.kind in kinds] if kinds else list(ARITHMETIC_DTYPES)
    simplest = [d for d in _SIMPLEST if d in wanted]
    return st.sampled_from([*simplest, *(d for d in wanted if d not in simplest)])


@st.composite
def arrays(draw: DrawFn, dtype: Any, shape: Any, *, values: Values = "finite", strides: bool = False) -> Array:
    """Draw NumPy arrays. dtype: ours or NumPy's; shape: an int or a tuple; each may be a strategy.

    values: "finite", edge values among them (the ends of the range, -0.0, subnormals); "any", infinities and NaN too; "exact":
    small integers, of which sums are exact in every dtype. strides: gaps, reversed and exchanged axes too.
    """
    chosen: DType = _known(_drawn(draw, dtype))
    sizes = _drawn(draw, shape)
    sizes = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    array = _contents(draw, chosen, int(np.prod(sizes)), values).reshape(sizes)
    return _laid_out(draw, array) if strides and array.size else array


@st.composite
def outputs(draw: DrawFn, dtype: Any, shape: Any) -> Array:
    """Draw arrays for a kernel to write: they hold NaN, or an unlikely integer, so that what is left unwritten shows."""
    chosen = _known(_drawn(draw, dtype))
    array: Array = np.empty(_drawn(draw, shape), chosen.numpy)
    if chosen.is_float:
        array.fill(np.nan)
    else:
        array.view(np.uint8).fill(1 if chosen.kind == "bool" else _UNLIKELY)
    return array


_UNLIKELY = 0xA5


@st.composite
def launches(draw: DrawFn, brackets: Any = None, /, **values: Any) -> Launch:
    """Draw launches of a kernel. values: its parameters, constexprs too. brackets: None for a kernel that computes its own.

    Each is a strategy, a value, or a function of values before it, which it takes by name, that gives one of the two:
    `n=lambda BLOCK: lengths(BLOCK)`. A value that only others are made from need not be a parameter of the kernel. A function
    that is itself the value of a constexpr is given as `st.just(function)`.
    """
    found: dict[str, Any] = {}
    helpers: set[str] = set()  # what functions take

    def resolved(value: Any) -> Any:
        if isinstance(value, types.FunctionType):
            names = list(inspect.signature(value).parameters)
            if unknown := [name for name in names if name not in found]:
                drawn = f"drawn are {list(found)}"
                raise ValueError(f"`{unknown[0]}` is not drawn before the function that takes it; {drawn}")
            helpers.update(names)
            value = value(**{name: found[name] for name in names})
        return _drawn(draw, value)

    for name, value in values.items():
        found[name] = resolved(value)
    return Launch(resolved(brackets), found, frozenset(helpers))


def _drawn(draw: DrawFn, value: Any) -> Any:
    return draw(value) if isinstance(value, SearchStrategy) else value


def _known(dtype: Any) -> DType:
    found = dtype if isinstance(dtype, DType) else dtype_from_numpy(np.dtype(dtype))
    if found is None:
        raise TypeError(f"kernels know no dtype {dtype}")
    return found


# -- contents ---------------------------------------------------------------------------------------------------------


def _contents(draw: DrawFn, dtype: DType, size: int, values: Values) -> Array:
    """Draw random numbers, then counting ones, with an edge value here and there: few draws, however large the array."""
    if dtype.kind == "bool":
        array = np.asarray(np.arange(size) % 2 == 0)
    else:
        period = _EXACT if values == "exact" or dtype.bits == 8 else 100
        array = (np.arange(size) % period + 1).astype(dtype.numpy)
    seed = draw(st.integers(0, _SEEDS))
    if seed and size:
        count = draw(st.integers(0, 2 * size))  # all in half of the cases
        array[:count] = _random(dtype, size, values, seed)[:count]
    if values != "exact" and size:
        place = st.tuples(st.integers(0, size - 1), st.sampled_from(edge_values(dtype, values)))
        for index, edge in draw(st.lists(place, max_size=4)):
            array[index] = edge
    return array


def _random(dtype: DType, size: int, values: Values, seed: int) -> Array:
    generator = np.random.default_rng(seed)
    if dtype.is_float and values != "exact":
        numbers: Array = generator.standard_normal(size) * 4
        return numbers.astype(dtype.numpy)
    if values == "exact" or dtype.kind == "bool":
        low, high = (-_EXACT if dtype.is_float or dtype.is_signed else 0), _EXACT
    else:
        low, high = dtype.min, dtype.max
    wide = np.uint64 if high > np.iinfo(np.int64).max else np.int64
    chosen: Array = generator.integers(low, high, size, endpoint=True, dtype=wide)
    return np.asarray(chosen % 2 == 0) if dtype.kind == "bool" else np.asarray(chosen.astype(dtype.numpy))


def edge_values(dtype: DType, values: Values = "any") -> Sequence[Any]:
    """Return numbers at which arithmetic of this dtype goes wrong first, the plainest first."""
    numbers: tuple[Any, ...]
    if dtype.kind == "bool":
        numbers = (False, True)
    elif dtype.is_float:
        numbers = (0.0, -0.0, 1.0, -1.5, dtype.max, dtype.min, dtype.smallest_subnormal)
        if values == "any":
            numbers += (np.inf, -np.inf, np.nan) if dtype.layout.has_infinity else (np.nan,)
    else:
        numbers = (0, 1, dtype.max, dtype.max - 1, dtype.min, *((-1, dtype.min + 1) if dtype.is_signed else ()))
    return [dtype.numpy.type(number) for number in numbers]


# -- layout -----------------------------------------------------------------------------------------------------------


def _laid_out(draw: DrawFn, array: Array) -> Array:
    """Draw the same contents with gaps, and axes reversed or exchanged."""
    order = draw(st.permutations(range(array.ndim)))
    strides = [0] * array.ndim
    step = 1
    for axis in reversed(order):
        step *= draw(st.integers(1, 3))
        strides[axis] = -step if draw(st.booleans()) else step
        step *= array.shape[axis]
    return array if strides == element_strides(array) else strided(array, strides)
