"""Layouts against their enumeration: every element is held, vectors are neighbours, and moves are counted."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit.lib.conversion import access_width, registers_for, steps, strides_of
from stagekit.lib.layout import Layout, blocked, cpu_threads, default_threads, enumerated, width_for

shapes = st.lists(st.sampled_from([1, 2, 3, 4, 5, 8, 12, 16, 33, 64, 130]), min_size=1, max_size=4).map(tuple)
threads = st.sampled_from([1, 2, 7, 16, 32, 96, 100, 128, 160, 256])


@st.composite
def layouts(draw):
    shape, count = draw(shapes.filter(lambda s: math.prod(s) <= 20_000)), draw(threads)
    axis = draw(st.integers(0, len(shape) - 1))
    return blocked(shape, count, width_for(shape, count, draw(st.sampled_from([1, 2, 4, 8])), axis), axis)


@settings(max_examples=60, deadline=None)
@given(layouts())
def test_every_element_is_held_by_one_register_and_vectors_are_neighbours(layout: Layout) -> None:
    held = enumerated(layout)
    step = math.prod(layout.shape[layout.vector_axis + 1 :])
    vectors = held.reshape(layout.threads, -1, layout.width)

    assert sorted(held[held >= 0]) == [*range(layout.extent)]
    assert held.shape[1] == layout.count == sum(layout.widths)
    assert layout.width == 1 or set(layout.widths) == {layout.width}
    assert ((np.diff(vectors, axis=2) == step) | (vectors[..., 1:] < 0)).all()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(1, 200), min_size=2, max_size=2),
    st.integers(0, 1),
    st.sampled_from([cpu_threads, *(functools.partial(default_threads, width=width) for width in (1, 4, 8))]),
)
def test_each_thread_holds_at_most_twice_its_share_of_two_axes_whatever_their_extents(
    shape: list[int], axis: int, count_for: Callable[[int], int]
) -> None:
    extent = math.prod(shape)
    threads = count_for(extent)

    assert blocked(tuple(shape), threads, 1, axis).count <= 2 * -(-extent // threads)


@settings(max_examples=60, deadline=None)
@given(layouts(), st.data())
def test_what_is_left_of_a_layout_is_what_its_enumeration_says(layout: Layout, data: st.DataObject) -> None:
    rank = len(layout.shape)
    order, axis = data.draw(st.permutations(range(rank))), data.draw(st.integers(0, rank - 1))
    index = np.stack(np.unravel_index(np.maximum(enumerated(layout), 0), layout.shape))
    shape = tuple(1 if a == axis else extent for a, extent in enumerate(layout.shape))
    first = layout.restricted([axis])
    exists = enumerated(layout) >= 0
    flat = np.ravel_multi_index(index[list(order)], tuple(layout.shape[a] for a in order))

    assert (enumerated(layout.transposed(order)) == np.where(exists, flat, -1)).all()
    index[axis] = 0
    wanted = np.where(exists, np.ravel_multi_index(index, shape), -1)
    for held, of_thread in zip(enumerated(first), wanted):
        assert set(of_thread[of_thread >= 0]) <= set(held)
    others = [digit for digit in layout.lanes if digit.axis == axis]
    for held, of_thread in zip(enumerated(first), wanted):
        assert others or set(held) <= {*of_thread, -1}  # a thread without elements gets none
    assert (enumerated(first.squeezed(axis)) == enumerated(first)).all() if rank > 1 else True
    assert (enumerated(layout.expanded(axis)) == enumerated(layout)).all()


@settings(max_examples=40, deadline=None)
@given(layouts(), st.data())
def test_registers_move_to_where_the_enumeration_has_them(layout: Layout, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(layout.shape) - 1))
    for target in (layout, blocked(layout.shape, layout.threads, 1, axis), blocked((layout.extent,), layout.threads)):
        found = registers_for(layout, target)
        wanted = enumerated(target)

        assert found is not None or target != layout
        if found is not None:
            assert ((enumerated(layout)[:, found] == wanted) | (wanted < 0)).all()


def test_bank_conflicts_are_those_of_the_machine() -> None:
    rows, columns = blocked((32, 32), 32, 1, 1), blocked((32, 32), 32, 1, 0)
    wide = blocked((32, 128), 32, 4)

    assert (steps(rows, 0, 4), steps(rows, 1, 4)) == (32, 32)
    assert (steps(columns, 0, 4), steps(columns, 1, 4), steps(columns, 2, 4)) == (32 * 32, 32, 64)
    assert (steps(columns, 0, 2), steps(columns, 2, 2)) == (32 * 16, 32)
    assert (access_width(wide, 0, 4), steps(wide, 0, 4)) == (4, 32 * 4)  # 512 bytes take four steps
    assert (access_width(wide, 1, 4), access_width(wide, 4, 4), access_width(wide, 0, 8)) == (1, 4, 2)
    assert strides_of((2, 3, 4, 5), 1) == [72, 24, 6, 1]
