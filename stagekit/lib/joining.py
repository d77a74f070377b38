"""Tiles turned round, put together and taken apart: `flip`, `join`, `split`.

real, imaginary = sk.split(sk.load(p + sk.arange(0, 2 * N)).reshape(N, 2))
sk.store(out + sk.arange(0, 2 * N), sk.join(real, -imaginary).reshape(-1))
"""

from __future__ import annotations

import stagekit as sk
from stagekit.lib.axes import axis_of, held
from stagekit.lib.layout import Digit, Layout, layout_of
from stagekit.lib.placing import MAX_AXES, layout_for
from stagekit.lib.tile import Tile, meeting, require_tile, tile_of


@sk._kernel_only
@sk._stamped
def flip(tile: Tile, axis: int | None = None) -> Tile:
    """Return a tile with the order of its elements turned round along an axis; along all if left out. It is NumPy's `flip`."""
    require_tile("flip", tile)
    axes = range(tile.ndim) if axis is None else [axis_of("flip", tile, axis)]
    found: Tile = tile[tuple([slice(None, None, -1 if a in axes else 1) for a in range(tile.ndim)])]
    return found


@sk._kernel_only
@sk._stamped
def join(a: Tile, b: Tile) -> Tile:
    """Return the tile of one more axis, the last, of extent 2: `x[..., 0]` is a and `x[..., 1]` is b, which broadcast.

    Both have one dtype. It is Triton's `join`, and NumPy's `stack` along the last axis.
    """
    require_tile("join", a)
    require_tile("join", b)
    if a.dtype is not b.dtype:
        sk.static_assert(False, f"join of {a.dtype.name} and {b.dtype.name}: give both one dtype, by .to(dtype)")
    lead, (first, second) = meeting((a, b))
    if lead.ndim == MAX_AXES:
        sk._refuse_shape(f"join of tiles of shape {lead.shape}", f"a tile has at most {MAX_AXES} axes")
    pairs = zip(first.elements, second.elements)
    return tile_of([each for pair in pairs for each in pair], _joined(lead.layout))


@sk._kernel_only
@sk._stamped
def split(tile: Tile) -> tuple[Tile, Tile]:
    """Return `x[..., 0]` and `x[..., 1]` of a tile whose last axis has extent 2. It is Triton's `split`."""
    require_tile("split", tile)
    if tile.ndim < 2 or tile.shape[-1] != 2:
        hint = "the last of several axes has extent 2: `x.reshape(-1, 2)` pairs neighbours"
        sk._refuse_shape(f"split of a tile of shape {tile.shape}", hint)
    if tile.form:
        return tile[..., 0], tile[..., 1]
    half = _half(tile.layout) or layout_for(tile.shape[:-1])
    elements = held(tile).at(_joined(half)).elements
    return tile_of(elements[::2], half), tile_of(elements[1::2], half)


def _joined(half: Layout) -> Layout:
    """Return the layout in which each thread has the pairs of what it has in `half`."""
    last = len(half.shape)
    width = 2 if sk._vector_width() > 1 else 1
    return layout_of((*half.shape, 2), half.threads, (Digit(2, last, 1), *half.registers), half.lanes, width)


def _half(layout: Layout) -> Layout | None:
    """Return the layout whose pairs a layout has in its threads; None where they are not next to each other."""
    last = len(layout.shape) - 1
    if not layout.registers or layout.registers[0] != Digit(2, last, 1):
        return None
    if any(digit.axis == last and digit.stride for digit in (*layout.registers[1:], *layout.lanes)):
        return None
    return layout_of(layout.shape[:-1], layout.threads, layout.registers[1:], layout.lanes, 1)
