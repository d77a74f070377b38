"""Attention as it is written for compute capability 9.0: warps with roles, tiles by the TMA unit, products by wgmma.

    warpgroup 0       load     one thread copies blocks of q, and of k and v into rings of stages
    warpgroups 1, 2   attend   each has 64 rows of q, and their largest scores, sums and rows of the result in its registers

A warpgroup goes over the blocks of k and v, the last ones first. The exponentials of its scores are the left factor of the
product with v as they lie in its registers. In its turn it begins two products: the scores of a block, and the exponentials of
the block before with their values. Meanwhile the other warpgroup computes exponentials; a named barrier for each says whose turn
it is.

A head lies as one or two panels of 64 columns; columns and rows outside the array are zeros, and are not written.

Source: Shah et al., "FlashAttention-3", 2024.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import stagekit as sk
from stagekit.kernels.heads import HEADS, LEAST_SCALE, LOG2E, LOWEST, Sizes, arrays_of, checked_sizes, scale_of
from stagekit.kernels.hopper import HALVES, LINE, LOADER, UNIT, WARPGROUP, packed, put_unit
from stagekit.kernels.host import Dtype, dtype_of, empty, factory, remembered, require
from stagekit.kernels.matrices import by_groups
from stagekit.kernels.options import option_of
from stagekit.kernels.sharing import checked_out, footprint_of
from stagekit.kernels.splitting import MULTIPROCESSORS

PARTS = 2  # warpgroups that attend, of 64 rows of q each
ROWS = 64 * PARTS
STAGES = 2  # of the rings of k and v
PANEL = 64  # columns of a head
STEP = 16  # of the common axis, of one product
WIDEST = 128  # columns of a head
FEWEST = (256, 1 << 20)
"""Rows of q, and scores of all heads, from which on `attention` takes this kernel: where an H200 was quicker with it, launches
included.
"""

MOST_GROWTH = 8.0  # of an exponent, of base 2: exponentials are at most 256
ROUNDING = 1.5 * 2**23  # a float32 less than 2**22 in size, added to it, has its whole part in the last bits of the sum
# Of the polynomial, highest first, that is 2**x for x from -0.5 to 0.5 within 3e-6.
POWERS = (0.009582853, 0.055906426, 0.24024099, 0.6931242, 1.0)


class HeadPlan(NamedTuple):
    """How heads are attended. keys: of a block. registers: of a thread that loads, and of one that attends.

    share: one exponential of so many is computed by products, so that the unit of special functions has less to do; 0: none is.
    """

    keys: int
    registers: tuple[int, int]
    share: int


@sk.inline
def plan_of(panels: int, causal: bool) -> HeadPlan:
    """Return what was quickest on an H200 for heads of so many panels: more keys in a block spill registers if causal."""
    if panels > 1:
        return HeadPlan(128, (56, 224), 0 if causal else 16)
    return HeadPlan(128, (56, 224), 8) if causal else HeadPlan(192, (24, 240), 8)


class Attended(NamedTuple):
    """What a thread has of two rows of q: their largest scores so far, its part of the sums of exponentials, the rows of the
    result, and the exponentials of the last block, rounded, two in a word.
    """

    largest: tuple[Any, Any]
    total: tuple[Any, Any]
    found: tuple[Any, ...]
    words: tuple[Any, ...]


@sk.inline
def of_rows(values: Sequence[Any], half: int) -> list[Any]:
    """Return those of a thread's values that are in its upper row, half 0, or in the lower one."""
    return [values[i] for i in range(len(values)) if i // 2 % 2 == half]


@sk.inline
def over_quad(value: Any, combine: Any) -> Any:
    """Return what four lanes that have a row in common make together of their values."""
    for mask in (1, 2):
        value = combine(value, sk.shfl_xor_sync(0xFFFFFFFF, value, mask))
    return value


@sk.inline
def folded(values: list[Any], combine: Any) -> Any:
    """Return the values combined, as a tree: neighbours first."""
    while len(values) > 1:
        values = [combine(*values[i : i + 2]) if i + 1 < len(values) else values[i] for i in range(0, len(values), 2)]
    return values[0]


@sk.inline
def power_by_products(x: Any) -> Any:
    """Return 2**x for x of at most 8, within 3e-6 of itself, without the unit of special functions; of NaN it is any number.

    The fraction's power is a polynomial; the whole part is added to the exponent's bits of the result.
    """
    x = sk.maximum(x, -127.0)
    shifted = x + ROUNDING
    fraction = x - (shifted - ROUNDING)
    power = sk.float32(POWERS[0])
    for each in POWERS[1:]:
        power = sk.fma(power, fraction, each)
    return (power.view(sk.uint32) + (shifted.view(sk.uint32) << 23)).view(sk.float32)


@sk.inline
def with_scores(state: Attended, scores: Sequence[Any], factor: Any, plan: HeadPlan, dtype: Dtype) -> Attended:
    """Return the state with the exponentials of a block's scores.

    Exponents are less the largest score when all was shrunk last: it is again where a largest score has grown by much since, or
    is NaN, so that the sums are NaN too.
    """
    now = [
        over_quad(folded([state.largest[half], *of_rows(scores, half)], sk.maximum), sk.maximum) for half in range(2)
    ]
    growth = [(now[half] - state.largest[half]) * factor for half in range(2)]
    few = (growth[0] <= MOST_GROWTH) & (growth[1] <= MOST_GROWTH)
    if not sk.all_sync(0xFFFFFFFF, few):
        shrunk = [sk.fast_exp2(-each) for each in growth]
        found = tuple([state.found[i] * shrunk[i // 2 % 2] for i in range(len(state.found))])
        totals = tuple([state.total[half] * shrunk[half] for half in range(2)])
        state = Attended(tuple(now), totals, found, state.words)
    less = [each * factor for each in state.largest]
    exponents = [sk.fma(scores[i], factor, -less[i // 2 % 2]) for i in range(len(scores))]
    weights = [
        power_by_products(each) if plan.share and i % plan.share == plan.share - 1 else sk.fast_exp2(each)
        for i, each in enumerate(exponents)
    ]
    total = tuple([state.total[half] + folded(of_rows(weights, half), lambda x, y: x + y) for half in range(2)])
    words = tuple([packed(weights[i], weights[i + 1], dtype) for i in range(0, len(weights), 2)])
    return Attended(state.largest, total, state.found, words)


class HeadTiles(NamedTuple):
    """How the TMA unit copies some rows of a head: a panel of 64 columns after the other. HEADS_AXIS: of the array, 1 or 2."""

    map: Any
    HEADS_AXIS: int
    rows: int
    panels: int

    @sk.inline
    def nbytes(self) -> Any:
        """Return the bytes of a copy."""
        return self.panels * self.map.nbytes

    @sk.inline
    def at(self, batch: Any, head: Any, row: Any, column: Any) -> Any:
        """Return the index of an element in the array."""
        return (batch, head, row, column) if self.HEADS_AXIS == 1 else (batch, row, head, column)

    @sk.inline
    def load(self, tile: Any, full: Any, batch: Any, head: Any, row: Any) -> None:
        """Begin to copy the rows from `row` on."""
        for panel in sk.static_range(self.panels):
            place = tile.ptr_to(panel * self.rows * PANEL)
            self.map.load(place, self.at(batch, head, row, panel * PANEL), full)

    @sk.inline
    def store(self, buffers: Any, found: Any, batch: Any, head: Any, row: Any) -> None:
        """Let the TMA unit store a warp's rows from `row` on. buffers: one for each panel. found: numbers of each thread."""
        lane = sk.lane_id()
        if lane == 0:
            sk.cuda.cp_async_bulk_wait(read=True)
        sk.syncwarp()
        place = lambda row, column: self.map.place(*self.at(0, 0, row, column))  # noqa: E731
        for panel in sk.static_range(self.panels):
            put_unit(buffers[panel], found[panel * 32 : panel * 32 + 32], place, self.map.array.dtype)
        sk.cuda.fence_proxy_async(space="shared")
        sk.syncwarp()
        if lane == 0:
            for panel in sk.static_range(self.panels):
                self.map.store(buffers[panel], self.at(batch, head, row, panel * PANEL))
            sk.cuda.cp_async_bulk_commit()


@sk.inline
def tiles_of(array: Any, rows: int, HEADS_AXIS: int, panels: int) -> HeadTiles:
    """Return how so many rows of the heads of an array are copied."""
    box = (1, 1, rows, PANEL) if HEADS_AXIS == 1 else (1, rows, 1, PANEL)
    return HeadTiles(sk.tensor_map(array, box, swizzle=LINE), HEADS_AXIS, rows, panels)


@sk.inline
def along_heads(multiply: Any, factors: tuple[Any, Any], rows: tuple[int, int], panels: int, sums: Any) -> Any:
    """Begin to add products along heads to sums. factors: where they begin. rows: of a panel of each."""
    for step in sk.static_range(panels * PANEL // STEP):
        panel, along = step * STEP // PANEL, step * STEP % PANEL * (LINE // PANEL)
        places = {"offset_a": panel * rows[0] * LINE + along, "offset_b": panel * rows[1] * LINE + along}
        sums = multiply(*factors, *sums, **places)
    return sums


@sk.inline
def seen(scores: Any, count: Any, first: Any) -> Any:
    """Return scores of a block, -inf where a row does not see the key. count: keys that there are, from the block's first on.

    first: how many of them row 0 of the warpgroup sees, and each row one more than the last; None if rows see them all.
    """
    warp, lane = sk.int32(sk.warp_id()) % 4, sk.int32(sk.lane_id())
    ends = [count, count]
    if first is not None:
        first = first + warp * 16 + lane // 4
        ends = [sk.minimum(count, first), sk.minimum(count, first + 8)]
    ends = [sk.int32(each) - lane % 4 * 2 for each in ends]
    return tuple(
        [sk.where(i // 4 * 8 + i % 2 < ends[i // 2 % 2], scores[i], -float("inf")) for i in range(len(scores))]
    )


@factory
def hopper_attention_kernel(dtype: Dtype, DIM: int, CAUSAL: bool, HEADS_AXIS: int) -> sk.JitFunction:
    """Return the kernel `k(q, k, v, out, lse, scale, programs)` for heads of DIM; lse may be None. programs: of the launch."""
    queries, keys = sk.dynamic("queries"), sk.dynamic("keys")
    like_q, like_k, of_each_row = arrays_of(dtype, DIM, CAUSAL, HEADS_AXIS, queries, keys, HALVES, WIDEST)
    Queries = Annotated[sk.Array, like_q]
    Keys = Annotated[sk.Array, like_k]
    Sums = Annotated[sk.Array, of_each_row]
    PANELS = -(-DIM // PANEL)
    D = PANELS * PANEL
    plan = plan_of(PANELS, CAUSAL)
    KEYS = plan.keys
    multiply_q, wait_scores = (getattr(sk.cuda, f"wgmma_{part}m64n{KEYS}") for part in ("", "wait_"))
    multiply_v, wait_found = (getattr(sk.cuda, f"wgmma_{part}m64n{D}") for part in ("rs_", "wait_"))

    @sk.jit
    def hopper_attention(
        q: Queries, k: Keys, v: Keys, out: Queries, lse: Sums | None, scale: sk.float32, programs: sk.int32
    ) -> None:
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=programs, block=WARPGROUP * (LOADER + PARTS)))
        q_tiles, k_tiles, v_tiles, out_tiles = [
            tiles_of(each, rows, HEADS_AXIS, PANELS) for each, rows in ((q, ROWS), (k, KEYS), (v, KEYS), (out, UNIT[0]))
        ]
        q_tile = sk.alloc_shared((ROWS * D,), dtype, align=8 * LINE)
        k_ring, v_ring = [sk.alloc_shared((STAGES, KEYS * D), dtype, align=8 * LINE) for _ in range(2)]
        buffers = sk.alloc_shared((PARTS * 4, PANELS, UNIT[0] * UNIT[1]), dtype, align=8 * LINE)
        q_pipe, k_pipe, v_pipe = [sk.pipeline(stages, PARTS * 4) for stages in (1, STAGES, STAGES)]

        heads, shared_by = sk.int32(q.shape[HEADS_AXIS]), sk.int32(q.shape[HEADS_AXIS] // k.shape[HEADS_AXIS])
        down, across, shift = (
            sk.ceildiv(sk.int32(queries), ROWS),
            sk.int32(q.shape[0]) * heads,
            sk.int32(keys - queries),
        )
        tiles = range(sk.int32(sk.cuda.block_idx("x")), down * across, programs)

        def place_of(number: Any) -> Any:
            """Return a tile's first row, its head and its sequence, and the blocks of keys that its rows see, at least one.

            Those with most work come first if CAUSAL, of some heads together.
            """
            block, which = number % down, number // down
            end = sk.int32(keys)
            if CAUSAL:
                block, which = by_groups(number, down, across, HEADS)
                block = down - 1 - block
                end = sk.minimum(end, (block + 1) * ROWS + shift)
            return block * ROWS, which % heads, which // heads, sk.maximum(sk.ceildiv(end, KEYS), 1)

        def load(group: Any) -> None:
            if sk.cuda.thread_idx("x") < 32 and sk.cuda.elect_sync():
                q_state, state = q_pipe.producer_start(), k_pipe.producer_start()
                for number in tiles:
                    row, head, batch, blocks = place_of(number)
                    q_tiles.load(q_tile, q_pipe.producer_acquire(q_state, q_tiles.nbytes()), batch, head, row)
                    q_state = q_state.advance()
                    for i in range(blocks - 1, -1, -1):
                        for part, ring, pipe in ((k_tiles, k_ring, k_pipe), (v_tiles, v_ring, v_pipe)):
                            full = pipe.producer_acquire(state, part.nbytes())
                            part.load(ring[state.stage], full, batch, head // shared_by, i * KEYS)
                        state = state.advance()

        def begin_scores(group: Any, stage: Any) -> Any:
            """Begin the products of a warpgroup's rows of q with a block of k."""
            x, y = q_tile.ptr_to(group * 64 * PANEL), k_ring[stage].ptr_to(0)
            scores = along_heads(multiply_q, (x, y), (ROWS, KEYS), PANELS, (sk.float32(0),) * (KEYS // 2))
            sk.cuda.wgmma_commit()
            return scores

        def begin_values(state: Attended, stage: Any) -> Any:
            """Begin the product of a block's exponentials with its values."""
            found = state.found
            y = v_ring[stage].ptr_to(0)
            for step in sk.static_range(KEYS // STEP):
                words = state.words[4 * step : 4 * step + 4]
                place = step * STEP * LINE
                found = multiply_v(*words, y, *found, trans_b=True, panel_b=KEYS * LINE, offset_b=place)
            sk.cuda.wgmma_commit()
            return found

        def hidden(scores: Any, row: Any, block: Any) -> Any:
            """Return scores of rows from `row` on with a block of keys, -inf where a row does not see the key."""
            column = sk.int32(block) * KEYS
            return seen(scores, sk.int32(keys) - column, row + shift + 1 - column if CAUSAL else None)

        def store(state: Attended, group: Any, row: Any, head: Any, batch: Any) -> None:
            """Divide a warp's rows, of those of the warpgroup from `row` on, by the sums of exponentials, and store them."""
            warp, lane = sk.int32(sk.warp_id()) % 4, sk.int32(sk.lane_id())
            first = row + warp * 16
            totals = [over_quad(each, lambda x, y: x + y) for each in state.total]
            inverse = [1 / sk.where(each == 0, 1.0, each) for each in totals]
            found = [state.found[i] * inverse[i // 2 % 2] for i in range(D // 2)]
            out_tiles.store([buffers[group * 4 + warp, panel] for panel in range(PANELS)], found, batch, head, first)
            if lse is not None:
                for half in sk.static_range(2):
                    at = first + half * 8 + lane // 4
                    if lane % 4 == 0 and at < queries:
                        lse[batch, head, at] = state.largest[half] * scale + sk.log(totals[half])

        def turn(group: Any) -> None:
            """Wait until the other warpgroup has begun its products, whose exponentials are next."""
            sk.cuda.barrier_sync(1 + group, PARTS * WARPGROUP)
            sk.cuda.wgmma_fence()

        def next_turn(group: Any) -> None:
            sk.cuda.barrier_arrive(2 - group, PARTS * WARPGROUP)

        def attend(group: Any) -> None:
            q_state, k_state, v_state = q_pipe.consumer_start(), k_pipe.consumer_start(), v_pipe.consumer_start()
            factor = sk.maximum(scale, LEAST_SCALE) * LOG2E
            if group == 1:
                next_turn(group)

            def with_block(state: Attended, k_state: Any, v_state: Any, row: Any, block: Any, whole: Any) -> Any:
                """Add the values of the last block, and take in the scores of the next one. whole: blocks of which all counts."""
                k_pipe.consumer_wait(k_state)
                v_pipe.consumer_wait(v_state)
                turn(group)
                scores = begin_scores(group, k_state.stage)
                found = begin_values(state, v_state.stage)
                next_turn(group)
                scores = wait_scores(*scores, pending=1)
                k_pipe.warp_release(k_state)
                found = wait_found(*found, pending=0)
                v_pipe.warp_release(v_state)
                state = Attended(state.largest, state.total, found, state.words)
                if CAUSAL and block >= whole:
                    sk.syncwarp()  # which is never run for nothing: so most blocks do without all these comparisons
                    scores = hidden(scores, row, block)
                state = with_scores(state, scores, factor, plan, dtype)
                return state, k_state.advance(), v_state.advance()

            for number in tiles:
                row, head, batch, blocks = place_of(number)
                row += group * 64
                q_pipe.consumer_wait(q_state)
                k_pipe.consumer_wait(k_state)
                turn(group)
                scores = begin_scores(group, k_state.stage)
                next_turn(group)
                scores = wait_scores(*scores, pending=0)
                k_pipe.warp_release(k_state)
                k_state = k_state.advance()
                state = Attended((sk.float32(LOWEST),) * 2, (sk.float32(0),) * 2, (sk.float32(0),) * (D // 2), ())
                state = with_scores(state, hidden(scores, row, blocks - 1), factor, plan, dtype)
                whole = sk.minimum(blocks - 1, sk.maximum(row + shift + 1, 0) // KEYS)
                for i in range(blocks - 2, -1, -1):
                    state, k_state, v_state = with_block(state, k_state, v_state, row, i, whole)
                q_pipe.warp_release(q_state)
                q_state = q_state.advance()
                v_pipe.consumer_wait(v_state)
                sk.cuda.wgmma_fence()
                found = wait_found(*begin_values(state, v_state.stage), pending=0)
                v_pipe.warp_release(v_state)
                v_state = v_state.advance()
                store(Attended(state.largest, state.total, found, ()), group, row, head, batch)
            if group == 0:
                turn(group)
            if sk.lane_id() == 0:
                sk.cuda.cp_async_bulk_wait(read=True)

        few, many = plan.registers
        sk.warp_roles(sk.Role(load, LOADER, few), sk.Role(attend, PARTS, many))

    return hopper_attention


def are_for_warpgroups(shape: Sizes, arrays: Sequence[Any], scale: float, fewest: tuple[int, int] = FEWEST) -> bool:
    """Return whether kernels by warpgroups take these arrays of heads, and there are `fewest` rows of q and scores or more."""
    rows, scores = fewest
    is_long = shape.queries >= rows and shape.batch * shape.heads * shape.queries * shape.keys >= scores
    if not is_long or dtype_of(arrays[0]).bits != 16 or shape.dim > WIDEST or scale <= 0:
        return False
    return all(map(_has_tensor_map, arrays))


def _has_tensor_map(array: Any) -> bool:
    """Return whether an array of four axes lies as the TMA unit needs it."""
    if hasattr(array, "data_ptr"):  # torch, in elements of 16 bits
        return array.data_ptr() % 16 == 0 and _are_whole_units(array.stride(), 2)
    place = footprint_of(array)
    return place is not None and place.start % 16 == 0 and _are_whole_units(place.strides, 1)


@remembered
def _are_whole_units(strides: tuple[int, ...], itemsize: int) -> bool:
    return all(each > 0 and each * itemsize % 16 == 0 for each in strides[:3])


def attend_by_warpgroups(shape: Sizes, of: tuple[Any, ...], arguments: tuple[Any, ...]) -> None:
    """Launch the kernel `of` dtype, DIM, CAUSAL and HEADS_AXIS with q, k, v, out, lse and scale."""
    tiles = -(-shape.queries // ROWS) * shape.batch * shape.heads
    if tiles:
        hopper_attention_kernel(*of)(*arguments, min(tiles, MULTIPROCESSORS))


def checked_heads(
    q: Any, k: Any, v: Any, heads_axis: int, causal: bool, scale: float | None
) -> tuple[Sizes, tuple[Dtype, int, bool, int], float]:
    """Return the sizes, the options of the kernels, and the scale. Refused: heads for which only other kernels are."""
    shape, dtype = checked_sizes(q, k, v, heads_axis, causal), dtype_of(q)
    scale = scale_of(scale, shape.dim)
    require(dtype in HALVES, "dtype {}: it is float16 or bfloat16", dtype.name)
    require(shape.dim <= WIDEST, "heads have dimension {}: up to {} there are kernels", shape.dim, WIDEST)
    needed = "a scale above 0 and a key or more are needed, got {} and {} keys; `attention` and its gradients take any"
    require(scale > 0 and shape.keys > 0, needed, scale, shape.keys)
    return shape, (dtype, shape.dim, causal, heads_axis), scale


def hopper_attention(
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
    """Return what `attention` does, on compute capability 9.0 and in the sanitizer.

    On a GPU `attention` itself takes this kernel where there is something to do, as of 16 heads 256 by 256. Arguments and results
    are the same, of float16 or bfloat16, with heads of at most 128, a key or more, and a scale above 0. What the TMA unit asks
    for is refused where it is missing, as TENSOR_MAP_REFUSED: addresses and strides of multiples of 16 bytes.
    """
    shape, of, scale = checked_heads(q, k, v, heads_axis, causal, scale)
    out = empty(q, tuple(q.shape), of[0]) if out is None else checked_out(out, q, apart=(k, v))
    lse = (
        empty(q, (shape.batch, shape.heads, shape.queries), sk.float32)
        if option_of("return_lse", return_lse, bool)
        else None
    )
    attend_by_warpgroups(shape, of, (q, k, v, out, lse, scale))
    return (out, lse) if return_lse else out
