"""What warps do together with matrices, and copies that go on while a thread does something else.

A copy is carried out when its thread waits for it, no sooner: what reads before finds memory that nobody has written, and two
threads that do not wait for each other find a race.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stagekit import dtypes
from stagekit.backends.interp.access import both, read, touches, write
from stagekit.backends.interp.memory import AnyPointers, Array
from stagekit.backends.interp.program import Built, Compiler
from stagekit.backends.interp.team import Access, Team, Values
from stagekit.intrinsics.tensor import CHUNK_BYTES, PRODUCTS, Product
from stagekit.ir import Native, ops
from stagekit.limits import WARP

_GROUPS, _PLACES = 8, 4  # of the lanes of a warp: lane 4 * g + t


def build_product(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    """Build the product of a warp: fragments are put together to matrices, and what comes out is taken apart."""
    row = PRODUCTS[op.spec.name]
    results, args = c.numbers(op.results), c.numbers(op.args)

    def step(values: Values, team: Team) -> None:
        lanes = [team.to_warps(values[n]).reshape(-1, _GROUPS, _PLACES) for n in args]
        for number, found in zip(results, _multiplied(row, lanes)):
            values[number] = team.from_warps(found.reshape(-1, WARP))

    return (step,)


def _multiplied(row: Product, lanes: list[Array]) -> Iterator[Array]:
    """Yield the fragments of c + a @ b. lanes: the fragments of a, b and c, each (warps, g, t)."""
    m, n, _ = row.shape
    warps, (count_a, count_b) = len(lanes[0]), row.counts
    a, b = (np.empty((warps, size, row.words), row.holder.numpy) for size in (m, n))
    c = np.empty((warps, m, n), row.total.numpy)
    for i, each in enumerate(lanes[:count_a]):
        half, word = i % row.halves, i // row.halves
        a[:, _GROUPS * half :][:, :_GROUPS, _PLACES * word :][:, :, :_PLACES] = each
    for i, each in enumerate(lanes[count_a : count_a + count_b]):
        b[:, :, _PLACES * i : _PLACES * (i + 1)] = each
    for i, each in enumerate(lanes[count_a + count_b :]):
        c[:, _GROUPS * (i // 2) :][:, :_GROUPS, i % 2 :: 2] = each
    found = _summed(row, a, b, c)
    for i in range(2 * row.halves):
        yield found[:, _GROUPS * (i // 2) :][:, :_GROUPS, i % 2 :: 2]


def _summed(row: Product, a: Array, b: Array, c: Array) -> Array:
    """Return c + a @ b, rounded once. a, b: holders of rows, and of columns."""
    if row.is_tf32:
        a, b = (each & np.uint32(0xFFFFE000) for each in (a, b))
    wide = np.float64 if row.total.is_float else np.int64
    left, right = (each.view(row.element.numpy).astype(wide) for each in (a, b))
    with np.errstate(all="ignore"):
        return np.asarray((c + left @ right.transpose(0, 2, 1)).astype(row.total.numpy))


def build_fragments(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    """Build the read, or the write, of matrices of 8 rows of 16 bytes, of which each lane points to a row."""
    (is_turned,) = op.params
    is_read = bool(op.results)
    word = replace(c.access(op, "read" if is_read else "write", op.args[0]), dtype=dtypes.uint32, covers=0)
    accesses = [replace(word, align=CHUNK_BYTES, covers=4), word, word, word]  # the first stands for all four
    pointer, fragments = c.number(op.args[0]), c.numbers(op.results or op.args[1:])
    source, rows = op.args[0].type.dtype, _GROUPS * len(fragments)

    def places(values: Values, team: Team) -> Iterator[tuple[AnyPointers, Any, Access]]:
        address = values[pointer].seen_as(source, dtypes.uint32)
        mask = both(team.mask, team.lane_id < rows)
        return ((address + i, mask, access) for i, access in enumerate(accesses))

    def load(values: Values, team: Team) -> None:
        words = [read(team, *place) for place in places(values, team)]
        matrices = np.stack([team.to_warps(each) for each in words], axis=-1)  # (warps, rows, words)
        for i, number in enumerate(fragments):
            found = matrices[:, _GROUPS * i : _GROUPS * (i + 1)]
            values[number] = team.from_warps((_turned(found) if is_turned else found).reshape(-1, WARP))

    def store(values: Values, team: Team) -> None:
        parts = [team.to_warps(values[number]).reshape(-1, _GROUPS, _PLACES) for number in fragments]
        held = np.concatenate([_turned(each) if is_turned else each for each in parts], axis=1)
        padded = np.pad(held, ((0, 0), (0, WARP - rows), (0, 0)))
        for i, (address, mask, access) in enumerate(places(values, team)):
            write(team, address, team.from_warps(padded[:, :, i]), mask, access)

    return (load if is_read else store,)


def _turned(words: Array) -> Array:
    """Return matrices of 8 by 8 elements of 16 bits with rows for columns."""
    halves = np.ascontiguousarray(words).view(np.uint16).transpose(0, 2, 1)
    return np.ascontiguousarray(halves).view(np.uint32)


# -- asynchronous copies --------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Copy:
    """Elements under way. lanes: those whose element has not arrived. group: how many groups each lane had closed before."""

    address: AnyPointers
    value: Any
    access: Access
    lanes: Array
    group: Array


def build_copy(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    """Build the copy of an element, which is read now and written when it is waited for."""
    target, source, mask = c.numbers(op.args)
    reads, writes = c.access(op, "read", op.args[1]), c.access(op, "write", op.args[0])
    align, covers = op.params
    reads, writes = (replace(each, align=align, covers=covers) for each in (reads, writes))

    def step(values: Values, team: Team) -> None:
        value = read(team, values[source], both(team.mask, values[mask]), reads)
        for touch in touches(team, values[target], team.mask, writes):
            for watcher in team.launch.watchers:
                watcher.copying(touch, touch.pick(value))
        lanes = team.active_lanes().copy()
        team.copies.append(Copy(values[target], value, writes, lanes, team.closed.copy()))

    return (step,)


def build_commit(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    """Build the end of a group of copies."""

    def step(values: Values, team: Team) -> None:
        team.closed[team.active_lanes()] += 1

    return (step,)


def build_wait(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    """Build the wait until at most so many groups of copies, the latest ones, are under way."""
    (pending,) = op.params

    def step(values: Values, team: Team) -> None:
        for each in team.copies:
            due = each.lanes & team.active_lanes() & (each.group < team.closed - pending)
            if due.any():
                write(team, each.address, each.value, due, each.access)
                each.lanes &= ~due
        team.copies[:] = [each for each in team.copies if each.lanes.any()]

    return (step,)
