"""The tensor maps of a launch in machine code: the checks of `runtime/tensor_maps.py`, then the driver's own function."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stagekit import native_tables as tables
from stagekit.backends.launcher.registers import Reg
from stagekit.backends.launcher.routine import Routine
from stagekit.dtypes import int32, uint64
from stagekit.hostexpr import HostExpr
from stagekit.limits import TENSOR_MAP_ALIGN, TENSOR_MAP_BYTES
from stagekit.signature import TENSOR_MAP_UNIT, TensorMapSpec


def encoded(r: Routine, process: Reg, spec: TensorMapSpec, value_of: Callable[[HostExpr], Reg]) -> Reg:
    """Return a pointer to the map of an array; take the early exit where it has none."""
    address = value_of(spec.address)
    shape, steps = ([value_of(each) for each in row] for row in (spec.shape, spec.strides))
    r.require(address & (TENSOR_MAP_UNIT - 1) == 0)
    for size in shape:
        r.require((size - 1).to(uint64) < tables.TENSOR_MAP_MOST)
    r.require((steps[-1] == 1) | (shape[-1] == 1))
    if spec.is_written:
        r.require(shape[-1] * spec.dtype.itemsize & (TENSOR_MAP_UNIT - 1) == 0)
    strides = [_stride(r, size, step * spec.dtype.itemsize) for size, step in zip(shape[:-1], steps)]
    made = r.alloca_here(r.number(TENSOR_MAP_BYTES), TENSOR_MAP_ALIGN)
    first = (tables.TENSOR_MAP_TYPES[spec.dtype], len(spec.box))
    boxes = [r.constant("box", _in_words(each)) for each in (spec.box[::-1], (1,) * len(spec.box))]
    form = tables.tensor_map_form(spec.swizzle, spec.fill)
    of_array = address, r.array_of(shape[::-1]), r.array_of(strides[::-1])
    numbers, modes = ([r.number(each, int32) for each in row] for row in (first, form))
    r.require(r.call_at(process.field("encode_tiled"), int32, made, *numbers, *of_array, *boxes, *modes) == 0)
    return made


def _stride(r: Routine, size: Reg, stride: Reg) -> Reg:
    """Return a stride in bytes; along an axis of one element any will do."""
    is_one = size == 1
    fits = (stride & (TENSOR_MAP_UNIT - 1) == 0) & (stride.to(uint64) < tables.TENSOR_MAP_STRIDES)
    r.require(is_one | fits)
    return is_one.select(r.number(TENSOR_MAP_UNIT), stride)


def _in_words(numbers: Sequence[int]) -> list[int]:
    """Return numbers of 32 bits as words of 64."""
    padded = [*numbers, 0]
    return [low | high << 32 for low, high in zip(padded[::2], padded[1::2])]
