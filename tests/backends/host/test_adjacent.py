"""Adjacent elements of a thread: what is loaded and stored together leaves what the statements say, one after the other."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk

BLOCK, BLOCKS, OFFSET = 48, 5, 16
Statement = tuple[int, int, tuple[tuple[int, int], ...], bool]
"""The array and the element that is written, those that are read, and whether a guard of its own precedes it."""


def _kernel(count: int, statements: tuple[Statement, ...]):
    """A kernel whose threads have `count` elements of each array, and do this with them."""

    @sk.jit
    def mix(x, y, n: sk.int64):
        arrays = x, y
        first = (sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")) * count
        for target, place, sources, is_guarded in statements:
            if not is_guarded or first + place < n:
                value = sk.float32(place + 1)
                for source, at in sources:
                    value = value * 0.5 + arrays[source][first + at]
                arrays[target][first + place] = value

    return mix


def _run(arrays: list[np.ndarray], count: int, statements: tuple[Statement, ...], n: int) -> None:
    first = np.arange(BLOCK * BLOCKS) * count
    for target, place, sources, is_guarded in statements:
        on = first[first + place < n] if is_guarded else first
        value = np.full(len(on), place + 1, np.float32)
        for source, at in sources:
            value = value * np.float32(0.5) + arrays[source][on + at]
        arrays[target][on + place] = value


def _arrays(distance: int, count: int) -> list[np.ndarray]:
    """Two arrays, of which the second begins so many elements after the first; far away for 0."""
    memory = np.arange(4 * BLOCK * BLOCKS * count + 2 * OFFSET, dtype=np.float32)
    starts = OFFSET, OFFSET + (distance if distance < 8 else 2 * BLOCK * BLOCKS * count)
    return [memory[start : start + BLOCK * BLOCKS * count + 4] for start in starts]


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_statements_on_adjacent_elements_have_their_order(data: st.DataObject) -> None:
    """Arrays that are apart, one array, and arrays that overlap: a thread meets what it has stored under another name."""
    count = data.draw(st.sampled_from((2, 2, 3, 4)))
    distance = data.draw(st.sampled_from((0, 8, 8, *range(1 - count, count))))

    def moved(array: int, place: int) -> int:
        """Return where an element lies, counted from the thread's first one of the first array; far away by a multiple."""
        return place + (distance if array and distance < 8 else 0)

    elements = [(array, place) for array in (0, 1) for place in range(count)]
    own = [each for each in elements if 0 <= moved(*each) < count]
    targets = data.draw(
        st.one_of(st.just([e for e in own if e[0]]), st.just(own[:count]), st.lists(st.sampled_from(own), max_size=6))
    )
    written = {moved(*each) for each in targets}
    safe = [each for each in elements if each in own or moved(*each) % count not in written]  # others would race

    def sources(place: int) -> tuple[tuple[int, int], ...]:
        alike = [each for each in safe if each[1] == place] or safe
        return tuple([data.draw(st.sampled_from(alike if is_alike else safe)) for _ in range(reads)])

    reads, is_alike, is_guarded = data.draw(st.integers(0, 3)), data.draw(st.booleans()), data.draw(st.booleans())
    statements = tuple([(*target, sources(target[1]), is_guarded) for target in targets])
    n = data.draw(st.sampled_from((0, 7, BLOCK * BLOCKS * count - 3, BLOCK * BLOCKS * count)))
    found, expected = _arrays(distance, count), _arrays(distance, count)

    _kernel(count, statements)[BLOCKS, BLOCK](*found, n)

    _run(expected, count, statements, n)
    for each, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(each, other)
