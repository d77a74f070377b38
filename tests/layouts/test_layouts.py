"""Maps and layouts are what their tables say, and what is computed from them has the table that it should have."""

from __future__ import annotations

import contextlib
import math
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.diagnostics import CallError
from stagekit.layouts import (
    IndexMap,
    Swizzle,
    bank_conflicts,
    banks_svg,
    index_map_of,
    layout_svg,
    layout_text,
    table_of,
    tile_layout,
)
from stagekit.lib.layout import blocked, width_for

many = settings(max_examples=60, deadline=None)
sizes = st.sampled_from([1, 2, 3, 4, 6, 8])


ANY, DIVIDING = st.integers(0, 30), st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 24])


@st.composite
def maps(draw, strides=ANY):
    shape = draw(st.lists(sizes | st.tuples(sizes, sizes), min_size=1, max_size=3).map(tuple))
    flat = [n for mode in shape for n in (mode if isinstance(mode, tuple) else (mode,))]
    return IndexMap(shape, tuple(draw(st.lists(strides, min_size=len(flat), max_size=len(flat)))))


@st.composite
def orders(draw):
    """Draw a map that has each number from 0 on once: its digits are those of the numbers, in another order."""
    shape = tuple(draw(st.lists(sizes, min_size=1, max_size=4)))
    strides = [math.prod(shape[:i]) for i in range(len(shape))]
    order = draw(st.permutations(range(len(shape))))
    return IndexMap(tuple(shape[i] for i in order), tuple(strides[i] for i in order))


def outcome(function):
    try:
        return function()
    except CallError:
        return None


@many
@given(maps())
def test_a_map_is_its_table(given_: IndexMap) -> None:
    exact = [sum(i * d.stride for i, d in zip(np.unravel_index(n, [d.size for d in given_.digits], order="F"), given_.digits))
             for n in range(given_.size)]  # fmt: skip
    simple = given_.simplified()

    assert given_.numbers.tolist() == exact == [given_(n) for n in range(given_.size)]
    assert given_.extent == max(exact) + 1
    assert (given_.table == given_(*np.indices(given_.table.shape))).all()
    assert simple.numbers.tolist() == exact
    assert given_.is_same_function(simple)
    assert len(simple.digits) <= len(given_.digits)
    assert IndexMap(given_.shape, given_.stride) == given_


@many
@given(maps(), maps(DIVIDING | st.just(0)))
def test_one_map_after_another_has_the_table_of_both_or_is_refused(outer: IndexMap, inner: IndexMap) -> None:
    found = outcome(lambda: outer.after(inner))

    if found is not None:
        assert (found.numbers == outer.numbers[inner.numbers]).all()
        assert found.table.shape == inner.table.shape
    else:  # refused: it goes beyond, or a digit does not divide another
        assert inner.extent > outer.size or len(outer.simplified().digits) > 1


@many
@given(orders(), st.data())
def test_a_map_after_parts_of_its_own_digits_is_never_refused(outer: IndexMap, data) -> None:
    count = data.draw(st.sampled_from([n for n in range(1, outer.digits[0].size + 1) if outer.digits[0].size % n == 0]))

    assert (outer.after(IndexMap(count)).numbers == outer.numbers[:count]).all()
    assert (outer.after(IndexMap(outer.size)).numbers == outer.numbers).all()
    assert (outer.inverse().numbers[outer.numbers] == np.arange(outer.size)).all()
    assert (outer.after(outer.inverse()).numbers == np.arange(outer.size)).all()


@many
@given(maps(DIVIDING), st.integers(1, 60))
def test_copies_at_the_complement_have_each_number_once(given_: IndexMap, extent: int) -> None:
    rest = outcome(lambda: given_.complement(extent))

    if rest is None:
        return
    numbers = np.sort((given_.numbers[:, None] + rest.numbers).reshape(-1))
    assert len(np.unique(numbers)) == len(numbers)
    assert (numbers[:extent] == np.arange(extent)).all()


@many
@given(orders(), st.data())
def test_what_is_divided_keeps_its_numbers_and_repeats_are_copies(whole: IndexMap, data) -> None:
    size = data.draw(st.sampled_from([n for n in range(1, whole.size + 1) if whole.size % n == 0]))
    parts = outcome(lambda: whole.divide(IndexMap(size)))
    copies = whole.repeat(IndexMap(3))

    if parts is not None:
        assert sorted(parts.numbers) == sorted(whole.numbers)
        assert (parts.table.reshape(size, -1)[:, 0] == whole.numbers[:size]).all()
    assert (copies.table.reshape(whole.size, 3) == whole.numbers[:, None] + np.arange(3) * whole.size).all()


def test_maps_are_refused_in_words() -> None:
    for call, text in (
        (lambda: IndexMap((4, 8), (1,)), "as many of one as of the other"),
        (lambda: IndexMap(0), "at least 1"),
        (lambda: IndexMap(8, 2)(1, 2), "2 coordinates of the 1 places"),
        (lambda: IndexMap((2, 3), (1, 2)).after(IndexMap(7)), "goes beyond the 6 numbers"),
        (lambda: IndexMap((4, 8), (8, 1)).after(IndexMap(5, 3)), "no map of shape and strides"),
        (lambda: IndexMap((2, 2), (1, 1)).complement(), "copies of .* overlap"),
        (lambda: IndexMap(1 << 25).table, "a table has"),
        (lambda: Swizzle(3, 4, 2), "shift at least bits"),
        (lambda: tile_layout((8, 8), IndexMap(32), IndexMap(1)), "do not hold all 64 elements"),
        (lambda: tile_layout((8, 8), IndexMap(3, 5), IndexMap(2)), "along no axis"),
        (lambda: index_map_of(blocked((33,), 32)), "registers without an element"),
        (lambda: bank_conflicts(IndexMap(8), 4), "there are 32 lanes"),
        (lambda: layout_text(blocked((2, 2, 2), 8)), "two axes"),
        (lambda: banks_svg(IndexMap(5000), 4), "a picture has"),
    ):  # fmt: skip
        with pytest.raises(CallError, match=text):
            call()


@st.composite
def placements(draw):
    shape = draw(st.lists(st.sampled_from([1, 2, 4, 8, 16, 32]), min_size=1, max_size=3).map(tuple))
    threads, axis = draw(st.sampled_from([1, 4, 32, 64])), draw(st.integers(0, len(shape) - 1))
    layout = blocked(shape, threads, width_for(shape, threads, draw(st.sampled_from([1, 2, 4])), axis), axis)
    return layout if layout.is_whole else blocked((threads,), threads)


@many
@given(placements())
def test_layouts_of_tiles_are_maps_and_back(layout) -> None:
    whole = index_map_of(layout)
    threads, registers = (IndexMap((each.shape,), (each.stride,)) for each in map(_alone, whole.modes))

    assert (whole.table == table_of(layout)).all()
    assert (table_of(tile_layout(layout.shape, threads, registers)) == table_of(layout)).all()


def _alone(mode):
    return IndexMap(tuple(d.size for d in mode), tuple(d.stride for d in mode))


@many
@given(
    st.lists(st.integers(0, 400), min_size=32, max_size=32),
    st.sampled_from([(4, 1), (2, 1), (1, 1), (2, 8), (4, 4), (4, 2)]),
)
def test_conflicts_are_those_of_words_in_a_bank(places: list[int], access: tuple[int, int]) -> None:
    itemsize, width = access
    per_turn = 32 * 4 // max(itemsize * width, 4)
    extra = 0
    for first in range(0, 32, per_turn):
        words = {
            p * width * itemsize // 4 + w
            for p in places[first : first + per_turn]
            for w in range(max(itemsize * width // 4, 1))
        }
        extra += max(sum(word % 32 == bank for word in words) for bank in range(32)) - 1

    assert bank_conflicts(np.array(places) * width, itemsize, width) == extra


def test_a_swizzle_frees_columns_of_conflicts() -> None:
    rows, turn = IndexMap((8, 4), (64, 8)), Swizzle(3, 3, 3)  # 8 rows of 128 bytes, 16 bytes a lane

    assert bank_conflicts(rows, 2, 8) == 28
    assert bank_conflicts(turn(rows.numbers), 2, 8) == 0
    assert sorted(turn(np.arange(512))) == [*range(512)]
    assert (turn(turn(np.arange(512))) == np.arange(512)).all()


def test_pictures_name_the_holder_of_each_element() -> None:
    layout = tile_layout((4, 8), IndexMap((4, 2), (8, 4)), IndexMap(4))
    holders = [
        [cell.removeprefix("t").split(".") for cell in line.split()] for line in layout_text(layout).splitlines()
    ]
    table = table_of(layout)

    assert [[table[int(t), int(r)] for t, r in row] for row in holders] == np.arange(32).reshape(4, 8).tolist()
    for picture in (layout_svg(layout), banks_svg(IndexMap((8, 8), (64, 8)), 2)):
        assert ElementTree.fromstring(picture).tag.endswith("svg")
    assert str(layout) == ("(4, 8) in 8 threads: registers 4 along axis 1 by 1; "
                           "threads 4 along axis 0 by 1, 2 along axis 1 by 4")  # fmt: skip


ROWS = tile_layout((8, 16), IndexMap((8, 4), (16, 1)), IndexMap(4, 4))


@sk.inline(per_thread=True)
def tell(owner, places):
    for register, place in enumerate(places.elements):
        owner[place] = sk.cuda.thread_idx("x") * 100 + register


@sk.jit(threads=32)
def placed(x, out, owner):
    i = sk.arange(0, 8)[:, None] * 16 + sk.arange(0, 16)[None, :]
    v = sk.load(x + i).convert_layout(ROWS)
    tell(owner, v.to(sk.int32))
    sk.store(out + i, v * 2)


@pytest.mark.parametrize("place", ["sanitizer", "cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def test_a_tile_goes_where_a_layout_has_it(place: str) -> None:
    x = np.arange(128, dtype=np.float32)
    out, owner = np.zeros_like(x), np.zeros(128, np.int32)
    if place == "gpu":
        there = [*map(sk.cuda.to_device, (x, out, owner))]
        placed[1](*there)
        out, owner = (each.to_host() for each in there[1:])
    else:
        with sk.sanitize() if place == "sanitizer" else contextlib.nullcontext():
            placed[1](x, out, owner)

    assert (out == 2 * x).all()
    if place != "cpu":  # where elements stay
        assert (table_of(ROWS)[owner // 100, owner % 100] == x).all()


def test_a_report_says_where_the_tiles_of_variables_are() -> None:
    """Also of tuples, in shared memory, and after a loop; not of what is weak, as it has no place of its own."""

    @sk.jit(threads=32)
    def kernel(x, n: sk.int32):
        i = sk.arange(0, 8)[:, None] * 16 + sk.arange(0, 16)[None, :]
        v = sk.load(x + i).convert_layout(ROWS)
        kept, pair = sk.shared(v), (v, 1)
        for _ in range(n):
            v = v + 1
        sk.store(x + i, v + kept + pair[0])

    specialised = kernel.specialize(x=sk.Tensor((None,), sk.float32))
    notes = dict(note.split(": ", 1) for note in specialised.report().notes if note.partition(":")[0].isidentifier())

    assert notes == {"v": str(ROWS), "kept": "(8, 16) in shared memory"}
    assert f"pair[0]: {ROWS}" in specialised.report().notes


def test_a_layout_of_another_tile_is_refused() -> None:
    @sk.jit(threads=32)
    def kernel(x):
        sk.store(x + sk.arange(0, 64), sk.load(x + sk.arange(0, 64)).convert_layout(ROWS))

    with pytest.raises(sk.StagingError, match=r"give a layout of shape \(64,\) for 32 threads"):
        kernel[1](np.zeros(64, np.float32))


@pytest.mark.parametrize(("size", "threads"), [(2, 1), (4, 1), (4, 2), (8, 1), (8, 4)])
def test_a_tile_is_one_after_paths_that_differ_in_its_layout(size: int, threads: int) -> None:
    """Also where the layouts differ in nothing but the width of their vectors."""
    count = size // threads
    layout = tile_layout((size,), IndexMap(threads, count), IndexMap(count, 1))

    @sk.jit(threads=threads)
    def kernel(out, times):
        i = sk.arange(0, size)
        v, w = sk.float64(i), sk.float64(i)
        for _ in range(times):
            v = v.convert_layout(layout)
        if times > 1:
            w = w.convert_layout(layout)
        out[0] = sk.reduce_sum(v * w)

    for times in range(3):
        out = np.zeros(1)
        with sk.sanitize():
            kernel[1](out, times)
        assert out[0] == sum(i * i for i in range(size))
