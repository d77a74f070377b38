"""Arrays in host memory for a kernel on a GPU: copies there, for as long as it runs, and back what it writes.

    copies = DeviceCopies(signature, arguments, views, device, stream)    allocates, and enqueues the copies
    copies.moved(values)             the native values of a launch on them
    copies.write_back()              once the kernel has ended
    copies.free()

Arrays that overlap share their copy, each at its place in it. All copies lie in one piece of memory, where addresses keep their
order and their alignment. So what a kernel takes for granted of its arguments holds on the GPU where it held on the host.
Why it is done so: `docs/decisions/0043-host-arrays-on-a-gpu.md`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from stagekit.runtime import driver
from stagekit.runtime.array_list import lists_among
from stagekit.runtime.checks import Native
from stagekit.runtime.host_copies import ALIGNMENT, array_in, byte_range, joined
from stagekit.runtime.views import ArrayView
from stagekit.signature import ArraySpec, PointerSpec, Signature


class HostRange(NamedTuple):
    """Bytes of the host, from `low` to `high`, and how far from the start of the GPU's memory their copy begins."""

    low: int
    high: int
    place: int


class CopyPlan(NamedTuple):
    """Where copies lie in `size_bytes` of a GPU's memory. spans: in the order of their addresses; they do not overlap."""

    spans: tuple[HostRange, ...]
    size_bytes: int

    def place_of(self, address: int) -> int:
        """Return how far the copy of a byte in a span is from the start."""
        span = [each for each in self.spans if each.low <= address][-1]
        return span.place + address - span.low


def plan_copies(views: Iterable[ArrayView]) -> CopyPlan:
    """Lay out the copies of arrays. Those without elements have none."""
    spans, end = [], 0
    for low, high in joined(found for found in map(byte_range, views) if found[0] < found[1]):
        place = end + (low - end) % ALIGNMENT
        spans.append(HostRange(low, high, place))
        end = place + high - low
    return CopyPlan(tuple(spans), end)


def by_argument(signature: Signature, views: Sequence[ArrayView]) -> dict[int, ArrayView]:
    """Return the view of each array among the arguments, by its place. views: as a launch reads them, one after another."""
    places = [place for place, spec in enumerate(signature.specs) if isinstance(spec, ArraySpec | PointerSpec)]
    return {place: view for place, view in zip(places, views, strict=True) if view.device.kind == "cpu"}


class DeviceCopies:
    """The copies of one launch, on a device that is current. views: of the arrays, as the launch has read them.

    Raises CudaError where there is too little memory; nothing is kept then.
    """

    def __init__(
        self, signature: Signature, arguments: Sequence[Any], views: Sequence[ArrayView], device: int, stream: int
    ) -> None:
        self._signature, self._device = signature, device
        self._views = by_argument(signature, views)
        self._lists = {place: each for place, each in lists_among(arguments).items() if place in self._views}
        for place, each in self._lists.items():  # also a pinned one: the others need not be
            self._views[place + 1] = each.base_view
        members = [view for each in self._lists.values() for view in each.views]
        self._plan = plan_copies([*self._views.values(), *members])
        self._address = driver.allocate(self._plan.size_bytes, device) if self._plan.size_bytes else 0
        try:
            self._rows = self._rows_on_device()
            self._fill(stream)
        except BaseException:
            self.free()
            raise

    def _rows_on_device(self) -> dict[int, np.ndarray[Any, Any]]:
        """Return the rows of lists of arrays, by the address of those on the host: copies lie at other distances."""
        return {
            self._views[place].address: each.rows_of(
                [self._address_of(view) for view in each.views], self._address_of(each.base_view)
            )
            for place, each in self._lists.items()
        }

    def _fill(self, stream: int) -> None:
        for span in self._plan.spans:
            rows = self._rows.get(span.low)
            source = span.low if rows is None else rows.ctypes.data
            driver.call("cuMemcpyHtoDAsync", self._address + span.place, source, span.high - span.low, stream)

    def _address_of(self, view: ArrayView) -> int:
        low, high = byte_range(view)
        return self._address + self._plan.place_of(view.address) if low < high else view.address

    def moved(self, values: Native) -> Native:
        """Return the native values of a launch, with the addresses of the copies."""
        return tuple(
            [
                self._address_of(self._views[slot.argument])
                if slot.kind == "address" and slot.argument in self._views
                else value
                for slot, value in zip(self._signature.slots, values)
            ]
        )

    def write_back(self) -> None:
        """Copy back all that the kernel may have written, and no byte beside it, once it has ended."""
        whole: list[ArrayView] = []
        with_gaps: list[ArrayView] = []
        for place, view in self._written():
            is_whole = isinstance(self._signature.specs[place], PointerSpec) or view.is_contiguous
            (whole if is_whole else with_gaps).append(view)
        for low, high in joined(map(byte_range, whole)):
            self._fetch(low, low, high)
        for view in with_gaps:
            low, high = byte_range(view)
            memory = np.empty(high - low, np.uint8)
            self._fetch(memory.ctypes.data, low, high)
            on_host = array_in((ctypes.c_char * (high - low)).from_address(low), low, view)
            on_host[...] = array_in(memory.data, low, view)

    def _written(self) -> list[tuple[int, ArrayView]]:
        lists = {place + 1: each.views for place, each in self._lists.items()}
        return [
            (place, each)
            for place, view in self._views.items()
            if getattr(self._signature.specs[place], "is_written", False)
            for each in lists.get(place, [view])
        ]

    def _fetch(self, target: int, low: int, high: int) -> None:
        """Copy the bytes that stand for `low` to `high` to `target` on the host."""
        if low < high:
            driver.call("cuMemcpyDtoH", target, self._address + self._plan.place_of(low), high - low)

    def free(self) -> None:
        """Free the memory once all launches that may use it have ended."""
        if self._address:
            driver.free_later(self._device, "cuMemFree", self._address)
