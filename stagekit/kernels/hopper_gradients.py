"""Gradients of attention as they are written for compute capability 9.0, where `hopper_attending` has the result.

    warpgroup 0       load     one thread copies blocks of k and v, and blocks of q and of the result's gradient into a ring
    warpgroups 1, 2   derive   each has 64 rows of k and v, whose gradients stay in its registers

A program has a block of k and v and goes over the rows of q that see it, of all heads that share it. Scores lie with a row for
each key, so that exponentials and the gradients of scores are the left factors of products as they lie in registers. For the
gradient of q the latter lie in shared memory too, from both warpgroups. The TMA unit adds its sums to an array of float32, in an
order that is not the same on every run. A kernel before makes what each row of q needs, and zeros; one behind rounds the sums.

Source: Shah et al., "FlashAttention-3", 2024.
"""

from __future__ import annotations

import itertools
from typing import Annotated, Any

import stagekit as sk
from stagekit.kernels.heads import HEADS, LEAST_SCALE, LOG2E, Sizes, arrays_of, of_head, padded
from stagekit.kernels.hopper import HALVES, LINE, LOADER, UNIT, WARPGROUP, packed, put_unit
from stagekit.kernels.hopper_attending import PANEL, PARTS, STEP, WIDEST, along_heads, checked_heads, tiles_of
from stagekit.kernels.host import Dtype, empty, empty_like, factory, require
from stagekit.kernels.matrices import by_groups

KEYS = 64 * PARTS  # of a block
STAGES = 2  # of the ring of q and of gradients
REGISTERS = (24, 240)  # of a thread that loads, and of one that derives
FEWEST = (512, 1 << 24)  # rows of q, and scores: from there on an H200 was quicker with these kernels
LONGEST = 128  # rows of q of a block, of which arrays of numbers hold multiples
FLOATS_OF_LINE = LINE // 4  # of the sums of the gradient of q, which the TMA unit adds


@factory
def hopper_attention_rows_kernel(dtype: Dtype, DIM: int, HEADS_AXIS: int) -> sk.JitFunction:
    """Return the kernel `k[blocks, heads, batch](gradient, out, lse, numbers, sums, scale)`, of blocks of 128 rows of q.

    Written: numbers, (2, batch, heads, rows), what is added to the scores of each row before they are scaled, -inf behind the
    last row, and the sum of gradient * out, negative; sums, zeros.
    """
    queries, keys = sk.dynamic("queries"), sk.dynamic("keys")
    like_q, _, of_rows = arrays_of(dtype, DIM, False, HEADS_AXIS, queries, keys, HALVES, WIDEST)
    D = padded(DIM)

    @sk.jit(threads=128)
    def hopper_attention_rows(
        gradient: Annotated[sk.Array, like_q], out: Annotated[sk.Array, like_q], lse: Annotated[sk.Array, of_rows],
        numbers: Annotated[sk.Array, sk.Tensor((2, None, None, None), sk.float32)],
        sums: Annotated[sk.Array, sk.Tensor((None, None, queries, DIM), sk.float32)], scale: sk.float32,
    ) -> None:  # fmt: skip
        block, head, batch = sk.program_id(0), sk.program_id(1), sk.program_id(2)
        row = block * LONGEST
        g, o = [
            sk.load(of_head(each, batch, head, HEADS_AXIS).tile((row, 0), (LONGEST, D))) for each in (gradient, out)
        ]
        means = sk.reduce_sum(g.to(sk.float32) * o.to(sk.float32), axis=1)
        sk.store(numbers[1, batch, head].tile(row, LONGEST), -means)
        logarithms = sk.load(lse[batch, head].tile(row, LONGEST))
        shifts = sk.where(logarithms == -float("inf"), 0.0, logarithms / -sk.maximum(scale, LEAST_SCALE))
        is_row = row + sk.arange(0, LONGEST) < queries
        sk.store(numbers[0, batch, head].tile(row, LONGEST), sk.where(is_row, shifts, -float("inf")))
        sk.store(sums[batch, head].tile((row, 0), (LONGEST, D)), sk.zeros((LONGEST, D), sk.float32))

    return hopper_attention_rows


@factory
def hopper_attention_rounding_kernel(dtype: Dtype, DIM: int, HEADS_AXIS: int) -> sk.JitFunction:
    """Return the kernel `k[blocks, heads, batch](sums, dq, scale)`, dq = sums * scale, of blocks of 128 rows of q."""
    queries, keys = sk.dynamic("queries"), sk.dynamic("keys")
    like_q, _, _ = arrays_of(dtype, DIM, False, HEADS_AXIS, queries, keys, HALVES, WIDEST)
    D = padded(DIM)

    @sk.jit(threads=128)
    def hopper_attention_rounding(
        sums: Annotated[sk.Array, sk.Tensor((None, None, queries, DIM), sk.float32)],
        dq: Annotated[sk.Array, like_q],
        scale: sk.float32,
    ) -> None:
        head, batch, place = sk.program_id(1), sk.program_id(2), ((sk.program_id(0) * LONGEST, 0), (LONGEST, D))
        sk.store(of_head(dq, batch, head, HEADS_AXIS).tile(*place), sk.load(sums[batch, head].tile(*place)) * scale)

    return hopper_attention_rounding


@sk.inline
def seen(scores: Any, firsts: Any) -> Any:
    """Return scores, -inf where a key is not seen: in each of a thread's two rows by the rows of q before its `first`."""
    column = sk.int32(sk.lane_id()) % 4 * 2
    firsts = [first - column for first in firsts]
    return tuple(
        [sk.where(i // 4 * 8 + i % 2 >= firsts[i // 2 % 2], scores[i], -float("inf")) for i in range(len(scores))]
    )


@factory
def hopper_attention_backward_kernel(dtype: Dtype, DIM: int, CAUSAL: bool, HEADS_AXIS: int) -> sk.JitFunction:
    """Return the kernel `k(gradient, q, k, v, numbers, sums, dk, dv, scale, programs)` for heads of DIM.

    numbers, sums: of `hopper_attention_rows_kernel`, to whose zeros it adds. programs: one for each block of keys of each head.
    """
    queries, keys = sk.dynamic("queries"), sk.dynamic("keys")
    like_q, like_k, _ = arrays_of(dtype, DIM, CAUSAL, HEADS_AXIS, queries, keys, HALVES, WIDEST)
    Queries = Annotated[sk.Array, like_q]
    Keys = Annotated[sk.Array, like_k]
    PANELS = -(-DIM // PANEL)
    D = PANELS * PANEL
    M = 64 * PARTS // PANELS  # rows of q of a block: of their gradient each warpgroup makes 64 by 64
    multiply_rows, wait_rows = (getattr(sk.cuda, f"wgmma_{part}m64n{M}") for part in ("", "wait_"))
    multiply_found, wait_found = (getattr(sk.cuda, f"wgmma_{part}m64n{D}") for part in ("rs_", "wait_"))

    @sk.jit
    def hopper_attention_backward(
        gradient: Queries, q: Queries, k: Keys, v: Keys,
        numbers: Annotated[sk.Array, sk.Tensor((2, None, None, None), sk.float32)],
        sums: Annotated[sk.Array, sk.Tensor((None, None, queries, DIM), sk.float32)],
        dk: Keys, dv: Keys, scale: sk.float32, programs: sk.int32,
    ) -> None:  # fmt: skip
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=programs, block=WARPGROUP * (LOADER + PARTS)))
        k_tiles, v_tiles, q_tiles, g_tiles, dk_tiles, dv_tiles = [
            tiles_of(each, rows, HEADS_AXIS, PANELS)
            for each, rows in ((k, KEYS), (v, KEYS), (q, M), (gradient, M), (dk, UNIT[0]), (dv, UNIT[0]))
        ]
        sums_map = sk.tensor_map(sums, (1, 1, UNIT[0], FLOATS_OF_LINE), swizzle=LINE)
        k_tile, v_tile = [sk.alloc_shared((KEYS * D,), dtype, align=8 * LINE) for _ in range(2)]
        q_ring, g_ring = [sk.alloc_shared((STAGES, M * D), dtype, align=8 * LINE) for _ in range(2)]
        of_scores = sk.alloc_shared((2, M // PANEL, KEYS // UNIT[0], UNIT[0] * PANEL), dtype, align=8 * LINE)
        adding = sk.alloc_shared((PARTS * 4, 2, UNIT[0] * FLOATS_OF_LINE), sk.float32, align=8 * LINE)
        buffers = sk.alloc_shared((PARTS * 4, PANELS, UNIT[0] * UNIT[1]), dtype, align=8 * LINE)
        of_rows = sk.alloc_shared((STAGES, 2, 2, M), sk.float32, align=16)
        kv_pipe, pipe = sk.pipeline(1, PARTS * 4), sk.pipeline(STAGES, PARTS * 4)

        key_heads, share = sk.int32(k.shape[HEADS_AXIS]), sk.int32(q.shape[HEADS_AXIS] // k.shape[HEADS_AXIS])
        down, across = sk.ceildiv(sk.int32(keys), KEYS), sk.int32(k.shape[0]) * key_heads
        number = sk.int32(sk.cuda.block_idx("x"))
        block, which = number % down, number // down
        if CAUSAL:  # those with most work come first, of some heads together
            block, which = by_groups(number, down, across, HEADS)
        key, head, batch = block * KEYS, which % key_heads, which // key_heads
        shift = sk.int32(keys - queries)
        first = sk.maximum(key - shift, 0) // M if CAUSAL else 0
        blocks = sk.maximum(sk.ceildiv(sk.int32(queries), M) - first, 0)
        rounds = blocks * share

        def place_of(i: Any) -> Any:
            """Return the first row of q of a round, and its head."""
            return (first + i % blocks) * M, head * share + i // blocks

        def load(group: Any) -> None:
            if sk.cuda.thread_idx("x") < 32 and sk.cuda.elect_sync():
                full = kv_pipe.producer_acquire(kv_pipe.producer_start(), k_tiles.nbytes() + v_tiles.nbytes())
                k_tiles.load(k_tile, full, batch, head, key)
                v_tiles.load(v_tile, full, batch, head, key)
                state = pipe.producer_start()
                for i in range(rounds):
                    row, q_head = place_of(i)
                    full = pipe.producer_acquire(state, q_tiles.nbytes() + g_tiles.nbytes() + 4 * M * 4)
                    q_tiles.load(q_ring[state.stage], full, batch, q_head, row)
                    g_tiles.load(g_ring[state.stage], full, batch, q_head, row)
                    for which, half in itertools.product(range(2), range(2)):
                        target = of_rows[state.stage].ptr_to(which, half, 0)
                        sk.cuda.cp_async_bulk_g2s(target, numbers.ptr_to(which, batch, q_head, row), M * 4, full)
                    state = state.advance()

        def numbers_of(stage: Any, which: int) -> Any:
            """Return the numbers of the rows of q to which products of a thread are added.

            Its two rows of keys have copies of their own. Of one copy LLVM would move them to where the second product adds to
            them while the first one is under way.
            """
            column = sk.int32(sk.lane_id()) % 4 * 2
            return [of_rows[stage, which, i // 2 % 2, i // 4 * 8 + column + i % 2] for i in range(M // 2)]

        def begin_rows(tile: Any, group: Any, ring: Any, stage: Any, found: Any) -> Any:
            """Begin to add the products of a warpgroup's keys, or values, with a block of q, or of the gradient, to `found`."""
            x, y = tile.ptr_to(group * 64 * PANEL), ring[stage].ptr_to(0)
            found = along_heads(multiply_rows, (x, y), (KEYS, M), PANELS, found)
            sk.cuda.wgmma_commit()
            return found

        def begin_found(words: Any, ring: Any, stage: Any, found: Any) -> Any:
            """Begin to add the products of numbers in registers, a row for each key, with a block of q, or of the gradient."""
            y = ring[stage].ptr_to(0)
            for step in sk.static_range(M // STEP):
                of_step = words[4 * step : 4 * step + 4]
                found = multiply_found(*of_step, y, *found, trans_b=True, panel_b=M * LINE, offset_b=step * STEP * LINE)
            sk.cuda.wgmma_commit()
            return found

        def begin_q(group: Any, turn: Any) -> Any:
            """Begin 64 rows by 64 columns of the gradient of q, from what both warpgroups have put into shared memory."""
            panel, column = (group, 0) if PANELS == 1 else (0, group)
            found = (sk.float32(0),) * 32
            x, y = of_scores[turn, panel].ptr_to(0, 0), k_tile.ptr_to(column * KEYS * PANEL)
            for step in sk.static_range(KEYS // STEP):
                place = step * STEP * LINE
                found = sk.cuda.wgmma_m64n64(x, y, *found, trans_a=True, trans_b=True, offset_a=place, offset_b=place)
            sk.cuda.wgmma_commit()
            return found

        def put_scores(group: Any, turn: Any, found: Any) -> None:
            """Write the gradients of scores where products for the gradient of q read them, and wait for the other warpgroup."""
            warp = group * 4 + sk.int32(sk.warp_id()) % 4
            place = lambda row, column: q_tiles.map.place(*q_tiles.at(0, 0, row, column))  # noqa: E731
            for panel in sk.static_range(M // PANEL):
                put_unit(of_scores[turn, panel, warp], found[panel * 32 : panel * 32 + 32], place, dtype)
            sk.cuda.fence_proxy_async(space="shared")
            sk.cuda.barrier_sync(1, PARTS * WARPGROUP)

        def add(group: Any, found: Any, row: Any, q_head: Any) -> None:
            """Let the TMA unit add a warp's 16 rows of 64 columns to the sums of the gradient of q."""
            warp, lane = sk.int32(sk.warp_id()) % 4, sk.int32(sk.lane_id())
            buffer = adding[group * 4 + warp]
            if lane == 0:
                sk.cuda.cp_async_bulk_wait(read=True)
            sk.syncwarp()
            for i in sk.static_range(32):
                column = i // 4 * 8 + lane % 4 * 2 + i % 2
                at = sums_map.place(0, 0, lane // 4 + i // 2 % 2 * 8, column % FLOATS_OF_LINE)
                buffer[i // 16, at] = found[i]
            sk.cuda.fence_proxy_async(space="shared")
            sk.syncwarp()
            if lane == 0:
                of_row, column = (group * 64, 0) if PANELS == 1 else (0, group * PANEL)
                for half in sk.static_range(2):
                    place = batch, q_head, row + of_row + warp * 16, column + half * FLOATS_OF_LINE
                    sums_map.reduce("add", buffer.ptr_to(half, 0), place)
                sk.cuda.cp_async_bulk_commit()

        def hidden(scores: Any, group: Any, row: Any) -> Any:
            """Return scores, -inf of keys that are none, and above the diagonal if CAUSAL. Most blocks need nothing of it."""
            mine = key + group * 64 + sk.int32(sk.warp_id()) % 4 * 16 + sk.int32(sk.lane_id()) // 4
            is_whole = key + KEYS <= keys
            if CAUSAL:
                is_whole = is_whole & (key + KEYS - 1 <= row + shift)
            if not is_whole:
                sk.syncwarp()
                firsts = [sk.where(each < keys, each - shift - row if CAUSAL else 0, M) for each in (mine, mine + 8)]
                scores = seen(scores, firsts)
            return scores

        def derive(group: Any) -> None:
            factor = sk.maximum(scale, LEAST_SCALE) * LOG2E
            state, of_k, of_v = pipe.consumer_start(), (sk.float32(0),) * (D // 2), (sk.float32(0),) * (D // 2)
            kv_pipe.consumer_wait(kv_pipe.consumer_start())
            for i in range(rounds):
                row, q_head = place_of(i)
                stage = state.stage
                pipe.consumer_wait(state)
                scores, of_weights = numbers_of(stage, 0), numbers_of(stage, 1)
                sk.cuda.wgmma_fence()
                scores = begin_rows(k_tile, group, q_ring, stage, scores)
                of_weights = begin_rows(v_tile, group, g_ring, stage, of_weights)
                scores = hidden(wait_rows(*scores, pending=1), group, row)
                weights = [sk.fast_exp2(each * factor) for each in scores]
                words = [packed(weights[i], weights[i + 1], dtype) for i in range(0, M // 2, 2)]
                of_weights = wait_rows(*of_weights, pending=0)
                sk.cuda.wgmma_fence()
                of_v = begin_found(words, g_ring, stage, of_v)
                gradients = [weights[i] * of_weights[i] for i in range(M // 2)]
                put_scores(group, i % 2, gradients)
                words = [packed(gradients[i], gradients[i + 1], dtype) for i in range(0, M // 2, 2)]
                sk.cuda.wgmma_fence()
                of_q = begin_q(group, i % 2)
                of_k = begin_found(words, q_ring, stage, of_k)
                of_v = wait_found(*of_v, pending=2)
                of_q = sk.cuda.wgmma_wait_m64n64(*of_q, pending=1)
                add(group, of_q, row, q_head)
                of_k = wait_found(*of_k, pending=0)
                pipe.warp_release(state)
                state = state.advance()
            mine = key + group * 64 + sk.int32(sk.warp_id()) % 4 * 16
            place = [buffers[group * 4 + sk.int32(sk.warp_id()) % 4, panel] for panel in range(PANELS)]
            dv_tiles.store(place, of_v, batch, head, mine)
            dk_tiles.store(place, [each * scale for each in of_k], batch, head, mine)
            if sk.lane_id() == 0:
                sk.cuda.cp_async_bulk_wait(read=True)

        few, many = REGISTERS
        sk.warp_roles(sk.Role(load, LOADER, few), sk.Role(derive, PARTS, many))

    return hopper_attention_backward


def derive_by_warpgroups(
    shape: Sizes, of: tuple[Any, ...], given: tuple[Any, ...], scale: float
) -> tuple[Any, Any, Any]:
    """Return the gradients of q, k and v. of: dtype, DIM, CAUSAL and HEADS_AXIS. given: gradient, q, k, v, out and lse."""
    gradient, q, k, v, out, lse = given
    dtype, dim, _, axis = of
    of_q, of_k, of_v = map(empty_like, (q, k, v))
    blocks = int(sk.cdiv(shape.queries, LONGEST))
    numbers = empty(lse, (2, shape.batch, shape.heads, blocks * LONGEST), sk.float32)
    sums = empty(lse, (shape.batch, shape.heads, shape.queries, dim), sk.float32)
    hopper_attention_rows_kernel(dtype, dim, axis)[blocks, shape.heads, shape.batch](
        gradient, out, lse, numbers, sums, scale
    )
    programs = int(sk.cdiv(shape.keys, KEYS)) * shape.key_heads * shape.batch
    hopper_attention_backward_kernel(*of)(gradient, q, k, v, numbers, sums, of_k, of_v, scale, programs)
    hopper_attention_rounding_kernel(dtype, dim, axis)[blocks, shape.heads, shape.batch](sums, of_q, scale)
    return of_q, of_k, of_v


def hopper_attention_backward(
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
) -> tuple[Any, Any, Any]:
    """Return what `attention_backward` does, on compute capability 9.0 and in the sanitizer.

    Arguments and results are the same, within the limits of `hopper_attention`. The gradient of q is summed in an order that is
    not the same on every run.
    """
    shape, of, scale = checked_heads(q, k, v, heads_axis, causal, scale)
    require(shape.queries > 0, "q has no rows; `attention_backward` takes such")
    return derive_by_warpgroups(shape, of, (gradient, q, k, v, out, lse), scale)
