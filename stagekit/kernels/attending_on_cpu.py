"""Attention on the CPU: a thread has a row of q, and what a warp keeps of its 32 rows lies in shared memory, side by side.

A program goes over the blocks of k and v, which it copies as float32, and with each over its strips of 32 rows. A strip makes
its scores eight keys at a time and its sums of values eight columns at a time: 16 vectors of AVX-512 hold them, which are half
of its registers, and each number of k or v that is read is multiplied by two vectors. Whatever is not in such a loop is in
memory, so that the code of a kernel fits the cache of instructions.

Weights are not rounded to the dtype of v, as tensor cores need them. Sources: those of `attending`; Goto and van de Geijn,
"Anatomy of High-Performance Matrix Multiplication", 2008.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import stagekit as sk
from stagekit.kernels.heads import LOG2E, LOWEST, arrays_of, end_of_keys, of_head, padded, sign_and_factor
from stagekit.kernels.host import Dtype, factory

STRIP = 32  # rows of q that go together, one for each thread of a program
AT_ONCE = 8  # keys, or columns of values
LINE = 16  # float32 that the memory moves at once
BLOCKS = {128: (128, 64), 256: (64, 32)}  # rows of q and of k, by the most columns of a head: what shared memory holds


def cpu_blocks_for(dim: int) -> tuple[int, int]:
    """Return how many rows of q a program has, and how many of k and v it copies at once."""
    return next(blocks for most, blocks in BLOCKS.items() if dim <= most)


@sk.inline
def matrix(*shape: int) -> Any:
    """Return shared memory for float32, which begins at a line of the cache."""
    return sk.alloc_shared(shape, sk.float32, align=4 * LINE)


@sk.inline
def copied(target: Any, x: Any, first: Any, end: Any, count: Any, DIM: int) -> None:
    """Write `count` rows of x from `first` on to a matrix of float32; zeros from row `end` and from column DIM on."""
    lane = sk.cuda.thread_idx("x")
    for row in range(count):
        for start in sk.static_range(0, target.shape[1], STRIP):
            column = start + lane
            is_there = first + row < end if start + STRIP <= DIM else (first + row < end) & (column < DIM)
            if start + STRIP <= target.shape[1] or column < target.shape[1]:
                target[row, column] = sk.float32(x[first + row, column]) if is_there else sk.float32(0)


@sk.inline
def scores_of(scores: Any, x: Any, y: Any, used: Any, hidden_from: Any, whole_until: Any, largest: Any) -> Any:
    """Write the scores of the first `used` keys y, -inf from key `hidden_from` of this thread on, and return the largest.

    x: this thread's row of q, by columns. whole_until: up to here no thread hides a key. A NaN is not the largest: its weight is.
    """
    lane = sk.cuda.thread_idx("x")
    for key in range(0, used, AT_ONCE):
        sums = [sk.float32(0)] * AT_ONCE
        for column in range(x.shape[0]):
            factor = x[column, lane]
            sums = [sk.fma(y[key + i, column], factor, each) for i, each in enumerate(sums)]
        if key + AT_ONCE > whole_until:
            sums = [each if key + i < hidden_from else sk.float32(-math.inf) for i, each in enumerate(sums)]
        for i in sk.static_range(AT_ONCE):
            scores[key + i, lane] = sums[i]
            largest = sums[i] if sums[i] > largest else largest
    return largest


@sk.inline
def weights_of(scores: Any, used: Any, factor: Any, less: Any, total: Any) -> Any:
    """Replace scores by 2**(score * factor + less), and return the total with them."""
    lane = sk.cuda.thread_idx("x")
    for key in range(used):
        weight = sk.fast_exp2(sk.fma(scores[key, lane], factor, less))
        total += weight
        scores[key, lane] = weight
    return total


@sk.inline
def add_products(found: Any, weights: Any, z: Any, used: Any, shrunk: Any) -> None:
    """Shrink a thread's sums, by columns, and add the first `used` rows of z by their weights."""
    lane = sk.cuda.thread_idx("x")
    for column in range(0, found.shape[0], AT_ONCE):
        sums = [found[column + i, lane] * shrunk for i in range(AT_ONCE)]
        for key in range(used):
            weight = weights[key, lane]
            sums = [sk.fma(z[key, column + i], weight, each) for i, each in enumerate(sums)]
        for i in sk.static_range(AT_ONCE):
            found[column + i, lane] = sums[i]


@factory
def attention_on_cpu_kernel(
    dtype: Dtype, DIM: int, CAUSAL: bool, HEADS_AXIS: int, ROWS: int, COLUMNS: int
) -> sk.JitFunction:
    """Return the kernel `k[(blocks of q, heads, batch), 32](q, k, v, out, lse, scale)` for heads of DIM; lse may be None.

    ROWS: of q, a multiple of 32; COLUMNS: keys that are copied at once, a multiple of 8.
    """
    queries, keys = sk.dynamic("queries"), sk.dynamic("keys")
    like_q, like_k, of_rows = arrays_of(dtype, DIM, HEADS_AXIS, queries, keys)
    Queries = Annotated[sk.Array, like_q]
    Keys = Annotated[sk.Array, like_k]
    Sums = Annotated[sk.Array, of_rows]
    D, STRIPS = padded(DIM), ROWS // STRIP
    PITCH = (D // LINE | 1) * LINE  # an odd number of lines, so that a column is spread over all sets of the cache

    @sk.jit
    def attention_on_cpu(q: Queries, k: Keys, v: Keys, out: Queries, lse: Sums | None, scale: sk.float32) -> None:
        lane = sk.cuda.thread_idx("x")
        block, head, batch = [sk.cuda.block_idx(axis) for axis in "xyz"]
        first = (sk.cuda.grid_dim("x") - 1 - block if CAUSAL else block) * ROWS  # most work first
        shared = head // (q.shape[HEADS_AXIS] // k.shape[HEADS_AXIS])
        q_head, out_head = [of_head(each, batch, head, HEADS_AXIS) for each in (q, out)]
        k_head, v_head = [of_head(each, batch, shared, HEADS_AXIS) for each in (k, v)]
        shift = keys - queries
        sign, factor = sign_and_factor(scale)
        x, found, state = matrix(STRIPS, D, STRIP), matrix(STRIPS, D, STRIP), matrix(2, STRIPS, STRIP)
        y, z, scores = matrix(COLUMNS, PITCH), matrix(COLUMNS, PITCH), matrix(COLUMNS, STRIP)
        strips = min(STRIPS, sk.cdiv(queries - first, STRIP))

        for strip in range(strips):
            row = first + strip * STRIP + lane
            for column in range(D):
                is_there = (row < queries) & (column < DIM)
                x[strip, column, lane] = sk.float32(q_head[row, column]) * sign if is_there else sk.float32(0)
                found[strip, column, lane] = sk.float32(0)
            state[0, strip, lane], state[1, strip, lane] = sk.float32(LOWEST), sk.float32(0)

        end = end_of_keys(first, keys, shift, ROWS, CAUSAL)
        for start in range(0, end, COLUMNS):
            count = min(COLUMNS, end - start)
            copies = sk.cdiv(count, AT_ONCE) * AT_ONCE
            sk.cuda.syncwarp()
            copied(y, k_head, start, keys, copies, DIM)
            copied(z, v_head, start, keys, copies, DIM)
            sk.cuda.syncwarp()
            for strip in range(strips):
                row = first + strip * STRIP
                used = min(count, row + STRIP + shift - start) if CAUSAL else count
                hidden_from = (min(keys, row + lane + shift + 1) if CAUSAL else keys) - start
                whole_until = (min(keys, row + shift + 1) if CAUSAL else keys) - start
                old = state[0, strip, lane]
                now = scores_of(scores, x[strip], y, used, hidden_from, whole_until, old)
                shrunk = sk.fast_exp2((old - now) * factor)
                total = weights_of(scores, used, factor, -(now * factor), state[1, strip, lane] * shrunk)
                add_products(found[strip], scores, z, used, shrunk)
                state[0, strip, lane], state[1, strip, lane] = now, total

        for strip in range(strips):
            row = first + strip * STRIP + lane
            largest, total = state[0, strip, lane], state[1, strip, lane]
            share = 1 / sk.where(total == 0, sk.float32(1), total)
            if row < queries:
                for column in range(DIM):
                    out_head[row, column] = dtype(found[strip, column, lane] * share)
                if lse is not None:
                    lse[batch, head, row] = largest * (factor / LOG2E) + sk.log(total)

    return attention_on_cpu
