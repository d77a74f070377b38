"""Arrays and pointers: their elements, and views of them.

`A[i, j]` is base + i*stride0 + j*stride1 in 64-bit arithmetic. Fewer indices than axes, or slices, give a view: a compile-time
description around a moved base address, no copy. What a slice selects is computed by `extents.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stagekit import dtypes
from stagekit.diagnostics import DIVISION, counted, shown
from stagekit.frontend import effects
from stagekit.frontend.errors import BadIndex, BadOperands, NonContiguous, StagingError
from stagekit.frontend.evaluation import Site
from stagekit.frontend.extents import combine_extents, cut_of, is_row_major, scaled, step_of
from stagekit.frontend.numbers import default_dtype, is_numeric
from stagekit.frontend.parts import describe
from stagekit.frontend.values import Address, Array, Extent, Number, hint_of, mapper_of
from stagekit.intrinsics import registry
from stagekit.ir import INDEX, BinaryKind, Value
from stagekit.ir.ops import Indexed


def base_of(site: Site, value: Address | Array) -> Address:
    """Return the address that pointer arithmetic starts from; an array with gaps has none."""
    if isinstance(value, Array) and not value.is_contiguous:
        raise site.error(NonContiguous(value.name))
    return value if isinstance(value, Address) else pointer_to(site, value)


def pointer_to(site: Site, array: Array) -> Address:
    """Return the base of an array. That of a part says what it is a part of: only the interpreter looks at it."""
    if not array.is_part:
        return array.base
    part = Indexed(array.name, (None,) * array.ndim, _values(array.shape), _values(array.strides))
    return Address(site.tracer.builder.offset(array.base.value, site.tracer.builder.index(0), part), array.base.start)


def index_value(site: Site, index: Any) -> Value:
    """Return an index or pointer offset as an int64 value; floats and bools are refused."""
    if type(index) is Number and index.value.type is INDEX:
        return index.value
    if not is_numeric(index) or not default_dtype(index).is_integer:
        raise site.error(BadIndex(f"an index must be an integer, got {describe(index)}", _index_hint(index)))
    return site.tracer.arithmetic.to_value(index, dtypes.INDEX)


def _index_hint(index: Any) -> str:
    """Return what to write instead of an index that is no integer. A bool is not 0 or 1 here, since NumPy selects by it."""
    if mapper_of(index) is not None:
        return "a tile goes with a pointer: read `sk.load(p + i)`, write `sk.store(p + i, value)`"
    if not is_numeric(index):
        return "give an integer for each axis, or a slice"
    if default_dtype(index) is dtypes.bool_:
        return "select by `sk.where(c, a, b)` or `if c:`; write `int(c)` if 0 or 1 is meant"
    return f"{DIVISION}; other floats are converted by `sk.int64(x)`"


def distance(site: Site, left: Address, right: Address) -> Number:
    """Return `left - right` in elements, int64."""
    if left.type != right.type:
        first, second = (f"{each.dtype.name} ({each.type.space.value})" for each in (left, right))
        raise site.error(BadOperands("-", f"pointers to {first} and {second}", "both must point to one array"))
    builder = site.tracer.builder
    delta = builder.sub(builder.bitcast(left.value, INDEX), builder.bitcast(right.value, INDEX))
    size = builder.index(left.dtype.itemsize)
    return Number(builder.binary(BinaryKind.FLOORDIV, delta, size))


# -- indexing -----------------------------------------------------------------------------------------------------------


def _moved(site: Site, array: Array, steps: Sequence[tuple[Any, Extent]], is_index: Sequence[bool]) -> Address:
    """Return the base of `array` moved by each index times its stride. is_index: whether each is an index of the user's."""
    builder = site.tracer.builder
    total: Value | None = None
    places: list[Value | int] = []
    for index, stride in steps:
        place = index if type(index) is int else index_value(site, index)
        places.append(place)
        if type(place) is int and place == 0:
            continue
        if type(place) is int and isinstance(stride, int):
            offset: Any = builder.index(dtypes.INDEX.wrap(place * stride))  # it wraps only where the view is empty
        else:
            offset = builder.index(place) if type(place) is int else place
            if not isinstance(stride, int):
                offset = builder.mul(offset, stride.value)
            elif stride != 1:
                offset = builder.mul(offset, builder.index(stride))
        total = offset if total is None else builder.add(total, offset)
    if total is None:
        return array.base
    written = tuple([place if is_own else None for place, is_own in zip(places, is_index)])
    indexed = Indexed(array.name, written, _values(array.shape)) if any(is_index) else None
    return Address(builder.offset(array.base.value, total, indexed))


def _values(extents: Sequence[Extent]) -> tuple[Value | int, ...]:
    return tuple([e if isinstance(e, int) else e.value for e in extents])


def _check_static(site: Site, array: Array, index: Any, axis: int) -> Any:
    """Return an index, counted from the start; a constant one must be within an axis of constant size, as in Python."""
    if isinstance(index, bool):
        raise site.error(BadIndex("an index must be an integer, got a bool", _index_hint(index)))
    if not isinstance(index, (int, np.integer)) or not is_numeric(index):
        return index
    index, size = int(index), array.shape[axis]
    if not dtypes.INDEX.holds(index):
        raise site.error(BadIndex(f"index {shown(index)} is beyond all memory", "an index is an int64"))
    if isinstance(size, int) and not -size <= index < size:
        message = f"index {index} is out of range for axis {axis} of `{array.name}` with size {size}"
        raise site.error(BadIndex(message, f"valid indices are {-size} to {size - 1}"))
    if index < 0:
        if not isinstance(size, int):
            hint = f"write `{array.name}.shape[{axis}] - {-index}`"
            raise site.error(BadIndex(f"a negative index ({index}) into an axis whose size is known at run time", hint))
        return index + size
    return index


def _misfit(site: Site, array: Array, indices: tuple[Any, ...], hint: str) -> StagingError:
    axes, given = counted(array.ndim, "axis", "axes"), counted(len(indices), "index", "indices")
    return site.error(BadIndex(f"`{array.name}` has {axes}, got {given}", hint))


def _as_tuple(index: Any) -> tuple[Any, ...]:
    return index if type(index) is tuple else (index,)


def _names_many(indices: tuple[Any, ...]) -> bool:
    return slice in map(type, indices) or type(...) in map(type, indices)


def element_pointer(site: Site, array: Array, index: Any) -> Address:
    """Return the address of one element."""
    indices = _as_tuple(index)
    if _names_many(indices):
        message = f"a slice of `{array.name}` names many elements"
        raise site.error(BadIndex(message, "one integer per axis names an element; assign them in a loop"))
    if len(indices) != array.ndim:
        raise _misfit(site, array, indices, "one integer per axis names an element")
    return _element(site, array, indices)


def _element(site: Site, array: Array, indices: tuple[Any, ...]) -> Address:
    steps = [(_check_static(site, array, i, axis), array.strides[axis]) for axis, i in enumerate(indices)]
    return _moved(site, array, steps, [True] * len(steps))


def load_item(site: Site, array: Array, index: Any) -> Number | Array:
    """Return `array[index]`: an element, or a view where slices or fewer indices are given."""
    indices = _as_tuple(index)
    axes = len(array.shape)
    if len(indices) == axes and not _names_many(indices):
        return load(site, _element(site, array, indices))
    if sum(i is not Ellipsis for i in indices) > axes:
        raise _misfit(site, array, indices, "use one index per axis")
    return view(site, array, indices)


def view(site: Site, array: Array, indices: tuple[Any, ...]) -> Array:
    """Return a sub-array: an integer removes an axis, a slice narrows it, `...` stands for whole axes."""
    steps: list[tuple[Any, Extent]] = []
    axes: list[tuple[Extent, Extent]] = []  # of the view: size and stride
    is_index: list[bool] = []
    is_contiguous = array.is_contiguous
    for axis, index in enumerate(_one_per_axis(site, array, indices)):
        size, stride = array.shape[axis], array.strides[axis]
        is_index.append(not isinstance(index, slice))
        if not isinstance(index, slice):
            steps.append((_check_static(site, array, index, axis), stride))
            is_contiguous = is_contiguous and not axes
        elif index.start is index.stop is index.step is None:
            steps.append((0, stride))
            axes.append((size, stride))
        else:
            start, stop = (None if b is None else _bound(site, b) for b in (index.start, index.stop))
            cut = cut_of(site, start, stop, step_of(site, index), size)
            steps.append((cut.start, stride))
            is_contiguous = is_contiguous and not axes and cut.step == 1
            axes.append((cut.size, scaled(site.tracer, stride, cut.step)))
    base = _moved(site, array, steps, is_index)
    shape, strides = tuple(s for s, _ in axes), tuple(s for _, s in axes)
    return Array(array.name, base, shape, strides, is_contiguous or is_row_major(shape, strides), is_part=True)


def _one_per_axis(site: Site, array: Array, indices: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return an index for each axis: a whole slice for those that `...` stands for, and for those that are not given."""
    places = [k for k, index in enumerate(indices) if index is Ellipsis]
    if len(places) > 1:
        raise site.error(BadIndex("more than one `...` in an index", "name the axes by `:`"))
    place = places[0] if places else len(indices)
    before, after = indices[:place], indices[place + 1 :]
    return (*before, *[slice(None)] * (array.ndim - len(before) - len(after)), *after)


def window(site: Site, array: Array, start: tuple[Any, ...], shape: tuple[int, ...]) -> Array:
    """Return a view of `shape` elements from `start` on, along the first axes. Only the interpreter checks that they exist."""
    known = [_check_static(site, array, index, axis) for axis, index in enumerate(start)]
    firsts = [each if type(each) is int else Number(index_value(site, each)) for each in known]
    rest = array.shape[len(shape) :]
    lasts = [combine_extents(site, "+", first, size - 1) for first, size in zip(firsts, shape)]
    for axis, last in enumerate(lasts):
        _check_static(site, array, last, axis)
    base = _moved(site, array, list(zip(firsts, array.strides)), [True] * len(shape))
    ends = Indexed(array.name, (*_values(lasts), *[None] * len(rest)), _values(array.shape))
    base = Address(site.tracer.builder.offset(base.value, site.tracer.builder.index(0), ends))
    is_contiguous = array.is_contiguous and all(size == 1 for size in shape[:-1])
    return Array(array.name, base, (*shape, *rest), array.strides, is_contiguous, is_part=True)


def _bound(site: Site, bound: Any) -> int | Number:
    """Return a bound of a slice as an int or a run-time int64; a uint64 beyond it is clamped, since no array is as long."""
    if isinstance(bound, int | np.integer) and not isinstance(bound, bool):
        return int(bound)
    if isinstance(bound, Number) and bound.dtype is dtypes.uint64:
        most = site.tracer.builder.constant(dtypes.INDEX.max, dtypes.uint64)
        bound = Number(site.tracer.builder.call_one(registry.by_name("minimum"), [bound.value, most], ()))
    return Number(index_value(site, bound))


def load(site: Site, pointer: Address) -> Number:
    return Number(effects.load(site, pointer.value))


def the_number_in(value: Any) -> str:
    """Return a hint for an array without axes where a number is needed; "" for other values."""
    is_one = isinstance(value, Array) and value.ndim == 0
    return f"`{value.name}` is an array without axes: the number in it is `{value.name}[()]`" if is_one else ""


_ONE_ELEMENT = "write a tile by `sk.store(p + i, v)`, or reduce it to a number: `sk.reduce_sum(v)`"


def store(site: Site, pointer: Address, value: Any) -> None:
    """Emit a store of a number, converted to the element dtype."""
    if not is_numeric(value):
        own = hint_of(value) or (the_number_in(value) if mapper_of(value) is None else _ONE_ELEMENT)
        hint = own or "a number is needed; convert or index it first"
        raise site.error(BadOperands("=", f"an element of {pointer.dtype.name} and {describe(value)}", hint))
    site.at()
    effects.store(site, pointer.value, site.tracer.arithmetic.to_value(value, pointer.dtype))
