"""A block-level kernel is one sequential program per block: its statements act once, in order, whatever the threads."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.dtypes import ALL_DTYPES
from stagekit.frontend import statement_order
from stagekit.intrinsics import by_name
from stagekit.lib.layout import cpu_threads, default_threads
from stagekit.testing import force_entry
from tests.places import each_place, on_cpu, run

BLOCKS = (1, 2, 5, 31, 32, 33, 64, 100, 256, 1000, 1024, 1025, 2048, 3001)
each_block = pytest.mark.parametrize("block", BLOCKS)

ATOMICS = {
    "add": (sk.atomic_add, 10 + 3 * 4),
    "sub": (sk.atomic_sub, 10 - 3 * 4),
    "xor": (sk.atomic_xor, 10),  # four times
    "exchange": (sk.atomic_exchange, 3),
}


@sk.jit
def atomic_of_a_number(src, out, atomic: sk.constexpr, BLOCK: sk.constexpr):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    atomic(out + 0, sk.reduce_sum(sk.load(src + i)) // BLOCK)


@each_place
@each_block
@pytest.mark.parametrize("name", ATOMICS)
def test_an_atomic_of_a_number_acts_once_per_program(place, block, name):
    atomic, expected = ATOMICS[name]

    _, out = run(
        place, atomic_of_a_number[(4,)], [np.full(4 * block, 3, np.int32), np.full(1, 10, np.int32)], atomic, block
    )

    assert out.tolist() == [expected]


@sk.jit
def store_again(out, TIMES: sk.constexpr):
    i = sk.arange(0, 1024)
    for _ in sk.static_range(TIMES):
        sk.store(out + i, i)


def test_statements_that_do_the_same_again_are_not_compared_with_each_other(monkeypatch):
    compared = []
    meets = statement_order.meets
    monkeypatch.setattr(statement_order, "meets", lambda *given: compared.append(given) or meets(*given))

    store_again.specialize(out=sk.Tensor((None,), sk.int32), TIMES=40).trace()

    assert 0 < len(compared) < 5 * 40


@sk.jit
def takes_numbers(counter, out, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    for k in range(3):
        ticket = sk.atomic_add(counter + 0, 2)
        sk.store(out + (sk.program_id(0) * 3 + k) * BLOCK + i, i + ticket)


@each_place
@each_block
def test_what_an_atomic_returns_is_the_same_in_the_whole_tile(place, block):
    counter, out = run(place, takes_numbers[(2,)], [np.zeros(1, np.int32), np.zeros((6, block), np.int64)], block)

    assert counter.tolist() == [12]
    np.testing.assert_array_equal(
        out - np.arange(block), np.sort(out[:, 0])[np.argsort(np.argsort(out[:, 0]))][:, None] + np.zeros(block)
    )
    assert sorted(out[:, 0].tolist()) == [0, 2, 4, 6, 8, 10]


@sk.jit
def numbers_in_memory(Y, src, BLOCK: sk.constexpr):
    x = sk.load(src + sk.arange(0, BLOCK))
    Y[0] = sk.reduce_sum(x)
    Y[1] += Y[0]
    Y[2] = Y[1] * 2
    if Y[2] > 5:
        Y[3] = Y[0] - 1
    Y[0] = 7
    total = 0
    for k in range(4):
        total += Y[k]
        Y[k] = total


@each_place
@each_block
def test_numbers_are_read_back_from_memory(place, block):
    Y, _ = run(place, numbers_in_memory[(1,)], [np.full(4, 100, np.int32), np.ones(block, np.int32)], block)

    written = [7, 100 + block, 2 * (100 + block), block - 1]
    assert Y.tolist() == np.cumsum(written).tolist()


@sk.jit
def says_so(src, BLOCK: sk.constexpr):
    x = sk.load(src + sk.arange(0, BLOCK))
    print("program", sk.program_id(0), "sums to", sk.reduce_sum(x))
    assert sk.reduce_sum(x) > 0, f"{sk.program_id(0)} is empty"


@pytest.mark.parametrize("target", ["cpu", "interp"])
@each_block
def test_a_program_prints_once(capfd, target, block):
    sk.jit(says_so.function, target=target)[(2,)](np.ones(block, np.int32), block)

    assert capfd.readouterr().out == f"program 0 sums to {block}\nprogram 1 sums to {block}\n"


@sk.jit
def backwards(src, scratch, out, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    sk.store(scratch + i, sk.load(src + i))
    sk.store(out + i, sk.load(scratch + (BLOCK - 1 - i)))


@sk.jit
def shifted_in_place(A, rounds, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    for _ in range(rounds):
        x = sk.load(A + i + 1)
        sk.store(A + i, x * 2)


@sk.jit
def through_shared_memory(src, out, BLOCK: sk.constexpr):
    i, pile = sk.arange(0, BLOCK), sk.alloc_shared((BLOCK,), sk.int32)
    for k in sk.static_range(3):
        sk.store(pile.ptr + i, sk.load(src + k * BLOCK + i))
        sk.store(out + k * BLOCK + i, sk.load(pile.ptr + (i + 1) % BLOCK) + pile[0])


@each_place
@each_block
def test_a_tile_reads_what_another_thread_wrote(place, block):
    x = np.arange(block, dtype=np.int32)

    *_, out = run(place, backwards[(1,)], [x, np.zeros_like(x), np.zeros_like(x)], block)

    np.testing.assert_array_equal(out, x[::-1])


@each_place
@each_block
def test_what_was_read_is_not_overwritten_early(place, block):
    A = np.arange(block + 1, dtype=np.int32)
    expected = A.copy()
    for _ in range(3):
        expected[:block] = expected[1:] * 2

    (A,) = run(place, shifted_in_place[(1,)], [A], 3, block)

    np.testing.assert_array_equal(A, expected)


@each_place
@each_block
def test_shared_memory_is_in_order(place, block):
    x = np.arange(3 * block, dtype=np.int32)

    _, out = run(place, through_shared_memory[(1,)], [x, np.zeros_like(x)], block)

    rows = x.reshape(3, block)
    np.testing.assert_array_equal(out.reshape(3, block), np.roll(rows, -1, axis=1) + rows[:, :1])


@sk.jit
def loads_before_tiles(A, out, BLOCK: sk.constexpr):
    x = A[0]
    i = sk.arange(0, BLOCK)
    sk.store(A + i, x + i + 1)
    sk.store(out + i, x)


@sk.jit
def loads_before_atomics(A, out, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    at = sk.load(A + i) % 5
    x = sk.load(out + at)
    sk.atomic_add(out + at, 1)
    sk.store(A + i, x)


@sk.jit
def loads_behind_atomics(A, out, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    at = sk.load(A + i) % 5
    sk.atomic_add(out + at, 1)
    sk.store(A + i, sk.load(out + at))


@sk.jit
def places_from_atomics(A, out, BLOCK: sk.constexpr):
    A[0] = 0
    k = sk.atomic_add(A + sk.zeros(BLOCK, sk.int64), 1)
    sk.store(out + k, k)
    sk.store(A + k, sk.load(out + (BLOCK - 1 - k)))


@sk.jit
def neighbours_of_places_from_atomics(A, out, BLOCK: sk.constexpr):
    A[0] = 0
    k = sk.atomic_add(A + sk.zeros(BLOCK, sk.int64), 1)
    sk.store(out + k, k)
    sk.store(A + k, sk.load(out + k + 1, mask=k + 1 < BLOCK))


@sk.inline(per_thread=True)
def index_of_each_thread():
    found = sk.alloc_local((1,), sk.int64)
    found[0] = sk.cuda.thread_idx("x")
    return found


@sk.inline(per_thread=True)
def store_own(out, at, value):
    out[at] = value


@sk.jit
def places_in_local_memory(A, out, BLOCK: sk.constexpr):
    at = index_of_each_thread()
    sk.store(out + sk.arange(0, BLOCK), 5)
    store_own(out, at[0], at[0])
    store_own(A, at[0], out[at[0] + 1])


@sk.inline(per_thread=True)
def store_both(A, one, other, value):
    sk.store(A + one.elements[0], value)
    sk.store(A + other.elements[0], value)


@sk.jit
def stores_at_fixed_and_at_moving_places(A, out, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    turned = sk.load(A + i)
    sk.store(A + i, 0)
    for k in range(1, 3):
        sk.store(out + i, sk.load(A + BLOCK * k + i))
        store_both(A, turned + BLOCK * 2, BLOCK * k + i, k)


@pytest.mark.parametrize("target", ["cpu", "interp"])
@pytest.mark.parametrize("block", [1, 31, 33, 100, 1024])
@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (loads_before_tiles, lambda i: (i + i.size, np.full_like(i, i.size - 1))),
        (loads_before_atomics, lambda i: (0 * i, None)),
        (loads_behind_atomics, lambda i: (np.bincount(i[::-1] % 5, minlength=5)[i[::-1] % 5], None)),
        (places_from_atomics, lambda i: (i[::-1], i)),
        (neighbours_of_places_from_atomics, lambda i: (np.append(i[1:], 0), i)),
        (places_in_local_memory, lambda i: (np.append(i[1:], 0), i)),
        (stores_at_fixed_and_at_moving_places, lambda i: (0 * i, np.ones_like(i))),
    ],
    ids=lambda given: getattr(given, "name", None),
)
def test_no_access_is_taken_for_that_of_one_thread_wrongly(kernel, expected, block, target):
    i = np.arange(block, dtype=np.int64)
    A, out = np.concatenate([i[::-1], np.zeros(2 * block, np.int64)]), np.zeros(3 * block + 5, np.int64)

    sk.jit(kernel.function, target=target, threads=block if block % 32 == 0 else None)[1](A, out, block)

    for found, wanted in zip((A, out), expected(i)):
        if wanted is not None:
            np.testing.assert_array_equal(found[:block], wanted)


@pytest.mark.parametrize("target", ["cpu", "interp"])
@pytest.mark.parametrize("block", [1, 33, 100])
def test_dynamic_shared_memory_is_one_array_however_often_it_is_named(block, target):
    def kernel(src, out, BLOCK: sk.constexpr):
        i = sk.arange(0, BLOCK)
        sk.store(sk.dynamic_shared(sk.int32) + i, sk.load(src + i))
        sk.store(out + i, sk.load(sk.dynamic_shared(sk.int32) + (BLOCK - 1 - i)))

    x = np.arange(block, dtype=np.int32)
    out = np.zeros_like(x)

    launch = sk.cuda.LaunchConfig(grid=1, block=block, shared_bytes=4 * block)
    sk.jit(kernel, target=target)[launch](x, out, block)

    np.testing.assert_array_equal(out, x[::-1])


Floats = sk.Tensor((None,), sk.float32)


# -- which barriers -----------------------------------------------------------------------------------------------------------


def in_place(A: Floats, n: sk.int32, BLOCK: sk.constexpr):
    for start in range(0, n, BLOCK):
        i = start + sk.arange(0, BLOCK)
        sk.store(A + i, sk.load(A + i, mask=i < n) * 2, mask=i < n)


def two_passes(A: Floats, B: Floats, n: sk.int32, BLOCK: sk.constexpr):
    row = sk.program_id(0) * n
    for start in range(0, n, BLOCK):
        i = start + sk.arange(0, BLOCK)
        sk.store(B + row + i, sk.load(A + row + i, mask=i < n) * 2, mask=i < n)
    for begin in range(0, n, 2 * BLOCK):
        i = begin + sk.arange(0, BLOCK)
        sk.store(B + row + i, sk.load(B + row + i, mask=i < n) + 1, mask=i < n)


def scattered(A: Floats, where: sk.Tensor((None,), sk.int32), BLOCK: sk.constexpr):
    at = sk.load(where + sk.arange(0, BLOCK))
    sk.store(A + at, sk.load(A + at) + 1)


def fields(A: Floats, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    x, y = sk.load(A + 2 * i), sk.load(A + 2 * i + 1)
    sk.store(A + 2 * i, x * y)
    sk.store(A + 2 * i + 1, x + y)


def halves(A: Floats, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    sk.store(A + i, sk.load(A + i + BLOCK))


def after_a_reduction(A: Floats, out: Floats, BLOCK: sk.constexpr):
    x = sk.load(A + sk.arange(0, BLOCK))
    sk.store(A + (BLOCK - 1 - sk.arange(0, BLOCK)), x - sk.reduce_sum(x))
    sk.store(out, sk.reduce_max(x))


def own_numbers(out: Floats, BLOCK: sk.constexpr):
    x = sk.full(BLOCK, 1.0, sk.float32)
    sk.atomic_add(out, sk.reduce_sum(x))
    sk.store(out + 1, 1.0)
    sk.store(out + 1, 2.0)


@pytest.mark.parametrize("function", [in_place, two_passes, scattered, fields, halves, after_a_reduction, own_numbers])
@pytest.mark.parametrize("block", [100, 4096])
def test_no_thread_waits_where_each_element_is_its_own(function, block):
    assert sk.jit(function).specialize(BLOCK=block).trace().waits == ()


def shift(A: Floats, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    x = sk.load(A + i + 1)
    sk.store(A + i, x)


def masked_scatter(A: Floats, where: sk.Tensor((None,), sk.int32), n: sk.int32, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    at = sk.load(where + i)
    x = sk.load(A + at)
    sk.store(A + at, x + 1, mask=i < n)


def overlapping_rounds(A: Floats, n: sk.int32, BLOCK: sk.constexpr):
    for start in range(0, n, BLOCK // 2 + 1):
        i = start + sk.arange(0, BLOCK)
        sk.store(A + i, sk.load(A + i) + 1)


def in_one_arm(A: Floats, n: sk.int32, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    if n > 3:
        sk.store(A + i, i.to(sk.float32))
    sk.store(A + BLOCK + i, sk.load(A + (BLOCK - 1 - i)))


@pytest.mark.parametrize("function", [shift, masked_scatter, overlapping_rounds, in_one_arm])
@pytest.mark.parametrize("block", [32, 100, 4096])
def test_threads_wait_once_where_elements_may_meet(function, block):
    kernel = sk.jit(function).specialize(BLOCK=block)

    (wait,) = kernel.trace().waits
    assert re.fullmatch(
        r"line \d+: a barrier before it (writes|reads) `A`, which other threads (wrote|read) in line \d+", wait
    )
    assert ("syncwarp" if block == 32 else "syncthreads") in kernel.ir


@pytest.mark.parametrize("function", [shift, backwards.function])
def test_a_block_of_one_thread_waits_for_nobody(function):
    arrays = {
        name: sk.Pointer(sk.float32) for name in ("src", "scratch", "out") if name in function.__code__.co_varnames
    }

    assert sk.jit(function).specialize(BLOCK=1, **arrays).trace().waits == ()


@settings(max_examples=40, deadline=None)
@given(st.data(), st.sampled_from([1, 3, 32, 33, 100, 1024, 1500]))
def test_any_order_of_accesses_is_that_of_numpy(data, block):
    """Each statement reads one affine place and writes another; NumPy does the same one after the other."""
    steps = st.tuples(st.integers(0, 4), st.sampled_from([1, -1]), st.integers(0, 4), st.sampled_from([1, -1]))
    statements = tuple(data.draw(st.lists(steps, min_size=1, max_size=4)))
    rounds = data.draw(st.integers(1, 3))
    A = np.arange(block + 8, dtype=np.int32)
    expected, i = A.copy(), np.arange(block)
    for _ in range(rounds):
        for read, forward, write, onward in statements:
            x = expected[read + (i if forward > 0 else block - 1 - i)] * 3 + 1
            expected[write + (i if onward > 0 else block - 1 - i)] = x

    for target in ("cpu", "interp"):
        found = A.copy()
        sk.jit(accesses.function, target=target)[(1,)](found, rounds, statements, block)
        np.testing.assert_array_equal(found, expected)


@sk.jit
def accesses(A, rounds, statements: sk.constexpr, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    for _ in range(rounds):
        for read, forward, write, onward in statements:
            x = sk.load(A + read + (i if forward > 0 else BLOCK - 1 - i))
            sk.store(A + write + (i if onward > 0 else BLOCK - 1 - i), x * 3 + 1)


@sk.inline(per_thread=True)
def load_wide(A, at, width):
    """What each thread holds of `width` neighbours for each."""
    held = sk.alloc_local(width, A.dtype)
    sk._store_vector(held + 0, sk._load_vector(A + at + sk.cuda.thread_idx("x") * width, width, 4), 4)
    return held


@sk.inline(per_thread=True)
def store_wide(A, at, width, held):
    sk._store_vector(A + at + sk.cuda.thread_idx("x") * width, sk._load_vector(held + 0, width, 4) * 3 + 1, 4)


@sk.inline(per_thread=True)
def load_one(A, at, step):
    held = sk.alloc_local(1, A.dtype)
    held[0] = A[at + sk.cuda.thread_idx("x") * step]
    return held


@sk.inline(per_thread=True)
def store_one(A, at, step, held):
    A[at + sk.cuda.thread_idx("x") * step] = held[0] * 3 + 1


@sk.jit
def wide_accesses(A, rounds, statements: sk.constexpr, WIDTH: sk.constexpr, BLOCK: sk.constexpr):
    sk.arange(0, BLOCK)
    for _ in range(rounds):
        for read, write, step in statements:
            if step == 0:
                store_wide(A, write, WIDTH, load_wide(A, read, WIDTH))
            else:
                store_one(A, write, step, load_one(A, read, step))


@settings(max_examples=40, deadline=None)
@given(st.data(), st.sampled_from([3, 33, 100]), st.sampled_from([2, 4, 8]))
def test_any_order_of_wide_accesses_is_that_of_numpy(data, block, width):
    """Each statement moves one element of each thread, or a vector; NumPy does the same one after the other."""
    steps = st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from([0, 0, 1, width]))
    statements = tuple(data.draw(st.lists(steps, min_size=1, max_size=4)))
    rounds = data.draw(st.integers(1, 2))
    A = np.arange(block * width + 9, dtype=np.int32)
    expected, t = A.copy(), np.arange(block)
    for _ in range(rounds):
        for read, write, step in statements:
            place = t * step if step else np.arange(block * width)
            expected[write + place] = expected[read + place] * 3 + 1

    for target in ("cpu", "interp"):
        found = A.copy()
        sk.jit(wide_accesses.function, target=target)[(1,)](found, rounds, statements, width, block)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("statements", "waits"),
    [
        ([(0, 0, 0), (0, 0, 0)], 0),  # each thread its own vector
        ([(0, 0, 0), (3, 1, 4)], 0),  # its last element, its second
        ([(0, 0, 0), (4, 4, 4)], 1),  # the first of the next thread
        ([(0, 0, 0), (0, 0, 1)], 1),
        ([(0, 0, 4), (1, 1, 0)], 1),  # a vector that ends in the next thread's element
    ],
)
def test_threads_wait_where_the_last_element_of_a_vector_may_meet_another(statements, waits):
    kernel = wide_accesses.specialize(
        A=sk.Tensor((None,), sk.int32), rounds=sk.int32, statements=tuple(statements), WIDTH=4, BLOCK=64
    )

    assert len(kernel.trace().waits) >= waits
    assert (kernel.trace().waits == ()) == (waits == 0)


def test_inline_ptx_may_access_more_than_one_element():
    def kernel(A: Floats, BLOCK: sk.constexpr):
        sk.store(A + sk.arange(0, BLOCK) + 1, 1.0)
        sk.inline_asm("st.global.v2.f32 [$0], {$1, $1};", "l,f", [A + 0, sk.float32(2)], None, host=two_stores)

    def two_stores(pointer, value):
        sk.store(pointer, value)
        sk.store(pointer + 1, value)

    specialised = sk.jit(kernel).specialize(BLOCK=100)

    assert len(specialised.trace().waits) == 1
    A = np.zeros(101, np.float32)
    specialised[1](A)
    assert A.tolist() == [2, 2] + [1] * 99


# -- arguments that overlap ----------------------------------------------------------------------------------------------------


@sk.jit
def doubled(A, B, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    sk.store(B + i, sk.load(A + i) * 2)


@sk.jit
def doubled_backwards(A, B, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    sk.store(B + i, sk.load(A + (BLOCK - 1 - i)) * 2)


@sk.jit
def last_to_first(A, B, BLOCK: sk.constexpr):
    x = sk.load(A + sk.arange(0, BLOCK)) * 2
    B[0] = 5
    sk.store(B + sk.arange(0, BLOCK), sk.where(sk.arange(0, BLOCK) == 0, A[BLOCK - 1], x))


@pytest.mark.parametrize("target", ["cpu", "interp"])
@pytest.mark.parametrize("block", [1, 5, 32, 33, 300, 2000])
@pytest.mark.parametrize("kernel", [doubled, doubled_backwards, last_to_first], ids=lambda k: k.name)
def test_arguments_may_overlap_in_any_way(kernel, block, target):
    launched = sk.jit(kernel.function, target=target)
    memory = np.arange(3 * block, dtype=np.int32)
    for first, second in [(0, block), (0, 0), (0, 1), (1, 0), (0, block - 1), (block, block // 2), (0, 2 * block)] * 3:
        expected, found = memory.copy(), memory.copy()
        x = expected[first : first + block] * 2
        if kernel is last_to_first:
            expected[second] = 5
            x[0] = expected[first + block - 1]
        expected[second : second + block] = x[::-1] if kernel is doubled_backwards else x

        launched[1](found[first : first + block], found[second : second + block], block)

        np.testing.assert_array_equal(found, expected)
        again = memory.copy()
        launched.prepare[1](again[first : first + block], again[second : second + block], block)()
        np.testing.assert_array_equal(again, expected)


def test_code_for_overlapping_arguments_is_made_when_they_come():
    kernel = doubled.specialize(BLOCK=64)
    x = np.arange(128, dtype=np.float32)

    kernel[1](x[:64], x[64:])
    kernel[1](x[:64], x[:64])  # one array in place of another: each element is its own thread's
    assert "overlap" not in kernel.explain()
    assert kernel.trace().waits == ()

    kernel[1](x[:64], x[1:65])
    assert "the overlapping entry, since this does not hold: `A` and `B` do not overlap, or are" in kernel.explain()
    assert len(kernel.trace().waits) == 1

    backwards = doubled_backwards.specialize(BLOCK=64)
    backwards[1](x[:64], x[:64])
    assert "the overlapping entry, since this does not hold: `A` and `B` do not overlap (" in backwards.explain()


ROWS = sk.Tensor((None, None), sk.int32, strides=(None, 1))


@sk.jit
def doubled_rows(A: ROWS, B: ROWS, row, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    sk.store(B[row] + i, sk.load(A[row] + i) * 2)


@pytest.mark.parametrize("target", ["cpu", "interp"])
@settings(max_examples=40, deadline=None)
@given(data=st.data(), block=st.sampled_from([5, 33, 100]))
def test_arrays_with_gaps_between_their_rows_may_overlap_in_any_way(data, block, target):
    memory = np.arange(12 * block, dtype=np.int32)
    places = data.draw(
        st.lists(st.tuples(st.integers(-4, 4), st.sampled_from([-1, 1]), st.integers(0, 3)), min_size=2, max_size=2)
    )

    def row_views(memory):
        views = []
        for shift, direction, gap in places:
            start = 5 * block + shift
            width = block + gap
            rows = memory[start : start + 3 * width].reshape(3, width)[:, :block]
            views.append(rows[::direction])
        return views

    expected, found = memory.copy(), memory.copy()
    A, B = row_views(expected)
    B[2] = A[2] * 2

    sk.jit(doubled_rows.function, target=target)[1](*row_views(found), 2, block)

    np.testing.assert_array_equal(found, expected)


def test_rows_with_gaps_that_are_the_same_need_no_barrier():
    kernel = doubled_rows.specialize(BLOCK=64)
    memory = np.arange(1000, dtype=np.int32).reshape(5, 200)

    kernel[1](memory[:2], memory[2:], 1)
    kernel[1](memory[:, :64], memory[:, :64], 1)
    assert "overlap" not in kernel.explain()
    assert kernel.trace().waits == ()

    kernel[1](memory[:2], memory[:4:2], 1)  # they begin at one address, and their rows at others
    assert "overlap" in kernel.explain()


def test_of_a_pointer_nobody_knows_where_it_ends():
    @sk.jit
    def kernel(A: sk.Pointer(sk.float32), B: sk.Pointer(sk.float32), BLOCK: sk.constexpr):
        sk.store(B + sk.arange(0, BLOCK), sk.load(A + sk.arange(0, BLOCK)))

    assert len(kernel.specialize(BLOCK=64).trace().waits) == 1


# -- arguments that nothing writes ---------------------------------------------------------------------------------------------

VECTOR = sk.Tensor((None,), sk.int32)
SUMS = sk.Tensor((None, None), sk.int32)


@sk.jit
def weighted(x: VECTOR, weight: VECTOR, out: VECTOR, sums: sk.Array | None, prepare: sk.constexpr, BLOCK: sk.constexpr):
    """Threads wait between what is written to `sums` and what is read of `weight`, but not between that and `out`."""
    i = sk.arange(0, BLOCK)
    prepare(x)
    y = sk.load(x + i)
    if sums is not None:
        sums[(0,) * sums.ndim] = sk.reduce_sum(y)
    largest = sk.reduce_max(y)
    sk.store(out + i, y - largest)
    sk.store(out + i, sk.load(out + i) * sk.load(weight + (BLOCK - 1 - i)))


def constant(kernel, entry: str) -> set[str]:
    """Return the names of the arguments that machine code may read at any time."""
    fn = force_entry(kernel, entry).trace().function
    return {param.name for param, holds in zip(fn.params, fn.attribute("constant", ())) if holds}


def test_an_argument_that_must_be_apart_from_what_is_written_is_apart_from_all_of_it_and_constant():
    kernel = weighted.specialize(sums=None, prepare=lambda x: None, BLOCK=64)
    with_sums = weighted.specialize(sums=SUMS, prepare=lambda x: None, BLOCK=64)

    for each in (kernel, with_sums):
        assert [constant(each, entry) for entry in ("quick", "general", "overlapping")] == [
            {"weight"},
            {"weight"},
            set(),
        ]
    assert "`weight` and `sums` do not overlap" in str(force_entry(with_sums, "quick").report())
    assert "ld.global.nc" in force_entry(kernel, "quick").ptx
    assert "ld.global.nc" not in force_entry(kernel, "overlapping").ptx


def test_an_argument_that_may_be_written_in_place_is_not_asked_to_be_apart():
    """`weight` is apart from `out`, and may be `sums`: threads wait in between."""
    kernel = weighted.specialize(sums=VECTOR, prepare=lambda x: None, BLOCK=64)
    ones = np.ones(64, np.int32)
    found = ones.copy()

    assert constant(kernel, "quick") == set()
    kernel[1](ones, found, np.zeros(64, np.int32), found)
    assert "overlapping" not in kernel.explain()
    assert found[:2].tolist() == [64, 1]


@pytest.mark.parametrize(
    "prepare",
    [
        lambda x: sk.threadfence(),
        lambda x: sk.inline_asm("prefetch.global.L2 [$0];", "l", [x + 0], None, host=lambda pointer: None),
    ],
    ids=["others wrote it", "inline PTX"],
)
def test_nothing_is_constant_where_more_may_be_written_than_arguments_tell(prepare):
    assert constant(weighted.specialize(sums=None, prepare=prepare, BLOCK=64), "quick") == set()


def test_nothing_is_constant_beside_a_pointer_that_is_written():
    @sk.jit
    def kernel(weight: VECTOR, out: VECTOR, count: sk.Pointer(sk.int32), BLOCK: sk.constexpr):
        i = sk.arange(0, BLOCK)
        sk.store(out + i, sk.load(weight + (BLOCK - 1 - i)))
        sk.store(out + i, sk.load(weight + i))
        if BLOCK > 64:
            sk.atomic_add(count, 1)

    assert [constant(kernel.specialize(BLOCK=block), "quick") for block in (64, 128)] == [{"weight"}, set()]


@sk.jit
def polling(weight, polled, out, order: sk.constexpr, scope: sk.constexpr, BLOCK: sk.constexpr):
    """Both arrays that are read must be apart from `out`; one element of `polled` is read in one step."""
    i, turned = sk.arange(0, BLOCK), BLOCK - 1 - sk.arange(0, BLOCK)
    for array in (weight, polled):
        sk.store(out + i, sk.load(array + turned))
        sk.store(out + i, sk.load(array + i))
    out[0] = sk.load(polled + 0, mask=sk.program_id(0) > 0, other=weight[1], order=order, scope=scope)


ORDERED = {signature.args[0].dtype for signature in by_name("atomic_load").sigs}
PTX_SCOPES = {"block": "cta", "gpu": "gpu", "sys": "sys"}
ONE_STEP = list(itertools.product(("relaxed", "acquire", "seq_cst"), ("block", "gpu", "sys")))


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=lambda dtype: dtype.name)
def test_machine_code_may_read_at_any_time_what_no_load_has_an_order_for(dtype):
    """LLVM aborts the process at a relaxed load from an argument that it believes nobody writes."""
    array = sk.Tensor((None,), dtype)
    kernel = polling.specialize(weight=array, polled=array, out=array)
    for block in (64, 256, 512, 1024, 2048):  # vectors of one element to 16
        plain = kernel.specialize(order=None, scope=None, BLOCK=block)
        assert constant(plain, "quick") == {"weight", "polled"}
        assert "ld.global.nc" in force_entry(plain, "quick").ptx
    for order, scope in ONE_STEP if dtype in ORDERED else ():
        ordered = kernel.specialize(order=order, scope=scope, BLOCK=64)
        assert constant(ordered, "quick") == ({"weight"} if order == "relaxed" else set())
        assert (
            f"ld.{'relaxed' if order == 'relaxed' else 'acquire'}.{PTX_SCOPES[scope]}.global"
            in force_entry(ordered, "quick").ptx
        )


# -- threads of their own -----------------------------------------------------------------------------------------------------


@sk.inline(per_thread=True)
def add_each(out, x):
    for element in x.elements:
        sk.atomic_add(out + sk.cuda.thread_idx("x") % 2, element)


@sk.jit
def by_thread(out, BLOCK: sk.constexpr):
    add_each(out, sk.full(BLOCK, 1, sk.int32))
    out[2] = out[0] + out[1]


@pytest.mark.stagekit_unchecked(reason="it counts the threads of each target")
@each_place
@each_block
def test_each_thread_acts_in_a_fragment_that_is_marked_so(place, block):
    (out,) = run(place, by_thread[(1,)], [np.zeros(3, np.int32)], block)

    threads = cpu_threads(block) if place is on_cpu else default_threads(block, 4)
    held = -(-block // threads)
    assert out.tolist() == [-(-threads // 2) * held, threads // 2 * held, threads * held]


def adds_elements(out, x):
    for element in x.elements:
        sk.atomic_add(out, element)


def looks_which_are_valid(out, x):
    sk.store(out, x.valid()[0])


@pytest.mark.parametrize("use", [adds_elements, looks_which_are_valid])
def test_what_a_thread_holds_of_a_tile_is_refused_in_the_program_of_a_block(use):
    """One thread acts for all there, and the others' elements would be left out."""

    @sk.jit
    def kernel(out, BLOCK: sk.constexpr):
        use(out, sk.full(BLOCK, 1, sk.int32))

    with pytest.raises(sk.StagingError, match=r"what one thread holds of a tile") as caught:
        kernel[1](np.zeros(1, np.int32), 100)

    assert caught.value.loc.file == __file__
    assert "per_thread=True" in str(caught.value)


def uses_both(out, BLOCK: sk.constexpr):
    sk.store(out + sk.cuda.thread_idx("x"), sk.reduce_sum(sk.arange(0, BLOCK)))


def test_thread_indices_beside_tiles_are_refused():
    with pytest.raises(sk.StagingError, match=r"per_thread=True") as caught:
        sk.jit(uses_both).specialize(BLOCK=4, out=sk.Pointer(sk.int64)).trace()

    assert caught.value.id == "MIXED_STYLES"


AMONG_THREADS = (
    lambda x: sk.shfl_xor_sync(0xFFFFFFFF, x, 1),
    lambda x: sk.shfl_down_sync(0xFFFFFFFF, x, 1),
    lambda x: sk.ballot_sync(0xFFFFFFFF, x > 1),
    lambda x: sk.any_sync(0xFFFFFFFF, x > 1),
    lambda x: sk.match_any_sync(0xFFFFFFFF, x),
    lambda x: sk.redux_sync_add(0xFFFFFFFF, sk.int32(x)),
    lambda x: sk.activemask(),
    lambda x: sk.syncwarp(),
    lambda x: sk.syncthreads_count(x > 1),
    lambda x: sk.warp_reduce(x, sk.maximum),
    lambda x: sk.block_reduce(x, sk.maximum, 0, 64),
)


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("operate", AMONG_THREADS)
def test_an_operation_among_threads_is_refused_in_the_program_of_a_block(operate, is_late):
    def program(out, BLOCK: sk.constexpr):
        if not is_late:
            sk.store(out + sk.arange(0, BLOCK), 1)
        operate(sk.load(out))
        sk.store(out + sk.program_id(0), 1)

    with pytest.raises(sk.StagingError, match=r"per_thread=True") as caught:
        sk.jit(program).specialize(BLOCK=64, out=sk.Pointer(sk.uint32)).trace()
    assert caught.value.id == "AMONG_THREADS"

    fragment = sk.inline(per_thread=True)(operate)

    def each_thread(out, BLOCK: sk.constexpr):
        sk.store(out + sk.arange(0, BLOCK), 1)
        fragment(sk.load(out))

    sk.jit(each_thread).specialize(BLOCK=64, out=sk.Pointer(sk.uint32)).trace()


def test_a_kernel_that_turns_out_to_be_block_level_acts_once_from_its_start():
    @sk.jit
    def late(out, BLOCK: sk.constexpr):
        sk.atomic_add(out + 0, 1)
        sk.store(out + 1 + sk.arange(0, BLOCK), 5)

    out = np.zeros(65, np.int32)
    late[(1,)](out, 64)

    assert out.tolist() == [1] + [5] * 64


# -- the grid -----------------------------------------------------------------------------------------------------------------


@sk.jit
def looks_at_one_axis(out, BLOCK: sk.constexpr):
    sk.store(out + sk.program_id(1) * BLOCK + sk.arange(0, BLOCK), 1)


@each_place
def test_programs_that_would_do_the_same_are_refused(place):
    with pytest.raises(sk.LaunchError, match="8 programs along axis 0") as caught:
        run(place, looks_at_one_axis[8, 128], [np.zeros(1024, np.int32)], 8)

    assert caught.value.id == "SAME_PROGRAM"
    assert "its grid, not its threads" in str(caught.value)


@each_place
@pytest.mark.parametrize(
    "grid", [(1, 4), (1, 4, 1), (0, 4), lambda given: (1, 4), sk.cuda.LaunchConfig(grid=(1, 4), block=4)]
)
def test_axes_that_a_kernel_looks_at_are_its_own(place, grid):
    (out,) = run(place, looks_at_one_axis[grid], [np.zeros(16, np.int32)], 4)

    assert out.all() == (grid != (0, 4))


def test_programs_may_take_their_work_from_inline_ptx():
    def kernel(out: Floats, BLOCK: sk.constexpr):
        program = sk.inline_asm("mov.u32 $0, %ctaid.x;", "=r", [], sk.uint32, pure=True)
        sk.store(out + program * BLOCK + sk.arange(0, BLOCK), 1.0)

    assert sk.jit(kernel).specialize(BLOCK=32).compile("cuda").grid_axes == (0, 1, 2)


@sk.jit
def takes_work(queue, out, BLOCK: sk.constexpr):
    mine = sk.atomic_add(queue + 0, 1)
    sk.store(out + mine * BLOCK + sk.arange(0, BLOCK), 1)


@each_place
def test_programs_may_take_their_work_from_an_atomic(place):
    queue, out = run(place, takes_work[(5,)], [np.zeros(1, np.int32), np.zeros(50, np.int32)], 10)

    assert queue.tolist() == [5]
    assert out.all()


@sk.jit
def viewed(x, out, halfway: sk.constexpr, target: sk.constexpr, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    computed = sk.load(x + i).to(out.dtype) * 2
    sk.store(out + i, computed, mask=computed.view(halfway).view(target) != 0)
    number = (x[0].to(out.dtype) * 2).view(halfway).view(target)
    out[0] = out[1] if number == 0 else out[2]


@pytest.mark.parametrize("halfway", [sk.uint16, sk.float16, sk.bfloat16], ids=str)
@pytest.mark.parametrize(("source", "target"), [(sk.bfloat16, sk.float16), (sk.float16, sk.bfloat16)], ids=str)
def test_the_bits_of_one_float_of_16_bits_are_compared_as_the_other(source, target, halfway):
    """LLVM 22.1 aborts the process where it sees that a float16 it compares with 0 was a bfloat16."""
    kernel = viewed.specialize(x=sk.Tensor((None,), sk.float32), out=sk.Tensor((None,), source))
    for block in (64, 512, 2048):
        assert "setp" in force_entry(kernel.specialize(halfway=halfway, target=target, BLOCK=block), "general").ptx
