"""Adjacent elements that one thread accesses one after the other: loaded together, computed, and stored together.

    y[2 * i] = a * x[2 * i] + y[2 * i]                      load x[2 * i], x[2 * i + 1]
    y[2 * i + 1] = a * x[2 * i + 1] + y[2 * i + 1]          load y[2 * i], y[2 * i + 1]
                                                            store y[2 * i], y[2 * i + 1]

As written, the lanes of a warp store every second element, and then load what lies between, for which a processor waits until
the stores are done. Together they are a vector access, which is one of neighbours (`interleaved.py`).

`regroup` takes a kernel that is a straight line where a row of blocks has decided its guards (`guards.py`). All loads come before
all stores then, which is what the kernel means where what moves past a store is another element. Within one array that is known;
of two arrays `are_apart` asks once for the row, whose other code stays as written.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stagekit.backends.host.forms import Form, Gep, Uniform, known
from stagekit.backends.host.guards import Bounds, Ranges, RowSpan, all_of
from stagekit.backends.llvm.writer import Writer
from stagekit.dtypes import DType
from stagekit.frozen import frozen
from stagekit.ir import INDEX, BinaryKind, Block, Effect, Function, Op, Pointer, Space, Value, ops
from stagekit.ir.affine import Sum, Sums

MAX_STRAIGHT_OPS = 240
_MOST = 4  # elements of a thread that are accessed together
_ACCESSES = ops.Load | ops.Store
_COMPUTES = frozenset({Effect.VARYING})
_FAR = 1 << 56  # elements from the beginning of an array; less does not wrap in bytes


@frozen()
class ArrayAccess:
    """A load or a store of an array. place: its element, counted from the array's first."""

    op: ops.Load | ops.Store
    array: Value
    place: Sum

    @property
    def dtype(self) -> DType:
        return self.array.type.dtype


@frozen()
class Regrouped:
    """A kernel whose adjacent accesses are together. asked: by two arrays, accesses of one and of the other that must not touch
    one element in a thread; whether that is certain where both arrays begin at one address.
    """

    fn: Function
    asked: Mapping[tuple[Value, Value], Sequence[tuple[ArrayAccess, ArrayAccess, bool]]]


def regroup(fn: Function, decided: Mapping[Value, bool]) -> Regrouped | None:
    """Return `fn` with adjacent accesses together; None if there are none, or if it is no case for it."""
    flat = _flat(fn.body, decided)
    if flat is None or len(flat) > MAX_STRAIGHT_OPS or sum(isinstance(op, _ACCESSES) for op in flat) < 2:
        return None
    accesses = _accesses(fn, flat)
    if accesses is None or not (groups := _groups(accesses)):
        return None
    order = _in_order(flat, groups)
    swapped = [] if order is None else list(_swapped(accesses, order))
    if order is None or not (swapped or any(isinstance(op, ops.Store) for op in groups)):
        return None  # adjacent loads without a store between them are as quick one by one
    asked: dict[tuple[Value, Value], list[tuple[ArrayAccess, ArrayAccess, bool]]] = {}
    for a, b in swapped:
        distance = b.place.plus(a.place, -1)
        is_apart = a.dtype is b.dtype and not distance.per_thread and not distance.terms and distance.constant != 0
        if a.array is not b.array:
            asked.setdefault((a.array, b.array), []).append((a, b, is_apart))
        elif not is_apart:
            return None
    every = [op.replace(covers=_covers(op, groups)) if isinstance(op, _ACCESSES) else op for op in order]
    return Regrouped(replace(fn, body=Block(fn.body.params, (*every, fn.body.ops[-1]))), asked)


def _flat(block: Block, decided: Mapping[Value, bool]) -> list[Op] | None:
    """Return the ops of a straight line, without the branches that are decided; None if it is none, or has other effects."""
    found, known = list[Op](), dict[Value, Value]()
    for op in block.ops[:-1]:
        if isinstance(op, ops.If) and op.condition in decided:
            taken = op.then_body if decided[op.condition] else op.else_body
            inner = _flat(taken, decided)
            if inner is None:
                return None
            found += [each.with_operands(known) for each in inner]
            given = taken.ops[-1].operands()
            known.update(zip(op.results, [known.get(value, value) for value in given], strict=True))
        elif op.BODY_FIELDS or not (isinstance(op, _ACCESSES) or op.effects <= _COMPUTES):
            return None
        else:
            found.append(op.with_operands(known))
    return found


def _accesses(fn: Function, flat: Sequence[Op]) -> list[ArrayAccess] | None:
    """Return all accesses; None if one is not of a single element of an array in global memory."""
    sums, found = Sums(Block(fn.params, tuple(flat))), list[ArrayAccess]()
    for op in flat:
        if not isinstance(op, _ACCESSES):
            continue
        array = op.pointer
        while isinstance(maker := sums.makers.get(array), ops.Offset):
            array = maker.pointer
        if array not in fn.params or op.mask is not None or op.covers != 1 or _space_of(array) is not Space.GLOBAL:
            return None
        found.append(ArrayAccess(op, array, sums.of(op.pointer).plus(sums.of(array), -1)))
    return found


def _space_of(pointer: Value) -> Space:
    assert isinstance(pointer.type, Pointer)
    return pointer.type.space


def _groups(accesses: Sequence[ArrayAccess]) -> dict[Op, Sequence[Op]]:
    """Return the groups of adjacent elements, each by all of its ops: as many as lie from a thread's first to the next one's."""
    alike: dict[Any, dict[int, Op]] = {}
    for each in accesses:
        kind = isinstance(each.op, ops.Store), each.array, each.place._replace(constant=0)
        alike.setdefault(kind, {}).setdefault(each.place.constant, each.op)
    found: dict[Op, Sequence[Op]] = {}
    for (_, _, distance), members in alike.items():
        count = distance.per_thread
        for first in sorted(members) if 1 < count <= _MOST else ():
            group = [members[place] for place in range(first, first + count) if place in members]
            if len(group) == count and found.keys().isdisjoint(group):
                found.update(dict.fromkeys(group, group))
    return found


def _covers(op: Op, groups: Mapping[Op, Sequence[Op]]) -> int:
    if op not in groups:
        return 1
    return len(groups[op]) if op is groups[op][0] else 0


def _in_order(flat: Sequence[Op], groups: Mapping[Op, Sequence[Op]]) -> list[Op] | None:
    """Return all ops, loads before stores and groups together; None where a group needs what it makes itself."""
    makers = {result: op for op in flat for result in op.results}
    found, begun = dict[Op, None](), set[Op]()

    def put(op: Op) -> bool:
        """Put an op, with its group and behind all that they need."""
        if op in found:
            return True
        if op in begun:
            return False
        group = groups.get(op, (op,))
        begun.update(group)
        needed = [makers[value] for each in group for value in each.operands() if value in makers]
        if not all(map(put, needed)):
            return False
        found.update(dict.fromkeys(group))
        return True

    rest = sorted(flat, key=lambda op: isinstance(op, ops.Store))
    return list(found) if all(map(put, rest)) else None


def _swapped(accesses: Sequence[ArrayAccess], order: Sequence[Op]) -> Iterator[tuple[ArrayAccess, ArrayAccess]]:
    """Yield the pairs of which the second one comes first in `order`, if one is a store."""
    place = {op: number for number, op in enumerate(order)}
    for a, b in itertools.combinations(accesses, 2):
        if place[a.op] > place[b.op] and (isinstance(a.op, ops.Store) or isinstance(b.op, ops.Store)):
            yield a, b


# -- are arrays apart? ------------------------------------------------------------------------------------------------


def are_apart(w: Writer, regrouped: Regrouped, params: Mapping[Value, Form], span: RowSpan) -> str | None:
    """Write the test whether the accesses of a row leave those of other arrays alone; None if it cannot be told from bounds."""
    ranges, tests = Ranges(w, regrouped.fn, params, span), list[str]()
    for (one, other), pairs in regrouped.asked.items():
        first = _reach(w, ranges, params[one], [a for a, _, _ in pairs])
        second = _reach(w, ranges, params[other], [b for _, b, _ in pairs])
        if first is None or second is None:
            return None
        (low, high), (other_low, other_high) = first, second
        before = w.emit(f"icmp slt i64 {high}, {other_low}")
        test = w.emit(f"or i1 {before}, {w.emit(f'icmp slt i64 {other_high}, {low}')}")
        if all(is_apart for _, _, is_apart in pairs):
            begins = [_begin_of(params[array]) for array in (one, other)]
            test = w.emit(f"or i1 {test}, {w.emit(f'icmp eq ptr {begins[0]}, {begins[1]}')}")
        tests.append(test)
    return all_of(w, (*ranges.conditions, *tests))


def _begin_of(array: Form) -> str:
    assert isinstance(array, Gep)
    assert isinstance(array.base, Uniform)
    return array.base.text


def _reach(w: Writer, ranges: Ranges, array: Form, accesses: Sequence[ArrayAccess]) -> tuple[str, str] | None:
    """Return the first byte and the last one that accesses of an array touch in a row."""
    lows, highs, size = list[str](), list[str](), accesses[0].dtype.itemsize
    for pointer in dict.fromkeys(access.op.pointer for access in accesses):
        found = _elements(ranges, pointer)
        if found is None or known(found.low).lo < -_FAR or known(found.high).hi > _FAR:
            return None
        lows.append(found.low.text)
        highs.append(found.high.text)
    begin = w.emit(f"ptrtoint ptr {_begin_of(array)} to i64")
    past = w.emit(f"add i64 {_extreme(w, 'smax', highs)}, 1")
    low, end = (w.emit(f"add i64 {begin}, {w.emit(f'mul i64 {n}, {size}')}") for n in (_extreme(w, "smin", lows), past))
    return low, w.emit(f"sub i64 {end}, 1")


def _extreme(w: Writer, which: str, numbers: Sequence[str]) -> str:
    found = numbers[0]
    for number in numbers[1:]:
        found = w.call("i64", f"llvm.{which}.i64", [("i64", found), ("i64", number)])
    return found


def _elements(ranges: Ranges, pointer: Value) -> Bounds | None:
    """Return the bounds of the element that `pointer` points to, counted from the array's first."""
    found: Bounds | None = ranges.constant(0)
    maker = ranges.maker_of(pointer)
    while isinstance(maker, ops.Offset):
        found = ranges.binary(BinaryKind.ADD, INDEX.dtype, found, ranges[maker.index])
        maker = ranges.maker_of(maker.pointer)
    return found
