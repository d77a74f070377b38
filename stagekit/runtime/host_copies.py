"""The arguments of a launch in host memory, on which the checking interpreter works.

    copies = HostCopies(arguments, read_on_gpu)
    copies.arguments         the same, each array as a NumPy array; a GPU's as a copy with its shape, strides and contents
    copies.write_back()      copies what the kernel has changed to the GPU

GPU arrays that overlap share their copy, each at its place, and addresses keep their alignment. This waits for all work on the
device, before and after.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from stagekit.dtypes import DType
from stagekit.runtime import driver
from stagekit.runtime.args import read_array
from stagekit.runtime.checks import GpuReading
from stagekit.runtime.errors import CudaError
from stagekit.runtime.views import REACHABLE, ArrayView

Array = np.ndarray[Any, np.dtype[Any]]

_ON_GPU = ("cuda", "managed")
ALIGNMENT = 256  # bytes, of what a GPU allocates


class HostCopies:
    """The arguments of one launch. read_on_gpu: called if one lives on a GPU, to read and check all as a launch there does.

    more: arrays that are no arguments and are reached from some; their copies stand behind those of the arguments.
    without_memory: places of arrays that have no memory at their address. Their copies hold zeros.
    """

    def __init__(
        self, given: Sequence[Any], read_on_gpu: Callable[[Sequence[Any], GpuReading], object], more: Sequence[Any] = ()
    ) -> None:
        self.arguments = [*given, *more]
        self.without_memory: set[int] = set()
        self._views: dict[int, ArrayView] = {}
        for place, value in enumerate(self.arguments):
            # The checks refuse, in words, an array that its owner does not let us see.
            with contextlib.suppress(Exception):  # of any kind, as it is the owner's code that runs
                view = None if issubclass(type(value), np.ndarray) else read_array(value)
                if view is not None:
                    self._views[place] = view
        self._spans: list[_Span] = []
        self._device = 0
        on_gpu = {place: view for place, view in self._views.items() if view.device.kind in _ON_GPU}
        if on_gpu:
            reading = GpuReading(stream_of=lambda device: 0)
            read_on_gpu(given, reading)
            self._copy(on_gpu, reading.device or 0)
        for place in self._views.keys() - on_gpu.keys():
            self._wrap_host_array(place, self._views[place])

    def _copy(self, views: dict[int, ArrayView], device: int) -> None:
        self._device = device
        with driver.on_device(device):
            driver.wait(device)
            self._spans = [_Span(low, high) for low, high in joined(map(byte_range, views.values()))]
        for place, view in views.items():
            home = [span for span in self._spans if span.address <= byte_range(view)[0]][-1]
            self.arguments[place] = array_in(home.copy.data, home.address, view)
            if not home.is_alive:
                self.without_memory.add(place)

    def _wrap_host_array(self, place: int, view: ArrayView) -> None:
        """Pass another library's array in host memory as a NumPy array there. What no kernel takes is left to the checks."""
        if view.device.kind not in REACHABLE["cpu"] or not isinstance(view.dtype, DType) or view.strides is None:
            return
        low, high = byte_range(view)
        if not view.address and low < high:
            return
        memory = (ctypes.c_char * (high - low)).from_address(low)
        self.arguments[place] = array_in(memory, low, view)

    def write_back(self) -> None:
        """Copy what has changed to the GPU."""
        if not self._spans:
            return
        with driver.on_device(self._device):
            for span in self._spans:
                span.write_back()
            driver.wait(self._device)  # from pageable memory a copy may return before it has ended


def array_in(memory: Any, start: int, view: ArrayView) -> Array:
    """Return `view` as a NumPy array in `memory`, which stands for the addresses from `start` on."""
    assert isinstance(view.dtype, DType)
    strides = [step * view.dtype.itemsize for step in view.strides or ()]
    if 0 in view.shape:
        array: Array = np.zeros(view.shape, view.dtype.numpy)
    else:
        array = np.ndarray(view.shape, view.dtype.numpy, memory, view.address - start, strides)
    array.flags.writeable = view.is_writable
    return array


class _Span:
    """A range of GPU addresses and its copy."""

    def __init__(self, address: int, end: int) -> None:
        self.address, self.end = address, end
        self.is_alive = end == address or (_is_allocated(address) and _is_allocated(end - 1))
        memory = np.zeros(end - address + ALIGNMENT, np.uint8)
        self.copy = memory[(address - memory.ctypes.data) % ALIGNMENT :][: end - address]  # aligned as the original is
        if self.is_alive and self.copy.size:
            driver.call("cuMemcpyDtoH", self.copy.ctypes.data, address, self.copy.size)
        self._before = self.copy.copy()

    def write_back(self) -> None:
        changed = np.flatnonzero(self.copy != self._before)
        if self.is_alive and len(changed):
            first, last = int(changed[0]), int(changed[-1])
            driver.call("cuMemcpyHtoD", self.address + first, self.copy.ctypes.data + first, last - first + 1)


def byte_range(view: ArrayView) -> tuple[int, int]:
    """Return the first address of an array and the one past its last."""
    if 0 in view.shape or not isinstance(view.dtype, DType):
        return view.address, view.address
    steps = [(size - 1) * stride * view.dtype.itemsize for size, stride in zip(view.shape, view.strides or ())]
    low = view.address + sum(step for step in steps if step < 0)
    return low, low + sum(map(abs, steps)) + view.dtype.itemsize


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge ranges that overlap; return them in order."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low < found[-1][1]:
            found[-1] = found[-1][0], max(high, found[-1][1])
        else:
            found.append((low, high))
    return found


def _is_allocated(address: int) -> bool:
    try:
        driver.device_of_address(address)
    except CudaError:
        return False
    return True
