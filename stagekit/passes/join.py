"""Write inline PTX whose results stay in the registers of its operands as one piece with what goes on with them.

    %1 = asm(%0, %a) {"add $0, $2;", "=f,0,l"}
    asm() {"commit;"}                               ->    %2 = asm(%0, %a, %b) {"add $0, $2; commit; add $0, $3;", "=f,0,l,l"}
    %2 = asm(%1, %b) {"add $0, $2;", "=f,0,l"}

A product of warpgroups has up to 128 sums in registers, and four such products and a wait are one step of a loop: each of them
would be a structure of 128 parts for LLVM, which takes most of its time for them. ptxas gets the same instructions.
Keeps: the order of effects; pure ops go in front of the first piece. Joined are pieces of which nothing else reads the results,
and whose other operands are in registers of another kind: a later piece reads them when an earlier one has written its results.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import Counter
from typing import TypeGuard

from stagekit.ir import Block, Effect, Function, Op, Value, walk
from stagekit.ir.ops import InlineAsm
from stagekit.passes import PassContext

_CLOBBER = "~{memory}"
_REFERENCE = re.compile(r"\$(\d+)")
_MOVABLE = frozenset({Effect.VARYING})


def join(fn: Function, context: PassContext) -> Function:
    """Join inline PTX that works on the same registers, one piece behind the other."""
    every = walk(fn.body)
    if not any(type(op) is InlineAsm and _is_step(op) for op in every):
        return fn
    uses = Counter([value for op in every for value in op.operands()])
    return dataclasses.replace(fn, body=_Joining(uses).block(fn.body))


def _is_step(op: Op) -> TypeGuard[InlineAsm]:
    """Return whether an op is inline PTX with effects whose results stay in the registers of its first operands."""
    return type(op) is InlineAsm and op.has_side_effects and _others(op.constraints, len(op.results)) is not None


def _is_plain(op: Op) -> TypeGuard[InlineAsm]:
    """Return whether an op is inline PTX with effects which has no operands."""
    return type(op) is InlineAsm and op.has_side_effects and op.constraints == _CLOBBER and "$" not in op.text


@functools.lru_cache(256)
def _others(constraints: str, count: int) -> tuple[str, ...] | None:
    """Return the letters of operands that are no sums; None where results are not in the registers of sums, one for one."""
    *given, last = constraints.split(",")
    outputs, tied, others = given[:count], given[count : 2 * count], given[2 * count :]
    letters = {each.removeprefix("=") for each in outputs}
    is_step = count and last == _CLOBBER and all(each.startswith("=") for each in outputs)
    is_apart = all(each.isalpha() for each in others) and letters.isdisjoint(others)
    return tuple(others) if is_step and is_apart and tied == [*map(str, range(count))] else None


class _Joining:
    """uses: how often each value is read."""

    def __init__(self, uses: Counter[Value]) -> None:
        self.uses = uses

    def block(self, block: Block) -> Block:
        """Return `block` with the inline PTX in it, and in the bodies in it, joined."""
        found: list[Op] = []
        first: InlineAsm | None = None
        behind: list[Op] = []  # what comes after the first piece and might come before it, or become a part of it
        for op in block.ops:
            if first is not None:
                if self.goes_on(op, first):
                    found += [each for each in behind if not _is_plain(each)]
                    first = _joined([first, *filter(_is_plain, behind), op])
                    behind = []
                    continue
                if _is_plain(op) or _may_precede(first, op):
                    behind.append(op)
                    continue
                found += [first, *behind]
                first, behind = None, []
            if _is_step(op):
                first = op
            else:
                found.append(op.with_bodies(list(map(self.block, op.bodies()))) if op.BODY_FIELDS else op)
        return Block(block.params, tuple(found))

    def goes_on(self, op: Op, first: InlineAsm) -> TypeGuard[InlineAsm]:
        """Return whether an op takes over the results of a piece, which nothing else reads."""
        count = len(first.results)
        if not _is_step(op) or op.operands()[:count] != first.results or len(op.results) != count:
            return False
        has_same_sums = _sums(op) == _sums(first)
        is_renumbered = "$" not in _REFERENCE.sub("", op.text)
        return has_same_sums and is_renumbered and all(self.uses[each] == 1 for each in first.results)


def _may_precede(first: Op, op: Op) -> bool:
    """Return whether an op has no effects and reads no result of `first`."""
    return (
        not op.bodies()
        and not op.is_terminator
        and op.effects <= _MOVABLE
        and {*first.results}.isdisjoint(op.operands())
    )


def _joined(pieces: list[InlineAsm]) -> InlineAsm:
    """Return pieces of inline PTX as one. Those in the middle may have no operands."""
    first, last = pieces[0], pieces[-1]
    count = len(first.results)
    others = [each for piece in (first, last) for each in _others(piece.constraints, count) or ()]
    moved = len(first.args) - count
    renumbered = _REFERENCE.sub(lambda found: _reference(int(found[1]), 2 * count, moved), last.text)
    return dataclasses.replace(
        first,
        text="\n\t".join([*[each.text for each in pieces[:-1]], renumbered]),
        constraints=",".join([*_sums(first), *others, _CLOBBER]),
        args=(*first.args, *last.args[count:]),
        host=None,  # of either piece; a GPU needs none
        results=last.results,
    )


def _sums(op: InlineAsm) -> list[str]:
    """Return the constraints of the results, and of the operands that share their registers."""
    return op.constraints.split(",")[: 2 * len(op.results)]


def _reference(number: int, own: int, moved: int) -> str:
    return f"${number if number < own else number + moved}"
