"""What stands in the brackets of a tile, by NumPy's rules: `x[:, None]`, `x[::-1, 0:16]`, `x[row]`, `x[i, j]`.

An index is read as an `AxisCut` for each axis, and the axes that are new. A weak tile is cut by its numbers and costs nothing.
One that holds something stays in its threads where these have what the result needs, which the enumerated layouts say; else it
goes through shared memory, where a cut is another start and other strides.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

import stagekit as sk
from stagekit.lib.conversion import Scratch, best_gap, by_steps, is_pointer, matching, strides_of, wait
from stagekit.lib.layout import Layout, Shape, enumerated, mask_of
from stagekit.lib.placing import MAX_AXES, is_int, plain_int
from stagekit.lib.weak import Fill, Form, Guard, Ramp

_ADD, _MULTIPLY = map(sk._operation, ("+", "*"))


class AxisCut(NamedTuple):
    """What is taken of an axis: `extent` elements from `start` on, by `step`; one, and the axis is gone, where extent is None."""

    start: Any
    step: int = 1
    extent: int | None = None


class TileIndex(NamedTuple):
    """An index of a tile. new: the axes of the result that the index adds."""

    cuts: tuple[AxisCut, ...]
    new: tuple[int, ...]

    @property
    def shape(self) -> Shape:
        """The shape of what is taken, without new axes."""
        return tuple([cut.extent for cut in self.cuts if cut.extent is not None])

    def is_whole(self, shape: Shape) -> bool:
        """Return whether all of a tile of this shape is taken as it is."""
        return all(cut.extent == extent and cut.step == 1 for cut, extent in zip(self.cuts, shape))


def index_of(given: Any, shape: Shape) -> TileIndex:
    """Return what an index of a tile of this shape means. Refused: what is no index, and what is outside."""
    items = given if isinstance(given, tuple) else (given,)
    named = [each for each in items if each is not None and each is not ...]
    if any(not (isinstance(each, slice) or is_place(each)) for each in named) or len(items) - len(named) > MAX_AXES:
        hint = "give `None`, a slice of compile-time ints or an integer for each axis; a mask goes with `sk.where`"
        sk._refuse_index(f"a tile of shape {shape} cannot be indexed so", hint)
    if len(named) > len(shape) or [each is ... for each in items].count(True) > 1:
        text = f"an index of {len(named)} for a tile of shape {shape}"
        sk._refuse_index(text, "it has one for each axis at most, and `...` once")
    full = _filled_up(items, len(shape) - len(named))
    axes, cuts, kept, new = iter(enumerate(shape)), list[AxisCut](), 0, list[int]()
    for each in full:
        if each is None:
            new.append(kept)
        else:
            axis, extent = next(axes)
            cuts.append(_cut(each, axis, extent, shape))
        kept += each is None or cuts[-1].extent is not None
    if kept > MAX_AXES:
        sk._refuse_shape(
            f"an index of a tile of shape {shape} that gives {kept} axes", f"a tile has at most {MAX_AXES}"
        )
    return TileIndex(tuple(cuts), tuple(new))


def _filled_up(items: tuple[Any, ...], missing: int) -> tuple[Any, ...]:
    """Return an index with a slice for each of the missing axes: where `...` stands, or at the end."""
    place = next((number for number, each in enumerate(items) if each is ...), None)
    rest = (slice(None),) * missing
    return (*items, *rest) if place is None else (*items[:place], *rest, *items[place + 1 :])


def is_place(index: Any) -> bool:
    """Return whether an index is an integer: tiles and pointers have the dtype of their elements."""
    is_other = hasattr(type(index), "__stagekit_map__") or is_pointer(index)
    dtype = None if is_other else getattr(index, "dtype", None)
    return is_int(index) or (isinstance(dtype, sk.DType) and dtype.is_integer)


def _cut(index: Any, axis: int, extent: int, shape: Shape) -> AxisCut:
    if not isinstance(index, slice):
        if is_int(index) and not -extent <= index < extent:
            sk._refuse_index(f"index {index} is outside axis {axis} of a tile of shape {shape}", "")
        return AxisCut(plain_int(index) % extent if is_int(index) else sk.int64(index))
    bounds = [index.start, index.stop, index.step]
    if not all(each is None or is_int(each) for each in bounds) or (is_int(index.step) and index.step == 0):
        hint = (
            "start, stop and step are compile-time ints, and step is not 0; `sk.gather` takes places known at run time"
        )
        sk._refuse_index(f"a slice of axis {axis} of a tile of shape {shape}", hint)
    taken = range(extent)[slice(*[None if each is None else plain_int(each) for each in bounds])]
    if not taken:
        sk._refuse_index(f"a slice of axis {axis} of a tile of shape {shape} that takes nothing", "a tile has elements")
    return AxisCut(taken.start, taken.step, len(taken))


# -- of weak tiles ----------------------------------------------------------------------------------------------------------


def cut_form(form: Ramp | Guard | Fill, cuts: Sequence[AxisCut]) -> Form:
    """Return the form of what is taken of a weak tile."""
    if isinstance(form, Fill):
        return form
    if isinstance(form, Ramp):
        return _cut_ramp(form, cuts)
    return Guard(tuple([replace(each, ramp=_cut_ramp(each.ramp, cuts)) for each in form.limits]), form.conditions)


def _cut_ramp(ramp: Ramp, cuts: Sequence[AxisCut]) -> Ramp:
    base, strides = ramp.base, list[Any]()
    for cut, stride in zip(cuts, ramp.strides):
        base = _moved(base, cut.start, stride)
        if cut.extent is not None:
            strides.append(stride if cut.step == 1 else _times(stride, cut.step))
    return Ramp(base, tuple(strides), ramp.is_address)


def _times(stride: Any, number: Any) -> Any:
    if type(stride) is int and type(number) is int:
        return stride * number
    return _MULTIPLY(stride, number)


def _moved(base: Any, start: Any, stride: Any) -> Any:
    """Return `base + start * stride`, of which what is known to be 0 costs nothing."""
    if (type(start) is int and start == 0) or (type(stride) is int and stride == 0):
        return base
    return _ADD(base, start if type(stride) is int and stride == 1 else _times(stride, start))


# -- of tiles that hold something -------------------------------------------------------------------------------------------


@sk._direct
def cut_elements(elements: list[Any], source: Layout, cuts: tuple[AxisCut, ...], target: Layout) -> list[Any]:
    """Return a thread's elements of what is taken of a tile, as `target` has them. elements: those that `source` has."""
    if all(is_int(cut.start) for cut in cuts) and (found := _registers(source, cuts, target)) is not None:
        return [elements[register] for register in found]
    if is_pointer(elements[0]):
        return by_steps(elements, source, lambda steps: cut_elements(steps, source, cuts, target))
    dtype = sk._dtype_of(elements[0])
    scratch = Scratch(source.shape, best_gap((source,), dtype.itemsize), dtype)
    scratch.store(elements, source)
    wait(source.threads)
    start, steps = scratch.array, list[int]()
    for cut, stride in zip(cuts, strides_of(source.shape, scratch.gap)):
        start = _moved(start, cut.start, stride)
        steps += [] if cut.extent is None else [cut.step * stride]
    for first, step in zip(target.first(), steps):
        start = _moved(start, first, step)
    masks = [*map(mask_of, target.valid())]
    places = [sum([o * step for o, step in zip(offset, steps)]) for offset in target.offsets]
    found_there = [sk.load(_ADD(start, place), mask=mask) for place, mask in zip(places, masks)]
    wait(source.threads)  # in a loop, the next round writes to the same memory
    return found_there


@functools.cache
def _registers(source: Layout, cuts: tuple[AxisCut, ...], target: Layout) -> list[int] | None:
    """Return for each register of `target` the one of `source` that has its element in the same thread; None if some has none."""
    wanted = enumerated(target)
    index = iter(np.unravel_index(np.maximum(wanted, 0), target.shape))
    strides = [math.prod(source.shape[axis + 1 :]) for axis in range(len(source.shape))]
    place = np.zeros_like(wanted)
    for cut, stride in zip(cuts, strides):
        place = place + (cut.start if cut.extent is None else cut.start + cut.step * next(index)) * stride
    return matching(enumerated(source), np.where(wanted < 0, -1, place))
