"""Weak tiles: what is computed of a form is what is computed of elements, also where paths meet; and what they make of memory."""

from __future__ import annotations

import contextlib
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.testing import force_entry, run_in_python
from tests import places

EXTENT = 1024
X = np.random.default_rng(1).integers(0, 1000, 4 * EXTENT).astype(np.float32)
INDEX = np.arange(EXTENT)

each_place = pytest.mark.parametrize("place", ["cpu", "sanitizer", pytest.param("gpu", marks=pytest.mark.gpu)])


def run(place, launch, arrays, *arguments):
    """Launch on copies of `arrays` and return them. The sanitizer runs what a GPU does, with its vectors."""
    with sk.sanitize() if place == "sanitizer" else contextlib.nullcontext():
        return places.run(places.on_gpu if place == "gpu" else places.on_cpu, launch, arrays, *arguments)


@sk.jit
def moving(x, out, n, BLOCK: sk.constexpr):
    """Pointers and indices go round a loop as forms."""
    i = sk.arange(0, BLOCK)
    places = x + i
    total = sk.zeros(BLOCK, sk.float32)
    while sk.reduce_max(i) < n:
        total += sk.load(places)
        places += BLOCK
        i += BLOCK
    sk.store(out + sk.arange(0, BLOCK), total)


@sk.jit
def form_before(x, out, n, BLOCK: sk.constexpr):
    """A form before the loop meets elements from its body."""
    best = sk.arange(0, BLOCK) + n * 0
    largest = sk.load(x + sk.arange(0, BLOCK))
    for start in range(BLOCK, n, BLOCK):
        i = start + sk.arange(0, BLOCK)
        new = sk.load(x + i)
        best = sk.where(new > largest, i, best)
        largest = sk.maximum(new, largest)
    sk.store(out + sk.arange(0, BLOCK), best)


@sk.jit
def form_in_a_tuple(x, out, n, BLOCK: sk.constexpr):
    found = sk.zeros(BLOCK, sk.float32), sk.arange(0, BLOCK)
    for start in range(0, n, BLOCK):
        i = start + sk.arange(0, BLOCK)
        new = sk.load(x + i)
        found = sk.maximum(new, found[0]), sk.where(new > found[0], i, found[1])
    sk.store(out + sk.arange(0, BLOCK), found[1])


@sk.jit
def form_behind(x, out, n, BLOCK: sk.constexpr):
    """Elements before the loop meet a form from its body."""
    i = sk.load(x + sk.arange(0, BLOCK)).to(sk.int64)
    for start in range(0, n, BLOCK):
        sk.store(out + sk.arange(0, BLOCK), i + start)
        i = sk.arange(0, BLOCK) + start
    sk.store(out + sk.arange(0, BLOCK), i)


@each_place
@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (moving, X.reshape(4, EXTENT).sum(0)),
        (form_before, X.reshape(4, EXTENT).argmax(0) * EXTENT + INDEX),
        (form_in_a_tuple, X.reshape(4, EXTENT).argmax(0) * EXTENT + INDEX),
        (form_behind, INDEX + 3 * EXTENT),
    ],
    ids=lambda given: getattr(given, "name", None),
)
def test_forms_go_round_loops(place, kernel, expected) -> None:
    _, found = run(place, kernel[1], [X, np.zeros_like(expected)], 4 * EXTENT, EXTENT)

    np.testing.assert_array_equal(found, expected)


@sk.jit
def narrowing(x, out, n, BLOCK: sk.constexpr):
    """A mask and an index before the loop meet elements from its body: what is asked to make them elements remains asked."""
    i = sk.arange(0, BLOCK)
    mask, places = i < n, i
    for k in range(3):
        mask = mask & (sk.load(x + i) >= k)
        places = sk.where(mask, places, n)
    sk.store(out + i, sk.load(x + places, mask=mask, other=-1))


@each_place
@pytest.mark.parametrize("n", [1024, 1023, 1020, 513, 4])
def test_a_mask_that_a_loop_narrows_ends_where_it_says(place, n) -> None:
    _, found = run(place, narrowing[1], [X, np.zeros(EXTENT, np.float32)], n, EXTENT)

    np.testing.assert_array_equal(found, np.where((n > INDEX) & (X[:EXTENT] >= 2), X[:EXTENT], -1))


@sk.jit
def branching(x, out, n, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    mask = i < n
    if n > 1000:
        mask = mask & (i >= 8)
    value = sk.load(x + i, mask=mask)
    if n > 500:
        j = i + n
    else:
        j = sk.where(mask, i, 7)
    if n < 1500:
        k = i + 3
    else:
        k = i * n
    sk.store(out + i, value.to(sk.int64) + j + k)


@each_place
@pytest.mark.parametrize("n", [400, 603, 1024, 2000])
def test_forms_meet_behind_branches(place, n) -> None:
    mask = (n > INDEX) & ((INDEX >= 8) if n > 1000 else True)

    _, found = run(place, branching[1], [X, np.zeros(EXTENT, np.int64)], n, EXTENT)

    expected = np.where(mask, X[:EXTENT], 0) + (INDEX + n if n > 500 else np.where(mask, INDEX, 7))
    np.testing.assert_array_equal(found, expected + (INDEX + 3 if n < 1500 else INDEX * n))


COMPARISONS = {
    "i < n": lambda i, n: i < n,
    "i <= n": lambda i, n: i <= n,
    "n > i": lambda i, n: n > i,
    "i > n": lambda i, n: i > n,
    "i >= n": lambda i, n: i >= n,
    "n >= i + 8 and i >= 3": lambda i, n: (n >= i + 8) & (i >= 3),
    "n - i > 4": lambda i, n: n - i > 4,
    "2 * i < n": lambda i, n: 2 * i < n,
    "i < n and n < 900": lambda i, n: (i < n) & (n < 900),
    "n < 900 and i * 1 < n and not n == 8": lambda i, n: (n < 900) & (i * 1 < n) & (n != 8),
    "true and i < n": lambda i, n: True & (i < n),
}


@sk.jit
def masked(x, out, found, n, stride, shift, BLOCK: sk.constexpr, COMPARE: sk.constexpr):
    at = stride * sk.arange(0, BLOCK) + shift
    mask = COMPARE(sk.arange(0, BLOCK) + shift, n)
    sk.store(out + at, sk.load(x + at, mask=mask, other=-1) + 1, mask=mask)
    sk.store(found + sk.arange(0, BLOCK), sk.where(mask, 1, 0))


@each_place
@pytest.mark.parametrize("text", COMPARISONS)
@settings(max_examples=12, deadline=None)
@given(
    st.integers(-9, 300),
    st.sampled_from([1, 1, 2, 3]),
    st.sampled_from([0, 0, 8, 5]),
    st.sampled_from([256, 1032, 1027]),
)
def test_a_mask_is_the_same_whatever_lies_in_a_vector(place, text, n, stride, shift, extent) -> None:
    compare, i = COMPARISONS[text], np.arange(extent) + shift
    x = np.arange(3 * extent + 9, dtype=np.float32)
    start = np.zeros_like(x)

    _, out, found = run(place, masked[1], [x, start, np.zeros(extent, np.int32)], n * 8, stride, shift, extent, compare)

    mask = compare(i, n * 8)
    expected = start.copy()
    at = (stride * np.arange(extent) + shift)[mask]
    expected[at] = x[at] + 1
    np.testing.assert_array_equal(found, mask)
    np.testing.assert_array_equal(out, expected)


@sk.jit(target="interp")
def softmax_in_place(x, n, BLOCK: sk.constexpr):
    row, i = sk.program_id(0) * n, sk.arange(0, BLOCK)
    e = sk.exp(sk.load(x + row + i, mask=i < n, other=-float("inf")) - 9.0)
    sk.store(x + row + i, e / sk.reduce_sum(e), mask=i < n)


@pytest.mark.parametrize(
    ("columns", "first", "entry"), [(1000, 0, "quick"), (1001, 0, "general"), (1000, 1, "general")]
)
def test_each_entry_computes_the_same_and_lengths_and_addresses_choose(columns, first, entry) -> None:
    memory = np.zeros(4096, np.float32)
    start = -memory.ctypes.data // 4 % 4 + first  # where addresses of 16 bytes begin, or one element later
    x = memory[start : start + 3 * columns].reshape(3, columns)
    given = np.random.default_rng(2).normal(size=x.shape).astype(np.float32)
    exact = np.exp(given.astype(np.float64) - 9)

    forced = [force_entry(softmax_in_place, each) for each in ("general", "overlapping")]
    for kernel in (*forced, softmax_in_place):
        x[:] = given
        kernel[3](x, columns, 1024)
        np.testing.assert_allclose(x, exact / exact.sum(1, keepdims=True), rtol=1e-5)

    assert softmax_in_place.specialize(BLOCK=1024)._shown().entry == entry


# -- machine code ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mask",
    [lambda i, n: i < n, lambda i, n: (n > 3) & (i < n), lambda i, n: (i < n) & True & (i >= 0) & (n > 3)],
    ids=["limit", "condition first", "several"],
)
def test_a_known_stride_of_1_and_conditions_of_the_block_leave_wide_accesses(mask) -> None:
    @sk.jit
    def copy(x, out, n, STRIDE: sk.constexpr):
        i = sk.arange(0, 1024)
        sk.store(out + i * STRIDE, sk.load(x + i * STRIDE, mask=mask(i, n)), mask=mask(i, n))

    array = sk.Tensor((None,), sk.float32)
    found = [copy.specialize(x=array, out=array, n=sk.int32, STRIDE=stride).ptx for stride in (1, 2)]

    assert [ptx.count(".v4.") for ptx in found] == [8, 0]


MOVES = {  # what a turn makes of a pointer, and whether vectors stay whole where arguments allow
    "by a constant": (lambda p, q, k, n, step: p + 64, True),
    "by a constant in two steps": (lambda p, q, k, n, step: p + 32 + 32, True),
    "back": (lambda p, q, k, n, step: p - 64 + 2 * n, True),
    "by an argument": (lambda p, q, k, n, step: p + n, True),
    "by an odd constant": (lambda p, q, k, n, step: p + 3, False),
    "by the number of the turn": (lambda p, q, k, n, step: p + k, False),
    "by what is loaded": (lambda p, q, k, n, step: p + sk.load(step), False),
    "in some turns": (lambda p, q, k, n, step: p + 64 if k % 2 == 1 else p, False),
    "to another pointer": (lambda p, q, k, n, step: q + 1, False),
    "in an inner loop": (lambda p, q, k, n, step: moved_by_a_loop(p, k), False),
}


@sk.inline
def moved_by_a_loop(p, k):
    for _ in range(k):
        p += 4
    return p


@sk.jit
def strolling(x, out, step, n, turns, BLOCK: sk.constexpr, MOVE: sk.constexpr, WHILE: sk.constexpr):
    """Each turn of a loop loads from where p is and stores to where q is; both move, and so does the bound of a mask."""
    i = sk.arange(0, BLOCK)
    start = x + BLOCK + i
    p, q, end = start, out + i, n
    if WHILE:
        k = 0
        while k < turns:
            sk.store(q, sk.load(p, mask=i < end, other=-1), mask=i < BLOCK)
            p, q, end = MOVE(p, start, k, n, step), q + BLOCK, end - 8
            k += 1
    else:
        for k in range(turns):
            sk.store(q, sk.load(p, mask=i < end, other=-1), mask=i < BLOCK)
            p, q, end = MOVE(p, start, k, n, step), q + BLOCK, end - 8


@each_place
@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("is_while", [False, True])
@pytest.mark.parametrize("n", [1024, 1022])
def test_a_pointer_that_moves_round_a_loop_keeps_vectors_whole_only_where_each_turn_does(
    place, name, is_while, n
) -> None:
    move, is_wide = MOVES[name]
    arrays = [np.tile(X, 2), np.zeros(4 * EXTENT, np.float32), np.array([5], np.int32)]
    _, wanted, _ = expected = [array.copy() for array in arrays]
    run_in_python(strolling, (1,), *expected, n, 4, EXTENT, move, is_while)

    _, found, _ = run(place, strolling[1], arrays, n, 4, EXTENT, move, is_while)

    np.testing.assert_array_equal(found, wanted)
    types = {
        "x": sk.Tensor((None,), sk.float32),
        "out": sk.Tensor((None,), sk.float32),
        "n": sk.int32,
        "turns": sk.int32,
    }
    kernel = strolling.specialize(BLOCK=EXTENT, MOVE=move, WHILE=is_while, step=sk.Tensor((None,), sk.int32), **types)
    assert bool(re.search(r"= load .*count=4", str(force_entry(kernel, "quick").ir))) == is_wide
