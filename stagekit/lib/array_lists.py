"""What a kernel sees of a list of arrays (`sk.ArrayList`): arrays that are chosen at run time.

A = weights[g]          an array like others, of its own sizes; reading it takes its row of numbers
A[i, j], A.shape        as of any array
len(weights)            how many there are
"""

from __future__ import annotations

from typing import Any

import stagekit as sk


class ListedArrays:
    """Arrays of one dtype and number of axes, by a row of numbers for each, and where the first of them begins."""

    __stagekit_hint__ = "index it: `A[g]` is an array"

    def __init__(self, rows: Any, base: Any, ndim: int, is_packed: bool) -> None:
        self._rows = rows
        self._base = base
        self.ndim = ndim
        self._is_packed = is_packed

    @property
    def dtype(self) -> sk.DType:
        """The dtype of the elements of each array."""
        dtype: sk.DType = self._base.dtype
        return dtype

    def __len__(self) -> Any:
        return self._rows.shape[0]

    __iter__ = None

    def __getitem__(self, place: Any) -> Any:
        """Return one array."""
        if isinstance(place, tuple | slice):
            sk._refuse_index(
                "a list of arrays", "one integer names an array, further ones an element of it: `A[g][i, j]`"
            )
        row = self._rows[place]
        shape = tuple([row[1 + axis] for axis in range(self.ndim)])
        strides = None if self._is_packed else tuple([row[2 + self.ndim + axis] for axis in range(self.ndim)])
        return sk._array_at(self._rows, self._base + row[0], shape, strides)

    def __setitem__(self, place: Any, value: Any) -> None:
        sk.static_assert(
            False, "the arrays of a list are those that it was made of: assign their elements, `A[g][i] = x`"
        )

    def __stagekit_describe__(self) -> str:
        return f"a list of arrays of {self.dtype.name}"


sk._array_lists(ListedArrays)
