"""What a kernel writes: saved before a search, put back before each run, and compared between candidates.

An array is saved as the span of memory from its first element to its last, so that strides and overlaps need no care. On a GPU it
is saved there, and put back by a copy on the stream of the launches.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from stagekit.dtypes import DType, dtype_from_numpy
from stagekit.jit.argtypes import view_of
from stagekit.runtime import driver
from stagekit.runtime.array_list import ArrayList
from stagekit.runtime.device_array import DeviceArray
from stagekit.runtime.views import ArrayView
from stagekit.testing.launching import Array
from stagekit.testing.tolerances import EXACT, Tolerance, difference, pieces
from stagekit.tuning.candidates import Bound
from stagekit.tuning.clocks import CallClock, EventClock
from stagekit.tuning.space import refuse

_EXPONENT = 2 / 3  # of the machine epsilon: what sums of some thousand numbers in another order differ by


class SavedArray:
    """One array that a kernel writes, and its contents before the search."""

    def __init__(self, name: str, view: ArrayView, clock: CallClock) -> None:
        self.name = name
        self._view, self.shape = view, view.shape
        self._clock = clock
        low, high = _span(view)
        self._address, self._size = view.address + low, high - low
        self._offset = -low
        if isinstance(clock, EventClock):
            self._memory: Any = DeviceArray(self._size, np.uint8, clock.device)
            self._saved = self._memory._address
        else:
            self._memory = np.empty(self._size, np.uint8)
            self._saved = self._memory.ctypes.data
        self._copy(self._saved, self._address)

    def restore(self) -> None:
        """Put back what the array held, or enqueue that."""
        self._copy(self._address, self._saved)

    def _copy(self, target: int, source: int) -> None:
        if isinstance(self._clock, EventClock) and self._size:
            driver.call("cuMemcpyAsync", target, source, self._size, self._clock.stream)
        else:
            ctypes.memmove(target, source, self._size)

    def contents(self) -> Array:
        """Return a copy of what the array holds now, after everything that was enqueued; complex numbers as pairs."""
        host = np.empty(self._size, np.uint8)
        if isinstance(self._clock, EventClock) and self._size:
            self._clock.wait()
            driver.call("cuMemcpyDtoH", host.ctypes.data, self._address, self._size)
        else:
            ctypes.memmove(host.ctypes.data, self._address, self._size)
        dtype = _dtype(self._view)
        strides = [step * dtype.itemsize for step in self._view.strides or ()]
        found: Array = np.empty(self._view.shape, dtype.numpy)
        if self._size:
            found[...] = np.ndarray(self._view.shape, dtype.numpy, host.data, self._offset, strides)
        return found.view(found.real.dtype) if found.dtype.kind == "c" else found


def _dtype(view: ArrayView) -> DType:
    assert isinstance(view.dtype, DType), "a kernel writes arrays of our dtypes only"
    return view.dtype


def _span(view: ArrayView) -> tuple[int, int]:
    """Return where an array begins and ends in memory, in bytes from its address."""
    if 0 in view.shape:
        return 0, 0
    size = _dtype(view).itemsize
    ways = [(n - 1) * step * size for n, step in zip(view.shape, view.strides or ())]
    return sum(way for way in ways if way < 0), sum(way for way in ways if way > 0) + size


class SavedOutputs:
    """All arrays that the candidates write."""

    def __init__(self, arrays: Iterable[SavedArray]) -> None:
        self._arrays = {each.name: each for each in arrays}
        self.shapes = {name: each.shape for name, each in self._arrays.items()}

    def restore(self) -> None:
        for each in self._arrays.values():
            each.restore()

    def contents(self) -> dict[str, Array]:
        return {name: each.contents() for name, each in self._arrays.items()}

    @property
    def names(self) -> list[str]:
        return [*self._arrays]


def save(kernel: str, calls: Iterable[Bound], clock: CallClock) -> SavedOutputs:
    """Save what any of these calls, which have the same arguments, writes. kernel: its name, for errors."""
    views: dict[tuple[Any, ...], tuple[str, ArrayView]] = {}
    for call in calls:
        for name, value in _written(call):
            view = view_of(value)
            if view is None:
                raise refuse(kernel, f"`{name}` is written, and cannot be saved", "give an array")
            views.setdefault((view.address, view.shape, view.strides), (name, view))
    names: dict[str, ArrayView] = {}
    for name, view in views.values():
        names[name if name not in names else f"{name} ({len(names)})"] = view
    with clock.ready():
        return SavedOutputs([SavedArray(name, view, clock) for name, view in names.items()])


def _written(call: Bound) -> Iterator[tuple[str, Any]]:
    """Yield the arrays that a call writes, with their names."""
    variant = call.variant()
    lists = {id(each.base): each for each in call.values if isinstance(each, ArrayList)}
    for spec, value in zip(variant.traced.signature.specs, variant.leaves(call.values)):
        if not getattr(spec, "is_written", False) or value is None:
            continue
        if id(value) in lists:
            yield from ((f"{spec.name}[{place}]", array) for place, array in enumerate(lists[id(value)].arrays))
        else:
            yield spec.name, value


class Expected:
    """What the outputs should be, and how far they may be from it.

    tolerance: relative, of floats, to each element and to the root of the mean square of all; None for that of the dtype.
    """

    def __init__(self, arrays: Mapping[str, Array], tolerance: float | None) -> None:
        self._arrays = arrays
        self._allowed = {name: _allowed(array, tolerance) for name, array in arrays.items()}

    def differences(self, found: Mapping[str, Array]) -> str:
        """Say in which array outputs differ, and how; "" where they agree."""
        for name, array in self._arrays.items():
            actual = found[name]
            wanted = array.astype(actual.dtype, copy=False).reshape(actual.shape)
            what = difference(actual, wanted, self._allowed[name])
            if what is not None:
                return f"`{name}`: {what}"
        return ""


def _allowed(expected: Array, tolerance: float | None) -> Tolerance:
    """Return what may differ from an expected array."""
    if expected.dtype.kind in "biu":
        return EXACT
    dtype = dtype_from_numpy(expected.dtype)
    assert dtype is not None
    relative = 2.0 ** (_EXPONENT * (1 - dtype.layout.precision)) if tolerance is None else tolerance
    squares, count = 0.0, 0
    for piece in pieces(expected):
        wide = piece.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        squares, count = squares + float(finite @ finite), count + finite.size
    return Tolerance(relative, relative * math.sqrt(squares / max(count, 1)))
