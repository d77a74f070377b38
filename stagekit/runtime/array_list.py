"""Lists of arrays whose number and sizes are known at run time, as grouped kernels take them.

    weights = ArrayList([a, b, c])        arrays of one dtype, rank and device: NumPy's, torch's, CuPy's, stagekit's
    grouped[grid, 256](weights, ...)      in the kernel `weights[g]` is an array, for any `g`

A row of numbers for each array lies where the arrays are: how far it begins from the first one, in elements, its sizes, and its
strides unless all lie in C order without gaps. So a launch takes two addresses, and copies nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakSet

import numpy as np

from stagekit.diagnostics import hide_frames, public_class, shown, wrong_arguments
from stagekit.dtypes import DType
from stagekit.runtime.args import Unreadable, describe, read_array
from stagekit.runtime.device_array import to_device
from stagekit.runtime.views import ArrayView


@public_class
class ArrayList:
    """Arrays of one dtype and number of axes, on one device, as one argument of a kernel: `A[g]` there is one of them.

    It keeps the arrays alive, and knows them as they lie when it is made. Its number of arrays and their sizes are known at run
    time: another list, of the same dtype and number of axes, runs the same code. Refused: no arrays, and arrays that differ in
    these or are complex (WRONG_ARGUMENTS). A kernel that writes takes none that is read-only (READ_ONLY_OUTPUT).
    """

    __slots__ = ("__weakref__", "arrays", "base", "base_view", "dtype", "is_packed", "ndim", "rows", "views")

    __stagekit_lists__ = True

    @hide_frames
    def __init__(self, arrays: Iterable[Any]) -> None:
        self.arrays = _as_tuple(arrays)
        views = [_view_of(place, array) for place, array in enumerate(self.arrays)]
        first = views[0]
        _require_alike(views)
        assert isinstance(first.dtype, DType)
        self.dtype, self.ndim = first.dtype, len(first.shape)
        self.is_packed = all(view.is_contiguous for view in views)
        # the launch looks at this one, so that a kernel that writes is refused if any array is read-only
        at = next((place for place, view in enumerate(views) if not view.is_writable), 0)
        self.base, self.base_view = self.arrays[at], views[at]
        self.views = views
        rows = self.rows_of([view.address for view in views], views[at].address)
        self.rows = to_device(rows, first.device.ordinal) if first.device.kind in ("cuda", "managed") else rows
        _made.add(self)

    @property
    def width(self) -> int:
        """How many numbers a row has: odd where it has no strides."""
        return 2 * self.ndim + (1 if self.is_packed else 2)

    def rows_of(self, addresses: Sequence[int], base: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the rows of the arrays, for memory in which they begin at these addresses."""
        rows = np.zeros((len(addresses), self.width), np.int64)
        for row, address, view in zip(rows, addresses, self.views):
            distance, rest = divmod(address - base, self.dtype.itemsize)
            if rest:
                problem = f"an array begins {rest} bytes off the elements of another: copy it"
                raise wrong_arguments(ArrayList.__init__, problem)
            row[0], row[1 : 1 + self.ndim] = distance, view.shape
            if not self.is_packed:
                row[2 + self.ndim :] = view.strides or ()
        return rows

    def __len__(self) -> int:
        return len(self.arrays)

    def __getitem__(self, place: int) -> Any:
        return self.arrays[place]

    def __repr__(self) -> str:
        return f"<ArrayList of {len(self)}, {self.dtype.name}, {self.ndim} axes>"


def _as_tuple(arrays: Any) -> tuple[Any, ...]:
    try:
        found = () if isinstance(arrays, np.ndarray | str) else tuple(arrays)
    except TypeError:
        found = ()
    if not found:
        raise wrong_arguments(ArrayList.__init__, f"takes a list of one array or more, got {shown(arrays, most=60)}")
    return found


def _view_of(place: int, array: Any) -> ArrayView:
    try:
        view = read_array(array)
    except Unreadable as error:
        raise wrong_arguments(ArrayList.__init__, f"array {place} cannot be read: {error}") from error
    if view is None or not isinstance(view.dtype, DType) or view.dtype.part is not None or view.strides is None:
        wanted = "is no array of real numbers at whole elements"
        raise wrong_arguments(ArrayList.__init__, f"item {place}, {describe(array)}, {wanted}")
    return view


def _require_alike(views: Sequence[ArrayView]) -> None:
    first = views[0]
    for place, view in enumerate(views):
        for what, one, other in (
            ("dtype", first.dtype, view.dtype),
            ("number of axes", len(first.shape), len(view.shape)),
            ("device", first.device, view.device),
        ):
            if one != other:
                problem = f"array {place}, {view} on {view.device}, has another {what} than the first, {first}"
                raise wrong_arguments(ArrayList.__init__, problem)


def lists_among(leaves: Sequence[Any]) -> dict[int, ArrayList]:
    """Return the lists of arrays of a launch, by the place of each one's rows among the leaves of its arguments."""
    found: dict[int, ArrayList] = {}
    made = {id(each.rows): each for each in _made}
    for place, leaf in enumerate(leaves):
        if id(leaf) in made:
            found[place] = made[id(leaf)]
    return found


_made: WeakSet[ArrayList] = WeakSet()  # all that there are
