"""GPU memory for those who have neither torch nor CuPy.

    a = to_device(np.arange(1000, dtype=np.float32))
    b = empty((1000,), stagekit.float32)
    kernel[grid](a, b)
    b.to_host()                    a NumPy array

A `DeviceArray` is always in C order. torch, CuPy and JAX read it without a copy through DLPack or
`__cuda_array_interface__`. The memory is freed with the object.
"""

from __future__ import annotations

import copy
import ctypes
import functools
import itertools
import math
import operator
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from stagekit.diagnostics import InternalError, hide_frames, public_class, shown, wrong_arguments
from stagekit.dtypes import DType, element_dtype
from stagekit.limits import MAX_AXES
from stagekit.native_tables import ON_CUDA, WORD
from stagekit.runtime import driver, views
from stagekit.runtime.errors import ArgumentError, UnsupportedDtype
from stagekit.runtime.views import ArrayView, Device


class _Memory:
    """What the arrays in one allocation share: when it dies, the memory is freed."""


@public_class
class DeviceArray:
    """An array in the memory of one GPU, from `to_device` or `empty`. Its attributes are NumPy's: strides are in bytes."""

    __slots__ = ("__dict__", "__weakref__", "_tensor_address")

    def __init__(self, shape: int | tuple[int, ...], dtype: Any, device: int = 0) -> None:
        self.shape = _sizes(shape)
        self.device = device = driver.device_number(empty, device)
        self._dtype = _dtype(dtype)
        self._address = 0
        if self.nbytes:
            with driver.on_device(device):
                self._address = driver.allocate(self.nbytes, device)
            self._memory = _Memory()
            weakref.finalize(self._memory, driver.free_later, device, "cuMemFree", self._address).atexit = False
        self._tensor = views.tensor_of(self.__stagekit_view__())
        self._tensor_address = ctypes.addressof(self._tensor)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype.numpy

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return self._dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(step * self.itemsize for step in views.c_strides(self.shape))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<DeviceArray {self._dtype.name} {self.shape} on cuda:{self.device}>"

    @hide_frames
    def reshape(self, shape: int | tuple[int, ...]) -> DeviceArray:
        """Return an array of another shape in the same memory. shape: sizes of as many elements."""
        sizes = _sizes(shape)
        if math.prod(sizes) != self.size:
            raise wrong_arguments(DeviceArray.reshape, f"{self.size} elements have no shape {shown(shape)}")
        return self._as(sizes, self._dtype)

    @hide_frames
    def view(self, dtype: Any) -> DeviceArray:
        """Return an array of the same bytes as numbers of another dtype, of which the last axis has more or fewer."""
        other = _dtype(dtype)
        count, rest = divmod(self.shape[-1] * self.itemsize if self.shape else 0, other.itemsize)
        if not self.shape or rest:
            raise wrong_arguments(DeviceArray.view, f"{self.shape} of {self._dtype.name} is not whole {other.name}")
        return self._as((*self.shape[:-1], count), other)

    def _as(self, shape: tuple[int, ...], dtype: DType) -> DeviceArray:
        other = copy.copy(self)  # its attributes: the memory is freed when the last of those that hold `_memory` dies
        other.shape, other._dtype = shape, dtype
        other._tensor = views.tensor_of(other.__stagekit_view__())
        other._tensor_address = ctypes.addressof(other._tensor)
        return other

    @hide_frames
    def to_host(self) -> np.ndarray[Any, np.dtype[Any]]:
        """Return a copy in host memory, after everything that was launched on the device has ended."""
        host = np.empty(self.shape, self.dtype)
        if self.nbytes:
            with driver.on_device(self.device):
                driver.wait(self.device)
                driver.call("cuMemcpyDtoH", host.ctypes.data, self._address, self.nbytes)
        return host

    def __stagekit_view__(self) -> ArrayView:
        """Return what `args.py` reads."""
        device = Device("cuda", self.device)
        return ArrayView(self._address, self.shape, views.c_strides(self.shape), self._dtype, device, is_writable=True)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self._address, False),
            "strides": None,
            "stream": None,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return ON_CUDA, self.device

    def __dlpack__(self, *, stream: int | None = None, **_: Any) -> Any:
        """Return a capsule that keeps the array alive. Launches may be on any stream, so this waits for the device."""
        if stream != -1:
            driver.wait(self.device)
        return views.wrap(self.__stagekit_view__(), owner=self)


class StructuredDeviceArray:
    """A structured array in the memory of one GPU, from `to_device`, or a field of one: `a["x"]`. strides: in bytes."""

    __stagekit_fields__ = True  # a kernel takes what has fields field by field

    def __init__(
        self,
        memory: DeviceArray,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        offset: int = 0,
    ) -> None:
        self._memory, self._offset = memory, offset
        self.dtype, self.shape, self.strides, self.device = dtype, shape, strides, memory.device

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.dtype} {self.shape} on cuda:{self.device}>"

    def __getitem__(self, name: str) -> StructuredDeviceArray:
        """Return a field, in the same memory. One that is an array itself has its axes behind those of this one."""
        fields: Any = self.dtype.fields
        dtype, offset = fields[name][:2]
        inner = np.empty(dtype.shape, dtype.base)
        shape, strides = (*self.shape, *inner.shape), (*self.strides, *inner.strides)
        kind = StructuredDeviceArray if dtype.base.names else DeviceField
        return kind(self._memory, dtype.base, shape, strides, self._offset + offset)

    @hide_frames
    def to_host(self) -> np.ndarray[Any, Any]:
        """Return a copy in host memory, after everything that was launched on the device has ended."""
        return np.ndarray(self.shape, self.dtype, self._memory.to_host().data, self._offset, self.strides)


class DeviceField(StructuredDeviceArray):
    """The numbers of one field of a structured array on a GPU."""

    @property
    def is_aligned(self) -> bool:
        """Whether all elements lie at multiples of their size."""
        steps = [stride for size, stride in zip(self.shape, self.strides) if size > 1]
        return all(place % self.dtype.itemsize == 0 for place in (self._memory._address + self._offset, *steps))

    def as_bytes(self) -> DeviceField:
        """Return the bytes of each element, along an axis more."""
        size = self.dtype.itemsize
        shape, strides = (*self.shape, size), (*self.strides, 1)
        return DeviceField(self._memory, np.dtype(np.uint8), shape, strides, self._offset)

    def __stagekit_view__(self) -> ArrayView:
        """Return what `args.py` reads."""
        strides = views.element_strides(self.shape, self.strides, self.dtype.itemsize)
        dtype = element_dtype(self.dtype) or str(self.dtype)
        device = Device("cuda", self.device)
        return ArrayView(self._memory._address + self._offset, self.shape, strides, dtype, device, is_writable=True)


@hide_frames
def to_device(array: Any, device: int = 0) -> Any:
    """Copy a NumPy array, or anything that NumPy makes one of, to a GPU: a `DeviceArray`, of a structured one its like."""
    driver.device_number(to_device, device)
    try:
        host = np.asarray(array, order="C")
    except (TypeError, ValueError) as error:
        raise wrong_arguments(to_device, f"NumPy makes no array of `array`: {error}") from None
    if host.dtype.names:
        memory = to_device(np.frombuffer(host.tobytes(), np.uint8), device)
        return StructuredDeviceArray(memory, host.dtype, host.shape, host.strides)
    placed = empty(host.shape, host.dtype, device)
    if placed.nbytes:
        with driver.on_device(device):
            driver.wait(device)
            driver.call("cuMemcpyHtoD", placed._address, host.ctypes.data, placed.nbytes)
            driver.wait(device)  # from pageable memory the call may return before the copy has ended
    return placed


@hide_frames
def empty(shape: int | tuple[int, ...], dtype: Any, device: int = 0) -> DeviceArray:
    """Return an array with arbitrary contents. dtype: stagekit's or NumPy's."""
    return DeviceArray(shape, dtype, device)


_MOST_ELEMENTS = 1 << 56


def _sizes(shape: Any) -> tuple[int, ...]:
    try:
        axes = itertools.islice(shape, MAX_AXES + 1) if isinstance(shape, Iterable) else (shape,)
        sizes = tuple(-1 if isinstance(axis, bool) else operator.index(axis) for axis in axes)
    except Exception:  # the methods of a user's object may raise anything
        sizes = (-1,)
    if min(sizes, default=0) < 0 or len(sizes) > MAX_AXES:
        raise wrong_arguments(empty, f"`shape` is {shown(shape)}, not a size or a tuple of them")
    if max(*sizes, math.prod(sizes), 0) > _MOST_ELEMENTS:
        raise wrong_arguments(empty, f"`shape` is {shown(shape)}, more elements than there are addresses")
    return sizes


def _dtype(given: Any) -> DType:
    if type(given) is DType:
        return given
    try:
        numpys = np.dtype(given)
    except Exception:  # the methods of a user's object may raise anything
        raise ArgumentError(UnsupportedDtype(shown(given))) from None
    known = element_dtype(numpys)
    if known is None:
        raise ArgumentError(UnsupportedDtype(str(numpys)))
    return known


@functools.cache
def tensor_slot() -> int:
    """Return where in a `DeviceArray` CPython keeps `_tensor_address`, in bytes: native launchers read it there."""
    probe, mark = DeviceArray.__new__(DeviceArray), 1 << 62
    probe._tensor_address = mark
    places = range(object.__basicsize__, DeviceArray.__basicsize__, WORD)
    found = [place for place in places if ctypes.c_size_t.from_address(id(probe) + place).value == id(mark)]
    if len(found) != 1:
        raise InternalError("a slot of DeviceArray is not where it was looked for")
    return found[0]
