"""Vectors of one thread: the lanes of a warp load and store groups of neighbours, which lie interleaved in memory.

    v = x.vector(4)[i]        memory, 4 chunks of 32:     lane 0: e = 0 1 2 3   lane 1: e = 0 1 2 3   ...
                              what the kernel computes:   e = 0 of all lanes, e = 1 of all lanes, ...

A group is loaded by chunks as they lie there, and the elements of each lane are picked out of them. What is stored is put
together the same way; but where every element of a group was computed alike, from groups and from numbers that all lanes
share, the chunks are computed from chunks instead, and LLVM drops what only lanes needed: `y.vector(4)[i] = a * x.vector(4)[i]`
picks nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from stagekit.backends.host.forms import LANES
from stagekit.backends.llvm.writer import Writer
from stagekit.ir import Function, Op, ops, walk
from stagekit.ir.affine import Sum, Sums

_BY_ELEMENT = frozenset({
    "fadd", "fsub", "fmul", "fdiv", "fneg", "add", "sub", "mul", "and", "or", "xor", "icmp", "fcmp", "select",
    "fpext", "fptrunc", "sext", "zext", "trunc", "sitofp", "uitofp",
})  # fmt: skip
_NAME = re.compile(r"%t\d+")
_REGULAR = re.compile(rf"<{LANES} x \w+>|splat \([^()]*\)")
_SPLAT = f"<{LANES} x i32> zeroinitializer"
Places = tuple[int | None, ...]


def places_in(chunk: int, element: int, count: int) -> Places:
    """Return where in this chunk each lane's element lies, None where it lies in another one."""
    found = [divmod(lane * count + element, LANES) for lane in range(LANES)]
    return tuple([place if number == chunk else None for number, place in found])


def sources_of(chunk: int, count: int) -> list[tuple[int, int]]:
    """Return which element of which lane each place of a chunk takes: (element, lane)."""
    return [(place % count, place // count) for place in range(chunk * LANES, (chunk + 1) * LANES)]


def groups_of(fn: Function) -> dict[Op, Sequence[Op]]:
    """Return, by the first op of each vector access that was taken apart, the others, where nothing comes between."""
    if not any(isinstance(op, ops.Load | ops.Store) and op.covers > 1 for op in walk(fn.body)):
        return {}
    sums, found = Sums(fn.body), dict[Op, Sequence[Op]]()
    for block in [fn.body, *[body for op in walk(fn.body) for body in op.bodies()]]:
        for place, op in enumerate(block.ops):
            if isinstance(op, ops.Load | ops.Store) and op.covers > 1 and op.mask is None:
                others = _followers(sums, op, block.ops[place + 1 :])
                if others is not None:
                    found[op] = others
    return found


def _followers(sums: Sums, first: ops.Load | ops.Store, after: Sequence[Op]) -> Sequence[Op] | None:
    found = list[Op]()
    for op in after:
        if len(found) == first.covers - 1:
            return found
        if isinstance(op, type(first)) and op.covers == 0 and op.mask is None:
            if sums.of(op.pointer) != sums.of(first.pointer).plus(Sum(len(found) + 1)):
                return None
            found.append(op)
        elif op.effects or op.BODY_FIELDS:
            return None
    return None


class Chunks:
    """The chunks of what one basic block has loaded. elements: by the text of an element of all lanes."""

    def __init__(self) -> None:
        self._block = ""
        self._groups: dict[tuple[str, ...], Sequence[str]] = {}

    def note(self, w: Writer, elements: Sequence[str], chunks: Sequence[str]) -> None:
        """Note that a group with these elements was loaded as these chunks."""
        self._enter(w)
        self._groups[tuple(elements)] = chunks

    def of(self, w: Writer, elements: Sequence[str]) -> Sequence[str] | None:
        """Return the chunks that hold a group, computed from those that it is made of; None if it is not so made."""
        self._enter(w)
        return self._of(w, tuple(elements), w.found())

    def _enter(self, w: Writer) -> None:
        if self._block != w.block:
            self._block, self._groups = w.block, {}

    def _of(self, w: Writer, elements: tuple[str, ...], written: Mapping[str, str]) -> Sequence[str] | None:
        if elements in self._groups:
            return self._groups[elements]
        texts = [written.get(each, "") for each in elements]
        pattern = _NAME.sub("%", texts[0])
        is_alike = all(_NAME.sub("%", text) == pattern for text in texts)
        if not is_alike or pattern.split(" ", 1)[0] not in _BY_ELEMENT or "<" in _REGULAR.sub("", pattern):
            return None
        operands = [self._operand(w, group, written) for group in zip(*map(_NAME.findall, texts), strict=True)]
        found = []
        for chunk in range(len(elements)):
            names = [each and each[chunk] for each in operands]
            if None in names:
                return None
            taken = iter(names)
            found.append(w.emit(_NAME.sub(lambda _: str(next(taken)), texts[0])))  # noqa: B023
        self._groups[elements] = found
        return found

    def _operand(self, w: Writer, group: tuple[str, ...], written: Mapping[str, str]) -> Sequence[str] | None:
        if len(set(group)) == 1:
            return group if written.get(group[0], "").endswith(_SPLAT) else None
        return self._of(w, group, written)
