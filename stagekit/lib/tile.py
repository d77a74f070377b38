"""Tiles: block-level values, written in the language itself.

A tile is a compile-time object around the elements that *this* thread holds. `arange(0, n)` spreads n elements over the T
threads of the block, and elementwise code is a Python loop over a thread's elements that is gone when the kernel is
specialised:

    tid = sk.arange(0, 2000)               # T = 128: thread t holds the elements t, t + 128, ..., t + 1920
    x = sk.load(src + tid, mask=tid < n)   # 16 loads, the last also masked by t + 1920 < 2000
    sk.store(dst + tid, x * 2, mask=tid < n)

Which thread holds which element, and in which vectors, a `Layout` says: element e of thread t has index t + e * T. Where that is
not below the tile's extent there is no such element: loads, stores and atomics do not touch memory there, and reductions leave
it out.

The vectors of all tiles of one layout line up, whatever their dtypes. An elementwise operation is one op for each vector. Memory
is accessed element by element, and pointers are held as single elements.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any, NamedTuple

import stagekit as sk
from stagekit.lib.layout import Layout, cpu_threads, default_threads
from stagekit.lib.weak import RULES, Form, Guard, Ramp, is_alike, scalar

Traced = Any  # a run-time scalar or pointer, while a kernel is specialised

MAX_EXTENT = 1 << 20  # 1024 elements per thread; far above it the unrolled code would not be worth having

_ADD, _AND, _NEGATE, _INVERT = map(sk._operation, ("+", "&", "neg", "~"))

Method = Callable[["Tile", Any], "Tile"]


def _methods(symbol: str) -> tuple[Method, Method]:
    """Return the methods of an operator for a tile on its left, and for one on its right."""
    operate, rule = sk._operation(symbol), RULES.get(symbol)

    @sk._direct
    def plain(self: Tile, other: Any) -> Tile:
        form = rule and self.form and rule(self.form, self.form_of(other))
        return Tile((), self.layout, form) if form else self.each(operate, self, other)

    @sk._direct
    def mirrored(self: Tile, other: Any) -> Tile:
        form = rule and self.form and rule(self.form_of(other), self.form)
        return Tile((), self.layout, form) if form else self.each(operate, other, self)

    return plain, mirrored


class Tile:
    """Elements that lie over the threads as `layout` says. held: this thread's, as vectors of numbers or as single elements.

    form: what they follow from, where the tile is weak; it holds nothing then. Immutable: every operation makes a new tile. The
    operands of one operation have the same extent, or are scalars, which go with every element.
    """

    def __init__(self, held: tuple[Traced, ...], layout: Layout, form: Form | None = None) -> None:
        self._held = held
        self.form = form
        self.layout = layout

    @property
    @sk._direct
    def _parts(self) -> tuple[Traced, ...]:
        return self._held if self.form is None else tuple(self.form.parts(self.layout))

    @property
    def extent(self) -> int:
        """The number of elements, over all threads."""
        return self.layout.extent

    @property
    def dtype(self) -> sk.DType:
        """The dtype of the elements of a tile."""
        dtype: sk.DType = self.form.dtype if self.form else sk._dtype_of(self._held[0])
        return dtype

    @property
    @sk._direct
    @sk._of_thread
    def elements(self) -> list[Traced]:
        """This thread's elements, each a scalar or a pointer."""
        if self.form:
            return self.form.elements(self.layout)
        return [element for part in self._held for element in sk._lanes(part)]

    @property
    def is_in_vectors(self) -> bool:
        """Whether the parts are the vectors that the layout says; pointers are single elements instead."""
        return not self.form.is_address if self.form else len(self._held) == len(self.layout.widths)

    @property
    def shape(self) -> tuple[int]:
        """The number of elements of a tile, as a tuple of one."""
        return (self.extent,)

    def to(self, dtype: sk.DType) -> Tile:
        """Return the tile of these elements converted to `dtype`."""
        _require_dtype(".to", dtype)
        return self.each(dtype, self)

    def view(self, dtype: sk.DType) -> Tile:
        """Return the tile of the same bits as another dtype of the same size."""
        return self.each(sk._view, self, dtype)

    @sk._direct
    def each(self, function: Callable[..., Traced], *args: Any, **named: Any) -> Tile:
        """Return the tile of `function` of each element of the arguments, which are tiles like this one or scalars.

        A function of the language that takes vectors is given whole ones.
        """
        given, count = (*args, *named.values()), len(args)
        by_vectors = sk._takes_vectors(function, given) and all(a.is_in_vectors for a in given if isinstance(a, Tile))
        rows = zip(*[self.vectors_of(a) if by_vectors else self.elements_of(a) for a in given])
        if named:
            return self.like([function(*row[:count], **dict(zip(named, row[count:]))) for row in rows])
        return self.like([function(*row) for row in rows])

    @sk._direct
    @sk._of_thread
    def elements_of(self, arg: Any) -> list[Any]:
        """Return what goes with each element of this tile: the element of the tile `arg`, or the scalar `arg`."""
        return self.fitting(arg).elements if isinstance(arg, Tile) else [arg] * self.layout.count

    @sk._direct
    @sk._of_thread
    def vectors_of(self, arg: Any) -> tuple[Any, ...]:
        """Return what goes with each vector of this tile: the vector of the tile `arg`, or the scalar `arg`."""
        return self.fitting(arg)._parts if isinstance(arg, Tile) else (arg,) * len(self.layout.widths)

    @sk._direct
    def form_of(self, other: Any) -> Form | None:
        """Return the form of an operand, a tile like this one or a scalar; None where it has none."""
        return self.fitting(other).form if isinstance(other, Tile) else scalar(other)

    @sk._direct
    def __stagekit_settle__(self, other: Tile) -> Tile:
        """Return this tile as it may meet another one where paths meet: with its elements, unless their forms are alike."""
        return self if is_alike(self.form, other.form) else _tile(list(self._parts), self.layout)

    @sk._direct
    def fitting(self, other: Tile) -> Tile:
        """Return `other`, which must have the extent of this tile."""
        if other.extent != self.extent:
            sk.static_assert(False, f"tiles with extents {self.extent} and {other.extent} in one operation")
        return other

    @sk._direct
    def like(self, parts: list[Traced]) -> Tile:
        """Return a tile of this layout that holds these vectors, or these elements."""
        return _tile(parts, self.layout)

    @sk._direct
    @sk._of_thread
    def valid(self) -> list[Traced]:
        """Return for each element whether it exists: True itself, not a run-time value, where it does in every thread."""
        return self.layout.valid()

    @sk._direct
    def __stagekit_map__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tile | None:
        """Apply a function of the language to arguments of which this tile is the first that is a tile."""
        if function is sk.load:
            return _load(self, *args, **kwargs)
        if function is sk.store:
            _store(self, *args, **kwargs)
            return None
        if _is_atomic(function):
            return _atomic(self, function, *args, **kwargs)
        return self.each(function, *args, **kwargs)

    @sk._direct
    @sk._of_thread
    def __stagekit_elements__(self) -> tuple[tuple[int, ...], list[Traced], list[Traced]]:
        """Return, for debuggers, the shape, and this thread's linear indices and elements. Past the end there are none."""
        first, layout = self.layout.first(), self.layout
        return self.shape, [_ADD(first, layout.offset(e)) for e in range(layout.count)], self.elements

    def __stagekit_filled__(self, value: str, dtype: str) -> str:
        """Return the source text of a tile of this extent that is `value` throughout, for errors that propose one."""
        return f"sk.zeros({self.extent}, {dtype})" if value == "0" else f"sk.full({self.extent}, {value}, {dtype})"

    def __len__(self) -> int:
        return self.extent

    def __bool__(self) -> bool:
        sk.static_assert(False, "a tile has no single truth value: combine masks with & | ~, choose with sk.where")
        return False

    __add__, __radd__ = _methods("+")
    __sub__, __rsub__ = _methods("-")
    __mul__, __rmul__ = _methods("*")
    __truediv__, __rtruediv__ = _methods("/")
    __floordiv__, __rfloordiv__ = _methods("//")
    __mod__, __rmod__ = _methods("%")
    __pow__, __rpow__ = _methods("**")
    __and__, __rand__ = _methods("&")
    __or__, __ror__ = _methods("|")
    __xor__, __rxor__ = _methods("^")
    __lshift__, __rlshift__ = _methods("<<")
    __rshift__, __rrshift__ = _methods(">>")
    __lt__, _ = _methods("<")
    __le__, _ = _methods("<=")
    __gt__, _ = _methods(">")
    __ge__, _ = _methods(">=")
    __eq__, _ = _methods("==")  # type: ignore[assignment]
    __ne__, _ = _methods("!=")  # type: ignore[assignment]

    __hash__ = None  # type: ignore[assignment]  # `==` gives a tile, so tiles cannot be keys

    @sk._direct
    def __neg__(self) -> Tile:
        return self.each(_NEGATE, self)

    def __pos__(self) -> Tile:
        return self

    @sk._direct
    def __invert__(self) -> Tile:
        return self.each(_INVERT, self)

    def __abs__(self) -> Tile:
        return self.each(sk.abs, self)


@sk._direct
def _tile(parts: list[Traced], layout: Layout) -> Tile:
    """Return the tile of a layout that holds these vectors, or these elements."""
    widths = layout.widths
    return Tile(tuple(sk._in_vectors(parts, widths) if widths[0] > 1 else parts), layout)


@sk._kernel_only
def arange(start: int, stop: int) -> Tile:
    """Return the tile of int64 `start, start + 1, ..., stop - 1`; both are compile-time ints.

    The option `threads` of the kernel says how many threads share them. Left out, up to 128 elements the block gets a thread for
    each; above that, each thread holds several. Of tiles with different extents the longest decides.
    """
    if not _are_known((start, stop)):
        for name, value in (("start", start), ("stop", stop)):
            if not _is_int(value):
                sk.static_assert(False, f"arange: {name} must be a compile-time int, got {value!r}")
        _layout_of(stop - start, f"the extent of arange({start!r}, {stop!r})")  # refuses it
    return _counted(start, stop)


@sk._direct
def _layout_of(extent: int, what: str) -> Layout:
    """Return how a tile of `extent` elements lies over the block, which gets as many threads as it wants."""
    threads = sk._block_threads(extent, what, cpu_threads if sk._is_for_cpu() else default_threads)
    if extent > MAX_EXTENT:
        sk.static_assert(False, f"a tile has at most {MAX_EXTENT} elements, and {what} is {extent}")
    return Layout(extent, threads, _width(extent, threads))


def _width(extent: int, threads: int) -> int:
    """Return how many neighbours a vector holds: as many as one access takes, where each thread has so many and none is short."""
    width: int = sk._vector_width()
    while width > 1 and (extent % width or extent < width * threads):
        width //= 2
    return width


@sk._direct
def _counted(start: int, stop: int) -> Tile:
    """Return the tile of `arange(start, stop)`."""
    start, stop = _plain(start), _plain(stop)
    extent = stop - start
    layout = _layout_of(extent, f"the extent of arange({start!r}, {stop!r})")
    return Tile((), layout, Ramp(sk.int64(start), 1))


@sk._kernel_only
def full(shape: int | tuple[int], value: Traced, dtype: sk.DType) -> Tile:
    """Return the tile of `shape` elements, each `value` converted to `dtype`: what a loop over tiles accumulates into.

    shape: a compile-time int, or a tuple of one; value: a number, known at compile time or not.
    """
    return _filled("full", shape, value, dtype)


@sk._kernel_only
def zeros(shape: int | tuple[int], dtype: sk.DType) -> Tile:
    """Return the tile of `shape` zeros of `dtype`; see `full`."""
    return _filled("zeros", shape, 0, dtype)


def _filled(function: str, shape: Any, value: Traced, dtype: sk.DType) -> Tile:
    extent = shape[0] if isinstance(shape, tuple | list) and len(shape) == 1 else shape
    if not _is_int(extent):
        sk.static_assert(False, f"{function}: shape must be a compile-time int or a tuple of one, got {shape!r}")
    extent = _plain(extent)
    layout = _layout_of(extent, f"the extent of {function}({extent!r}, ...)")
    _require_dtype(function, dtype)
    if isinstance(value, Tile):
        sk.static_assert(False, f"{function}: value must be a number; for a tile of another dtype use .to(dtype)")
    return _repeated(dtype(value), layout)


@sk._direct
def _repeated(number: Traced, layout: Layout) -> Tile:
    return _tile([number] * len(layout.widths), layout)


def _require_dtype(function: str, dtype: Any) -> None:
    if not isinstance(dtype, sk.DType):
        sk.static_assert(False, f"{function}: dtype must be a dtype such as sk.float32, got {dtype!r}")


@sk._direct
def _are_known(bounds: tuple[Any, ...]) -> bool:
    """Return whether these are ints. A run-time number is one for a kernel only, which is to refuse it by its place."""
    return all(map(_is_int, bounds))


def _is_int(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _plain(value: Any) -> int:
    """Return a Python int: those of NumPy would wrap."""
    plain: int = value if isinstance(value, int) else value.item()
    return plain


@sk._direct
def _both(valid: Traced, mask: Traced | None) -> Traced | None:
    """Return `valid & mask`, where a mask of None means true and a compile-time true costs nothing; None for no mask."""
    if valid is True:
        return mask
    return valid if mask is None else _AND(valid, mask)


class _Vectors(NamedTuple):
    """The vectors of memory that a pointer tile points to, each accessed as a whole. align: of their addresses, in bytes."""

    pointers: list[Traced]
    masks: list[Traced]
    align: int


def _vectors(tile: Tile, pointer: Any, mask: Any) -> _Vectors | None:
    """Return what is accessed, where each vector lies side by side and its mask is the same for all its elements, else None."""
    layout = tile.layout
    if layout.width == 1 or layout.extent % layout.width or not isinstance(pointer, Tile):
        return None
    if not isinstance(place := tile.form_of(pointer), Ramp):
        return None
    masks, valid = [mask] * len(layout.widths), layout.valid()[:: layout.width]
    if isinstance(mask, Tile):
        guard = tile.form_of(mask)
        if not isinstance(guard, Guard) or not guard.is_constant(layout.width):
            return None
        masks = guard.elements(layout, layout.width)
    align = place.align(layout)
    if align is None:
        return None
    return _Vectors(place.elements(layout, layout.width), list(map(_both, valid, masks)), align)


@sk._direct
def _load(tile: Tile, pointer: Any, mask: Any = None, other: Any = None, **order: Any) -> Tile:
    if not order and (found := _vectors(tile, pointer, mask)):
        places, width = zip(found.pointers, found.masks, tile.vectors_of(other)), tile.layout.width
        return tile.like([sk._load_vector(p, width, found.align, mask=m, other=o) for p, m, o in places])
    rows = zip(tile.elements_of(pointer), tile.elements_of(mask), tile.elements_of(other), tile.valid())
    return tile.like([sk.load(p, mask=_both(valid, m), other=o, **order) for p, m, o, valid in rows])


@sk._direct
def _store(tile: Tile, pointer: Any, value: Any, mask: Any = None, **order: Any) -> None:
    if not isinstance(pointer, Tile):
        sk.static_assert(False, "store of a tile to one address: add an arange to the pointer")
    is_in_vectors = value.is_in_vectors if isinstance(value, Tile) else True
    if is_in_vectors and not order and (found := _vectors(tile, pointer, mask)):
        vectors = value if isinstance(value, Tile) else _repeated(value, tile.layout)
        for p, m, x in zip(found.pointers, found.masks, tile.vectors_of(vectors)):
            sk._store_vector(p, x, found.align, mask=m)
        return
    for p, x, m, valid in zip(tile.elements_of(pointer), tile.elements_of(value), tile.elements_of(mask), tile.valid()):
        sk.store(p, x, mask=_both(valid, m), **order)


@sk._direct
def _is_atomic(function: Any) -> bool:
    """Return whether a function of the language is an atomic, by its name."""
    return getattr(function, "name", "").startswith("atomic_")


@sk._kernel_only
def _atomic(tile: Tile, function: Any, *args: Any, mask: Any = None, **order: Any) -> Tile:
    """Return the old values; 0 where there is no element or `mask` is false."""
    rows = zip(tile.elements_of(mask), tile.valid(), *[tile.elements_of(a) for a in args])
    return tile.like([_atomic_where(_both(valid, m), function, row, order) for m, valid, *row in rows])


def _atomic_where(allowed: Traced | None, function: Any, args: list[Traced], order: dict[str, Any]) -> Traced:
    if allowed is None:
        return function(*args, **order)
    old = args[0].dtype(0)
    if allowed:
        old = function(*args, **order)
    return old
