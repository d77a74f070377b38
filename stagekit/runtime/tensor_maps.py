"""Tensor maps at a launch: what arrays must be like, and the 128 bytes that the driver makes of each.

    maps = TensorMaps("gemm", signature.maps)
    maps.check(values)                     raises LaunchError, on every target
    maps.encode(values, [address, ...])    on a GPU: at the addresses where the native parameters are

A map is built anew for each launch: nothing has to notice that an array has moved. Native launchers do the same in machine code
(`backends/launcher/tensor_maps.py`), after the same checks.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from stagekit import native_tables as tables
from stagekit.diagnostics import counted
from stagekit.hostexpr import compile_expressions
from stagekit.limits import TENSOR_MAP_AXES
from stagekit.runtime import driver
from stagekit.runtime.errors import LaunchError, TensorMapRefused
from stagekit.signature import TENSOR_MAP_UNIT, TensorMapSpec


class Extents(NamedTuple):
    """Where an array lies. address, strides: in bytes, the latter of all axes but the last. shape: elements."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class TensorMaps:
    """The tensor maps of one kernel, by what its signature says of them."""

    def __init__(self, kernel: str, specs: Sequence[TensorMapSpec]) -> None:
        self._kernel = kernel
        self.specs = specs
        self._evaluate = compile_expressions(
            [each for spec in specs for each in (spec.address, *spec.shape, *spec.strides)]
        )

    def _extents(self, values: Sequence[Any]) -> Iterator[tuple[TensorMapSpec, Extents]]:
        numbers = iter(self._evaluate(values))
        for spec in self.specs:
            address, *rest = itertools.islice(numbers, 1 + 2 * len(spec.box))
            shape, steps = rest[: len(spec.box)], rest[len(spec.box) :]
            if why := _objection(spec, address, shape, steps):
                raise LaunchError(TensorMapRefused(spec.name, self._kernel, *why))
            # along an axis of one element any stride will do
            strides = (step * spec.dtype.itemsize if size > 1 else TENSOR_MAP_UNIT for size, step in zip(shape, steps))
            yield spec, Extents(address, tuple(shape), tuple(strides)[:-1])

    def check(self, values: Sequence[Any]) -> None:
        """Raise a LaunchError for an array that has no tensor map. values: one for each slot of the signature."""
        for _ in self._extents(values):
            pass

    def encode(self, values: Sequence[Any], addresses: Sequence[int]) -> None:
        """Write the maps, at these addresses, which are multiples of 64 bytes."""
        for (spec, extents), address in zip(self._extents(values), addresses, strict=True):
            status = _encoder()(address, *_arguments(spec, extents))
            if status:
                raise driver.failure("cuTensorMapEncodeTiled", driver.api().CUresult(status))


def _objection(spec: TensorMapSpec, address: int, shape: Sequence[int], steps: Sequence[int]) -> tuple[str, str] | None:
    """Return why an array has no tensor map, and what to do; None if it has one."""
    itemsize = spec.dtype.itemsize
    for axis, (size, step) in enumerate(zip(shape, steps)):
        stride = step * itemsize
        if not 1 <= size <= tables.TENSOR_MAP_MOST:
            return f"it has {counted(size, 'element')} along axis {axis}", f"it must have 1 to {tables.TENSOR_MAP_MOST}"
        if size == 1:
            continue
        if axis == len(shape) - 1 and step != 1:
            return (
                f"its elements lie {step} apart along the last axis",
                "they must lie side by side: pass a contiguous array",
            )
        if axis < len(shape) - 1 and (stride % TENSOR_MAP_UNIT or not 0 <= stride < tables.TENSOR_MAP_STRIDES):
            why = f"its stride along axis {axis} is {counted(stride, 'byte')}"
            return why, f"it must be a multiple of {TENSOR_MAP_UNIT} from 0 on, below 2**40: pad the rows of the array"
    if spec.is_written and (row := shape[-1] * itemsize) % TENSOR_MAP_UNIT:  # it would write on to the next multiple
        why = f"its last axis has {counted(row, 'byte')}, and the kernel stores tiles to it"
        return why, f"an array that the TMA unit writes has a multiple of {TENSOR_MAP_UNIT} there: pad its rows"
    if address % TENSOR_MAP_UNIT:
        why = f"its address is {counted(address % TENSOR_MAP_UNIT, 'byte')} past a multiple of {TENSOR_MAP_UNIT}"
        return why, "pass an aligned array; a view may begin at such an element alone"
    return None


# -- the driver -----------------------------------------------------------------------------------------------------------

_LONGS, _WORDS = ctypes.c_uint64 * TENSOR_MAP_AXES, ctypes.c_uint32 * TENSOR_MAP_AXES
_INT, _POINTER = ctypes.c_int, ctypes.c_void_p
_ENCODE = ctypes.CFUNCTYPE(
    _INT, _POINTER, _INT, ctypes.c_uint32, _POINTER, *[ctypes.c_void_p] * 4, _INT, _INT, _INT, _INT
)


@functools.cache
def _encoder() -> Any:
    return _ENCODE(driver.function_address("cuTensorMapEncodeTiled"))


def _arguments(spec: TensorMapSpec, extents: Extents) -> tuple[Any, ...]:
    """Return what the driver is given besides the address of the map; its axes begin with the innermost."""
    rank = len(spec.box)
    longs: list[Any] = [_LONGS(*each[::-1]) for each in (extents.shape, extents.strides)]
    words: list[Any] = [_WORDS(*each[::-1]) for each in (spec.box, (1,) * rank)]
    arrays = [ctypes.cast(each, _POINTER) for each in [*longs, *words]]
    form = tables.tensor_map_form(spec.swizzle, spec.fill)
    return tables.TENSOR_MAP_TYPES[spec.dtype], rank, extents.address, *arrays, *form
