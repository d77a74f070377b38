"""Radix sort of uint32 keys, two bits at a time: each block counts, the counts are summed, each key goes to its place.

What each of four digits has counted so far is one uint64 of four 16-bit fields, so that one scan over the block gives the rank of
each key among those of its digit, in order: the sort is stable.

Source: Satish, Harris and Garland, Designing Efficient Sorting Algorithms for Manycore GPUs, 2009.
"""

from __future__ import annotations

import numpy as np

import stagekit as sk
from stagekit import kernels

BITS, DIGITS = 2, 4


@sk.inline
def add(a, b):
    return a + b


def make_radix_sort(block):
    """A function that sorts an array of uint32 in place, with another one and counts as scratch."""

    @sk.inline
    def ranked(keys, i, shift):
        """The digit of key i, and all earlier keys of the block by digit, in fields; and the count of each with this one."""
        digit = (keys[i] >> shift & (DIGITS - 1)) if i < len(keys) else sk.uint32(DIGITS - 1)
        field = sk.uint64(digit) * 16
        one = (sk.uint64(1) << field) if i < len(keys) else sk.uint64(0)
        through = sk.block_scan(one, add, 0, block)
        return sk.int32(digit), sk.int32(through - one >> field & 0xFFFF), through

    @sk.jit
    def count(keys, counts, shift: sk.uint32):
        """counts[digit, b]: how many keys of block b have it."""
        b, t = sk.cuda.block_idx("x"), sk.cuda.thread_idx("x")
        _, _, fields = ranked(keys, b * block + t, shift)
        if t == block - 1:
            for digit in sk.static_range(DIGITS):
                counts[digit * sk.cuda.grid_dim("x") + b] = sk.int32(fields >> (16 * digit) & 0xFFFF)

    @sk.jit
    def scatter(keys, sums, result, shift: sk.uint32):
        """sums: the running sums of the counts."""
        b, i = sk.cuda.block_idx("x"), sk.cuda.block_idx("x") * block + sk.cuda.thread_idx("x")
        digit, rank, _ = ranked(keys, i, shift)
        if i < len(keys):
            place = digit * sk.cuda.grid_dim("x") + b
            before = sums[place - 1] if place > 0 else sk.int64(0)
            result[before + rank] = keys[i]

    def sort(keys, other, counts, sums):
        """Sort `keys`. other: as long; counts, sums: int32 and int64, four for each block."""
        blocks = -(-len(keys) // block)
        for shift in range(0, 32, 2 * BITS):
            for source, result, bit in ((keys, other, shift), (other, keys, shift + BITS)):
                count[blocks, block](source, counts, bit)
                kernels.cumsum(counts, out=sums)
                scatter[blocks, block](source, sums, result, bit)

    return sort


def example(size, block, place):
    """Random keys sorted, and as NumPy sorts them."""
    keys = np.random.default_rng(size).integers(0, 2**32, size, dtype=np.uint32)
    counts = np.zeros(DIGITS * -(-size // block), np.int32)
    placed = [place(x) for x in (keys, np.zeros_like(keys), counts, counts.astype(np.int64))]
    make_radix_sort(block)(*placed)
    return [placed[0]], [np.sort(keys)], 0
