"""Arrays, pointers and the attributes of run-time values.

`A[i, j]` is base + i*stride0 + j*stride1 in 64-bit arithmetic. Fewer indices than axes, or slices, give a view: a compile-time
description around a moved base address, no copy. Bounds of slices are Python's: clamped to the axis, and counted from the end
where they are negative.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from stagekit import dtypes
from stagekit.diagnostics import DIVISION, counted, shown
from stagekit.dtypes import DType
from stagekit.frontend import effects
from stagekit.frontend.control import describe
from stagekit.frontend.errors import BadIndex, BadOperands, NoAttribute, NonContiguous, StagingError
from stagekit.frontend.evaluation import Site
from stagekit.frontend.numbers import SYMBOLS, default_dtype, is_literal, is_numeric
from stagekit.frontend.tracer import Tracer, suggest
from stagekit.frontend.values import Address, Array, BoundMethod, Extent, Number, mapper_of
from stagekit.intrinsics import registry
from stagekit.ir import INDEX, BinaryKind, Pointer, Value, of_dtype
from stagekit.ir.intervals import Interval
from stagekit.ir.ops import Indexed

MOST_ELEMENTS = 1 << 57  # of an array: the most that an address space holds


def base_of(site: Site, value: Address | Array) -> Address:
    """Return the address that pointer arithmetic starts from; an array with gaps has none."""
    if isinstance(value, Array) and not value.is_contiguous:
        raise site.error(NonContiguous(value.name))
    return value if isinstance(value, Address) else _pointer_to(site, value)


def _pointer_to(site: Site, array: Array) -> Address:
    """Return the base of an array. That of a part says what it is a part of: only the interpreter looks at it."""
    if not array.is_part:
        return array.base
    part = Indexed(array.name, (None,) * array.ndim, _values(array.shape), _values(array.strides))
    return Address(site.tracer.builder.offset(array.base.value, site.tracer.builder.index(0), part))


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
            cut = _cut(site, start, stop, _step_of(site, index), size)
            steps.append((cut.start, stride))
            is_contiguous = is_contiguous and not axes and cut.step == 1
            axes.append((cut.size, _scaled(site, stride, cut.step)))
    base = _moved(site, array, steps, is_index)
    shape, strides = tuple(s for s, _ in axes), tuple(s for _, s in axes)
    return Array(array.name, base, shape, strides, is_contiguous or is_row_major(shape, strides), is_part=True)


_WHOLE_AXIS = slice(None)


def _one_per_axis(site: Site, array: Array, indices: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return an index for each axis: a whole slice for those that `...` stands for, and for those that are not given."""
    places = [k for k, index in enumerate(indices) if index is Ellipsis]
    if len(places) > 1:
        raise site.error(BadIndex("more than one `...` in an index", "name the axes by `:`"))
    place = places[0] if places else len(indices)
    before, after = indices[:place], indices[place + 1 :]
    return (*before, *[_WHOLE_AXIS] * (array.ndim - len(before) - len(after)), *after)


def _scaled(site: Site, stride: Extent, step: int) -> Extent:
    """Return the stride of every `step`-th element. A step beyond int64 leaves one element, so that any stride will do."""
    if isinstance(stride, int):
        return stride * step if dtypes.INDEX.holds(stride * step) else 0
    return stride if step == 1 else Number(site.tracer.builder.mul(stride.value, site.tracer.builder.index(step)))


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
        is_tile = mapper_of(value) is not None
        hint = _ONE_ELEMENT if is_tile else the_number_in(value) or "a number is needed; convert or index it first"
        raise site.error(BadOperands("=", f"an element of {pointer.dtype.name} and {describe(value)}", hint))
    site.at()
    effects.store(site, pointer.value, site.tracer.arithmetic.to_value(value, pointer.dtype))


# -- slices ---------------------------------------------------------------------------------------------------------------
#
#    A[lo:hi]      start = min(max(lo < 0 ? lo + n : lo, 0), n), likewise stop; size = max(stop - start, 0)
#
# Python itself computes what is known while specialising. At run time, the part of a clamp that cannot be needed is left out: a
# start that is known not to be negative is used as it is, since past the end the size is 0 already.


class _Cut(NamedTuple):
    """A slice of one axis: the first index, the number of indices, and the distance between two of them."""

    start: Extent
    size: Extent
    step: int


def _step_of(site: Site, index: slice) -> int:
    """Return the step of a slice, which must be known while specialising."""
    if index.step is None:
        return 1
    if isinstance(index.step, bool) or not (is_literal(index.step) or hasattr(index.step, "__index__")):
        raise site.error(BadIndex("the step of a slice must be a Python int", "compute the indices in a loop"))
    if isinstance(index.step, float) or int(index.step) == 0:
        raise site.error(BadIndex(f"a slice with a step of {index.step}", "a step is an int other than 0"))
    return max(min(int(index.step), MOST_ELEMENTS), -MOST_ELEMENTS)  # a longer step leaves one element too


def _cut(site: Site, start: Extent | None, stop: Extent | None, step: int, size: Extent) -> _Cut:
    """Return the indices that `start:stop:step` selects in an axis of `size`."""
    start, stop = (max(min(b, MOST_ELEMENTS), -MOST_ELEMENTS) if isinstance(b, int) else b for b in (start, stop))
    if not any(isinstance(each, Number) for each in (start, stop, size)):
        first, end, _ = slice(start, stop, step).indices(size)  # type: ignore[arg-type]
        return _Cut(first, len(range(first, end, step)), step)
    clamp = _Clamp(site, size, step)
    lower, upper = (start, stop) if step > 0 else (stop, start)
    near = clamp.low if lower is None else clamp.near(lower)
    far = clamp.last if upper is None else clamp.far(upper)
    return _Cut(near if step > 0 else far, clamp.steps(clamp.between(near, far)), step)


def combine_extents(site: Site, symbol: str, left: Extent, right: Extent) -> Extent:
    """Return `left symbol right`, computed now where both are known."""
    if isinstance(left, int) and isinstance(right, int):
        return SYMBOLS[symbol].python(left, right)  # type: ignore[no-any-return]
    if isinstance(right, int) and right == 0 and symbol in "+-":
        return left
    found: Number = site.tracer.arithmetic.binary(symbol, left, right)
    return found


def row_major(tracer: Tracer, shape: Sequence[Extent]) -> tuple[tuple[Extent, ...], Extent]:
    """Return the strides of an array without gaps, in elements, and how many elements it has."""

    def times(step: Extent, size: Extent) -> Any:
        if isinstance(step, int) and (step == 1 or isinstance(size, int)):
            return size if step == 1 else size * step  # type: ignore[operator]
        return tracer.arithmetic.binary("*", size, step)

    *strides, count = itertools.accumulate(reversed(shape), times, initial=1)
    return tuple(reversed(strides)), count


def is_row_major(shape: tuple[Extent, ...], strides: tuple[Extent, ...]) -> bool:
    """Return whether it is known at compile time that there are no gaps."""
    step: Extent | None = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        is_packed = stride == step if isinstance(stride, int) and isinstance(step, int) else stride is step
        if not is_packed:
            return False
        if isinstance(step, int) and isinstance(size, int):
            step *= size
        else:
            step = size if isinstance(step, int) and step == 1 else None
    return True


class _Clamp:
    """Clamps the bounds of one slice to `low` and `last`: 0 and the size, each one less where the step is negative."""

    def __init__(self, site: Site, size: Extent, step: int) -> None:
        self.site, self.size, self.step = site, size, step
        self.low = 0 if step > 0 else -1
        self.last = size if step > 0 else self.binary("-", size, 1)

    def binary(self, symbol: str, left: Extent, right: Extent) -> Extent:
        return combine_extents(self.site, symbol, left, right)

    def extreme(self, name: str, left: Extent, right: Extent) -> Extent:
        """Emit `minimum` or `maximum` of two numbers of which one is not known."""
        if isinstance(left, Number) and isinstance(right, Number) and left.value is right.value:
            return left
        values = [self.site.tracer.arithmetic.to_value(each, dtypes.INDEX) for each in (left, right)]
        return Number(self.site.tracer.builder.call_one(registry.by_name(name), values, ()))

    def from_the_end(self, bound: Extent) -> Extent:
        """Return a bound as an index from the start: a negative one counts from the end."""
        if isinstance(bound, int):
            return bound if bound >= 0 else self.binary("+", self.size, bound)
        is_negative = self.site.tracer.arithmetic.compare(ast.Lt, bound, 0)
        counted = self.binary("+", bound, self.size)
        return self.site.tracer.arithmetic.select(is_negative.value, counted, bound)

    def near(self, bound: Extent) -> Extent:
        """Clamp the bound nearer to the first index of the axis. One past the end may stay, since the size is negative then."""
        if interval_of(self.site.tracer, bound).lo >= 0:
            return bound
        found = self.extreme("maximum", self.from_the_end(bound), self.low)
        return found if isinstance(bound, int) else self.extreme("minimum", found, self.last)

    def far(self, bound: Extent) -> Extent:
        """Clamp the bound nearer to the end of the axis."""
        interval = interval_of(self.site.tracer, bound)
        if isinstance(bound, int) and bound < 0:
            return self.extreme("maximum", self.from_the_end(bound), self.low)
        if interval.lo < 0:
            bound = self.extreme("maximum", self.from_the_end(bound), self.low)
        elif isinstance(self.last, int) and interval.hi <= self.last:
            return bound
        return self.extreme("minimum", bound, self.last)

    def between(self, near: Extent, far: Extent) -> Extent:
        """Return how many indices there are from one bound to the other."""
        distance = self.binary("-", far, near)
        if isinstance(distance, int):
            return max(distance, 0)
        if isinstance(near, int) and near == self.low:
            return distance
        return self.extreme("maximum", distance, 0)

    def steps(self, length: Extent) -> Extent:
        """Return how many indices the step leaves of `length`."""
        size = abs(self.step)
        return length if size == 1 else self.binary("//", self.binary("+", length, size - 1), size)


def interval_of(tracer: Tracer, value: Extent) -> Interval:
    """Return the interval in which a number is known to lie."""
    return Interval.exactly(value) if isinstance(value, int) else tracer.intervals[value.value]


# -- attributes of stand-ins --------------------------------------------------------------------------------------------


def attribute(site: Site, owner: Any, name: str) -> Any:
    """Return an attribute of a stand-in: `x.dtype`, `x.to`, `A.shape`, ..."""
    table = ATTRIBUTES.get(type(owner), _NUMBER)
    found = table.get(name)
    if found is None:
        hint = _WAYS_OUT.get(name) or suggest(name, table) or f"it has: {', '.join(table)}"
        raise site.error(NoAttribute(describe(owner), name, hint))
    return found.read(site, owner)


_SHAPE = "pass the array in the shape that the kernel wants"
_REDUCE = "reduce in a loop, or load a tile and use `sk.reduce_sum`, `sk.reduce_max` or `sk.reduce_min`"
# What to write instead of an attribute that NumPy and torch have.
_WAYS_OUT = {
    **dict.fromkeys(("sum", "max", "min", "mean", "prod", "any", "all", "argmax", "argmin"), _REDUCE),
    **dict.fromkeys(("reshape", "ravel", "flatten", "squeeze"), _SHAPE),
    **dict.fromkeys(("astype", "type"), "convert a number by `x.to(dtype)`"),
    "item": "it is a number already",
    "view": "a number has it, a pointer `.to(dtype)`; pass an array in the shape and dtype that the kernel wants",
    "transpose": "write `.T`",
    "copy": "copy the elements in a loop",
    "__delitem__": "an element cannot be deleted",
}


def _to(site: Site, owner: Any) -> BoundMethod:
    def run(dtype: Any, *, bitcast: bool = False) -> Any:
        _require_dtype(site, ".to", dtype)
        if bitcast:
            raise site.error(BadOperands(".to", "`bitcast=True`", "`x.view(dtype)` keeps the bits"))
        if isinstance(owner, Address):
            return Address(site.tracer.builder.bitcast(owner.value, Pointer(dtype, owner.type.space)))
        return site.tracer.arithmetic.convert(owner, dtype)

    run.__qualname__ = "to"  # in Python's errors
    return BoundMethod(owner, "to", run)


def _require_dtype(site: Site, name: str, dtype: Any) -> None:
    if not isinstance(dtype, DType):
        raise site.error(BadOperands(name, describe(dtype), "give a dtype, such as sk.float32"))


def _view(site: Site, owner: Any) -> Any:
    if isinstance(owner, np.generic) and not is_numeric(owner):
        return owner.view

    def run(dtype: Any) -> Any:
        is_numpys = isinstance(owner, np.generic) and not isinstance(dtype, DType)
        return site.static(owner.view, dtype) if is_numpys else viewed(site, owner, dtype)

    run.__qualname__ = "view"
    return BoundMethod(owner, "view", run)


def viewed(site: Site, number: Any, dtype: Any) -> Any:
    """Return the bits of a number as a number of `dtype`."""
    _require_dtype(site, ".view", dtype)
    own = default_dtype(number)
    if dtype.bits != own.bits:
        alike = ", ".join(each.name for each in dtypes.ALL_DTYPES if each.bits == own.bits)
        hint = "convert it by `.to(dtype)`" if own is dtypes.bool_ else f"dtypes of the same size: {alike}"
        raise site.error(BadOperands(".view", f"{describe(number)} as {dtype.name}", hint))
    if isinstance(number, Number):
        return Number(site.tracer.builder.bitcast(number.value, of_dtype(dtype, number.value.type)))
    return number.view(dtype.numpy)


def _transposed(site: Site, array: Array) -> Array:
    is_contiguous = array.is_contiguous and array.ndim < 2
    return Array(array.name, array.base, array.shape[::-1], array.strides[::-1], is_contiguous, array.is_part)


def _ptr_to(site: Site, array: Array) -> BoundMethod:
    return BoundMethod(array, "ptr_to", lambda *index: element_pointer(site, array, index))


F = TypeVar("F", bound=Callable[..., Any])


class Attribute(NamedTuple):
    """An attribute of a stand-in: how it is written, how it is read, and what it is."""

    written: str
    read: Callable[[Site, Any], Any]
    doc: str


_Table = dict[str, Attribute]


def _table(*attributes: Attribute) -> _Table:
    return {each.written.partition("(")[0]: each for each in attributes}


_NUMBER = _table(
    Attribute("dtype", lambda site, x: default_dtype(x), "The dtype of a number."),
    Attribute("to(dtype)", _to, "A number, converted to a dtype: what `dtype(x)` gives."),
    Attribute("view(dtype)", _view, "The number of the same bits as another dtype of the same size."),
)
_ADDRESS = _table(
    Attribute("dtype", lambda site, p: p.dtype, "The dtype of what a pointer points to."),
    Attribute(
        "to(dtype)", _to, "The pointer to the same address, whose elements are read and written as another dtype."
    ),
    Attribute("space", lambda site, p: p.type.space.value, 'The memory of a pointer: "global", "shared" or "local".'),
)
_ARRAY = _table(
    Attribute("dtype", lambda site, a: a.dtype, "The dtype of the elements of an array."),
    Attribute("shape", lambda site, a: a.shape, "The sizes of an array, one for each axis, as a tuple."),
    Attribute("ndim", lambda site, a: a.ndim, "The number of axes of an array."),
    Attribute("size", lambda site, a: _size(site, a), "The number of elements of an array."),
    Attribute("strides", lambda site, a: a.strides, "The steps from an index to the next, for each axis, in elements."),
    Attribute("T", _transposed, "The view of an array with its axes in the opposite order."),
    Attribute("ptr", _pointer_to, "The pointer to the first element of an array, also of one with gaps."),
    Attribute("ptr_to(i, j, ...)", _ptr_to, "The pointer to one element of an array, by its index on each axis."),
)
ATTRIBUTES: dict[type, _Table] = {Number: _NUMBER, Address: _ADDRESS, Array: _ARRAY}


def method_of_arrays(written: str, doc: str) -> Callable[[F], F]:
    """Make a function of the library a method of arrays, which are its first argument."""

    def register(function: F) -> F:
        def read(site: Site, array: Array) -> BoundMethod:
            return BoundMethod(array, name, lambda *args, **named: site.invoke(function, [array, *args], named))

        (name,) = method = _table(Attribute(written, read, doc))
        _ARRAY.update(method)
        return function

    return register


def _size(site: Site, array: Array) -> Extent:
    total: Extent = 1
    for extent in array.shape:
        total = combine_extents(site, "*", total, extent)
    return total
