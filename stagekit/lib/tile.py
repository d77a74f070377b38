"""Tiles: block-level values, written in the language itself.

A tile is a compile-time object around the elements that *this* thread holds. `arange(0, n)` spreads n elements over the T
threads of the block, and elementwise code is a Python loop over a thread's elements that is gone when the kernel is
specialised:

    tid = sk.arange(0, 2000)               # T = 128: thread t holds the elements t, t + 128, ..., t + 1920
    x = sk.load(src + tid, mask=tid < n)   # 16 loads, the last also masked by t + 1920 < 2000
    sk.store(dst + tid, x * 2, mask=tid < n)

Which thread holds which element, and in which vectors, a `Layout` says. Where the index that it gives is not below the tile's
extent there is no such element: loads, stores and atomics do not touch memory there, and reductions leave it out.

The vectors of all tiles of one layout line up, whatever their dtypes. An elementwise operation is one op for each vector. One
access loads or stores a vector whose elements are known to be neighbours in memory (`weak`); others take one for each element.
Pointers are held as single elements. Tiles of several axes are made of others, as in NumPy:

    rows, cols = sk.arange(0, 64)[:, None], sk.arange(0, 32)[None, :]
    x = sk.load(src + rows * ld + cols, mask=(rows < m) & (cols < n))      # a tile of shape (64, 32)

Tiles that meet in an operation have one layout, or get one: weak ones (see `weak`) have none of their own and take that of the
others; of the others, which hold something, some go to the layout of the one that would be dearest to move (`_preference`).
"""

from __future__ import annotations

import functools
import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import stagekit as sk
from stagekit.lib.conversion import element_at, is_pointer, moved
from stagekit.lib.indexing import TileIndex, cut_elements, cut_form, index_of
from stagekit.lib.layout import Layout, Shape, blocked, in_vectors
from stagekit.lib.placing import MAX_AXES, is_int, layout_for, plain_int, regrouped, require_dtype
from stagekit.lib.shared import Matrix
from stagekit.lib.weak import RULES, Form, Ramp, Rule, is_alike, reshaped, scalar, spread

Traced = Any  # a run-time scalar or pointer, while a kernel is specialised

_ADD, _AND, _MULTIPLY, _NEGATE, _INVERT = map(sk._operation, ("+", "&", "*", "neg", "~"))

ACCESSES: dict[Any, Callable[..., Tile | None]] = {}
"""What functions of the language do with tiles of pointers, by the function, and all `"atomics"` alike: `access.py` says it."""

Method = Callable[[Any, Any], Any]


def _methods(symbol: str) -> tuple[Method, Method]:
    """Return the methods of an operator for what is on its left, and for what is on its right."""
    operate, rule = sk._operation(symbol), RULES.get(symbol)

    @sk._stamped
    def plain(self: Any, other: Any) -> Any:
        found = _formed(rule, self, other) if rule and self.form else None
        return self.each(operate, self, other) if found is None else found

    @sk._stamped
    def mirrored(self: Any, other: Any) -> Any:
        found = _formed(lambda right, left: rule(left, right), self, other) if rule and self.form else None
        return self.each(operate, other, self) if found is None else found

    return plain, mirrored


def _formed(rule: Rule, tile: Tile, other: Any) -> Tile | None:
    """Return the weak tile that an operation makes of a weak tile and another operand; None where it makes none."""
    if not isinstance(other, Tile):
        form = rule(tile.form, scalar(other))
        return Tile((), tile.layout, form) if form else None
    if tile.form is None or other.form is None:
        return None
    if tile.shape == other.shape:
        form = rule(tile.form, other.form)
        return Tile((), tile.layout, form) if form else None
    shape = common_shape((tile, other))
    rank = len(shape)
    form = rule(spread(tile.form, tile.shape, rank), spread(other.form, other.shape, rank))
    return Tile((), layout_for(shape), form) if form else None


class ByElement:
    """Immutable numbers whose operators go by element, by `each`. form: of a weak tile, what its elements follow from."""

    form: Form | None = None
    each: Callable[..., Any]

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
    __eq__, _ = _methods("==")
    __ne__, _ = _methods("!=")

    __hash__ = None  # type: ignore[assignment]  # `==` gives no bool, so these are no keys

    @sk._stamped
    def __neg__(self) -> Any:
        return self.each(_NEGATE, self)

    def __pos__(self) -> Any:
        return self

    @sk._stamped
    def __invert__(self) -> Any:
        return self.each(_INVERT, self)

    def __abs__(self) -> Any:
        return self.each(sk.abs, self)


class Tile(ByElement):
    """Elements that lie over the threads as `layout` says. held: this thread's, as vectors of numbers or as single elements.

    form: what they follow from, where the tile is weak; it holds nothing then, and its layout is one that it may have. Immutable:
    every operation makes a new tile. The operands of one operation have shapes that go together by NumPy's rules of broadcasting.
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
    def shape(self) -> Shape:
        """The number of elements of a tile along each of its axes."""
        return self.layout.shape

    @property
    def ndim(self) -> int:
        """The number of axes of a tile."""
        return len(self.layout.shape)

    def to(self, dtype: sk.DType | type[Any]) -> Tile:
        """Return the tile of these elements converted to `dtype`."""
        require_dtype(".to", dtype)
        return self.each(dtype, self)

    def view(self, dtype: sk.DType | type[Any]) -> Tile:
        """Return the tile of the same bits as another dtype of the same size."""
        return self.each(sk._view, self, dtype)

    @sk._stamped
    def each(self, function: Callable[..., Traced], *args: Any, **named: Any) -> Tile:
        """Return the tile of `function` of each element of the arguments, which are tiles like this one or scalars.

        A function of the language that takes vectors is given whole ones.
        """
        lead, given = meeting((*args, *named.values()))
        count = len(args)
        by_vectors = sk._takes_vectors(function, given) and all(a.is_in_vectors for a in given if isinstance(a, Tile))
        rows = zip(*[lead.vectors_of(a) if by_vectors else lead.elements_of(a) for a in given])
        if named:
            return lead.like([function(*row[:count], **dict(zip(named, row[count:]))) for row in rows])
        return lead.like([function(*row) for row in rows])

    @sk._direct
    def of_each(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return `function(*args)`, which makes each element from those beside it: a tile of this shape, or a number.

        A user's function, given tiles that lie as this one does. What moves elements, and another result, is refused at its line.
        """

        def objection(found: Any) -> str:
            if not isinstance(found, Tile) or found.shape != self.shape:
                return f"return a tile of shape {self.shape}, or a number"
            stays = found.form or found.layout in (self.layout, layout_for(self.shape))
            return "" if stays else "each element has to stay where it is"

        return sk._of_each(function, objection, *[a.at(self.layout) if isinstance(a, Tile) else a for a in args])

    @sk._direct
    def pieces(self, count: int) -> list[tuple[int, Tile]]:
        """Return so many parts of a tile side by side, each behind its first column.

        They are one, the tile, where a thread has not as much of each, or where nothing is in registers.
        """
        layout = None if self.form else self.layout.cut(count)
        if layout is None:
            return [(0, self)]
        columns, parts = layout.shape[-1], list[list[Any]]([] for _ in range(count))
        for element, offset in zip(self.elements, self.layout.offsets):
            parts[offset[-1] // columns].append(element)
        return [(i * columns, tile_of(part, layout)) for i, part in enumerate(parts)]

    @sk._direct
    @sk._of_thread
    def elements_of(self, arg: Any) -> list[Any]:
        """Return what goes with each element of this tile: the element of the tile `arg`, or the scalar `arg`."""
        return arg.at(self.layout).elements if isinstance(arg, Tile) else [arg] * self.layout.count

    @sk._direct
    @sk._of_thread
    def vectors_of(self, arg: Any) -> tuple[Any, ...]:
        """Return what goes with each vector of this tile: the vector of the tile `arg`, or the scalar `arg`."""
        return arg.at(self.layout)._parts if isinstance(arg, Tile) else (arg,) * len(self.layout.widths)

    @sk._direct
    def at(self, layout: Layout) -> Tile:
        """Return the tile of these elements as a layout of its shape has them, or of a shape that it broadcasts to."""
        if self.layout is layout or self.layout == layout:
            return self
        if self.shape != layout.shape:
            common_shape((self,), layout.shape)  # refuses it
        if self.form is not None:
            is_other = self.shape != layout.shape
            return Tile((), layout, spread(self.form, self.shape, len(layout.shape)) if is_other else self.form)
        return _repeated_along(self, layout) if self.shape != layout.shape else self._in(layout)

    @sk._direct
    def convert_layout(self, layout: Layout) -> Tile:
        """Return the tile with its elements where a `stagekit.layouts.TileLayout` has them; on the CPU they stay where they are.

        The layout is of this shape, and of as many threads as the block has.
        """
        wanted = f"a layout of shape {self.shape} for {self.layout.threads} threads, such as `stagekit.layouts.tile_layout` makes"
        if not isinstance(layout, Layout) or layout.shape != self.shape:
            sk._refuse_shape(f"convert_layout({layout}) of a tile of shape {self.shape}", f"give {wanted}")
        if sk._is_for_cpu():
            return self
        if layout.threads != self.layout.threads:
            sk._refuse_shape(
                f"convert_layout to {layout.threads} threads of a block of {self.layout.threads}", f"give {wanted}"
            )
        return self.at(layout)

    def _in(self, layout: Layout) -> Tile:
        """Return the tile of these elements, which `layout` may have in another shape."""
        return tile_of(moved(self.elements, self.layout, layout), layout)

    @sk._direct
    def __stagekit_settle__(self, other: Tile) -> Tile:
        """Return this tile as it may meet another one where paths meet: with its elements, unless their forms are alike."""
        if self.shape != other.shape:
            return self
        held = [each.layout for each in (self, other) if not each.form]
        layout = self.layout
        if layout != other.layout:
            layout = max(held, key=_preference) if held else layout_for(self.shape)
        if is_alike(self.form, other.form):
            return self if self.layout == layout else self.at(layout)
        return tile_of(list(self.at(layout)._parts), layout)

    @sk._direct
    def like(self, parts: list[Traced]) -> Tile:
        """Return a tile of this layout that holds these vectors, or these elements."""
        return tile_of(parts, self.layout)

    @sk._direct
    @sk._of_thread
    def valid(self) -> list[Traced]:
        """Return for each element whether it exists: True itself, not a run-time value, where it does in every thread."""
        return self.layout.valid()

    @sk._stamped
    def __stagekit_map__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tile | None:
        """Apply a function of the language to arguments of which this tile is the first that is a tile."""
        access = ACCESSES.get("atomics" if is_atomic(function) else function)
        return access(function, *args, **kwargs) if access else self.each(function, *args, **kwargs)

    @sk._direct
    @sk._of_thread
    def __stagekit_elements__(self) -> tuple[tuple[int, ...], list[Traced], list[Traced]]:
        """Return, for debuggers, the shape, and this thread's linear indices and elements. Past the end there are none."""
        strides = tuple([math.prod(self.shape[axis + 1 :]) for axis in range(self.ndim)])
        indices = Ramp(sk.int64(0), strides).elements(self.layout)
        known = [i if on is True else sk.where(on, i, self.extent) for i, on in zip(indices, self.valid())]
        return self.shape, known, self.elements

    @property
    def __stagekit_placed__(self) -> Layout | str | None:
        """What says as text where the elements are; None of a weak tile, which goes wherever it is wanted."""
        if self.form is None:
            return self.layout
        return f"{self.shape} in shared memory" if isinstance(self.form, Matrix) else None

    def __stagekit_describe__(self) -> str:
        return f"a tile of {self.extent} elements" if self.ndim == 1 else f"a tile of shape {self.shape}"

    def __stagekit_filled__(self, value: str, dtype: str) -> str:
        """Return the source text of a tile of this shape that is `value` throughout, for errors that propose one."""
        shape = self.extent if self.ndim == 1 else self.shape
        return f"sk.zeros({shape}, {dtype})" if value == "0" else f"sk.full({shape}, {value}, {dtype})"

    def __len__(self) -> int:
        return self.shape[0]

    __iter__ = None  # else Python would count through `__getitem__`

    @sk._stamped
    def __getitem__(self, index: Any) -> Any:
        """Return what an index takes of the tile, by NumPy's rules: static slices, integers, None for a new axis, `...`.

        Where it has an integer for each axis, return one element, a number.
        """
        wanted = index_of(index, self.shape)
        if not wanted.shape:
            number = element_at(self.elements, self.layout, [cut.start for cut in wanted.cuts])
            return repeated(number, layout_for((1,) * len(wanted.new))) if wanted.new else number
        tile = self if wanted.is_whole(self.shape) else self._cut(wanted)
        for axis in wanted.new:
            form = tile.form and reshaped(tile.form, functools.partial(_inserted, axis))
            tile = Tile(tile._held, tile.layout.expanded(axis), form)
        return tile

    def _cut(self, index: TileIndex) -> Tile:
        layout = layout_for(index.shape)
        if self.form and not isinstance(self.form, Matrix):
            return Tile((), layout, cut_form(self.form, index.cuts))
        return tile_of(cut_elements(self.elements, self.layout, index.cuts, layout), layout)

    @sk._stamped
    def reshape(self, *shape: Any) -> Tile:
        """Return the tile of the same elements, in C order, with other axes. shape: ints, or a tuple; -1 stands for the rest."""
        wanted = _new_shape(self, shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape)
        if wanted == self.shape:
            return self
        same = None if self.form else regrouped(self.layout, wanted, sk._vector_width())
        if same is not None:
            return Tile(self._held, same) if same.widths == self.layout.widths else tile_of(self.elements, same)
        layout = layout_for(wanted)
        if self.form and self.ndim == 1:
            steps = [math.prod(wanted[axis + 1 :]) for axis in range(len(wanted))]
            return Tile((), layout, reshaped(self.form, lambda strides: tuple([_step(strides[0], s) for s in steps])))
        return self._in(layout)

    @sk._stamped
    def trans(self, *order: Any) -> Tile:
        """Return the tile whose axis i is axis `order[i]` of this one; without an order, with its axes turned round."""
        axes = tuple(order[0] if len(order) == 1 and isinstance(order[0], tuple | list) else order)
        axes = axes or tuple(range(self.ndim))[::-1]
        if not all(map(is_int, axes)) or sorted(axes) != [*range(self.ndim)]:
            sk._refuse_shape(
                f"trans{axes} of a tile of shape {self.shape}", "give each axis once, such as `x.trans(1, 0)`"
            )
        form = self.form and reshaped(self.form, lambda strides: tuple([strides[axis] for axis in axes]))
        return Tile(self._held, self.layout.transposed(axes), form)

    @property
    @sk._direct
    def T(self) -> Tile:
        """The tile with its axes in the opposite order."""
        return self.trans()

    def __bool__(self) -> bool:
        sk.static_assert(False, "a tile has no single truth value: combine masks with & | ~, choose with sk.where")
        return False


@sk._direct
def is_atomic(function: Any) -> bool:
    """Return whether a function of the language is an atomic, by its name."""
    return getattr(function, "name", "").startswith("atomic_")


@sk._direct
def tile_of(parts: list[Traced], layout: Layout) -> Tile:
    """Return the tile of a layout that holds these vectors, or these elements."""
    return Tile(tuple(in_vectors(parts, layout)), layout)


@sk._direct
def common_shape(tiles: Sequence[Tile], *others: Shape) -> Shape:
    """Return the shape that tiles have together, by NumPy's rules: each extent that is 1 goes with any other."""
    shapes = [*[tile.shape for tile in tiles], *others]
    rank = max(map(len, shapes))
    columns = zip(*[(1,) * (rank - len(shape)) + shape for shape in shapes])
    extents = [set(column) - {1} for column in columns]
    if any(len(each) > 1 for each in extents) or (others and rank > len(others[0])):
        sk._refuse_shape(
            f"tiles of shapes {' and '.join(map(str, dict.fromkeys(shapes)))} in one operation",
            "axes go together from the last one on where their extents are equal, or one is 1, as after `x[:, None]`",
        )
    return tuple([max(each, default=1) for each in extents])


def meeting(given: Sequence[Any]) -> tuple[Tile, list[Any]]:
    """Return the operands of an operation, of which the tiles have one layout now, and the first of these."""
    tiles = [each for each in given if isinstance(each, Tile)]
    lead = tiles[0]
    if all(each.layout is lead.layout or each.layout == lead.layout for each in tiles):
        return lead, list(given)
    layout = _meeting_layout(tiles)
    return placed(given, layout)


def _meeting_layout(tiles: Sequence[Tile]) -> Layout:
    """Return the layout in which tiles meet: of those that hold something and have the common shape, the preferred one."""
    shape = tiles[0].shape if all(t.shape == tiles[0].shape for t in tiles) else common_shape(tiles)
    whole = [tile for tile in tiles if tile.shape == shape and not tile.form]
    if not whole:
        return layout_for(shape)
    if len(whole) > 1:  # other tiles come to pointers, since not every pointer can move
        whole = [tile for tile in whole if is_pointer(tile._held[0])] or whole
    return max([tile.layout for tile in whole], key=_preference) if len(whole) > 1 else whole[0].layout


def _preference(layout: Layout) -> tuple[Any, ...]:
    """Return what orders layouts: those of products and of sums along an axis, which others come from, are before memory's."""
    is_of_memory = layout == blocked(layout.shape, layout.threads, layout.width)
    return not is_of_memory, not layout.has_copies, layout.registers, layout.lanes, layout.width


def _repeated_along(tile: Tile, layout: Layout) -> Tile:
    """Return the tile that has each element of another one several times, along the axes where that has extent 1."""
    for _ in range(len(layout.shape) - tile.ndim):
        tile = Tile(tile._held, tile.layout.expanded(0))
    gone = [axis for axis, extent in enumerate(tile.shape) if extent != layout.shape[axis]]
    own = layout.restricted(gone)
    elements = tile.at(own).elements
    places = {offset: register for register, offset in enumerate(own.offsets)}
    firsts = [tuple([0 if axis in gone else o for axis, o in enumerate(offset)]) for offset in layout.offsets]
    found = [elements[places[first]] for first in firsts]
    is_splat = layout.width > 1 and own.width == 1
    return tile_of(found[:: layout.width] if is_splat else found, layout)


def _inserted(axis: int, strides: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*strides[:axis], 0, *strides[axis:])


def _step(stride: Any, number: int) -> Any:
    return number * stride if isinstance(stride, numbers.Integral) else _MULTIPLY(stride, number)


def _new_shape(tile: Tile, shape: Any) -> Shape:
    """Return a shape that was given for the elements of a tile, with what -1 stands for."""
    is_fine = all(is_int(size) and (size > 0 or size == -1) for size in shape) and list(shape).count(-1) <= 1
    sizes = [plain_int(size) for size in shape] if is_fine else []
    known = math.prod([size for size in sizes if size != -1])
    found = tuple([tile.extent // known if size == -1 else size for size in sizes])
    if not is_fine or not 1 <= len(found) <= MAX_AXES or math.prod(found) != tile.extent:
        hint = f"give 1 to {MAX_AXES} compile-time ints whose product is {tile.extent}"
        sk._refuse_shape(f"reshape to {tuple(shape)} of a tile of shape {tile.shape}", hint)
    return found


@sk._direct
def repeated(number: Traced, layout: Layout) -> Tile:
    return tile_of([number] * len(layout.widths), layout)


def of_one_axis(function: str, value: Any) -> Tile:
    """Return a tile as memory has it. Refused: what is no tile, and more axes than one."""
    require_tile(function, value)
    tile: Tile = value
    if tile.ndim > 1:
        hint = f"make it one of {tile.extent} elements by `x.reshape(-1)`, or take `sk.reduce` and `sk.scan`, which know axes"
        sk._refuse_shape(f"{function} of a tile of shape {tile.shape}: it knows one axis", hint)
    return tile.at(layout_for(tile.shape)) if not tile.form else tile


def require_tile(function: str, value: Any) -> None:
    if not isinstance(value, Tile):
        sk.static_assert(False, f"{function} takes a tile; for one scalar per thread use block_reduce")


def placed(given: Sequence[Any], layout: Layout) -> tuple[Tile, list[Any]]:
    """Return operands, the tiles with this layout, and the first of these."""
    placed = [each.at(layout) if isinstance(each, Tile) else each for each in given]
    return next(each for each in placed if isinstance(each, Tile)), placed
