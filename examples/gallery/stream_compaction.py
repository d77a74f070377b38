"""Stream compaction: what passes a test, in order and without gaps, in one launch.

Each block finds the place of each of its elements by a scan; where its part begins, the one before it says, as soon as it knows.
A block takes the number of its part when it begins, so that the one that it waits for runs already.

Source: Yan, Long and Zhang, StreamScan: Fast Scan Algorithms for GPUs without Global Barrier Synchronization, 2013.
"""

from __future__ import annotations

import numpy as np

import stagekit as sk


def make_compaction(is_kept, block):
    """A kernel that writes what `is_kept`, a fragment of one element, holds for; `ends[b]` is 1 + the end of block b's part."""

    @sk.jit
    def compact(source, result, ends, ticket):
        t = sk.cuda.thread_idx("x")
        number, start = sk.alloc_shared((1,), sk.int32), sk.alloc_shared((1,), sk.int32)
        if t == 0:
            number[0] = sk.atomic_add(ticket, 1)
        sk.syncthreads()
        b = number[0]
        i = b * block + t
        kept = is_kept(source[i]) if i < len(source) else False
        place = sk.block_scan(sk.int32(kept), lambda x, y: x + y, 0, block) - sk.int32(kept)
        if t == block - 1:
            before = sk.int32(0)
            if b > 0:
                end = sk.load(ends + b - 1, order="acquire")
                while end == 0:
                    end = sk.load(ends + b - 1, order="acquire")
                before = end - 1
            start[0] = before
            sk.store(ends + b, 1 + before + place + sk.int32(kept), order="release")
        sk.syncthreads()
        if kept:
            result[start[0] + place] = source[i]

    return compact


def example(size, block, place):
    """The positive ones of random numbers, and how many there are."""
    source = np.random.default_rng(size).normal(size=size).astype(np.float32)
    blocks = -(-size // block)
    result, ends = place(np.zeros_like(source)), place(np.zeros(blocks, np.int32))
    ticket = place(np.zeros(1, np.int32))
    make_compaction(lambda x: x > 0, block)[blocks, block](place(source), result, ends, ticket)
    wanted = np.zeros_like(source)
    kept = source[source > 0]
    wanted[: len(kept)] = kept
    firsts = [np.count_nonzero(source[: (b + 1) * block] > 0) + 1 for b in range(blocks)]
    return [result, ends], [wanted, np.array(firsts, np.int32)], 0
