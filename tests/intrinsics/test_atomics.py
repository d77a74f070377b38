"""Atomics: every operation and dtype, on global and shared memory, alone and under contention."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import stagekit as sk
from stagekit.backends import ptxas
from tests.cells import cell
from tests.places import each_place, on_cpu, run

INTEGERS = [np.dtype(t) for t in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")]
FLOATS = [np.dtype(t) for t in ("f2", "f4", "f8", ml_dtypes.bfloat16)]


@sk.jit
def on_global(cells, values, olds, atomic: sk.constexpr):
    i = sk.cuda.thread_idx("x")
    olds[i] = atomic(cells.ptr_to(i), values[i])


@sk.jit
def on_shared(cells, values, olds, atomic: sk.constexpr):
    i = sk.cuda.thread_idx("x")
    mine = sk.alloc_shared((32,), cells.dtype)
    mine[i] = cells[i]
    olds[i] = atomic(mine.ptr_to(i), values[i])
    cells[i] = mine[i]


def edges(dtype):
    """32 cells and 32 values that meet each other in many ways."""
    rng = np.random.default_rng(0)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        some = np.array([info.min, info.max, 0, 1, info.max // 2, info.max - 1], dtype)
    else:
        some = np.array([-np.inf, np.inf, np.nan, -0.0, 0.0, 1.5, -2.25, 2**-14], dtype)
    return rng.choice(some, 32), rng.choice(some, 32)


OPERATIONS = {
    "atomic_add": np.add,
    "atomic_sub": np.subtract,
    "atomic_min": np.minimum,
    "atomic_max": np.maximum,
    "atomic_and": np.bitwise_and,
    "atomic_or": np.bitwise_or,
    "atomic_xor": np.bitwise_xor,
    "atomic_exchange": lambda a, b: b,
}
BITWISE = ("atomic_and", "atomic_or", "atomic_xor")


def same_numbers(a, b):
    """Equal, taking every NaN as one and the zeros as one."""
    np.testing.assert_array_equal(a.astype(np.float64), b.astype(np.float64))


@each_place
@pytest.mark.parametrize("kernel", [on_global, on_shared], ids=["global", "shared"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_the_element_changes_and_the_old_one_comes_back(place, kernel, name):
    for dtype in INTEGERS + ([] if name in BITWISE else FLOATS):
        cells, values = edges(dtype)

        after, _, olds = run(place, kernel[1, 32], [cells, values, np.zeros(32, dtype)], getattr(sk, name))

        with np.errstate(all="ignore"), cell(dtype):
            same_numbers(after, OPERATIONS[name](cells, values).astype(dtype))
            same_numbers(olds, cells)


@sk.jit
def swap_if(cells, expected, desired, olds):
    i = sk.cuda.thread_idx("x")
    olds[i] = sk.atomic_cas(cells.ptr_to(i), expected[i], desired[i])


@each_place
@pytest.mark.parametrize("dtype", INTEGERS + FLOATS, ids=str)
def test_compare_and_swap_compares_bits(place, dtype):
    cells, desired = edges(dtype)
    expected = np.where(np.arange(32) % 2 == 0, cells, desired).astype(dtype)

    after, _, _, olds = run(place, swap_if[1, 32], [cells, expected, desired, np.zeros(32, dtype)])

    bits = f"u{dtype.itemsize}"
    np.testing.assert_array_equal(olds.view(bits), cells.view(bits))
    swapped = cells.view(bits) == expected.view(bits)
    np.testing.assert_array_equal(after.view(bits), np.where(swapped, desired.view(bits), cells.view(bits)))


@sk.jit
def contended(cell, value: sk.constexpr, atomic: sk.constexpr):
    for _ in range(3):
        atomic(cell, cell.dtype(value))


@each_place
@pytest.mark.parametrize("dtype", INTEGERS + FLOATS, ids=str)
def test_no_addition_is_lost_under_contention(place, dtype):
    """All threads add the same number, so that the order does not matter even where sums are rounded."""
    value = dtype.type(3)

    (cell,) = run(place, contended[5, 24], [np.zeros(1, dtype)], 3, sk.atomic_add)

    expected = np.zeros(1, dtype)
    for _ in range(5 * 24 * 3):
        expected = (expected + value).astype(dtype)
    assert cell[0] == expected[0]


@each_place
def test_minimum_of_all_threads(place):
    @sk.jit
    def kernel(cell):
        sk.atomic_min(cell, sk.float32(sk.cuda.thread_idx("x") * 7919 % 1009) - 500)

    (cell,) = run(place, kernel[3, 300], [np.full(1, np.inf, np.float32)])

    assert cell[0] == (np.arange(300) * 7919 % 1009).min() - 500


@pytest.mark.parametrize("dtype", [sk.bool_, sk.float8_e5m2])
def test_a_dtype_without_atomics_is_refused(dtype):
    @sk.jit
    def kernel(cell):
        sk.atomic_add(cell, sk.load(cell))

    with pytest.raises(sk.StagekitError, match="atomic_add"):
        kernel.specialize(cell=sk.Pointer(dtype)).ir


@sk.jit
def wrap(counters, olds, limit):
    i = sk.cuda.thread_idx("x")
    mine = sk.alloc_shared((1,), sk.uint32)
    if i == 0:
        mine[0] = 2
    sk.syncthreads()
    olds[0, i] = sk.atomic_inc(counters, limit)
    olds[1, i] = sk.atomic_dec(counters + 1, limit)
    sk.atomic_inc(mine, limit)
    sk.syncthreads()
    if i == 0:
        counters[2] = mine[0]


@each_place
@pytest.mark.parametrize("target", ["cpu", "interp"])
@pytest.mark.parametrize("limit", [0, 1, 6, 2**32 - 1])
def test_counters_wrap_at_their_limit(place, target, limit, monkeypatch):
    if place is on_cpu:
        monkeypatch.setenv("STAGEKIT_TARGET", target)
    start = [2, 2, 0] if limit > 1 else [0, 0, 0]
    launch = wrap[1, 70]
    counters, olds = run(place, launch, [np.array(start, np.uint32), np.zeros((2, 70), np.uint32)], np.uint32(limit))

    def after(step, value):
        seen = []
        for _ in range(70):
            seen.append(value)
            value = step(value)
        return value, sorted(seen)

    up = lambda x: 0 if x >= limit else x + 1  # noqa: E731
    down = lambda x: limit if x == 0 or x > limit else x - 1  # noqa: E731
    expected = [after(up, start[0]), after(down, start[1]), after(up, 2)]
    assert counters.tolist() == [value for value, _ in expected]
    assert [sorted(row.tolist()) for row in olds] == [seen for _, seen in expected[:2]]


@sk.jit
def add_pairs(cells, olds, order: sk.constexpr):
    i = sk.cuda.thread_idx("x")
    mine = sk.alloc_shared((2,), cells.dtype, align=4)
    if i < 2:
        mine[i] = cells.dtype(0)
    sk.syncthreads()
    olds[0, i], olds[1, i] = sk.atomic_add_pair(cells, cells.dtype(1), cells.dtype(-2), order=order)
    sk.atomic_add_pair(mine, cells.dtype(0.5), cells.dtype(0.25), order=order)
    sk.atomic_add(cells + 2, cells.dtype(1), order=order)
    sk.syncthreads()
    if i == 0:
        cells[3] = mine[0] + mine[1]


@each_place
@pytest.mark.parametrize("order", ["relaxed", "acq_rel", "seq_cst"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def test_pairs_of_narrow_floats_lose_no_addition(place, dtype, order):
    cells, olds = run(place, add_pairs[1, 64], [np.zeros(4, dtype), np.zeros((2, 64), dtype)], order)

    assert cells.astype(float).tolist() == [64, -128, 64, 48]
    assert sorted(olds[0].astype(float).tolist()) == list(range(64))
    assert sorted(olds[1].astype(float).tolist()) == list(range(-126, 2, 2))


@pytest.mark.parametrize("capability", [75, 80, 90])
@pytest.mark.parametrize(("dtype", "since"), [(sk.float16, 70), (sk.bfloat16, 90)], ids=["float16", "bfloat16"])
def test_narrow_floats_are_added_by_one_instruction(dtype, since, capability):
    for order in ("relaxed", "acq_rel", "seq_cst"):
        kernel = add_pairs.specialize(cells=sk.Tensor((None,), dtype), olds=sk.Tensor((2, None), dtype), order=order)
        ptx = kernel.compile("cuda", capability=capability).stages["ptx"]

        ptxas.assemble(ptx)
        assert (f"noftz.{dtype.short}x2" in ptx) == (capability >= since)
        assert (f"noftz.{dtype.short} " in ptx) == (capability >= since)


@sk.jit
def swap_pairs(cells, olds, order: sk.constexpr):
    i = sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")
    held = sk.alloc_shared(2, cells.dtype, align=16)
    if sk.cuda.thread_idx("x") == 0:
        held[0] = held[1] = cells.dtype(0)
    sk.syncthreads()
    olds[0, i], olds[1, i] = sk.atomic_exchange_pair(cells.ptr, i + 1, (i + 1) * (i + 1), order=order)
    for place in (cells.ptr_to(2), held.ptr):
        first, second = cells.dtype(0), cells.dtype(0)  # a count and its square, which always change together
        is_done = False
        while not is_done:
            a, b = sk.atomic_cas_pair(place, first, second, first + 1, second + 2 * first + 1, order=order)
            is_done = a == first and b == second
            first, second = a, b
    sk.syncthreads()
    if i == 0:
        cells[4], cells[5] = held[0], held[1]


@each_place
@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_pairs_of_words_change_together(place, dtype):
    for order, kernel in (
        ("relaxed", swap_pairs),
        ("seq_cst", swap_pairs),
        ("acq_rel", sk.compile(swap_pairs.specialize(order="acq_rel"), "interp")),
    ):
        if kernel is not swap_pairs and place is not on_cpu:
            continue
        cells, olds = run(
            place,
            kernel[4, 32],
            [np.zeros(6, dtype), np.zeros((2, 128), dtype)],
            *([order] if kernel is swap_pairs else []),
        )
        with cell(order):
            assert cells[2:].tolist() == [128, 128**2, 32, 32**2]
            assert (olds[0] ** 2 == olds[1]).all()
            assert sorted([*olds[0].tolist(), int(cells[0])]) == list(range(129))
            assert cells[0] ** 2 == cells[1]


def test_pairs_of_words_are_one_instruction_since_hopper():
    kernel = swap_pairs.specialize(
        cells=sk.Tensor((None,), sk.uint64), olds=sk.Tensor((2, None), sk.uint64), order="acq_rel"
    )
    ptx = kernel.compile("cuda", capability=90).stages["ptx"]

    ptxas.assemble(ptx)
    assert "atom.acq_rel.gpu.global.exch.b128" in ptx
    assert "atom.acq_rel.gpu.shared.cas.b128" in ptx
    assert ".version 8.4" in ptx
    with pytest.raises(sk.StagekitError, match=r"9\.0"):
        kernel.compile("cuda", capability=89)


@sk.jit
def race_with_half(cells, is_plain: sk.constexpr):
    i = sk.cuda.thread_idx("x")
    if i == 0:
        sk.atomic_exchange_pair(cells.ptr, 1, 2)
    elif is_plain:
        cells[1] = 5
    else:
        sk.atomic_exchange_pair(cells.ptr, 3, 4)


def test_the_sanitizer_sees_both_words_and_where_they_lie():
    memory = np.zeros(5, np.uint64)
    aligned = memory[memory.ctypes.data % 16 // 8 :][:4]
    watch = sk.sanitize(race_with_half)
    watch[1, 2](aligned, False)
    with pytest.raises(sk.StagekitError, match="WARP_RACE"):
        watch[1, 2](aligned, True)
    with pytest.raises(sk.StagekitError, match="MISALIGNED_ACCESS"):
        watch[1, 1](aligned[1:], False)
    with pytest.raises(sk.StagekitError, match="OUT_OF_BOUNDS"):
        watch[1, 1](aligned[:1], False)


def test_integer_atomics_are_single_instructions():
    kernel = on_global.specialize(
        **{n: sk.Tensor((None,), sk.uint32) for n in ("cells", "values", "olds")}, atomic=sk.atomic_max
    )

    assert "global.max.u32" in kernel.ptx
