"""Parts of array arguments: what `sk.load`, `sk.store` and atomics take instead of pointers and a mask.

    a = sk.load(A.tile((row, k), (BM, BK)))           # zeros where the array has no elements
    sk.store(C.tile((row, col), (BM, BN)), acc)       # nothing is written there

Whatever is known of an array (its address, sizes and strides) is still known of its part, as a descriptor for copies by hardware
needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import stagekit as sk
from stagekit.lib.access import load_like
from stagekit.lib.placing import MAX_AXES, MAX_EXTENT, is_int, layout_for
from stagekit.lib.tile import Tile, is_atomic
from stagekit.lib.weak import Guard, Limit, Ramp

_ADD, _MULTIPLY, _AND = map(sk._operation, ("+", "*", "&"))


class Part:
    """The elements of an array from an index on. pointers: a tile of them; inside: of which of them the array has an element.

    array, starts: what it is a part of, and where it begins along each axis.
    """

    __stagekit_hint__ = "a part of an array is for memory: `x = sk.load(A.tile(...))` gives its elements"

    def __init__(self, pointers: Tile, inside: Tile, array: Any, starts: tuple[Any, ...]) -> None:
        self.pointers = pointers
        self.inside = inside
        self.array = array
        self.starts = starts

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of elements of a part along each axis, those past the end of the array included."""
        return self.pointers.shape

    @property
    def dtype(self) -> sk.DType:
        """The dtype of the elements."""
        return self.pointers.dtype

    @sk._direct
    def load_like(self, tile: Tile) -> Tile:
        """Return the elements, each where a tile of this shape has its own."""
        return load_like(self, tile)

    @sk._direct
    def __stagekit_map__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Apply a function of the language to arguments of which this part is the first that is a tile or a part."""
        if args[:1] != (self,) or not (function is sk.load or function is sk.store or is_atomic(function)):
            sk.static_assert(False, self.__stagekit_hint__)
        first, place = self.pointers, {sk.load: 1, sk.store: 2}.get(function, len(args))
        given = args[place] if len(args) > place else kwargs.get("mask")
        mask = self.inside if given is None else self.inside & given
        others = {name: value for name, value in kwargs.items() if name != "mask"}
        return first.__stagekit_map__(
            function, (first, *args[1:place]), {**others, "mask": mask, **_fill(args[place + 1 :])}
        )

    def __stagekit_describe__(self) -> str:
        return f"a part of an array, of shape {self.shape}"


def _fill(rest: tuple[Any, ...]) -> dict[str, Any]:
    """Return what comes after the mask of `load` as it would be by name."""
    return {"other": rest[0]} if rest else {}


@sk._method_of_arrays(
    "tile(offsets, shape)",
    "The part of an array from an index on, for `load`, `store` and atomics, which leave out what the array does not have. "
    "shape: compile-time ints.",
)
def tile(array: Any, offsets: Any, shape: Any) -> Part:
    return _part(array, array.ptr, array.shape, array.strides, offsets, shape)


@sk._direct
def _part(
    array: Any, pointer: Any, extents: tuple[Any, ...], strides: tuple[Any, ...], offsets: Any, shape: Any
) -> Part:
    starts, sizes = (tuple(each) if isinstance(each, tuple | list) else (each,) for each in (offsets, shape))
    if not len(starts) == len(sizes) == len(extents) <= MAX_AXES or not all(is_int(s) and s > 0 for s in sizes):
        text = f"a tile of shape {shape!r} at {offsets!r} of an array of {len(extents)} axes"
        sk._refuse_shape(text, f"give an offset and a compile-time extent for each axis, {MAX_AXES} at most")
    limits, places, base = list[Limit](), list[Any](), pointer
    for axis, (start, extent, stride) in enumerate(zip(starts, extents, strides)):
        place = sk._linear(start)
        if place is None or place[1]:
            sk._refuse_index(f"the offset of a tile along axis {axis}: {start!r}", "it must be an integer, an int64")
        index = Ramp(place[0], tuple([int(a == axis) for a in range(len(sizes))]))
        limits += [Limit(index, "<", sk._linear(extent)[0])]
        does_not_wrap = is_int(start) and 0 <= start <= sk.int64.max - MAX_EXTENT
        limits += [] if does_not_wrap else [Limit(index, ">=", 0)]
        places.append(place[0])
        base = _ADD(base, _MULTIPLY(place[0], stride))
    steps = tuple([1 if type(each) is int and each == 1 else sk._linear(each)[0] for each in strides])
    layout = layout_for(tuple(map(int, sizes)))
    pointers, inside = Tile((), layout, Ramp(base, steps, True)), Tile((), layout, Guard(tuple(limits)))
    return Part(pointers, inside, array, tuple(places))


def parts_at(loads: Callable[[Any], Any], number: Any) -> list[Any]:
    """Return the parts that the function of a `staged` loop gives for a number."""
    given = loads(number)
    parts = list(given) if isinstance(given, tuple | list) else [given]
    for part in parts:
        if not isinstance(part, Part):
            sk.static_assert(
                False, "staged: `loads` returns parts of arrays, `A.tile(offsets, shape)`, or a tuple of them"
            )
    return parts
