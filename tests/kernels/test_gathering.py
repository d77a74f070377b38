"""Rows of a table by number, and rows added to a table, against NumPy."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stagekit import kernels
from tests.kernels.rows import DTYPES, each_place, few, lengths, rows, run


@each_place
@few
@given(data=st.data())
def test_rows_are_copied_and_added_by_number(place, data):
    """Integers, so that sums are exact in any order; each dtype is copied as it is."""
    columns, count = data.draw(lengths), data.draw(st.integers(1, 6))
    table = data.draw(rows(columns, data.draw(st.sampled_from([*DTYPES, np.dtype(np.int8)])), place, count))
    numbers = np.array(data.draw(st.lists(st.integers(0, count - 1), min_size=2, max_size=8)))
    numbers = numbers.astype(data.draw(st.sampled_from([np.int32, np.int64])))
    if len(numbers) % 2 == 0 and data.draw(st.booleans()):
        numbers = numbers.reshape(2, -1)

    np.testing.assert_array_equal(run(place, kernels.embedding, table, numbers), table[numbers])

    gradient = np.arange(numbers.size * columns).reshape(*numbers.shape, columns) % 5
    added = np.ones((count, columns), np.float32)
    expected = added.copy()
    np.add.at(expected, numbers, gradient)
    run(place, kernels.embedding_backward, gradient.astype(np.float16), numbers, added)
    np.testing.assert_array_equal(added, expected)
