"""Bitonic sort of any number of keys: parts of 2 x block keys in shared memory, longer merges in global memory.

Every comparison puts the smaller key first: a merge begins with mirrored partners (i and its mirror image in the run), then
halves. So keys that are missing at the end count as the largest ones, which never move, and any length will do.

Source: Batcher, Sorting Networks and Their Applications, 1968; the CUDA sample sortingNetworks.
"""

from __future__ import annotations

import numpy as np

import stagekit as sk


@sk.inline
def exchange(keys, i, j, n):
    """Put the smaller of two keys at i, which is below j."""
    if j < n:
        a, b = keys[i], keys[j]
        if b < a:
            keys[i] = b
            keys[j] = a


@sk.inline
def pair(t, distance):
    """The lower and the upper place of comparison t at a distance, a power of two."""
    low = 2 * t - (t & distance - 1)
    return low, low + distance


def make_bitonic_sort(dtype, block):
    """A function that sorts an array of `dtype` in place. block: threads, a power of two; each compares two keys."""
    part = 2 * block

    @sk.jit
    def in_shared(keys, is_merge: sk.constexpr[bool]):
        """Sort each part; of a merge, do the steps that stay within it."""
        held = sk.alloc_shared((part,), dtype)
        t, first = sk.cuda.thread_idx("x"), sk.cuda.block_idx("x") * part
        n = min(len(keys) - first, part)
        for k in sk.static_range(2):
            if t + k * block < n:
                held[t + k * block] = keys[first + t + k * block]
        for run in (part,) if is_merge else [2 << level for level in range(part.bit_length() - 1)]:
            sk.syncthreads()
            if not is_merge:  # i and its mirror image in a run
                low, _ = pair(t, run // 2)
                exchange(held, low, low ^ (run - 1), n)
            distance = run // 2 if is_merge else run // 4
            while distance > 0:
                sk.syncthreads()
                exchange(held, *pair(t, distance), n)
                distance //= 2
        sk.syncthreads()
        for k in sk.static_range(2):
            if t + k * block < n:
                keys[first + t + k * block] = held[t + k * block]

    @sk.jit
    def in_global(keys, distance, is_mirrored: sk.constexpr[bool]):
        low, high = pair(sk.cuda.block_idx("x") * block + sk.cuda.thread_idx("x"), distance)
        exchange(keys, low, low ^ (2 * distance - 1) if is_mirrored else high, len(keys))

    def sort(keys):
        parts = -(-len(keys) // part)
        in_shared[parts, block](keys, is_merge=False)
        run = 2 * part
        while run // 2 < len(keys):
            blocks = -(-len(keys) // run) * run // part
            in_global[blocks, block](keys, run // 2, is_mirrored=True)
            distance = run // 4
            while distance >= part:
                in_global[blocks, block](keys, distance, is_mirrored=False)
                distance //= 2
            in_shared[parts, block](keys, is_merge=True)
            run *= 2

    return sort


def example(size, block, place):
    """Random keys sorted, and as NumPy sorts them."""
    block = 1 << block.bit_length() - 1
    keys = np.random.default_rng(size).integers(-1000, 1000, size).astype(np.int32)
    placed = place(keys)
    make_bitonic_sort(sk.int32, block)(placed)
    return [placed], [np.sort(keys)], 0
