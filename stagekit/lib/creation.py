"""How tiles begin: `arange`, `full` and `zeros`."""

from __future__ import annotations

from typing import Any

import stagekit as sk
from stagekit.lib.placing import MAX_AXES, is_int, layout_of, plain_int, require_dtype
from stagekit.lib.tile import Tile, Traced, repeated
from stagekit.lib.weak import Fill, Ramp


@sk._kernel_only
@sk._stamped
def arange(start: int, stop: int) -> Tile:
    """Return the tile of int64 `start, start + 1, ..., stop - 1`; both are compile-time ints.

    The option `threads` of the kernel says how many threads share them. Left out, up to 128 elements the block gets a thread for
    each; above that, each thread holds several. Of tiles with different extents the longest decides.
    """
    start, stop = (_known(each, "arange", "a bound must be a compile-time int") for each in (start, stop))
    layout = layout_of((stop - start,), f"the extent of arange({start!r}, {stop!r})")
    if not sk.int64.min <= start <= stop - 1 <= sk.int64.max:
        sk.static_assert(False, f"arange({start!r}, {stop!r}) goes beyond int64")
    return Tile((), layout, Ramp(sk.int64(start), (1,)))


@sk._kernel_only
@sk._stamped
def full(shape: int | tuple[int, ...], value: Traced, dtype: sk.DType) -> Tile:
    """Return the tile of `shape`, each element `value` converted to `dtype`: what a loop over tiles accumulates into.

    shape: a compile-time int, or a tuple of up to four, of which () makes a number; value: a number, known now or at run time.
    """
    tile: Tile = _filled("full", shape, value, dtype)
    return tile


@sk._kernel_only
@sk._stamped
def zeros(shape: int | tuple[int, ...], dtype: sk.DType) -> Tile:
    """Return the tile of zeros of `dtype`; see `full`."""
    tile: Tile = _filled("zeros", shape, 0, dtype)
    return tile


def _filled(function: str, shape: Any, value: Traced, dtype: sk.DType) -> Any:
    sizes = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    text = f"shape must be a compile-time int or a tuple of up to {MAX_AXES}"
    if len(sizes) > MAX_AXES:
        sk.static_assert(False, f"{function}: {text}, got {shape!r}")
    sizes = tuple([_known(size, function, text) for size in sizes])
    require_dtype(function, dtype)
    if isinstance(value, Tile):
        sk.static_assert(False, f"{function}: value must be a number; for a tile of another dtype use .to(dtype)")
    if not sizes:
        return dtype(value)
    if len(sizes) > 1 and min(sizes) < 1:
        sk._refuse_shape(f"{function}: the shape {sizes}", "each extent is at least 1")
    what = sizes[0] if len(sizes) == 1 else sizes
    layout = layout_of(sizes, f"the extent of {function}({what!r}, ...)")
    if len(sizes) > 1:
        return Tile((), layout, Fill(dtype(value)))
    return repeated(dtype(value), layout)  # of one axis nearly all tiles lie so: what loops add up is carried as it is


def _known(size: Any, function: str, text: str) -> int:
    """Return a compile-time int as a Python int. Refused: what is none, as `text` says, and a number known at run time."""
    if not is_int(size):
        sk.static_assert(sk._linear(size) is not None, f"{function}: {text}, got {size!r}")
        layout_of((size,), f"the extent of {function}")
    return plain_int(size)
