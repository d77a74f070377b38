"""Registers of products of warpgroups under way: sums that nobody may read, and words of a left factor that nobody may write.

    %s = wgmma_rs_m64n8 %word, %b, %zero       %s is a mark, and %word belongs to the product
    store %p, %s                               found: a mark is read by what is neither a product nor a wait
    %word = or %low, %high                     found in the next round of a loop: the register is written again
    %t = wgmma_wait_m64n8 %s                   now the product is done, and its registers are free

A *mark* is a NaN whose bits say of which product it is a sum, and which. Which values may be marks is known before a kernel runs:
what products and waits return, and wherever control flow hands that on; only who reads those looks for marks. A register is a
value of the IR, as in PTX: one that a loop computes anew in each round is written again. Source: PTX ISA, "wgmma.wait_group".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from stagekit.backends.interp.findings import FactorOverwritten, SumsNotThere
from stagekit.backends.interp.memory import Array
from stagekit.backends.interp.team import Team, Values
from stagekit.diagnostics import Loc, Note
from stagekit.ir import Block, Function, Op, Pointer, Value, flow, ops, walk
from stagekit.limits import WARP

_MARK, _MARKED = (
    np.uint32(0x7FA00000),
    np.uint32(0xFFE00000),
)  # a signalling NaN, which every operation makes a quiet one
_PLACES, _NUMBERS = 7, 14  # bits of a mark: which sum, and of which product
NUMBERS = 1 << _NUMBERS  # of products, which begin anew then
_BEGINS = "the product begins here"


# -- marks ----------------------------------------------------------------------------------------------------------------


def marks(number: int, sums: Array) -> Array:
    """Return the marks of all sums of a product, in place of these."""
    bits = _MARK | np.uint32(number << _PLACES) | np.arange(len(sums), dtype=np.uint32)
    return np.repeat(bits[:, None], WARP, axis=1).view(sums.dtype)


def are_marks(bits: Array) -> Array:
    return np.asarray((bits & _MARKED) == _MARK)


def have_been_marks(bits: Array) -> Array:
    """Return which are marks, or what an operation has made of one."""
    return np.asarray((bits & _MARK) == _MARK)


def product_number(bits: Any) -> int:
    """Return of which product a mark is a sum."""
    return int((bits & ~_MARKED) >> _PLACES)


# -- what a kernel has in registers -----------------------------------------------------------------------------------------


class ProductRegisters(NamedTuple):
    """Registers of the products of a kernel.

    sums: the values that may be marks. handing_on: the ops that may read them. makers: what gives words of a left factor their
    values, an op or a block whose parameters they are, with these words and a line.
    """

    sums: frozenset[Value]
    handing_on: frozenset[Op]
    makers: Mapping[Op | Block, tuple[tuple[Value, ...], Loc]]

    def read_by(self, op: Op) -> tuple[Value, ...]:
        """Return the values that may be marks and that an op reads, which it may not if they are."""
        if not self.sums or op in self.handing_on or op.is_terminator:
            return ()
        read = flow.deciders(op) if op.BODY_FIELDS else op.operands()
        return tuple([each for each in dict.fromkeys(read) if each in self.sums])


NONE = ProductRegisters(frozenset(), frozenset(), {})


def registers_of(fn: Function, calls: Sequence[ops.IntrinsicOp]) -> ProductRegisters:
    """Return what products have in registers. calls: the operations of warpgroups in the function."""
    if not calls:
        return NONE
    leads_to: dict[Value, list[Value]] = {}
    waits = (zip(op.args, op.results) for op in calls if not op.spec.is_asynchronous)
    for source, target in chain(*map(flow.edges, walk(fn.body)), *waits):
        leads_to.setdefault(source, []).append(target)
    begun = [op for op in calls if op.spec.is_asynchronous]
    sums = flow.upstream(chain(*(op.results for op in begun)), leads_to)
    words = frozenset(each for op in begun for each in words_of(op))
    return ProductRegisters(frozenset(sums), frozenset(calls), dict(_makers(fn, words)) if words else {})


def words_of(op: ops.IntrinsicOp) -> tuple[Value, ...]:
    """Return the words of the left factor that a product takes from registers."""
    inputs = op.args[: -len(op.results)]
    return tuple([each for each in inputs if not isinstance(each.type, Pointer)])


def _makers(fn: Function, words: frozenset[Value]) -> Iterator[tuple[Op | Block, tuple[tuple[Value, ...], Loc]]]:
    for op in walk(fn.body):
        places: list[tuple[Op | Block, tuple[Value, ...]]] = [(op, op.results)]
        places += [(body, body.params) for body in op.bodies()]
        for place, values in places:
            made = tuple([each for each in values if each in words])
            if made:
                yield place, (made, op.loc)


# -- checks -----------------------------------------------------------------------------------------------------------------

Step = Callable[[Values, Team], None]


def reading(numbers: Sequence[int], loc: Loc) -> Step:
    """Return the step that reports the active lanes which are about to read marks. numbers: of the values that are read."""

    def step(values: Values, team: Team) -> None:
        for found in (each for each in map(values.__getitem__, numbers) if isinstance(each, np.ndarray)):
            bits = found.view(np.uint32)
            at_fault = are_marks(bits) & team.active_lanes()
            if at_fault.any():
                _report_read(team, bits, at_fault, loc)

    return step


def _report_read(team: Team, bits: Array, at_fault: Array, loc: Loc) -> None:
    """Report lanes that read marks, if their warp has begun such a product: an integer may be what a mark is."""
    lane = int(np.argmax(at_fault))
    warp = team.warpgroups.get(int(_rows(team)[lane]))
    begun = None if warp is None else warp.begun_at.get(product_number(bits[lane]))
    if begun is not None:
        team.report(SumsNotThere(), loc, at_fault, notes=(Note(_BEGINS, begun),))


def writing(numbers: Sequence[int], loc: Loc) -> Step:
    """Return the step that reports words which have new values while a product has them. numbers: of the words."""

    def step(values: Values, team: Team) -> None:
        for product in [each for each in team.launch.products if each.team is team]:
            at_fault = (_rows(team) == product.row) & team.active_lanes()
            if at_fault.any() and any(product.words.get(each, values[each]) is not values[each] for each in numbers):
                team.report(FactorOverwritten(), loc, at_fault, notes=(Note(_BEGINS, product.loc),))

    return step


def _rows(team: Team) -> Array:
    """Return the place of each lane's warp in the rows of the team."""
    return team.from_warps(np.arange(team.warp_rows)[:, None])
