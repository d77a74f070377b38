"""The product of matrices as it is written for compute capability 9.0: warps with roles, tiles by the TMA unit, wgmma.

    warpgroup 0       load       one thread copies tiles of a and b into a ring of stages
    warpgroups 1, 2   multiply   each has 64 rows of a block of the product, whose sums stay in its registers

A program works on block after block, so that loads of the next one begin while the last one is multiplied and stored. What
`matmul` leaves to the compiler is said here: who copies, who waits for whom, where elements lie. Tiles lie with a swizzle of
128 bytes, as the TMA unit writes them and wgmma and `stmatrix` want them; outside the matrices it reads zeros and writes nothing.

A cluster of 2 blocks has rows of its own in each, and columns in common: each loads half of the tile of b for both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import stagekit as sk
from stagekit.kernels.host import (
    Dtype,
    dtype_of,
    empty,
    factory,
    is_array,
    numbers_beside,
    remembered,
    require,
    require_array,
    require_choice,
    settled,
)
from stagekit.kernels.matrices import (
    GROUP,
    MAX_OPERANDS,
    Kind,
    by_groups,
    is_by_rows,
    kinds_of,
    matmul,
    matrix_shapes,
    operand_types,
)
from stagekit.kernels.planning import planned
from stagekit.kernels.sharing import checked_out
from stagekit.kernels.splitting import MULTIPROCESSORS

WARPGROUP = 128  # threads
LOADER = 1  # warpgroups in front of those that multiply
LINE = 128  # bytes of a row of a tile in shared memory: the swizzle's width
PART = 64  # rows of a block that a warpgroup multiplies
UNIT = (16, 64)  # rows and columns of what a warp stores at once
TILES = {256: (1.0, 4), 192: (0.96, 4), 128: (0.956, 6), 64: (0.6, 8)}
"""By the columns of a block how fast its sums grow, compared with the widest, and the stages for which there is memory."""

HALVES = (sk.float16, sk.bfloat16)
FACTORS = (*HALVES, sk.float8_e4m3fn, sk.float8_e5m2)
KNOWN = " or ".join([each.name for each in FACTORS])
REGISTERS = (40, 232)  # of a thread that loads, and of one that multiplies, where it has many sums


class HopperTile(NamedTuple):
    """What a program multiplies at once: rows and columns of its block. cluster: of blocks, 1 or 2."""

    rows: int
    columns: int
    cluster: int = 1

    def blocks_of(self, rows: int, columns: int) -> int:
        """Return how many blocks a product has."""
        return int(sk.cdiv(rows, self.rows)) * int(sk.cdiv(columns, self.columns))


class _TileSource(NamedTuple):
    """How tiles of a factor lie. array: with K as its last axis, or turned, as its first. side: rows of a, or columns of b.

    depth: of a tile along K. shares: blocks that load a part of each tile for all of them.
    """

    array: Any
    map: Any
    is_turned: bool
    side: int
    depth: int
    shares: int

    @sk.inline
    def load(self, tile: Any, place: Any, k: Any, full: Any, rank: Any) -> None:
        """Begin to copy this block's part of a tile."""
        ranks = (1 << self.shares) - 1 if self.shares > 1 else None
        part = self.side // self.shares
        first = rank * part if self.shares > 1 else 0
        if not self.is_turned:
            self.map.load(tile.ptr_to(first * self.depth), (place + first, k), full, ranks=ranks)
        else:
            for panel in sk.static_range(0, part, PART):
                start = first + panel
                self.map.load(tile.ptr_to(start * self.depth), (k, place + start), full, ranks=ranks)

    @sk.inline
    def offset(self, step: int) -> int:
        """Return how many bytes behind the first K of a tile those of a step begin, of 32 bytes."""
        return 32 * step * (PART if self.is_turned else 1)


@sk.inline
def factor_of(array: Any, is_turned: bool, side: int, shares: int) -> _TileSource:
    """Return how tiles of an array lie. Turned ones come in panels of 64 rows, or columns."""
    depth = LINE // array.dtype.itemsize
    box = (depth, PART) if is_turned else (side // shares, depth)
    return _TileSource(array, sk.tensor_map(array, box, swizzle=LINE), is_turned, side, depth, shares)


@sk.inline
def packed(low: Any, high: Any, dtype: Dtype) -> Any:
    """Return two numbers, rounded to 16 bits, in a word."""
    low, high = [sk.uint32(each.view(sk.uint16)) for each in sk.vector(low, high).to(dtype)]
    return low | high << 16


@sk.inline
def put_unit(buffer: Any, sums: Any, place: Any, dtype: Dtype) -> None:
    """Write a warp's 16 rows of 64 columns, rounded, where the TMA unit stores them from. sums: 32 of each thread.

    place: of a row and a column, where their element is in the buffer.
    """
    lane = sk.int32(sk.lane_id())
    for i in sk.static_range(4):
        halves = sk.uint32(sk.vector(*sums[i * 8 : i * 8 + 8]).to(dtype).view(sk.uint16)).lanes
        words = [low | high << 16 for low, high in zip(halves[::2], halves[1::2])]
        sk.cuda.stmatrix_x4(buffer.ptr_to(place(lane % 16, i * 16 + lane // 16 * 8)), *words)


@sk.inline
def operand_of(x: Any, row: Any, column: Any) -> Any:
    """Return what goes with eight sums of a thread: those of x in two rows and two pairs of columns, or x as a number.

    row, column: of the first. Outside of x they are 0.
    """
    if not hasattr(x, "shape"):
        return x
    pairs = x.vector(2)
    columns = [(each // 2, each < x.shape[-1]) for each in (column, column + 8)]
    if x.ndim == 1:
        found = [pairs.load(place, mask=is_inside) for place, is_inside in columns for _ in range(2)]
    else:
        rows = [(each, each < x.shape[0]) for each in (row, row + 8)]
        found = [pairs.load((i, j), mask=is_row & is_column) for j, is_column in columns for i, is_row in rows]
    numbers = sk.vector(*[number for pair in found for number in pair.lanes])
    return numbers.to(sk.float32) if x.dtype.is_float and x.dtype.bits < 32 else numbers


@sk.inline
def finished(epilogue: Any, sums: Any, operands: Any, row: Any, column: Any) -> Any:
    """Return what an epilogue makes of a warp's 16 rows of 64 columns. sums: of each thread, 32 for each product it is given.

    Eight at a time are a vector, with which it computes as with a tile.
    """
    lane = sk.int32(sk.lane_id())
    row, column = row + lane // 4, column + lane % 4 * 2
    made = ()
    for i in sk.static_range(4):
        eights = [sk.vector(*each[i * 8 : i * 8 + 8]) for each in sums]
        result = epilogue(*eights, *[operand_of(each, row, column + i * 16) for each in operands])
        is_alike = isinstance(result, sk.NumberVector) and len(result) == 8
        made += tuple(result.lanes) if is_alike else (sk.float32(result),) * 8
    return made


def require_along_k(dtype: Dtype, turned: tuple[bool, bool]) -> None:
    """Refuse factors of 8 bits that are turned, which wgmma does not multiply."""
    lies = dtype in HALVES or not any(turned)
    require(
        lies, "{} lies side by side along k: give a of shape (m, k) and b as the transposition of (n, k)", dtype.name
    )


def require_options(turned: Any, tile: Any, stages: Any) -> None:
    """Refuse options for which there is no kernel: sums of warpgroups that do not fit in their registers, a ring of one stage."""
    is_pair = isinstance(turned, tuple) and len(turned) == 2 and all(type(each) is bool for each in turned)
    require(is_pair, "TURNED is {!r}: it is a bool for a and one for b", turned)
    is_tile = isinstance(tile, tuple) and len(tile) in (2, 3) and all(type(each) is int for each in tile)
    if is_tile:
        rows, columns, cluster = HopperTile(*tile)
        most = 2 * PART if columns > 128 else 4 * PART
        is_tile = rows in range(PART, most + 1, PART) and columns in TILES and cluster in (1, 2)
    known = f"rows, a multiple of {PART} up to 128, or 256 with 128 columns or fewer; columns, of {sorted(TILES)}; then 1 or 2"
    require(is_tile, "TILE is {!r}: it is {}", tile, known)
    require(type(stages) is int and stages > 1, "STAGES is {!r}: it is 2 or more", stages)


@factory
def hopper_matmul_kernel(
    dtype: Dtype,
    out_dtype: Dtype,
    TURNED: tuple[bool, bool],
    TILE: tuple[int, ...],
    STAGES: int,
    epilogue: Callable[..., Any] | None = None,
    kinds: tuple[Kind, ...] = (),
) -> sk.JitFunction:
    """Return the kernel `k(a, b, out, programs, *operands)`, out = epilogue(a @ b, *operands).

    TURNED: whether elements of a lie side by side along m, and those of b along n, and not along k. TILE: see `HopperTile`.
    STAGES: tiles of the ring. epilogue, kinds: as of `matmul_kernel`. programs: blocks of the launch, a multiple of those of a
    cluster.
    """
    require_choice("dtype", dtype, sk.DType, FACTORS)
    require_choice("out_dtype", out_dtype, sk.DType, HALVES)
    require_options(TURNED, TILE, STAGES)
    require_along_k(dtype, TURNED)
    m, n, k = sk.dynamic("m"), sk.dynamic("n"), sk.dynamic("k")
    M, N, CLUSTER = HopperTile(*TILE)
    K, PARTS, COUNT, UNITS = LINE // dtype.itemsize, M // PART, N // 2, N // UNIT[1]
    BUFFERS = UNITS if UNITS % 2 else 2
    A = Annotated[sk.Array, sk.Tensor((m, k), dtype, (1, None) if TURNED[0] else (None, 1))]
    B = Annotated[sk.Array, sk.Tensor((k, n), dtype, (None, 1) if TURNED[1] else (1, None))]
    Out = Annotated[sk.Array, sk.Tensor((m, n), out_dtype, (None, 1))]
    of: list[Any] = operand_types(kinds, m, n)
    of[len(kinds) :] = [sk.constexpr] * (MAX_OPERANDS - len(kinds))  # not there, as the kernel knows beforehand
    C = Annotated[Any, of[0]]
    D = Annotated[Any, of[1]]
    E = Annotated[Any, of[2]]
    F = Annotated[Any, of[3]]
    multiply_tiles, wait = (getattr(sk.cuda, f"wgmma_{part}m64n{N}") for part in ("", "wait_"))
    turns = {
        f"{what}_{letter}": value
        for letter, is_turned in zip("ab", TURNED)
        for what, value in (("trans", is_turned), ("panel", K * LINE if is_turned else 0))
    }

    @sk.jit
    def hopper_matmul(
        a: A, b: B, out: Out, programs: sk.int32, c: C = None, d: D = None, e: E = None, f: F = None
    ) -> None:
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=programs, block=WARPGROUP * (LOADER + PARTS), cluster=CLUSTER))
        left = factor_of(a.T if TURNED[0] else a, TURNED[0], M, 1)
        right = factor_of(b if TURNED[1] else b.T, TURNED[1], N, CLUSTER)
        results = sk.tensor_map(out, UNIT, swizzle=LINE)
        a_ring = sk.alloc_shared((STAGES, M * K), dtype, align=8 * LINE)
        b_ring = sk.alloc_shared((STAGES, N * K), dtype, align=8 * LINE)
        buffers = sk.alloc_shared((PARTS * 4, BUFFERS, UNIT[0] * UNIT[1]), out_dtype, align=8 * LINE)
        pipe = sk.pipeline(STAGES, PARTS * 4, cluster=CLUSTER)

        rank = sk.int32(sk.cuda.cluster_rank()) if CLUSTER > 1 else 0
        down, across = sk.ceildiv(sk.int32(m), M * CLUSTER), sk.ceildiv(sk.int32(n), N)
        tiles = range(sk.int32(sk.cuda.block_idx("x")) // CLUSTER, down * across, programs // CLUSTER)
        rounds = sk.ceildiv(sk.int32(k), K)

        def place_of(number: Any) -> Any:
            """Return the first row and column of this block of the product."""
            column, row = by_groups(number, across, down, GROUP)
            return (row * CLUSTER + rank) * M, column * N

        def load(group: Any) -> None:
            if sk.cuda.thread_idx("x") < 32 and sk.cuda.elect_sync():
                state = pipe.producer_start()
                for number in tiles:
                    row, column = place_of(number)
                    for i in range(rounds):
                        full = pipe.producer_acquire(state, (M + N) * LINE)
                        left.load(a_ring[state.stage], row, i * K, full, rank)
                        right.load(b_ring[state.stage], column, i * K, full, rank)
                        state = state.advance()

        def products(state: Any, group: Any, sums: Any) -> Any:
            """Begin the products of a stage, and return the sums when those of the stage before are done."""
            x, y = a_ring[state.stage].ptr_to(group * PART * K), b_ring[state.stage].ptr_to(0)
            sk.cuda.wgmma_fence()
            for step in sk.static_range(LINE // 32):
                offsets = {"offset_a": left.offset(step), "offset_b": right.offset(step)}
                sums = multiply_tiles(x, y, *sums, **turns, **offsets)
            sk.cuda.wgmma_commit()
            return wait(*sums, pending=1)

        def store(sums: Any, group: Any, row: Any, column: Any) -> None:
            """Round the sums of a warp's 16 rows, and let the TMA unit store them, 64 columns at a time."""
            warp, lane = sk.int32(sk.warp_id()) % 4, sk.int32(sk.lane_id())
            for unit in sk.static_range(UNITS):
                buffer, of_unit = buffers[group * 4 + warp, unit % BUFFERS], sums[unit * 32 : unit * 32 + 32]
                place = row + group * PART + warp * 16, column + unit * UNIT[1]
                if epilogue is not None:
                    of_unit = finished(epilogue, (of_unit,), (c, d, e, f)[: len(kinds)], *place)
                if lane == 0:
                    sk.cuda.cp_async_bulk_wait(pending=BUFFERS - 1, read=True)
                sk.syncwarp()
                put_unit(buffer, of_unit, results.place, out_dtype)
                sk.cuda.fence_proxy_async(space="shared")
                sk.syncwarp()
                if lane == 0:
                    results.store(buffer, place)
                    sk.cuda.cp_async_bulk_commit()

        def multiply(group: Any) -> None:
            state = pipe.consumer_start()
            for number in tiles:
                row, column = place_of(number)
                pipe.consumer_wait(state)
                sums = products(state, group, (sk.float32(0),) * COUNT)
                for _ in range(1, rounds):
                    before, state = state, state.advance()
                    pipe.consumer_wait(state)
                    sums = products(state, group, sums)
                    pipe.warp_release(before)
                sums = wait(*sums, pending=0)
                pipe.warp_release(state)
                state = state.advance()
                store(sums, group, row, column)
            if sk.lane_id() == 0:
                sk.cuda.cp_async_bulk_wait(read=True)

        few, many = REGISTERS if N > 128 else (None, None)
        sk.warp_roles(sk.Role(load, LOADER, few), sk.Role(multiply, PARTS, many))
        if CLUSTER > 1:
            sk.cuda.cluster_sync()

    return hopper_matmul


def hopper_matmul(a: Any, b: Any, *operands: Any, epilogue: Callable[..., Any] | None = None, out: Any = None) -> Any:
    """Return epilogue(a @ b, *operands) of matrices a (m, k) and b (k, n), on compute capability 9.0 and in the sanitizer.

    a, b: float16 or bfloat16 alike, either of them also as the transposition of such a matrix; or float8_e4m3fn or float8_e5m2
    alike, b as the transposition of a matrix (n, k). Sums are in float32, and rounded once, behind the epilogue; while they grow,
    the tensor cores keep fewer bits of those of float8. operands, epilogue: as of `matmul`. out: float16 or bfloat16; left out,
    the dtype of a, or bfloat16 for float8. What the TMA unit asks for is refused where it is missing, as TENSOR_MAP_REFUSED:
    addresses and rows of a, b and out of multiples of 16 bytes. Elsewhere, `matmul` has no such limits.
    """
    if epilogue is None and not operands:
        plan = _plan_for(out, a, b)
    else:
        kinds = kinds_of(operands, epilogue)
        plan = _plan_of(out, a, b, operands, kinds, epilogue)
        operands = numbers_beside([kind[0] for kind in kinds if kind], operands)
    if out is None:
        out = empty(a, plan.shape, plan.out_dtype)
    if plan.kernel is None:  # the TMA unit has no tiles of an array without elements
        return matmul(a, b, *operands, epilogue=epilogue, out=out)
    plan.kernel(a, b, out, plan.programs, *operands)
    return out


class _ProductPlan(NamedTuple):
    """What a product takes. shape: of the result. kernel: None where a factor has no elements."""

    shape: tuple[int, int]
    out_dtype: sk.DType
    kernel: sk.JitFunction | None
    programs: int


@planned
def _plan_for(out: Any, a: Any, b: Any) -> _ProductPlan:
    """Return what the product of these arrays takes, which are checked."""
    return _plan_of(out, a, b, (), (), None)


def _plan_of(
    out: Any,
    a: Any,
    b: Any,
    operands: tuple[Any, ...],
    kinds: tuple[Kind, ...],
    epilogue: Callable[..., Any] | None,
) -> _ProductPlan:
    require_array(a, b)
    of_a, of_b = matrix_shapes(a, b)
    turned = not is_by_rows(a), is_by_rows(b)
    out_dtype = _dtype_of_product(dtype_of(a), dtype_of(b), turned)
    if out is not None:
        out_dtype = dtype_of(checked_out(out, *filter(is_array, operands), apart=(a, b)))
    require(out_dtype in HALVES, "out has dtype {}: it is float16 or bfloat16", out_dtype.name)
    shape = of_a[0], of_b[1]
    if 0 in of_a or 0 in of_b:
        return _ProductPlan(shape, out_dtype, None, 0)
    finish = None if epilogue is None else settled(epilogue)
    return _ProductPlan(shape, out_dtype, *_kernel_for(dtype_of(a), out_dtype, turned, *shape, finish, kinds))


@remembered
def _dtype_of_product(dtype: sk.DType, of_b: sk.DType, turned: tuple[bool, bool]) -> sk.DType:
    """Return the dtype of a result that is not given. Refused: factors for which there is no kernel."""
    for each in (dtype, of_b):
        require(each in FACTORS, f"dtype {{}}: it is {KNOWN}", each.name)
    require_along_k(dtype, turned)
    return dtype if dtype in HALVES else sk.bfloat16


@remembered
def _kernel_for(
    dtype: sk.DType,
    out_dtype: sk.DType,
    turned: tuple[bool, bool],
    rows: int,
    columns: int,
    finish: Callable[..., Any] | None,
    kinds: tuple[Kind, ...],
) -> tuple[sk.JitFunction, int]:
    """Return the kernel for a product of this shape, and its programs."""
    tile, stages = tile_for(rows, columns)
    kernel = hopper_matmul_kernel(dtype, out_dtype, turned, tile, stages, finish, kinds)
    return kernel, min(tile.blocks_of(rows, columns), MULTIPROCESSORS)


def tile_for(rows: int, columns: int) -> tuple[HopperTile, int]:
    """Return the tile for a product of this shape, and its stages: that with which the last program ends soonest."""

    def cost(width: int) -> float:
        rounds = sk.cdiv(HopperTile(PART * 2, width).blocks_of(rows, columns), MULTIPROCESSORS)
        return float(rounds) * width / TILES[width][0]

    width = min(TILES, key=cost)
    return HopperTile(PART * 2, width), TILES[width][1]
