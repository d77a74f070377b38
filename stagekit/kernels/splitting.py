"""Products of matrices with few blocks of the result and a long common axis, which is shared among programs, too.

Each program has a part of the axis, and writes its sums; another kernel adds them up, in the order of the parts, so that a result
does not depend on who was quick.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import stagekit as sk
from stagekit.kernels.host import Dtype, empty, factory, is_packed
from stagekit.kernels.options import Precision

Blocks = tuple[int, int, int, int, int]  # as in `matrices`

FEWEST_BLOCKS = 32  # of a result; with fewer, smaller ones are taken
FEWEST_BY_THREADS = 8  # the same where threads multiply, one at a time, so that a program takes longer
MOST_BY_THREADS = 15  # parts of a product by threads; with more, adding them up takes longer than is won
MULTIPROCESSORS = 132  # of a large GPU
THREADS = MULTIPROCESSORS * 256  # of all programs; twice as many of those by threads
LEAST_DEPTH = 512  # of the common axis, for a program; with less, sums are written nearly as often as they are made
TILE = 1024  # elements that a program adds up


@factory
def partial_matmul_kernel(
    dtype: Dtype, sums: Dtype, strides: tuple[tuple[int | None, int | None], ...], BLOCKS: Blocks, precision: Precision
) -> sk.JitFunction:
    """Return the kernel `k[blocks of rows, blocks of columns, parts](a, b, out, rounds)`, each part of so many rounds."""
    m, n, k = sk.dynamic("m"), sk.dynamic("n"), sk.dynamic("k")
    M, N, K, threads, stages = BLOCKS
    A = Annotated[sk.Array, sk.Tensor((m, k), dtype, strides[0])]
    B = Annotated[sk.Array, sk.Tensor((k, n), dtype, strides[1])]
    Out = Annotated[sk.Array, sk.Tensor((None, m, n), sums, (None, None, 1))]

    @sk.jit(threads=threads)
    def partial_matmul(a: A, b: B, out: Out, rounds: sk.int32) -> None:
        row, column, part = sk.program_id(0) * M, sk.program_id(1) * N, sk.program_id(2)

        def parts(number: Any) -> Any:
            return a.tile((row, number * K), (M, K)), b.tile((number * K, column), (K, N))

        total = sk.zeros((M, N), sums)
        first, last = part * rounds, min((part + 1) * rounds, sk.cdiv(k, K))
        if stages > 1:
            for x, y in sk.staged(range(first, last), parts, stages=stages):
                total = sk.dot(x, y, total, precision=precision)
        else:
            x, y = [sk.load(each) for each in parts(first)]
            for number in range(first + 1, last + 1):
                later = [sk.load(each) for each in parts(number)]
                total = sk.dot(x, y, total, precision=precision)
                x, y = later
        sk.store(out[part].tile((row, column), (M, N)), total)

    return partial_matmul


@factory
def joined_kernel(sums: Dtype, out_dtype: Dtype) -> sk.JitFunction:
    """Return the kernel `k[tiles](parts, out)`, which adds up parts of a result: (parts, elements)."""
    elements = sk.dynamic("elements")
    Parts = Annotated[sk.Array, sk.Tensor((None, elements), sums, (None, 1))]
    Out = Annotated[sk.Array, sk.Tensor((elements,), out_dtype, (1,))]

    @sk.jit
    def joined(parts: Parts, out: Out) -> None:
        first = sk.program_id(0) * TILE
        total = sk.load(parts[0].tile(first, TILE))
        for number in range(1, len(parts)):
            total += sk.load(parts[number].tile(first, TILE))
        sk.store(out.tile(first, TILE), total)

    return joined


def split_for(known: list[Blocks], rows: int, columns: int, depth: int) -> tuple[Blocks, int]:
    """Return what a program multiplies at once, of `known` from large to small, and how many rounds of a product it has."""
    by_threads = known[0][4] == 1
    fewest = FEWEST_BY_THREADS if by_threads else FEWEST_BLOCKS
    for blocks in known:
        M, N, K, threads, _ = blocks
        programs = -(-rows // M) * -(-columns // N)
        if rows >= M and columns >= N and programs >= fewest:
            break
    parts = THREADS * (1 + by_threads) // max(programs * threads, 1)
    parts = max(min(parts, MOST_BY_THREADS) if by_threads else parts, 1)
    return blocks, max(-(-depth // (K * parts)), -(-LEAST_DEPTH // K))


class SharedProduct(NamedTuple):
    """A product that is shared along its common axis. shape, sums: of the parts. rounds: of a part."""

    shape: tuple[int, int, int]
    sums: Dtype
    rounds: int
    multiply: sk.JitFunction
    grid: tuple[int, int, int]
    join: sk.JitFunction
    tiles: int


def plan_for(
    types: tuple[Dtype, Dtype, Dtype],
    strides: Any,
    precision: str,
    known: list[Any],
    rows: int,
    columns: int,
    depth: int,
) -> SharedProduct | None:
    """Return how a product is shared, if it is one for these kernels.

    types: of a, of sums and of out. known: blocks, from large to small.
    """
    blocks, rounds = split_for(known, rows, columns, depth)
    parts = int(sk.cdiv(sk.cdiv(depth, blocks[2]), rounds))
    if parts < 2 or not rows * columns:
        return None
    kernel = partial_matmul_kernel(types[0], types[1], strides, blocks, precision)
    grid = int(sk.cdiv(rows, blocks[0])), int(sk.cdiv(columns, blocks[1])), parts
    tiles = int(sk.cdiv(rows * columns, TILE))
    return SharedProduct((parts, rows, columns), types[1], rounds, kernel, grid, joined_kernel(*types[1:]), tiles)


def multiply(split: SharedProduct, a: Any, b: Any, out: Any) -> bool:
    """Launch a product so, if its result has no gaps, and return whether it was: the other kernel refuses another shape."""
    parts, rows, columns = split.shape
    if tuple(out.shape) != (rows, columns) or not is_packed(out):
        return False
    found = empty(a, split.shape, split.sums)
    split.multiply[split.grid](a, b, found, split.rounds)
    elements = rows * columns
    split.join[split.tiles](found.reshape((parts, elements)), out.reshape((elements,)))
    return True
