"""Everything up to here: running sums of rows and of whole arrays.

A row passes through its program in tiles, with a number that carries on from one tile to the next. A long array is cut into
tiles, each of a program, which learns from the others what comes before it: one pass over the array. By three passes over as many
stretches as there are programs nothing depends on which program comes first.
"""

from __future__ import annotations

from typing import Annotated, Any

import stagekit as sk
from stagekit.kernels.host import (
    STREAMED_TILE,
    Dtype,
    as_rows,
    dtype_of,
    empty,
    factory,
    is_on_cpu,
    programs_for,
    require,
    require_packed,
    tile_of,
)
from stagekit.kernels.options import option_of
from stagekit.kernels.reducing import SUM, reduced, require_last, widened
from stagekit.kernels.sharing import checked_out

# -- running sums -------------------------------------------------------------------------------------------------------


@sk.inline
def running_sums(source: Any, target: Any, first: Any, end: Any, before: Any, working: Dtype, BLOCK: int) -> None:
    """Write the running sums of `source[first:end]`, from the number `before` on, which may be of a wider dtype."""
    for start in range(first, end, BLOCK):
        i = start + sk.arange(0, BLOCK)
        x = sk.load(source + i, mask=i < end).to(working)
        sums = sk.cumsum(x)
        sk.store(target + i, working(before) + sums, mask=i < end)
        before += sums[BLOCK - 1]


@factory
def cumsum_rows_kernel(dtype: Dtype, BLOCK: int) -> sk.JitFunction:
    """Return the kernel `k[rows](x, out)`."""
    rows, columns = sk.dynamic("rows"), sk.dynamic("columns")
    out_dtype = SUM.dtype_of(dtype)
    Rows = Annotated[sk.Array, sk.Tensor((rows, columns), dtype, strides=(None, 1))]
    Out = Annotated[sk.Array, sk.Tensor((rows, columns), out_dtype, strides=(None, 1))]
    working = widened(out_dtype)

    @sk.jit
    def cumsum_rows(x: Rows, out: Out) -> None:
        row = sk.program_id(0)
        running_sums(x[row], out[row], 0, columns, carried(dtype)(0), working, BLOCK)

    return cumsum_rows


NOTHING, SUM_KNOWN, END_KNOWN = 0, 1, 2  # what a program has said of its tile
LANES, ALL = 32, sk.uint32(0xFFFFFFFF)
FULL = 512  # threads of a program of a long array
PAUSE_NS = 500  # of a program of a long array: by then more is known, and it polls less
LOWER, UPPER = (1 << 32) - 1, (1 << 32) - 1 << 32  # the halves of a word


def carried(dtype: Dtype) -> sk.DType:
    """Return the dtype of sums of whole tiles of `dtype`."""
    return sk.float64 if dtype.is_float else sk.int64


@sk.inline
def say(program: Any, known: int, number: Any, said: Any) -> None:
    """Tell other programs a number of 8 bytes, in two words. Each has half of it above, and below what the number is: where both
    agree in that, they are halves of one number. So nobody has to wait until a number is seen before what it is.
    """
    bits = number.view(sk.uint64)
    sk.store(said + 2 * program, bits << 32 | known, order="relaxed")
    sk.store(said + 2 * program + 1, bits & UPPER | known, order="relaxed")


@sk.inline(per_thread=True)
def sum_before(program: Any, said: Any, dtype: Dtype, pause: int) -> Any:
    """Return the sum of all tiles before that of `program`, in every thread, from what others have said, the nearest first.

    One warp looks back at as many programs as it has lanes, and again until all up to one that knows the sum of everything up to
    its end have said something. The other warps wait, and ask nothing of memory. pause: nanoseconds before the first look.
    """
    found = sk.alloc_shared((1,), dtype)
    if sk.warp_id() == 0:
        if pause:
            sk.nanosleep(pause)
        other, before, is_found = program - 1 - sk.lane_id(), dtype(0), False
        while not is_found:
            low = high = sk.uint64(END_KNOWN)  # before the first there is nothing
            if other >= 0:
                low = sk.load(said + 2 * other, order="relaxed")
                high = sk.load(said + 2 * other + 1, order="relaxed")
            known = sk.where(low & LOWER == high & LOWER, (low & LOWER).to(sk.int32), NOTHING)
            ends, missing = sk.ballot_sync(ALL, known == END_KNOWN), sk.ballot_sync(ALL, known == NOTHING)
            needed = ends ^ ends - 1  # up to the lowest bit that is set; all, if none is
            if missing & needed == 0:
                is_needed = needed >> sk.lane_id() & 1 == 1
                before += sk.where(is_needed, (low >> 32 | high & UPPER).view(dtype), dtype(0))
                is_found = ends != 0
                other -= LANES
        for distance in (16, 8, 4, 2, 1):
            before += sk.shfl_xor_sync(ALL, before, distance)
        sk.store(found, before, mask=sk.lane_id() == 0)
    sk.syncthreads()
    return sk.load(found)


@sk.inline
def begin(program: Any, total: Any, said: Any, pause: int = 0) -> Any:
    """Return the sum of all before the tile of this program, and tell the others that of everything up to its end."""
    before = sum_before(program, said, total.dtype, pause)
    say(program, END_KNOWN, before + total, said)
    return before


@factory
def cumsum_kernel(dtype: Dtype, BLOCK: int) -> sk.JitFunction:
    """Return the kernel `k[tiles](x, out, said)`. said: uint64, zeros, two for each tile, and one more.

    A program takes the next tile by an atomic, so that those before have begun, says its tile's sum, scans it, and looks back at
    what others have said. Sums of whole tiles are float64, or int64. Source: Merrill and Garland, Single-pass Parallel Prefix
    Scan with Decoupled Look-back, 2016.

    A thread holds as many elements as there are registers for.
    """
    out_dtype = SUM.dtype_of(dtype)
    working, length = widened(out_dtype), sk.dynamic("length")
    threads = min(LANES * sk.cdiv(BLOCK, LANES * held_by_thread(dtype)), FULL)
    X = Annotated[sk.Array, sk.Tensor((length,), dtype)]
    Out = Annotated[sk.Array, sk.Tensor((length,), out_dtype)]
    Said = Annotated[sk.Array, sk.Tensor((None,), sk.uint64)]

    @sk.jit(threads=threads)
    def cumsum(x: X, out: Out, said: Said) -> None:
        program = sk.int32(sk.atomic_add(said + (len(said) - 1), 1))
        i = sk.int64(program) * BLOCK + sk.arange(0, BLOCK)
        v = sk.load(x + i, mask=i < length).to(working)
        total = carried(dtype)(sk.reduce_sum(v))
        say(program, SUM_KNOWN, total, said)
        v = sk.cumsum(v)  # before it looks back: meanwhile others say more
        before = begin(program, total, said, PAUSE_NS if threads == FULL else 0)
        sk.store(out + i, working(before) + v, mask=i < length)

    return cumsum


@factory
def cumsum_of_long_tiles_kernel(dtype: Dtype, BLOCK: int) -> sk.JitFunction:
    """Return the kernel `k[tiles](x, out, said, stretch)`, the same for tiles of `stretch` elements.

    They are read twice, the second time from a processor's cache, BLOCK elements at a time. So programs talk less often.
    """
    out_dtype = SUM.dtype_of(dtype)
    working, length = widened(out_dtype), sk.dynamic("length")
    X = Annotated[sk.Array, sk.Tensor((length,), dtype)]
    Out = Annotated[sk.Array, sk.Tensor((length,), out_dtype)]
    Said = Annotated[sk.Array, sk.Tensor((None,), sk.uint64)]

    @sk.jit
    def cumsum_of_long_tiles(x: X, out: Out, said: Said, stretch: sk.int64) -> None:
        program = sk.int32(sk.atomic_add(said + (len(said) - 1), 1))
        first = program * stretch
        end = sk.minimum(first + stretch, length)
        total = carried(dtype)(reduced(SUM, x, first, end, BLOCK, working, BLOCK))
        say(program, SUM_KNOWN, total, said)
        before = begin(program, total, said)
        running_sums(x, out, first, end, before, working, BLOCK)

    return cumsum_of_long_tiles


@factory
def fill_kernel(dtype: Dtype, BLOCK: int) -> sk.JitFunction:
    """Return the kernel `k[pieces](out, value)`."""
    Out = Annotated[sk.Array, sk.Tensor((None,), dtype)]

    @sk.jit
    def fill(out: Out, value: sk.int32) -> None:
        i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
        sk.store(out + i, value, mask=i < len(out))

    return fill


@factory
def stretch_sums_kernel(dtype: Dtype, BLOCK: int) -> sk.JitFunction:
    """Return the kernel `k[programs](x, sums, stretch)`: the sums of the stretches of an array of one axis."""
    working = widened(SUM.dtype_of(dtype))
    X = Annotated[sk.Array, sk.Tensor((None,), dtype)]
    Sums = Annotated[sk.Array, sk.Tensor((None,), working)]

    @sk.jit
    def stretch_sums(x: X, sums: Sums, stretch: sk.int64) -> None:
        first = sk.program_id(0) * stretch
        end = sk.minimum(first + stretch, len(x))
        total = sk.zeros(BLOCK, working)
        for start in range(first, end, BLOCK):
            i = start + sk.arange(0, BLOCK)
            total += sk.load(x + i, mask=i < end).to(working)
        sums[sk.program_id(0)] = sk.reduce_sum(total)

    return stretch_sums


@factory
def cumsum_of_stretches_kernel(dtype: Dtype, BLOCK: int) -> sk.JitFunction:
    """Return the kernel `k[programs](x, out, ends, stretch)`; ends: the running sums of what `stretch_sums_kernel` found."""
    out_dtype = SUM.dtype_of(dtype)
    working, length = widened(out_dtype), sk.dynamic("length")
    X = Annotated[sk.Array, sk.Tensor((length,), dtype)]
    Out = Annotated[sk.Array, sk.Tensor((length,), out_dtype)]
    Ends = Annotated[sk.Array, sk.Tensor((None,), working)]

    @sk.jit
    def cumsum_of_stretches(x: X, out: Out, ends: Ends, stretch: sk.int64) -> None:
        program = sk.program_id(0)
        first = program * stretch
        before = ends[program - 1] if program > 0 else working(0)
        running_sums(x, out, first, sk.minimum(first + stretch, length), before, working, BLOCK)

    return cumsum_of_stretches


def cumsum(x: Any, *, axis: int | None = None, out: Any = None, fixed_order: bool = False) -> Any:
    """Return the running sums along the last axis (`axis=-1`), or those of an array of one axis, by many programs (None).

    x: any dtype, without gaps unless its rows are summed; float16 and bfloat16 are summed in float32, integers in int64, in which
    they are returned. out: x itself too. fixed_order: the same last bits of a long float array in each run, by three passes; else
    they depend on which programs come first, by one pass.
    """
    out = empty(x, tuple(x.shape), SUM.dtype_of(dtype_of(x))) if out is None else checked_out(out, x, shape=x.shape)
    if axis is not None:
        require_last(axis, x)
        rows, target = as_rows(x), as_rows(out)
        cumsum_rows_kernel(dtype_of(x), _passing_tile(x, rows.shape[1]))[rows.shape[0]](rows, target)
        return out
    require(len(x.shape) == 1, f"an array of shape {tuple(x.shape)} has several axes: sum along the last by axis=-1")
    require_packed(x)
    if option_of("fixed_order", fixed_order, bool):
        _cumsum_by_stretches(x, out)
    else:
        _cumsum_by_looking_back(x, out)
    return out


MOST_PROGRAMS = 1024  # that have a stretch each, where the order is fixed
VECTOR = 32  # elements that a row passes through by on the CPU: threads that are one vector wait for nobody
FEWEST_PIECES = 4  # of 4,096 elements, in the tile of a program on the CPU; so many times more at most
FEWEST_PROGRAMS = 16  # on the CPU, that share an array of which such tiles are longer
LONG = 1 << 23  # elements from which on a GPU takes tiles of a whole multiprocessor


def held_by_thread(dtype: Dtype) -> int:
    """Return how many elements a thread of a GPU holds at least: 32 that are added in up to 4 bytes, or 8 in 8."""
    return 8 if widened(SUM.dtype_of(dtype)).bits == 64 else 32


def kept_tile(dtype: Dtype, length: int) -> int:
    """Return how many elements a program on a GPU holds, of an array of this length: 1024 threads, or 128."""
    return held_by_thread(dtype) * (1024 if length >= LONG else 128)


def _cumsum_by_looking_back(x: Any, out: Any) -> None:
    dtype, tile = dtype_of(x), _tile_of_program(x)
    tiles = sk.cdiv(len(x), tile)
    said = empty(x, (2 * tiles + 1,), sk.uint64)
    fill_kernel(sk.uint64, 1024)[sk.cdiv(len(said), 1024)](said, 0)
    if is_on_cpu(x):
        cumsum_of_long_tiles_kernel(dtype, VECTOR)[tiles](x, out, said, tile)
    else:
        cumsum_kernel(dtype, tile)[tiles](x, out, said)


def _tile_of_program(x: Any) -> int:
    if is_on_cpu(x):
        least = FEWEST_PIECES * STREAMED_TILE
        return least * programs_for(len(x), least * FEWEST_PROGRAMS, FEWEST_PIECES)
    return kept_tile(dtype_of(x), len(x))


def _passing_tile(x: Any, length: int) -> int:
    """Return the tile by which rows of this length pass through."""
    return VECTOR if is_on_cpu(x) else tile_of(length)


def _cumsum_by_stretches(x: Any, out: Any) -> None:
    programs = programs_for(len(x), STREAMED_TILE, MOST_PROGRAMS)
    stretch = sk.cdiv(sk.cdiv(len(x), programs), STREAMED_TILE) * STREAMED_TILE
    sums = empty(x, (programs,), widened(SUM.dtype_of(dtype_of(x))))
    stretch_sums_kernel(dtype_of(x), STREAMED_TILE)[programs](x, sums, stretch)
    ends = sums.reshape((1, programs))
    cumsum_rows_kernel(dtype_of(sums), _passing_tile(x, programs))[1](ends, ends)
    cumsum_of_stretches_kernel(dtype_of(x), _passing_tile(x, STREAMED_TILE))[programs](x, out, sums, stretch)
