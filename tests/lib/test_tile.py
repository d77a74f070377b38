"""Tiles: any number of elements, any operator, and masked lanes that never touch memory."""

from __future__ import annotations

import operator

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from tests.places import each_place, on_cpu, run

BLOCKS = (1, 2, 3, 31, 32, 33, 96, 100, 127, 128, 256, 1000, 1024, 1025, 2048, 3001)


@sk.jit
def copy(src, dst, n, BLOCK: sk.constexpr):
    offs = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    sk.store(dst + offs, sk.load(src + offs, mask=offs < n), mask=offs < n)


@each_place
@settings(max_examples=20, deadline=None)
@given(n=st.integers(1, 3000), block=st.sampled_from(BLOCKS))
def test_copy_is_exact_for_any_block_and_length(place, n, block):  # P38
    x = np.arange(n, dtype=np.float32)

    _, out = run(place, copy[(sk.ceildiv(n, block),)], [x, np.full(n, -1, np.float32)], n, block)

    np.testing.assert_array_equal(out, x)


EXTENTS = {  # threads where a vector has 4 elements, and where it has 8
    1: (1, 1),
    33: (33, 33),
    128: (128, 128),
    129: (64, 64),
    1024: (64, 64),
    2048: (128, 64),
    2049: (160, 96),
    4096: (256, 128),
    8192: (512, 256),
    16_384: (1024, 512),
    32_768: (1024, 1024),
    40_000: (1024, 1024),
}


@pytest.mark.parametrize("extent", EXTENTS)
def test_a_thread_holds_16_or_32_elements_on_a_gpu_and_4_on_the_cpu(extent):
    for dtype, threads in zip((sk.float32, sk.bfloat16), EXTENTS[extent]):
        array = sk.Tensor((None,), dtype)
        kernel = copy.specialize(BLOCK=extent, src=array, dst=array, n=sk.int32)
        assert kernel.trace().block == (threads, 1, 1)

    (threads, *others) = kernel.compile("cpu").block
    if extent <= 128:
        assert threads == extent
    else:
        held = max(4, sk.ceildiv(extent, 1024))
        assert threads % 32 == 0
        assert extent <= held * threads < extent + 32 * held
    assert others == [1, 1]


COUNTS = (1, 16, 32, 96, 1024)


def make_copy(threads):
    @sk.jit(threads=threads)
    def copied(src, dst, n, BLOCK: sk.constexpr, WARPS: sk.constexpr = 0):
        i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
        sk.store(dst + i, sk.load(src + i, mask=i < n, other=0), mask=i < n)

    return copied


@each_place
@pytest.mark.parametrize("given", [lambda t: (make_copy(t), 0), lambda t: (make_copy("WARPS"), t)], ids=["int", "name"])
def test_threads_are_as_many_as_the_kernel_says(place, given):
    x = np.arange(900, dtype=np.float32)
    for threads in COUNTS:
        kernel, value = given(threads)
        for block in (8, 300):
            _, out = run(place, kernel[(sk.ceildiv(900, block),)], [x, np.zeros_like(x)], 900, block, value)
            np.testing.assert_array_equal(out, x)
        assert kernel.specialize(BLOCK=300, WARPS=value).fixed_block == (threads, 1, 1)


def test_what_is_no_number_of_threads_is_refused():
    for bad in (0, 7, 48, 1056, 16.0, True, "two words"):
        with pytest.raises(sk.SpecializeError, match="a power of two up to 32, or a multiple of 32 up to 1024"):
            make_copy(bad)
        with pytest.raises(sk.SpecializeError, match=f"`WARPS` is {bad!r}(.|\n)*a multiple of 32 up to 1024"):
            make_copy("WARPS")[(1,)](np.zeros(8), np.zeros(8), 8, 8, bad)
    with pytest.raises(sk.SpecializeError, match=r"no constexpr parameter `WARP`(.|\n)*`WARPS`"):
        make_copy("WARP")[(1,)](np.zeros(8), np.zeros(8), 8, 8, 4)


def test_threads_are_said_once_and_of_a_block_level_kernel_alone():
    @sk.jit(threads=32)
    def by_thread(out):
        out[sk.cuda.thread_idx("x")] = 1

    @sk.jit(threads=32)
    def with_entry(out):
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=64))
        sk.store(out + sk.arange(0, 8), 1)

    with pytest.raises(sk.StagingError, match="neither tiles nor `program_id`"):
        by_thread[1, 32](np.zeros(32))
    with pytest.raises(sk.StagingError, match="the option `threads` says already"):
        with_entry(np.zeros(32))


@sk.jit
def iota(dst, start: sk.constexpr, stop: sk.constexpr):
    offs = sk.arange(start, stop)
    sk.store(dst + offs - start, offs)


@each_place
@pytest.mark.parametrize(("start", "stop"), [(4, 8), (0, 5), (-3, 3), (1000, 3000), (2**31 - 2, 2**31 + 2)])
def test_arange_starts_where_it_is_told(place, start, stop):  # Y2
    (out,) = run(place, iota[(1,)], [np.zeros(stop - start, np.int64)], start, stop)

    np.testing.assert_array_equal(out, np.arange(start, stop))


@sk.jit
def row_sums_and_maxima(src, out, columns, BLOCK: sk.constexpr):
    offs, row = sk.arange(0, BLOCK), sk.program_id(0)
    total = sk.zeros(BLOCK, sk.float32)
    largest = sk.full((BLOCK,), -float("inf"), sk.float32)
    for start in range(0, columns, BLOCK):
        x = sk.load(src + row * columns + start + offs, mask=start + offs < columns)
        total += x
        largest = sk.where(start + offs < columns, sk.maximum(largest, x), largest)
    sk.store(out + row * 2, sk.reduce_sum(total))
    sk.store(out + row * 2 + 1, sk.reduce_max(largest))


@each_place
@settings(max_examples=20, deadline=None)
@given(columns=st.integers(1, 300), block=st.sampled_from((1, 5, 32, 100, 1025)))
def test_rows_of_any_length_are_accumulated_in_a_tile(place, columns, block):
    x = np.random.default_rng(columns).integers(-9, 9, (3, columns)).astype(np.float32)

    _, out = run(place, row_sums_and_maxima[(3,)], [x, np.zeros((3, 2), np.float32)], columns, block)

    np.testing.assert_array_equal(out, np.stack([x.sum(1), x.max(1)], 1))


@pytest.mark.parametrize("shape", [0, -1, 2.0, True, (2, 2), sk.float32, None])
def test_what_is_no_extent_is_refused_by_full(shape):
    @sk.jit
    def kernel(out):
        sk.store(out + sk.arange(0, 2), sk.full(shape, 1, sk.float32))

    with pytest.raises(sk.StagekitError, match=r"full"):
        kernel.specialize(out=sk.Pointer(sk.float32)).trace()


@sk.jit
def two_lengths(a, b, SHORT: sk.constexpr, LONG: sk.constexpr, short_first: sk.constexpr[bool]):
    if short_first:
        short, long = sk.arange(0, SHORT), sk.arange(0, LONG)
    else:
        long, short = sk.arange(0, LONG), sk.arange(0, SHORT)
    sk.store(a + short, sk.reduce_sum(short) + short * 0)
    sk.store(b + long, sk.reduce_sum(long) + long * 0)


@each_place
@pytest.mark.parametrize("short_first", [True, False])
@pytest.mark.parametrize(("short", "long"), [(16, 64), (1, 33), (100, 1500), (1025, 2050)])
def test_two_tiles_of_different_length_are_both_right(place, short, long, short_first):  # Y3
    a, b = np.full(short + 8, -1, np.int64), np.full(long + 8, -1, np.int64)

    a, b = run(place, two_lengths[(1,)], [a, b], short, long, short_first)

    assert a.tolist() == [sum(range(short))] * short + [-1] * 8
    assert b.tolist() == [sum(range(long))] * long + [-1] * 8


@sk.jit
def tile_of_any_block(dst, EXTENT: sk.constexpr, THREADS: sk.constexpr):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=THREADS))
    offs = sk.arange(0, EXTENT)
    sk.store(dst + offs, sk.reduce_sum(offs) + 0 * offs)


@each_place
@pytest.mark.parametrize(("extent", "threads"), [(16, 256), (256, 256), (1000, 256), (40, 33), (7, 1), (2000, 1024)])
def test_a_tile_spreads_over_the_block_that_device_entry_fixed(place, extent, threads):
    (dst,) = run(place, tile_of_any_block, [np.full(3000, -1)], extent, threads)

    assert set(dst[:extent].tolist()) == {sum(range(extent))}
    assert set(dst[extent:].tolist()) == {-1}


@pytest.mark.parametrize("block", [(32, 8), 0, 2000])
def test_a_tile_needs_a_block_along_x(block):
    with pytest.raises(sk.StagekitError, match="needs a block along x alone"):
        tile_of_any_block.specialize(dst=sk.Pointer(sk.int64), EXTENT=64, THREADS=block).ir


def test_a_tile_before_the_launch_is_known_is_refused():
    @sk.jit
    def kernel(dst):
        offs = sk.arange(0, 16)
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=256))
        sk.store(dst + offs, 1)

    with pytest.raises(sk.StagekitError, match="after the first tile"):
        kernel.specialize(dst=sk.Pointer(sk.int64)).ir


@sk.jit
def ones(dst, BLOCK: sk.constexpr):
    sk.store(dst + sk.arange(0, BLOCK), 1)


@pytest.mark.parametrize("block", [16.7, 64.0, True, 0, -4, "64", None, 2**40])
def test_an_extent_that_is_none_is_refused_by_name_and_value(block):  # Y5
    with pytest.raises(sk.StagekitError) as caught:
        ones.specialize(BLOCK=block, dst=sk.Pointer(sk.int8)).ir

    assert "arange" in str(caught.value)
    assert f"BLOCK={block!r}" in str(caught.value)


def test_an_extent_known_only_at_run_time_is_refused():
    @sk.jit
    def kernel(dst, n):
        sk.store(dst + sk.arange(0, n), 1)

    with pytest.raises(sk.StagekitError, match=r"the extent of arange.* known only at run time"):
        kernel.specialize(dst=sk.Pointer(sk.int8), n=sk.int32).ir


# -- operators --------------------------------------------------------------------------------------------------------

BINARY = ["+", "-", "*", "/", "//", "%", "&", "|", "^", "<<", ">>", "<", "<=", ">", ">=", "==", "!="]
PYTHON = [
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod),
    *(operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift),
    *(operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne),
]


@sk.jit
def binary_operators(a, b, dst, BLOCK: sk.constexpr, OUT: sk.constexpr, operators: sk.constexpr, form: sk.constexpr):
    """dst[k]: the k-th operator; form: tile with tile, tile with scalar, or scalar with tile."""
    offs = sk.arange(0, BLOCK)
    x, y = sk.load(a + offs), sk.load(b + offs)
    if form == "tile-scalar":
        y = sk.load(b)
    if form == "scalar-tile":
        x = sk.load(a)
    for k, apply in enumerate(operators):
        sk.store(dst + k * BLOCK + offs, OUT(apply(x, y)))


def applications():
    """Each operator as a function that the kernel interprets."""
    return (
        *(lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, lambda x, y: x / y, lambda x, y: x // y),
        *(lambda x, y: x % y, lambda x, y: x & y, lambda x, y: x | y, lambda x, y: x ^ y, lambda x, y: x << y),
        *(lambda x, y: x >> y, lambda x, y: x < y, lambda x, y: x <= y, lambda x, y: x > y, lambda x, y: x >= y),
        *(lambda x, y: x == y, lambda x, y: x != y),
    )


APPLICATIONS = applications()


@each_place
@pytest.mark.parametrize("form", ["tile-tile", "tile-scalar", "scalar-tile"])
@pytest.mark.parametrize("block", [7, 1500])
def test_every_operator_on_tiles_is_numpys(place, form, block):
    rng = np.random.default_rng(0)
    a, b = rng.integers(-100, 100, block), rng.integers(1, 20, block)
    x, y = {"tile-tile": (a, b), "tile-scalar": (a, b[0]), "scalar-tile": (a[0], b)}[form]

    *_, out = run(place, binary_operators[(1,)], [a, b, np.zeros((17, block))], block, sk.float64, APPLICATIONS, form)

    for symbol, python, got in zip(BINARY, PYTHON, out, strict=True):
        expected = np.broadcast_to(python(x, y), block)
        np.testing.assert_array_equal(got, expected.astype(np.float64), err_msg=symbol)


@sk.jit
def unary_operators(src, dst, BLOCK: sk.constexpr):
    offs = sk.arange(0, BLOCK)
    x = sk.load(src + offs)
    for k, y in enumerate(
        (-x, +x, ~x, abs(x), x**2, x.to(sk.int8), sk.int8(x), sk.where(x < 0, -1, x), sk.popcount(x))
    ):
        sk.store(dst + k * BLOCK + offs, sk.int64(y))


@each_place
@pytest.mark.parametrize("block", [5, 1027])
def test_unary_operators_casts_and_functions_go_element_by_element(place, block):
    x = np.random.default_rng(0).integers(-300, 12, block)

    _, out = run(place, unary_operators[(1,)], [x, np.zeros((9, block), np.int64)], block)

    narrow, count = x.astype(np.int8).astype(np.int64), np.bitwise_count(x.view(np.uint64)).astype(np.int64)
    expected = [-x, x, ~x, abs(x), x**2, narrow, narrow, np.where(x < 0, -1, x), count]
    for k, (got, wanted) in enumerate(zip(out, expected, strict=True)):
        np.testing.assert_array_equal(got, wanted, err_msg=str(k))


def specialize(body):
    """The IR of a kernel without parameters around `body`."""

    @sk.jit
    def kernel():
        body()

    return kernel.specialize().ir


def test_tiles_of_different_extent_do_not_mix():
    with pytest.raises(sk.StagekitError, match="tiles of 8 and 9 elements"):
        specialize(lambda: sk.arange(0, 8) + sk.arange(0, 9))


def test_a_tile_has_no_truth_value():
    def body():
        if sk.arange(0, 8) < 4:
            sk.syncthreads()

    with pytest.raises(sk.StagekitError, match="no single truth value"):
        specialize(body)


def test_a_store_of_a_tile_to_one_address_is_refused():
    @sk.jit
    def kernel(p):
        sk.store(p, sk.arange(0, 8))

    with pytest.raises(sk.StagekitError, match="one address"):
        kernel.specialize(p=sk.Pointer(sk.int64)).ir


# -- memory -----------------------------------------------------------------------------------------------------------


@sk.jit
def fill(src, dst, n, BLOCK: sk.constexpr, other: sk.constexpr):
    offs = sk.arange(0, BLOCK)
    sk.store(dst + offs, sk.load(src + offs, mask=offs < n) if other is None else sk.load(src + offs, offs < n, other))


@each_place
@pytest.mark.parametrize("block", [40, 1100])
@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.float16, ml_dtypes.bfloat16, np.float64, np.bool_])
def test_masked_lanes_give_the_fill_and_it_is_zero_by_default(place, block, dtype):  # P37
    x = np.ones(block, dtype)
    fills = [None, 0, 1] if dtype in (np.int16, np.bool_) else [None, 0, 2, -0.5, float("nan"), float("inf")]
    for other in fills:
        _, out = run(place, fill[(1,)], [x, np.zeros(block, dtype)], 7, block, other)

        expected = np.where(np.arange(block) < 7, x, np.array(0 if other is None else other, dtype))
        np.testing.assert_array_equal(out.astype(np.float64), expected.astype(np.float64))


@sk.jit
def shifted(src, dst, n, away, BLOCK: sk.constexpr):
    """Lanes from n on point far away from any memory."""
    offs = sk.arange(0, BLOCK)
    wild = sk.where(offs < n, offs, offs + away)
    sk.store(dst + wild, sk.load(src + wild, mask=offs < n), mask=offs < n)


@each_place
@pytest.mark.parametrize("away", [2**40, -(2**40)])
@pytest.mark.parametrize("block", [64, 1500])
def test_masked_lanes_never_touch_memory(place, away, block):  # P37
    """A read or write 2**40 elements away would end the process."""
    x = np.arange(33, dtype=np.float32)

    _, out = run(place, shifted[(1,)], [x, np.zeros(33, np.float32)], 33, np.int64(away), block)

    np.testing.assert_array_equal(out, x)


@sk.jit
def beyond_extent(dst, BLOCK: sk.constexpr):
    offs = sk.arange(0, BLOCK)
    sk.store(dst + offs, offs + 1)


@each_place
@pytest.mark.parametrize("block", [1, 33, 1025, 2047])
def test_a_store_without_a_mask_stays_inside_the_extent(place, block):
    (out,) = run(place, beyond_extent[(1,)], [np.zeros(4096, np.int64)], block)

    np.testing.assert_array_equal(out[:block], np.arange(1, block + 1))
    assert not out[block:].any()


@sk.jit
def count_values(src, counts, n, BLOCK: sk.constexpr):
    offs = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    value = sk.load(src + offs, mask=offs < n)
    sk.atomic_add(counts + value, 1, mask=offs < n)


@each_place
@pytest.mark.parametrize("block", [1, 50, 1300])
def test_atomics_on_tiles_are_masked_by_mask_and_extent(place, block):
    x = np.random.default_rng(0).integers(0, 4, 1000).astype(np.int32)

    _, counts = run(place, count_values[(sk.ceildiv(1000, block),)], [x, np.zeros(4, np.int32)], 1000, block)

    np.testing.assert_array_equal(counts, np.bincount(x, minlength=4))


@sk.jit
def grid_stride(src, dst, n, BLOCK: sk.constexpr):
    tid = sk.arange(0, BLOCK)
    for start in range(0, n, BLOCK):
        for half in range(2):
            mask = (start + tid < n) & (tid % 2 == half)
            sk.store(dst + start + tid, sk.load(src + start + tid, mask=mask) * 2, mask=mask)


@settings(max_examples=20, deadline=None)
@given(n=st.integers(1, 500), block=st.sampled_from((1, 32, 33, 128, 1024, 1030)))
def test_masked_loads_in_nested_run_time_loops(n, block):  # Y10
    x = np.arange(n, dtype=np.float32)

    _, out = run(on_cpu, grid_stride[(1,)], [x, np.zeros(n, np.float32)], n, block)

    np.testing.assert_array_equal(out, x * 2)


@sk.jit
def row_sums(src, dst, n, BLOCK: sk.constexpr):
    tid = sk.arange(0, BLOCK)
    total = sk.float32(tid * 0)
    for start in range(0, n, BLOCK):
        total = total + sk.load(src + start + tid, mask=start + tid < n)
    sk.store(dst + tid, total)


@each_place
@pytest.mark.parametrize("block", [32, 100, 1500])
def test_a_tile_is_carried_through_a_run_time_loop(place, block):
    x = np.arange(4000, dtype=np.float32) % 17

    _, out = run(place, row_sums[(1,)], [x, np.zeros(block, np.float32)], 4000, block)

    padded = np.zeros(sk.ceildiv(4000, block) * block, np.float32)
    padded[:4000] = x
    np.testing.assert_array_equal(out, padded.reshape(-1, block).sum(axis=0))
