"""Attention on the CPU: a thread has a row of q, and what a warp keeps of its 32 rows lies in shared memory, side by side.

A program goes over the blocks of k and v, which it copies as float32, and with each over its strips of 32 rows. A strip makes
its scores eight keys at a time and its sums of values eight columns at a time: 16 vectors of AVX-512 hold them, which are half
of its registers, and each number of k or v that is read is multiplied by two vectors. Whatever is not in such a loop is in
memory, so that the code of a kernel fits the cache of instructions.

In bfloat16 products are those of `sk.warp_product_bf16`, by the unit that some processors have, of pairs of numbers. Elsewhere
weights are not rounded to the dtype of v, as tensor cores need them. Sources: those of `attending`; Goto and van de Geijn,
"Anatomy of High-Performance Matrix Multiplication", 2008.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import stagekit as sk
from stagekit.kernels.heads import LOG2E, LOWEST, arrays_of, end_of_keys, of_head, padded, sign_and_factor
from stagekit.kernels.host import Dtype, factory
from stagekit.kernels.options import require_multiple

STRIP = 32  # rows of q that go together, one for each thread of a program
AT_ONCE = 8  # keys, or columns of values
LINE = 16  # float32 that the memory moves at once
BLOCKS = {128: (128, 64), 256: (64, 32)}  # rows of q and of k, by the most columns of a head: what shared memory holds
BLOCKS_OF_PAIRS = {64: (256, 96), 128: (128, 96), 256: (64, 64)}  # the same for bfloat16


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
                target[row, column] = target.dtype(x[first + row, column]) if is_there else target.dtype(0)


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


@sk.inline
def rows_of_program(ROWS: int, CAUSAL: bool) -> Any:
    """Return this program's first row of q, its head and its sequence: those with most work first."""
    block, head, batch = [sk.cuda.block_idx(axis) for axis in "xyz"]
    return (sk.cuda.grid_dim("x") - 1 - block if CAUSAL else block) * ROWS, head, batch


@sk.inline
def heads_of(q: Any, k: Any, v: Any, out: Any, batch: Any, head: Any, HEADS_AXIS: int) -> list[Any]:
    """Return the matrices of a head of q, of k and v, which heads of q may share, and of the result."""
    shared = head // (q.shape[HEADS_AXIS] // k.shape[HEADS_AXIS])
    return [
        of_head(each, batch, which, HEADS_AXIS) for each, which in ((q, head), (k, shared), (v, shared), (out, head))
    ]


@factory
def attention_on_cpu_kernel(
    dtype: Dtype, DIM: int, CAUSAL: bool, HEADS_AXIS: int, ROWS: int, COLUMNS: int
) -> sk.JitFunction:
    """Return the kernel `k[(blocks of q, heads, batch), 32](q, k, v, out, lse, scale)` for heads of DIM; lse may be None.

    ROWS: of q, a multiple of 32; COLUMNS: keys that are copied at once, a multiple of 8.
    """
    require_multiple("ROWS", ROWS, STRIP)
    require_multiple("COLUMNS", COLUMNS, 8)
    queries, keys = sk.dynamic("queries"), sk.dynamic("keys")
    like_q, like_k, of_rows = arrays_of(dtype, DIM, CAUSAL, HEADS_AXIS, queries, keys)
    Queries = Annotated[sk.Array, like_q]
    Keys = Annotated[sk.Array, like_k]
    Sums = Annotated[sk.Array, of_rows]
    D, STRIPS = padded(DIM), ROWS // STRIP
    PITCH = (D // LINE | 1) * LINE  # an odd number of lines, so that a column is spread over all sets of the cache

    @sk.jit
    def attention_on_cpu(q: Queries, k: Keys, v: Keys, out: Queries, lse: Sums | None, scale: sk.float32) -> None:
        lane = sk.cuda.thread_idx("x")
        first, head, batch = rows_of_program(ROWS, CAUSAL)
        q_head, k_head, v_head, out_head = heads_of(q, k, v, out, batch, head, HEADS_AXIS)
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


# -- bfloat16 -------------------------------------------------------------------------------------------------------------


@sk.inline
def pair(low: Any, high: Any) -> Any:
    """Return two bfloat16 as a word."""
    return sk.uint32(low.view(sk.uint16)) | sk.uint32(high.view(sk.uint16)) << 16


@sk.inline
def transposed(rows: list[Any], lane: Any) -> list[Any]:
    """Return 16 numbers of each thread, turned among the 16 lanes of a half warp: number i of lane j is what j of i was."""
    for step in sk.static_range(4):
        far, is_low = 1 << step, lane >> step & 1 == 0
        for i in sk.static_range(LINE):
            if not i & far:
                low, high = rows[i], rows[i | far]
                rows[i] = sk.where(is_low, low, sk.shfl_xor_sync(0xFFFFFFFF, high, far))
                rows[i | far] = sk.where(is_low, sk.shfl_xor_sync(0xFFFFFFFF, low, far), high)
    return rows


@sk.inline
def turned(target: Any, x: Any, first: Any, end: Any, count: Any, DIM: int) -> None:
    """Write `count` rows of x from `first` on to the columns of a matrix of words, two rows to each; zeros from row `end` on."""
    lane = sk.cuda.thread_idx("x")
    for number in range(0, count // 2, LINE):
        row = first + 2 * number
        for start in sk.static_range(0, target.shape[0], STRIP):
            numbers = [number_at(x, row + i, start + lane, end, start + STRIP <= DIM, DIM) for i in range(2 * LINE)]
            words = transposed([pair(*numbers[i : i + 2]) for i in range(0, 2 * LINE, 2)], lane)
            for i in sk.static_range(LINE):
                target[start + i + lane // LINE * LINE, number + lane % LINE] = words[i]


@sk.inline
def number_at(x: Any, row: Any, column: Any, end: Any, is_column: bool, DIM: int) -> Any:
    """Return a number of a matrix; zero from row `end` and, unless it is known to be one, from column DIM on."""
    return x[row, column] if (row < end if is_column else (row < end) & (column < DIM)) else x.dtype(0)


@sk.inline
def hidden_scores(scores: Any, first: Any, used: Any, hidden_from: Any) -> None:
    """Replace scores from key `first` on by -inf, those of keys from `hidden_from` of this thread on."""
    lane = sk.cuda.thread_idx("x")
    for key in range(first, used):
        scores[key, lane] = scores[key, lane] if key < hidden_from else sk.float32(-math.inf)


@sk.inline
def largest_of(scores: Any, used: Any, largest: Any) -> Any:
    """Return the largest of a thread's first `used` scores, with `largest`. A NaN is not: its weight is."""
    lane = sk.cuda.thread_idx("x")
    for key in range(0, used, AT_ONCE):
        for i in sk.static_range(AT_ONCE):
            score = scores[key + i, lane]
            largest = score if score > largest else largest
    return largest


@sk.inline
def pairs_of_weights(pairs: Any, scores: Any, used: Any, factor: Any, less: Any, total: Any) -> Any:
    """Write 2**(score * factor + less) of the first `used` scores as pairs of bfloat16, and return the total with them."""
    lane = sk.cuda.thread_idx("x")
    for key in range(0, used, AT_ONCE):
        weights = [sk.fast_exp2(sk.fma(scores[key + i, lane], factor, less)) for i in range(AT_ONCE)]
        for i in sk.static_range(0, AT_ONCE, 2):
            total += weights[i] + weights[i + 1]
            pairs[key // 2 + i // 2, lane] = pair(sk.bfloat16(weights[i]), sk.bfloat16(weights[i + 1]))
    return total


@factory
def attention_by_pairs_kernel(DIM: int, CAUSAL: bool, HEADS_AXIS: int, ROWS: int, COLUMNS: int) -> sk.JitFunction:
    """Return the kernel `k[(blocks of q, heads, batch), 32](q, k, v, out, lse, scale)` for bfloat16 and processors with AMX.

    ROWS: of q, a multiple of 32; COLUMNS: keys that are copied at once, a multiple of 32.
    """
    require_multiple("ROWS", ROWS, STRIP)
    require_multiple("COLUMNS", COLUMNS, STRIP)
    queries, keys = sk.dynamic("queries"), sk.dynamic("keys")
    like_q, like_k, of_rows = arrays_of(sk.bfloat16, DIM, CAUSAL, HEADS_AXIS, queries, keys)
    Queries = Annotated[sk.Array, like_q]
    Keys = Annotated[sk.Array, like_k]
    Sums = Annotated[sk.Array, of_rows]
    D, STRIPS = -(-DIM // STRIP) * STRIP, ROWS // STRIP
    Y, Z = [(each // STRIP | 1) * STRIP for each in (D, COLUMNS)]  # an odd number of lines from row to row

    @sk.jit
    def attention_by_pairs(q: Queries, k: Keys, v: Keys, out: Queries, lse: Sums | None, scale: sk.float32) -> None:
        lane = sk.cuda.thread_idx("x")
        first, head, batch = rows_of_program(ROWS, CAUSAL)
        q_head, k_head, v_head, out_head = heads_of(q, k, v, out, batch, head, HEADS_AXIS)
        shift = keys - queries
        sign, factor = sign_and_factor(scale)
        found, state, scores = matrix(STRIPS, D, STRIP), matrix(2, STRIPS, STRIP), matrix(COLUMNS, STRIP)
        x, pairs, z = [
            sk.alloc_shared(shape, sk.uint32, align=4 * LINE)
            for shape in ((STRIPS, D // 2, STRIP), (COLUMNS // 2, STRIP), (D, Z // 2))
        ]
        y = sk.alloc_shared((COLUMNS, Y), sk.bfloat16, align=4 * LINE)
        strips = min(STRIPS, sk.cdiv(queries - first, STRIP))

        for strip in range(strips):
            for half in range(2):
                row = first + strip * STRIP + half * LINE
                for start in sk.static_range(0, D, STRIP):
                    numbers = [
                        number_at(q_head, row + i, start + lane, queries, start + STRIP <= DIM, DIM)
                        for i in range(LINE)
                    ]
                    numbers = transposed([sk.float32(each) * sign for each in numbers], lane)
                    for i in sk.static_range(0, LINE, 2):
                        place = start // 2 + i // 2 + lane // LINE * (LINE // 2), half * LINE + lane % LINE
                        x[strip, *place] = pair(*[sk.bfloat16(each) for each in numbers[i : i + 2]])
            for column in range(D):
                found[strip, column, lane] = sk.float32(0)
            state[0, strip, lane], state[1, strip, lane] = sk.float32(LOWEST), sk.float32(0)

        end = end_of_keys(first, keys, shift, ROWS, CAUSAL)
        for start in range(0, end, COLUMNS):
            count = min(COLUMNS, end - start)
            copies = sk.cdiv(count, STRIP) * STRIP
            sk.cuda.syncwarp()
            copied(y, k_head, start, keys, copies, DIM)
            turned(z, v_head, start, keys, copies, DIM)
            for strip in range(strips):
                row = first + strip * STRIP
                seen = min(count, row + STRIP + shift - start) if CAUSAL else count
                if seen > 0:
                    used = sk.cdiv(seen, STRIP) * STRIP
                    hidden_from = (min(keys, row + lane + shift + 1) if CAUSAL else keys) - start
                    whole_until = (min(keys, row + shift + 1) if CAUSAL else keys) - start
                    sk.warp_product_bf16(scores + 0, y + 0, x.ptr_to(strip, 0, 0), used, D, Y, is_added=False)
                    hidden_scores(scores, max(whole_until, 0), used, hidden_from)
                    old = state[0, strip, lane]
                    now = largest_of(scores, used, old)
                    less, shrunk = -(now * factor), sk.fast_exp2((old - now) * factor)
                    total = pairs_of_weights(pairs, scores, used, factor, less, state[1, strip, lane] * shrunk)
                    if sk.any_sync(0xFFFFFFFF, now != old):
                        for column in range(D):
                            found[strip, column, lane] *= shrunk
                    sk.warp_product_bf16(found.ptr_to(strip, 0, 0), z + 0, pairs + 0, D, used, Z)
                    state[0, strip, lane], state[1, strip, lane] = now, total

        for strip in range(strips):
            row = first + strip * STRIP + lane
            largest, total = state[0, strip, lane], state[1, strip, lane]
            state[1, strip, lane] = 1 / sk.where(total == 0, sk.float32(1), total)
            if lse is not None and row < queries:
                lse[batch, head, row] = largest * (factor / LOG2E) + sk.log(total)
            sk.cuda.syncwarp()
            for half in range(2):
                row, place = first + strip * STRIP + half * LINE, half * LINE + lane % LINE
                for start in sk.static_range(0, D, STRIP):
                    column = start + lane
                    columns = [start + i + lane // LINE * LINE for i in range(LINE)]
                    share = state[1, strip, place]
                    numbers = transposed([found[strip, each, place] * share for each in columns], lane)
                    for i in sk.static_range(LINE):
                        if row + i < queries and (start + STRIP <= DIM or column < DIM):
                            out_head[row + i, column] = sk.bfloat16(numbers[i])

    return attention_by_pairs


def cpu_kernel_for(dtype: Dtype, dim: int, causal: bool, heads_axis: int) -> tuple[sk.JitFunction, int]:
    """Return the kernel for such heads, and how many rows of q a program has."""
    blocks = BLOCKS_OF_PAIRS if dtype is sk.bfloat16 else BLOCKS
    rows, columns = next(blocks for most, blocks in blocks.items() if dim <= most)
    if dtype is sk.bfloat16:
        return attention_by_pairs_kernel(dim, causal, heads_axis, rows, columns), rows
    return attention_on_cpu_kernel(dtype, dim, causal, heads_axis, rows, columns), rows
