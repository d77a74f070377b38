"""A layout against its enumeration: every element is held once, neighbours are neighbours, vectors add up."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit.lib.layout import Layout


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3000), st.integers(1, 130), st.sampled_from([1, 2, 4, 8]))
def test_every_element_is_held_by_one_thread_and_chunks_are_neighbours(extent: int, threads: int, width: int) -> None:
    layout = Layout(extent, threads, width)
    held = [[t * width + layout.offset(e) for e in range(layout.count)] for t in range(threads)]
    every = [index for of_thread in held for index in of_thread]
    chunks = [of_thread[at : at + width] for of_thread in held for at in range(0, layout.count, width)]

    assert sorted(every) == list(range(layout.count * threads))
    assert 0 <= layout.count * threads - extent < threads * width
    assert all(chunk == list(range(chunk[0], chunk[0] + width)) for chunk in chunks)
    assert sum(layout.widths) == layout.count
    assert width == 1 or set(layout.widths) == {width}
