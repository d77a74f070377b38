"""What `sk.load`, `sk.store` and the atomics do with tiles of pointers.

A vector whose elements are known to be neighbours in memory is one access; others take one for each element:

    x = sk.load(src + sk.arange(0, 2000))      # T = 128 threads: 2 loads of 4 elements, and a masked third
    sk.store(dst + 2 * tid, x)                 # one store for each element
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import stagekit as sk
from stagekit.lib.layout import Layout, blocked, width_for
from stagekit.lib.placing import layout_for
from stagekit.lib.tile import ACCESSES, Tile, Traced, common_shape, meeting, placed, repeated
from stagekit.lib.weak import Guard, Ramp

_AND = sk._operation("&")
_HINTS = {"cache_modifier", "eviction_policy"}  # what a wide access may be told; orders are of single elements


@sk._direct
def _load(_: Any, pointer: Any, mask: Any = None, other: Any = None, **how: Any) -> Tile:
    lead, given = _in_memory((pointer, mask, other))
    return _loaded(lead, *given, **how)


@sk._direct
def load_like(part: Any, tile: Tile) -> Tile:
    """Return what a part of an array has, each element where a tile of its shape has its own: none moves through memory."""
    lead, given = placed((part.pointers, part.inside, None), tile.layout)
    return _loaded(lead, *given)


def _loaded(lead: Tile, pointer: Any, mask: Any, other: Any, **how: Any) -> Tile:
    layout, exists = lead.layout, lead.valid()
    if _HINTS.issuperset(how) and (found := _vectors(layout, pointer, mask, exists)):
        places = list(zip(found.pointers, found.masks, lead.vectors_of(other)))
        return Tile(tuple(sk._load_vectors(places, layout.width, found.align, **how)), layout)
    rows = zip(lead.elements_of(pointer), lead.elements_of(mask), lead.elements_of(other), exists)
    return lead.like([sk.load(p, mask=_mask(on, m), other=o, **how) for p, m, o, on in rows])


@sk._direct
def _store(_: Any, pointer: Any, value: Any, mask: Any = None, **how: Any) -> None:
    if not isinstance(pointer, Tile):
        sk.static_assert(False, "store of a tile to one address: add an arange to the pointer")
    others = [each for each in (value, mask) if isinstance(each, Tile)]
    if any(each.shape != pointer.shape for each in others):
        common_shape(others, pointer.shape)  # refuses what is no part of it
    lead, (pointer, value, mask) = _in_memory((pointer, value, mask))
    axis = _axis_in_memory(pointer)
    if (
        axis is not None and lead.layout.fastest_axis != axis + lead.ndim
    ):  # else each access would be of one element, far apart
        lead, (pointer, value, mask) = placed((pointer, value, mask), _along(lead.layout, axis + lead.ndim))
    layout, exists = lead.layout, lead.layout.owned()
    is_in_vectors = value.is_in_vectors if isinstance(value, Tile) else True
    if is_in_vectors and _HINTS.issuperset(how) and (found := _vectors(layout, pointer, mask, exists)):
        vectors = value if isinstance(value, Tile) else repeated(value, layout)
        sk._store_vectors(list(zip(found.pointers, lead.vectors_of(vectors), found.masks)), found.align, **how)
        return
    for p, x, m, on in zip(lead.elements_of(pointer), lead.elements_of(value), lead.elements_of(mask), exists):
        sk.store(p, x, mask=_mask(on, m), **how)


@sk._kernel_only
def _atomic(function: Any, *args: Any, mask: Any = None, **order: Any) -> Tile:
    """Return the old values; 0 where there is no element or `mask` is false."""
    lead, given = _once((*args, mask))
    rows = zip(lead.valid(), *[lead.elements_of(a) for a in given])
    return lead.like([_atomic_where(_mask(exists, m), function, row, order) for exists, *row, m in rows])


@sk._direct
def _once(given: Sequence[Any]) -> tuple[Tile, list[Any]]:
    """Return the operands of an atomic with one layout in which no element has copies."""
    lead, given = _in_memory(given)
    if not lead.layout.has_copies:
        return lead, given
    return placed(given, layout_for(lead.shape))


def _atomic_where(allowed: Traced | None, function: Any, args: list[Traced], order: dict[str, Any]) -> Traced:
    if allowed is None:
        return function(*args, **order)
    old = args[0].dtype(0)
    if allowed:
        old = function(*args, **order)
    return old


def _in_memory(given: Sequence[Any]) -> tuple[Tile, list[Any]]:
    """Return the operands of an access, the pointer first, with one layout: if none has its own, one that lies as memory does."""
    tiles, pointer = [each for each in given if isinstance(each, Tile)], given[0]
    if any(not tile.form for tile in tiles) or not isinstance(pointer, Tile) or not isinstance(pointer.form, Ramp):
        return meeting(given)
    shape = common_shape(tiles)
    layout = layout_for(shape)
    axis = _axis_in_memory(pointer)
    if axis is not None and axis != -1:
        layout = _along(layout, axis + len(shape))
    return placed(given, layout)


def _axis_in_memory(pointer: Tile) -> int | None:
    """Return the axis, counted from the end, along which a tile of pointers is known to lie side by side; None for no such."""
    if not isinstance(pointer.form, Ramp):
        return None
    found = [axis for axis in range(pointer.ndim) if pointer.form.is_contiguous(axis) and pointer.shape[axis] > 1]
    return found[-1] - pointer.ndim if found else None


def _along(layout: Layout, axis: int) -> Layout:
    """Return the layout as memory has it where neighbours along an axis are neighbours there."""
    width = width_for(layout.shape, layout.threads, sk._vector_width(), axis)
    return blocked(layout.shape, layout.threads, width, axis)


class _Vectors(NamedTuple):
    """The vectors of memory that a pointer tile points to, each accessed as a whole. align: of their addresses, in bytes."""

    pointers: list[Traced]
    masks: list[Traced]
    align: int


def _vectors(layout: Layout, pointer: Any, mask: Any, exists: list[Traced]) -> _Vectors | None:
    """Return what is accessed, where each vector lies side by side and its mask is the same for all its elements, else None."""
    width, axis = layout.width, layout.vector_axis
    if width == 1 or layout.shape[axis] % width or not isinstance(pointer, Tile) or not isinstance(pointer.form, Ramp):
        return None
    masks = [mask] * len(layout.widths)
    if isinstance(mask, Tile):
        if not isinstance(mask.form, Guard) or not mask.form.is_constant(width, axis):
            return None
        masks = mask.form.elements(layout, width)
    align = pointer.form.align(layout)
    if align is None:
        return None
    return _Vectors(pointer.form.elements(layout, width), list(map(_mask, exists[::width], masks)), align)


def _mask(exists: Traced, mask: Traced | None) -> Traced | None:
    """Return `exists & mask`, where a mask of None means true and a compile-time true costs nothing; None for no mask."""
    if exists is True:
        return mask
    return exists if mask is None else _AND(exists, mask)


ACCESSES.update({sk.load: _load, sk.store: _store, "atomics": _atomic})
