"""Products of few rows with weights of 8 or 4 bits on a GPU, which wait for nothing but the weights.

Tensor cores multiply 16 outputs of the weight by 16 inputs by 8 rows of x: the weight is the left factor. Along the inputs any
order will do that both factors have. So a lane takes 16 bytes of a row of the weight, as memory has them, and what it needs of x
lies side by side, too: nothing passes through shared memory but the sums, of which each warp of a program has those of other
inputs. Numbers are multiplied as they are, exactly, and sums of a group scaled in float32.

Sources: PTX ISA, "Matrix Fragments for mma.m16n8k16"; Kim et al., Who Says Elephants Can't Run: Bringing Large Scale MoE Models
into Cloud Scale Production, 2022, whose numbers lie in the low bits of floats.
"""

from __future__ import annotations

import functools
import sys
from typing import Annotated, Any

import stagekit as sk
from stagekit.kernels.host import Dtype, dtype_of, factory, is_on_cpu, is_packed, power_of_two
from stagekit.kernels.sharing import footprint_of

MOST = 16  # rows of x
LANES, OUTPUTS = 32, 16  # of a warp, and of an instruction
TILES, WARPS = 1, 16  # of a program: instructions side by side, and warps that share the inputs
MIDDLE = 8  # the zero of a number of 4 bits, where none is given
Word = Any  # 32 bits: two numbers of a factor, or what stands for some of the weight

_MAGIC = {sk.float16: (0x6400, 1024), sk.bfloat16: (0x4300, 128)}
"""The bits of a float, and what it is, whose lowest four bits count ones."""


def multiply(x: Any, weight: Any, scales: Any, zeros: Any, out: Any, group: int) -> bool:
    """Launch the product of `quantized_linear`, if it is one for these kernels, and return whether it was."""
    dtype, weight_dtype = dtype_of(x), dtype_of(weight)
    rows, outputs = x.shape[0], weight.shape[0]
    if rows > MOST or dtype not in _MAGIC or is_on_cpu(x):
        return False
    words, count = (as_words(x), as_words(weight)), words_of_a_lane(weight_dtype, group)
    is_whole = all(is_packed(each) for each in (scales, zeros) if each is not None)
    if not count or not is_whole or words[0] is None or words[1] is None:
        return False
    chunks = words[1].shape[1] // (4 * count)
    is_large = rows > 8 and weight_dtype is sk.uint8  # in registers, of which half as many warps have enough
    warps = min(WARPS // 2 if is_large else WARPS, power_of_two(chunks))
    kernel = few_rows_kernel(dtype, weight_dtype, group, zeros is not None, -(-rows // 8) or 1, TILES, warps)
    kernel[sk.cdiv(outputs, OUTPUTS * TILES), warps * LANES](*words, scales, zeros, out)
    return True


def as_words(array: Any) -> Any:
    """Return a view of an array as int32, whose last axis has several elements in each; None where there is none."""
    if not is_packed(array):
        return None
    if hasattr(array, "data_ptr"):  # torch
        is_whole = array.data_ptr() % 4 == array.shape[-1] * array.element_size() % 4 == 0
        return array.view(sys.modules["torch"].int32) if is_whole else None
    place = footprint_of(array)
    is_whole = place is not None and place.start % 4 == place.shape[-1] * place.itemsize % 4 == 0
    return array.view(sk.int32.numpy) if is_whole else None


@functools.cache
def words_of_a_lane(weight_dtype: Dtype, group: int) -> int:
    """Return how many words of a row a lane takes at once, so that the four lanes of a row stay in a group; 0 where none does."""
    return next((count for count in (4, 2, 1) if group % (4 * count * _per_word(weight_dtype)) == 0), 0)


def _per_word(weight_dtype: Dtype) -> int:
    return 8 if weight_dtype is sk.uint8 else 4


@sk.inline
def pairs_of_nibbles(word: Word, zero: Any, dtype: Dtype) -> list[Word]:
    """Return the eight numbers of a word, less zero, as those of places 0 and 4, 1 and 5, 2 and 6, 3 and 7."""
    bits, one = _MAGIC[dtype]
    base = dtype(sk.float32(zero) + one)
    pairs = [as_pair((word >> 4 * i) & 0x000F000F | bits << 16 | bits, dtype) for i in sk.static_range(4)]
    return [as_word(pair - base) for pair in pairs]


@sk.inline
def pairs_of_bytes(word: Word, weight_dtype: Dtype, dtype: Dtype) -> list[Word]:
    """Return the four numbers of a word, as those of places 0 and 2, 1 and 3."""
    halves = word & 0x00FF00FF, word >> 8 & 0x00FF00FF
    if weight_dtype is sk.int8:
        return [as_word(sk.vector(*[integer_of(half >> 16 * i & 0xFF) for i in (0, 1)]).to(dtype)) for half in halves]
    return [pair_of_floats(half, weight_dtype, dtype) for half in halves]


@sk.inline
def integer_of(byte: Word) -> Any:
    """Return an int8 as float32: from -128 on it is added to the bits of 2 ** 23, which is quicker than to convert it."""
    return (byte ^ 0x80 | 0x4B000000).view(sk.float32) - (2.0**23 + 128)


@sk.inline
def pair_of_floats(half: Word, weight_dtype: Dtype, dtype: Dtype) -> Word:
    """Return two float8, in bits 0 to 7 and 16 to 23, in another dtype, whose exponent has more bits and another bias.

    Exponents that stand for what is no number become those that do.
    """
    shift, first_special = _MANTISSA[dtype] - _MANTISSA[weight_dtype], _FIRST_SPECIAL[weight_dtype]
    magnitude = half & 0x007F007F
    pair = as_pair(magnitude << shift | (half & 0x00800080) << 8, dtype) * dtype(
        2.0 ** (_BIAS[dtype] - _BIAS[weight_dtype])
    )
    special = magnitude + (0x80 - first_special) * 0x00010001 & 0x00800080
    return as_word(pair) | special * (_INFINITY[dtype] >> 7)


_MANTISSA = {sk.float16: 10, sk.bfloat16: 7, sk.float8_e4m3fn: 3, sk.float8_e5m2: 2}  # bits
_BIAS = {sk.float16: 15, sk.bfloat16: 127, sk.float8_e4m3fn: 7, sk.float8_e5m2: 15}  # of exponents
_FIRST_SPECIAL = {sk.float8_e4m3fn: 0x7F, sk.float8_e5m2: 0x7C}  # bits, the sign left out, from which on are no numbers
_INFINITY = {sk.float16: 0x7C00, sk.bfloat16: 0x7F80}  # bits


@sk.inline
def as_pair(word: Word, dtype: Dtype) -> Any:
    return sk.vector(sk.uint16(word & 0xFFFF).view(dtype), sk.uint16(word >> 16).view(dtype))


@sk.inline
def as_word(pair: Any) -> Word:
    low, high = [sk.uint32(each.view(sk.uint16)) for each in pair]
    return low | high << 16


@sk.inline
def words_at(view: Any, row: Any, first: Any, count: int, mask: Any) -> list[Word]:
    """Return words that lie side by side, 0 where there is no such row."""
    width = min(count, 4)
    if width == 1:
        return [sk.uint32(sk.load(view.ptr_to(row, first), mask=mask, other=0))]
    parts = [view.vector(width).load((row, first // width + i), mask=mask) for i in sk.static_range(count // width)]
    return [sk.uint32(word) for part in parts for word in part]


@factory
def few_rows_kernel(
    dtype: Dtype, weight_dtype: Dtype, GROUP: int, HAS_ZEROS: bool, EIGHTS: int, TILES: int, WARPS: int
) -> sk.JitFunction:
    """Return the kernel `k[blocks of outputs](x, weight, scales, zeros, out)`, of 16 * TILES outputs and 8 * EIGHTS rows.

    x and weight: their bits as int32, four bytes of a row in each.
    """
    m, n, groups = sk.dynamic("m"), sk.dynamic("n"), sk.dynamic("groups")
    X = Annotated[sk.Array, sk.Tensor((m, None), sk.int32, (None, 1))]
    Weight = Annotated[sk.Array, sk.Tensor((n, None), sk.int32, (None, 1))]
    Scales = Annotated[sk.Array, sk.Tensor((n, groups), sk.float32, (None, 1))]
    Out = Annotated[sk.Array, sk.Tensor((m, n), dtype, (None, 1))]
    count, is_packed = words_of_a_lane(weight_dtype, GROUP), weight_dtype is sk.uint8
    per_word = _per_word(weight_dtype)
    chunk = 4 * count * per_word  # inputs that a warp multiplies at once
    product = sk.cuda.mma_m16n8k16_f16 if dtype is sk.float16 else sk.cuda.mma_m16n8k16_bf16
    ROWS, COLUMNS = 8 * EIGHTS, OUTPUTS * TILES

    @sk.inline
    def rows_of_x(x: X, row: Any, at: Any) -> list[Word]:
        """Return this lane's pairs of a row of x, in the order of those of the weight."""
        words = words_at(x, row, at * (count * per_word // 2), count * per_word // 2, row < x.shape[0])
        reach = per_word // 4  # words of x between those of a pair
        first = [i for i in range(len(words)) if i // reach % 2 == 0]
        pairs = [(words[i], words[i + reach], half) for i in first for half in (0x5410, 0x7632)]
        return [sk.byte_perm(a, b, half) for a, b, half in pairs]

    @sk.inline
    def row_of_weight(weight: Weight, scales: Scales, zeros: Any, output: Any, at: Any) -> tuple[Any, Any, Any]:
        """Return this lane's words of an output, and scale and zero of their group."""
        exists = output < len(weight)
        words = words_at(weight, output, at * count, count, exists)
        place = output, at // (GROUP // chunk * 4)
        zero = sk.load(zeros.ptr_to(*place), mask=exists) if HAS_ZEROS else MIDDLE
        return words, sk.load(scales.ptr_to(*place), mask=exists), zero

    @sk.inline
    def factor(words: list[Word], zero: Any) -> list[Word]:
        return [
            pair
            for word in words
            for pair in (
                pairs_of_nibbles(word, zero, dtype) if is_packed else pairs_of_bytes(word, weight_dtype, dtype)
            )
        ]

    @sk.jit
    def few_rows(x: X, weight: Weight, scales: Scales, zeros: Any, out: Out) -> None:
        thread, first = sk.cuda.thread_idx("x"), sk.cuda.block_idx("x") * COLUMNS
        group, part = thread % LANES // 4, thread % 4
        chunks = weight.shape[1] // (4 * count)
        totals = [[sk.float32(0)] * 4 for _ in range(TILES * EIGHTS)]
        for number in range(thread // LANES, chunks, WARPS):
            at = number * 4 + part
            columns = [rows_of_x(x, group + 8 * j, at) for j in sk.static_range(EIGHTS)]
            halves = [
                row_of_weight(weight, scales, zeros, first + group + 8 * i, at) for i in sk.static_range(2 * TILES)
            ]
            found = []
            for i in sk.static_range(TILES):
                (low, low_scale, low_zero), (high, high_scale, high_zero) = halves[2 * i : 2 * i + 2]
                a, b = factor(low, low_zero), factor(high, high_zero)
                for j in sk.static_range(EIGHTS):
                    sums = [sk.float32(0)] * 4
                    for k in sk.static_range(0, len(a), 2):
                        sums = product(a[k], b[k], a[k + 1], b[k + 1], columns[j][k], columns[j][k + 1], *sums)
                    scale = low_scale, low_scale, high_scale, high_scale
                    old = totals[i * EIGHTS + j]
                    found.append([sk.fma(s, by, t) for s, by, t in zip(sums, scale, old)])
            totals = found
        shared = sk.alloc_shared((WARPS, ROWS, COLUMNS), sk.float32)
        for i in sk.static_range(TILES):
            for j in sk.static_range(EIGHTS):
                for half in sk.static_range(4):
                    row, output = 8 * j + 2 * part + half % 2, 16 * i + group + half // 2 * 8
                    shared[thread // LANES, row, output] = totals[i * EIGHTS + j][half]
        sk.cuda.syncthreads()
        for place in range(thread, ROWS * COLUMNS, WARPS * LANES):
            row, output = place // COLUMNS, place % COLUMNS
            if row < x.shape[0] and first + output < len(weight):
                sums = [shared[warp, row, output] for warp in sk.static_range(WARPS)]
                out[row, first + output] = functools.reduce(lambda a, b: a + b, sums)

    return few_rows
