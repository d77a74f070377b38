"""Atomic operations of many lanes at once, as if they came one after another in the order of lanes.

    old = update(ADD, elements, index, value)        # index: one element per lane, repetitions allowed

Lanes that hit different elements go together. Where many lanes share few elements, each element is followed along its lanes
(`along`); otherwise they go in rounds (`at_once`): the first lane of every element, then the second, and so on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from stagekit.backends.interp.access import read, touches, write
from stagekit.backends.interp.memory import Array
from stagekit.backends.interp.program import Built, Compiler
from stagekit.backends.interp.team import Access, Team, Touch, Values
from stagekit.frozen import frozen
from stagekit.ir import BinaryKind, Native, ops, semantics


@frozen(slots=False)
class Atomic:
    """One atomic operation.

    at_once: (elements, values) -> the elements afterwards. along: (an element, values) -> what each lane finds, and the element
    afterwards. add_up: changes `elements[index]`, repetitions included, where no lane's result is used.
    """

    at_once: Callable[[Array, Array], Array]
    along: Callable[[Any, Array], tuple[Array, Any]]
    add_up: Callable[[Array, Array, Array], None] | None = None


def _of_ufunc(ufunc: Any) -> Atomic:
    def along(element: Any, values: Array) -> tuple[Array, Any]:
        steps = ufunc.accumulate(np.concatenate([[element], values], dtype=values.dtype), dtype=values.dtype)
        return steps[:-1], steps[-1]

    return Atomic(ufunc, along, ufunc.at)


def _swap_along(element: Any, pairs: Array) -> tuple[Array, Any]:
    """Go from one lane that changes the element to the next; all lanes between find the same."""
    found = np.empty(len(pairs), pairs.dtype)
    start = 0
    while start < len(pairs):
        expected, desired = pairs[start:, 0], pairs[start:, 1]
        changing = np.flatnonzero((expected == element) & (desired != element))
        if not len(changing):
            break
        lane = start + int(changing[0])
        found[start : lane + 1] = element
        element, start = pairs[lane, 1], lane + 1
    found[start:] = element
    return found, element


_K = BinaryKind
# Only integers, and the sums of float32 and float64, reach the interpreter as atomics, so NumPy's own functions serve.
ATOMICS: dict[Native, Atomic] = {
    **{Native[f"ATOMIC_{kind.name}"]: _of_ufunc(semantics.BINARY[kind]) for kind in (_K.ADD, *ops.BITWISE)},
    Native.ATOMIC_MIN: _of_ufunc(np.minimum),
    Native.ATOMIC_MAX: _of_ufunc(np.maximum),
    Native.ATOMIC_EXCHANGE: Atomic(
        lambda elements, values: values,
        lambda element, values: (np.concatenate([[element], values[:-1]], dtype=values.dtype), values[-1]),
    ),
    Native.ATOMIC_CAS: Atomic(  # values: pairs (expected, desired)
        lambda elements, pairs: np.where(elements == pairs[:, 0], pairs[:, 1], elements), _swap_along
    ),
}


def update(atomic: Atomic, elements: Array, index: Array, values: Array) -> Array:
    """Change `elements` and return what each lane found there."""
    order = np.argsort(index, kind="stable")  # lanes of one element become neighbours, still in lane order
    sorted_index = index[order]
    starts = np.flatnonzero(np.diff(sorted_index, prepend=sorted_index[:1] - 1))
    if len(starts) == len(index):
        return _at_once(atomic, elements, index, values)
    counts = np.diff(starts, append=len(index))
    found = np.empty(len(index), elements.dtype)
    if counts.max() > len(starts):
        for lanes in np.split(order, starts[1:]):
            where = index[lanes[0]]
            found[lanes], elements[where] = atomic.along(elements[where], values[lanes])
        return found
    for turn in range(int(counts.max())):
        lanes = order[starts[counts > turn] + turn]
        found[lanes] = _at_once(atomic, elements, index[lanes], values[lanes])
    return found


def _at_once(atomic: Atomic, elements: Array, index: Array, values: Array) -> Array:
    found = elements[index]
    elements[index] = atomic.at_once(found, values)
    return found


def fence_first(team: Team, access: Access) -> None:
    """Let the active lanes pass the fence in front of an access that is sequentially consistent."""
    for watcher in team.launch.watchers if access.order == "seq_cst" else ():
        watcher.fence(team, access.scope)


def build_load(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    """Build the step of a load with an order."""
    access = c.access(op, "read", op.args[0])
    result, pointer = c.numbers((op.result, *op.args))

    def step(values: Values, team: Team) -> None:
        fence_first(team, access)
        values[result] = read(team, values[pointer], team.mask, access)

    return (step,)


def build_store(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    """Build the step of a store with an order."""
    access = c.access(op, "write", op.args[0])
    pointer, value = c.numbers(op.args)

    def step(values: Values, team: Team) -> None:
        fence_first(team, access)
        write(team, values[pointer], values[value], team.mask, access)

    return (step,)


def build_atomic(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    """Build the step of an atomic."""
    access = c.access(op, "atomic", op.args[0])
    result, pointer, *operands = c.numbers((op.result, *op.args))
    atomic = ATOMICS[native]
    add_up = None if access.is_seen else atomic.add_up

    def step(values: Values, team: Team) -> None:
        fence_first(team, access)
        found: Any = np.zeros(team.lanes, access.dtype.numpy)
        given = [team.spread(values[n]) for n in operands]
        operand = given[0] if len(given) == 1 else np.stack(given, axis=1)
        is_written: Any = True
        for touch in touches(team, values[pointer], team.mask, access):
            for watcher in team.launch.watchers:
                watcher.access(touch, touch.pick(given[-1]))
            elements, index = touch.view.elements, touch.indices()
            if add_up:
                add_up(elements, index, touch.pick(operand))
                team.launch.writes += 1
            else:
                old = update(atomic, elements, index, touch.pick(operand))
                team.launch.writes += int(np.any(elements[index] != old))
                found[... if touch.lanes is None else touch.lanes] = old
                if native is Native.ATOMIC_CAS:
                    is_written = old == touch.pick(given[0])
            for watcher in team.launch.watchers:
                watcher.updated(touch, is_written)
        values[result] = found

    return (step,)


def build_pair(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    """Build the step of an atomic on two neighbouring words, of one lane after the other."""
    first = dataclasses.replace(c.access(op, "atomic", op.args[0]), align=16, covers=2)
    second = dataclasses.replace(first, align=None, covers=1)
    results, (pointer, *operands) = c.numbers(op.results), c.numbers(op.args)

    def step(values: Values, team: Team) -> None:
        fence_first(team, first)
        given = [team.spread(values[n]) for n in operands]
        found = np.zeros((2, team.lanes), first.dtype.numpy)
        low = list(touches(team, values[pointer], team.mask, first))
        here = np.zeros(team.lanes, np.bool_)
        for touch in low:
            here[touch.lane_numbers] = True
        high = list(touches(team, values[pointer] + np.int64(1), here, second)) if low else []
        for touch, value in [(touch, given[-2]) for touch in low] + [(touch, given[-1]) for touch in high]:
            for watcher in team.launch.watchers:
                watcher.access(touch, touch.pick(value))
        places, others = _by_lane(low), _by_lane(high)
        is_written = np.zeros(team.lanes, np.bool_)
        for lane in sorted(places.keys() & others.keys()):
            words = [places[lane], others[lane]]
            old = [elements[index] for elements, index in words]
            expected, new = [[each[lane] for each in pair] for pair in (given[:-2], given[-2:])]
            found[:, lane], is_written[lane] = old, not expected or expected == old
            for (elements, index), number in zip(words, new if is_written[lane] else ()):
                elements[index] = number
            team.launch.writes += int(is_written[lane] and old != new)
        for touch in (*low, *high):
            for watcher in team.launch.watchers:
                watcher.updated(touch, touch.pick(is_written))
        values[results[0]], values[results[1]] = found

    return (step,)


def _by_lane(touched: list[Touch]) -> dict[int, tuple[Array, int]]:
    """Return, for each lane, the elements that it touches some of, and which."""
    return {
        int(lane): (touch.view.elements, int(index))
        for touch in touched
        for lane, index in zip(touch.lane_numbers, touch.indices())
    }
