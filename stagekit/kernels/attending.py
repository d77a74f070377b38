"""Attention: softmax(scale * q @ k.T) @ v for each head, and its gradients, without the matrix of scores ever in memory.

A program has a block of rows of q and goes over the blocks of k and v, of which it keeps the largest score of each row, the sum
of exponentials and the sum of rows of v, scaled down whenever the largest score grows. Blocks that a causal mask hides are left
out. Backward, one kernel has a block of q and makes its gradient; another has a block of k and v, goes over the rows of q of all
heads that share it, and makes theirs. Every sum has one order: results are the same on every run. Compute capability 9.0 has
kernels of its own (`hopper_attending`, `hopper_gradients`), of which the gradient of q has sums in any order.

Source: Dao et al., "FlashAttention", 2022, and "FlashAttention-2", 2023; for the sums, Milakov and Gimelshein, "Online normalizer
calculation for softmax", 2018.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import stagekit as sk
from stagekit.kernels.attending_on_cpu import STRIP, cpu_kernel_for
from stagekit.kernels.heads import (
    HEADS,
    LOG2E,
    LOWEST,
    Sizes,
    arrays_of,
    checked_sizes,
    end_of_keys,
    of_head,
    padded,
    scale_of,
    sign_and_factor,
)
from stagekit.kernels.hopper_attending import are_for_warpgroups, attend_by_warpgroups
from stagekit.kernels.hopper_gradients import FEWEST, derive_by_warpgroups
from stagekit.kernels.host import (
    Dtype,
    dtype_of,
    empty,
    empty_like,
    factory,
    gpu_of,
    is_on_cpu,
    room_of,
)
from stagekit.kernels.matrices import by_groups
from stagekit.kernels.options import option_of
from stagekit.kernels.sharing import checked_out

WHOLE_DIM = 128  # up to which a warp holds whole rows of the gradients of k and v
Blocks = (
    tuple[int, int, int] | tuple[int, int, int, int]
)  # rows of q, rows of k and v, threads; stages, else 2 of 16 bits


# -- fragments ----------------------------------------------------------------------------------------------------------


@sk.inline
def place_of(CAUSAL: bool, *, is_last_first: bool) -> Any:
    """Return which block of rows, and of which head of which sequence, is this program's.

    If CAUSAL, those with most work come first, of several heads together, so that none of them is late: of q the last rows,
    `is_last_first`, which see most keys; of k and v the first ones.
    """
    block, head, batch = sk.program_id(0), sk.program_id(1), sk.program_id(2)
    if not CAUSAL:
        return block, head, batch
    blocks, heads = sk.num_programs(0), sk.num_programs(1)
    block, head = by_groups(head * blocks + block, blocks, heads, HEADS)
    return blocks - 1 - block if is_last_first else block, head, batch


@sk.inline
def hidden(scores: Any, row: Any, column: Any, keys: Any, shift: Any, CAUSAL: bool) -> Any:
    """Return scores, -inf where there is no key, and above the diagonal if CAUSAL. A block of which all counts stays as it is."""
    M, N = scores.shape
    i, j = sk.arange(0, M)[:, None], sk.arange(0, N)[None, :]
    count, first = keys - column, row + shift + 1 - column  # of the columns that there are, and that row 0 sees
    if CAUSAL:
        if sk.minimum(count, first) < N:
            scores = sk.where((j < count) & (j - i < first), scores, -float("inf"))
    elif count < N:
        scores = sk.where(j < count, scores, -float("inf"))
    return scores


@sk.inline
def with_block(state: Any, x: Any, y: Any, z: Any, factor: Any, hide: Any) -> Any:
    """Return (largest, total, found) with a block of keys y and values z. x: rows of q. hide: of scores, those that count."""
    largest, total, found = state
    scores = hide(sk.dot(x, y.T, whole_rows=True))
    now = sk.maximum(largest, sk.reduce_max(scores, axis=1))
    weights = sk.fast_exp2(sk.fma(scores, factor, -(now * factor)[:, None]))
    shrunk = sk.fast_exp2((largest - now) * factor)
    total = total * shrunk + sk.reduce_sum(weights, axis=1)
    return now, total, sk.dot(weights.to(x.dtype), z, found * shrunk[:, None])


@sk.inline
def logarithms(sums: Any) -> Any:
    """Return negative base 2 logarithms for natural ones; 0 for those of a row that sees no key: its scores are -inf."""
    return sk.where(sums == -float("inf"), 0.0, sums * -LOG2E)


# -- forward ------------------------------------------------------------------------------------------------------------


@factory
def attention_kernel(dtype: Dtype, DIM: int, CAUSAL: bool, HEADS_AXIS: int, BLOCKS: Blocks) -> sk.JitFunction:
    """Return the kernel `k[blocks of q, heads, batch](q, k, v, out, lse, scale)` for heads of DIM; lse may be None.

    HEADS_AXIS: 1 where a sequence is a matrix of a head, 2 where the heads of one place follow one another.
    """
    queries, keys = sk.dynamic("queries"), sk.dynamic("keys")
    like_q, like_k, of_rows = arrays_of(dtype, DIM, CAUSAL, HEADS_AXIS, queries, keys)
    Queries = Annotated[sk.Array, like_q]
    Keys = Annotated[sk.Array, like_k]
    Sums = Annotated[sk.Array, of_rows]
    M, N, threads, stages = (*BLOCKS, 2 if dtype.bits == 16 else 1)[:4]
    D = padded(DIM)

    @sk.jit(threads=threads)
    def attention(q: Queries, k: Keys, v: Keys, out: Queries, lse: Sums | None, scale: sk.float32) -> None:
        block, head, batch = place_of(CAUSAL, is_last_first=True)
        row = block * M
        shared = head // (q.shape[HEADS_AXIS] // k.shape[HEADS_AXIS])
        shift = keys - queries
        sign, factor = sign_and_factor(scale)
        x = sk.shared(sk.load(of_head(q, batch, head, HEADS_AXIS).tile((row, 0), (M, D))) * sign.to(dtype))
        k_head, v_head = of_head(k, batch, shared, HEADS_AXIS), of_head(v, batch, shared, HEADS_AXIS)
        state = sk.full(M, LOWEST, sk.float32), sk.zeros(M, sk.float32), sk.zeros((M, D), sk.float32)
        end = end_of_keys(row, keys, shift, M, CAUSAL)

        def blocks(column: Any) -> Any:
            return k_head.tile((column, 0), (N, D)), v_head.tile((column, 0), (N, D))

        column = sk.int64(0)
        for y, z in sk.staged(range(0, end, N), blocks, stages=stages):
            hide = lambda scores: hidden(scores, row, column, keys, shift, CAUSAL)  # noqa: E731, B023
            state = with_block(state, x, y, z, factor, hide)
            column += N
        largest, total, found = state
        found = found * (1 / sk.where(total == 0, 1.0, total))[:, None]
        sk.store(of_head(out, batch, head, HEADS_AXIS).tile((row, 0), (M, D)), found)
        if lse is not None:
            sk.store(lse[batch, head].tile(row, M), largest * (factor / LOG2E) + sk.log(total))

    return attention


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    heads_axis: int = 1,
    return_lse: bool = False,
    out: Any = None,
) -> Any:
    """Return softmax(scale * q @ k.T) @ v for each head of each sequence; with return_lse, a pair with log(sum(exp(scores))).

    q: (batch, heads, queries, dim), k and v: (batch, key heads, keys, dim), of one dtype, float32, float16 or bfloat16, with any
    strides but 1 along the last axis; dim is at most 256. heads_axis: 2 for (batch, queries, heads, dim) and so on. Heads of q
    in a row share a key head where there are fewer of those. causal: row i of q sees keys up to i + keys - queries; one that sees
    none gives zeros. scale: dim**-0.5 if left out. The second result is float32, of shape (batch, heads, queries).
    """
    shape = checked_sizes(q, k, v, heads_axis, causal)
    out = empty(q, tuple(q.shape), dtype_of(q)) if out is None else checked_out(out, q, apart=(k, v))
    lse = (
        empty(q, (shape.batch, shape.heads, shape.queries), sk.float32)
        if option_of("return_lse", return_lse, bool)
        else None
    )
    of, arguments = (dtype_of(q), shape.dim, causal, heads_axis), (q, k, v, out, lse, scale_of(scale, shape.dim))
    if is_on_cpu(q):
        kernel, rows = cpu_kernel_for(*of)
        kernel[(sk.cdiv(shape.queries, rows), shape.heads, shape.batch), STRIP](*arguments)
    elif gpu_of(q)["by_warpgroups"] and are_for_warpgroups(shape, (q, k, v, out), arguments[-1]):
        attend_by_warpgroups(shape, of, arguments)
    else:
        blocks = _blocks_for("forward", *of[:2], on_cpu=False, room=room_of(q))
        attention_kernel(*of, blocks)[sk.cdiv(shape.queries, blocks[0]), shape.heads, shape.batch](*arguments)
    return (out, lse) if return_lse else out


# -- backward -----------------------------------------------------------------------------------------------------------


@factory
def attention_backward_q_kernel(
    dtype: Dtype, DIM: int, CAUSAL: bool, HEADS_AXIS: int, BLOCKS: Blocks
) -> sk.JitFunction:
    """Return the kernel `k[blocks of q, heads, batch](gradient, q, k, v, out, lse, means, shifts, dq, scale)`.

    Written, for the gradients of k and v, of each row: means, the sum of gradient * out; shifts, what its scores are shifted by.
    """
    queries, keys = sk.dynamic("queries"), sk.dynamic("keys")
    like_q, like_k, of_rows = arrays_of(dtype, DIM, CAUSAL, HEADS_AXIS, queries, keys)
    Queries = Annotated[sk.Array, like_q]
    Keys = Annotated[sk.Array, like_k]
    Sums = Annotated[sk.Array, of_rows]
    M, N, threads, stages = (*BLOCKS, 2 if dtype.bits == 16 else 1)[:4]
    D = padded(DIM)

    @sk.jit(threads=threads)
    def attention_backward_q(
        gradient: Queries, q: Queries, k: Keys, v: Keys, out: Queries, lse: Sums, means: Sums,
        shifts: Sums, dq: Queries, scale: sk.float32,
    ) -> None:  # fmt: skip
        block, head, batch = place_of(CAUSAL, is_last_first=True)
        row = block * M
        shared = head // (q.shape[HEADS_AXIS] // k.shape[HEADS_AXIS])
        shift = keys - queries
        x, g, o = [
            sk.load(of_head(each, batch, head, HEADS_AXIS).tile((row, 0), (M, D))) for each in (q, gradient, out)
        ]
        mean = sk.reduce_sum(g.to(sk.float32) * o.to(sk.float32), axis=1)
        sk.store(means[batch, head].tile(row, M), mean)
        sign, factor = sign_and_factor(scale)
        x, g = sk.shared(x * sign.to(dtype)), sk.shared(g)
        less = logarithms(sk.load(lse[batch, head].tile(row, M)))
        sk.store(shifts[batch, head].tile(row, M), less)
        less, mean = sk.shared(less), sk.shared(mean)
        k_head, v_head = of_head(k, batch, shared, HEADS_AXIS), of_head(v, batch, shared, HEADS_AXIS)
        found = sk.zeros((M, D), sk.float32)
        end = end_of_keys(row, keys, shift, M, CAUSAL)

        def blocks(column: Any) -> Any:
            return k_head.tile((column, 0), (N, D)), v_head.tile((column, 0), (N, D))

        column = sk.int64(0)
        for y, z in sk.staged(range(0, end, N), blocks, stages=stages):
            scores = hidden(sk.dot(x, y.T, whole_rows=True), row, column, keys, shift, CAUSAL)
            weights = sk.fast_exp2(sk.fma(scores, factor, less[:, None]))
            of_weights = sk.dot(g, z.T, whole_rows=True)
            found = sk.dot((weights * (of_weights - mean[:, None])).to(dtype), y, found)
            column += N
        sk.store(of_head(dq, batch, head, HEADS_AXIS).tile((row, 0), (M, D)), found * scale)

    return attention_backward_q


@factory
def attention_backward_kv_kernel(
    dtype: Dtype, DIM: int, CAUSAL: bool, HEADS_AXIS: int, BLOCKS: Blocks
) -> sk.JitFunction:
    """Return the kernel `k[blocks of k, key heads, batch](gradient, q, k, v, means, shifts, dk, dv, scale)`."""
    queries, keys = sk.dynamic("queries"), sk.dynamic("keys")
    like_q, like_k, of_rows = arrays_of(dtype, DIM, CAUSAL, HEADS_AXIS, queries, keys)
    Queries = Annotated[sk.Array, like_q]
    Keys = Annotated[sk.Array, like_k]
    Sums = Annotated[sk.Array, of_rows]
    M, N, threads, stages = (*BLOCKS, 2 if dtype.bits == 16 else 1)[:4]
    D = padded(DIM)

    @sk.jit(threads=threads)
    def attention_backward_kv(
        gradient: Queries, q: Queries, k: Keys, v: Keys, means: Sums, shifts: Sums, dk: Keys, dv: Keys,
        scale: sk.float32,
    ) -> None:  # fmt: skip
        block, shared, batch = place_of(CAUSAL, is_last_first=False)
        column = block * N
        share = q.shape[HEADS_AXIS] // k.shape[HEADS_AXIS]
        shift = keys - queries
        y, z = [sk.load(of_head(each, batch, shared, HEADS_AXIS).tile((column, 0), (N, D))) for each in (k, v)]
        sign, factor = sign_and_factor(scale)
        y, z = sk.shared(y * sign.to(dtype)), sk.shared(z)
        found = sk.zeros((N, D), sk.float32), sk.zeros((N, D), sk.float32)  # the gradients of k and of v
        first = sk.maximum(column - shift, 0) // M * M if CAUSAL else 0

        def with_head(found: Any, head: Any) -> Any:
            q_head, g_head = of_head(q, batch, head, HEADS_AXIS), of_head(gradient, batch, head, HEADS_AXIS)

            def blocks(row: Any) -> Any:
                numbers = [each[batch, head].tile(row, M) for each in (shifts, means)]
                return q_head.tile((row, 0), (M, D)), g_head.tile((row, 0), (M, D)), *numbers

            row = sk.int64(first)
            for x, g, less, mean in sk.staged(range(first, queries, M), blocks, stages=stages):
                scores = sk.dot(y, x.T, whole_rows=D <= WHOLE_DIM)  # a row for each key
                scores = hidden(scores.T, row, column, keys, shift, CAUSAL).T
                weights = sk.fast_exp2(sk.fma(scores, factor, less[None, :]))
                of_values = sk.dot(weights.to(dtype), g, found[1])
                of_scores = weights * (sk.dot(z, g.T, whole_rows=D <= WHOLE_DIM) - mean[None, :])
                found = sk.dot(of_scores.to(dtype), x, found[0]), of_values
                row += M
            return found

        for head in range(shared * share, (shared + 1) * share):
            found = with_head(found, head)
        sk.store(of_head(dk, batch, shared, HEADS_AXIS).tile((column, 0), (N, D)), found[0] * scale)
        sk.store(of_head(dv, batch, shared, HEADS_AXIS).tile((column, 0), (N, D)), found[1])

    return attention_backward_kv


def attention_backward(
    gradient: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    heads_axis: int = 1,
    deterministic: bool = False,
) -> tuple[Any, Any, Any]:
    """Return the gradients of q, k and v, of their dtype and shapes, from that of `attention`'s result.

    gradient, out: like q. lse: what `attention` gave. deterministic: whether results are the same on every run. They are so in
    any case but on compute capability 9.0 where there is much to do, and there it takes longer. All else is as it was given to
    `attention`.
    """
    shape = checked_sizes(q, k, v, heads_axis, causal)
    factor, on_cpu = scale_of(scale, shape.dim), is_on_cpu(q)
    is_free = not option_of("deterministic", deterministic, bool)
    if is_free and not on_cpu and _has_gradients_by_warpgroups(shape, (q, k, v, gradient), factor):
        of, given = (dtype_of(q), shape.dim, causal, heads_axis), (gradient, q, k, v, out, lse)
        return derive_by_warpgroups(shape, of, given, factor)
    of_q, of_k, of_v, means, shifts = map(empty_like, (q, k, v, lse, lse))
    of, room = (dtype_of(q), shape.dim, causal, heads_axis), sys.maxsize if on_cpu else room_of(q)
    blocks = _blocks_for("q", *of[:2], on_cpu=on_cpu, room=room)
    grid = sk.cdiv(shape.queries, blocks[0]), shape.heads, shape.batch
    attention_backward_q_kernel(*of, blocks)[grid](gradient, q, k, v, out, lse, means, shifts, of_q, factor)
    blocks = _blocks_for("k and v", *of[:2], on_cpu=on_cpu, room=room)
    grid = sk.cdiv(shape.keys, blocks[1]), shape.key_heads, shape.batch
    attention_backward_kv_kernel(*of, blocks)[grid](gradient, q, k, v, means, shifts, of_k, of_v, factor)
    return of_q, of_k, of_v


def _has_gradients_by_warpgroups(shape: Sizes, arrays: tuple[Any, ...], factor: float) -> bool:
    """Return whether the TMA unit can copy these arrays, and gradients that lie without gaps, and there is enough to do."""
    is_whole = shape.dim * dtype_of(arrays[0]).itemsize % 16 == 0
    return is_whole and gpu_of(arrays[0])["by_warpgroups"] and are_for_warpgroups(shape, arrays, factor, FEWEST)


# -- on the host --------------------------------------------------------------------------------------------------------

_Table = dict[str, dict[int, Blocks]]
_OF_GPU: _Table = {  # of a kernel, by the most columns of a head: what was fastest on an H200, where tensor cores multiply
    "forward": {64: (128, 64, 128), 128: (128, 64, 128), 256: (128, 32, 256)},
    "q": {64: (128, 64, 128), 128: (128, 32, 128), 256: (64, 16, 128)},
    "k and v": {64: (64, 64, 128), 128: (64, 64, 128), 256: (32, 64, 256)},
}

_BY_THREADS: _Table = {  # the same of float32, of which nothing is spilled so
    "forward": {64: (64, 64, 128), 128: (128, 64, 256), 256: (64, 64, 256)},
    "q": {64: (64, 64, 128), 128: (64, 32, 128), 256: (64, 32, 256)},
    "k and v": {64: (64, 64, 128), 128: (64, 64, 256), 256: (32, 64, 256)},
}

_OF_CPU: _Table = {  # of the gradients: lanes of a warp are rows of q, which share k and v in the cache; as many as have memory
    "q": {128: (64, 32, 64, 2), 256: (32, 32, 32, 2)},
    "k and v": {256: (16, 32, 32, 2)},
}

# where blocks have 99 KB of shared memory, as on compute capability 8.6, 8.9 and 12.0; by the bits of a number
_FOR_LITTLE_ROOM: dict[int, _Table] = {
    16: {"forward": {256: (64, 32, 128)}, "q": {}, "k and v": {256: (16, 32, 128)}},
    32: {
        "forward": {128: (64, 64, 256), 256: (32, 32, 128)},
        "q": {256: (32, 16, 128)},
        "k and v": {128: (32, 64, 128), 256: (16, 32, 128)},
    },
}
_ROOM = {16: 129 * 1024, 32: 169 * 1024}  # that the others take, at most


def _blocks_for(kernel: str, dtype: Dtype, dim: int, *, on_cpu: bool, room: int = sys.maxsize) -> Blocks:
    """Return the blocks of a kernel. room: the bytes of shared memory that a block may have."""
    blocks = (_OF_CPU if on_cpu else _OF_GPU if dtype.bits == 16 else _BY_THREADS)[kernel]
    if room < _ROOM[dtype.bits]:
        blocks = blocks | _FOR_LITTLE_ROOM[dtype.bits][kernel]
    return next(each for most, each in blocks.items() if dim <= most)
