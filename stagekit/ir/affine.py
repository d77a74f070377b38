"""Indices and pointers as sums: which addresses the threads of a block touch, and whether two of them touch the same one.

    A + pid * 256 + i + 4, i = thread_idx("x")        4 + 1 * thread + 256 * [pid] + 1 * [A]

What is no sum of multiples is a term as a whole: an argument, a product of two unknowns, an element that was loaded. Terms are
equal where the same ops compute them from the same values.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from stagekit.forks import cached_property
from stagekit.ir import flow, ops
from stagekit.ir.core import Block, Effect, Op, Value, walk
from stagekit.ir.intrinsic import Native
from stagekit.ir.ops import BinaryKind
from stagekit.ir.types import INDEX, Space

Term = int  # the number of a term in `Sums`


class Sum(NamedTuple):
    """constant + per_thread * (index of the thread along x) + the sum of coefficient * term. terms: sorted, none has 0."""

    constant: int
    per_thread: int = 0
    terms: tuple[tuple[Term, int], ...] = ()

    def plus(self, other: Sum, factor: int = 1) -> Sum:
        """Return `self + factor * other`."""
        terms = dict(self.terms)
        for term, coefficient in other.terms:
            terms[term] = terms.get(term, 0) + factor * coefficient
        left = tuple(sorted((term, coefficient) for term, coefficient in terms.items() if coefficient))
        return Sum(self.constant + factor * other.constant, self.per_thread + factor * other.per_thread, left)


class Sums:
    """The sums of the values under a block; computed when asked for.

    keys: what each term is, a value or an op of some kind on terms. roots: for each term, the values that it is computed from
    and that are not computed themselves. terms_that_vary: between threads.
    """

    def __init__(self, block: Block) -> None:
        every = walk(block)
        self.makers = {result: op for op in every for result in op.results}
        self.loops = {op.loop_body.params[0]: op for op in every if isinstance(op, ops.For)}
        self.every = every
        self.arguments = frozenset(block.params)
        self.sums: dict[Value, Sum] = {}
        self.terms: dict[Value, Term] = {}
        self.numbers: dict[Hashable, Term] = {}
        self.keys: list[Hashable] = []
        self.roots: list[frozenset[Value]] = []
        self.terms_that_vary: set[Term] = set()

    def of(self, value: Value) -> Sum:
        """Return an int64 or a pointer as a sum; a pointer counts elements of its array."""
        found = self.sums.get(value)
        if found is None:
            found = self.sums[value] = self._computed(value)
        return found

    def _computed(self, value: Value) -> Sum:
        loop, op = self.loops.get(value), self.makers.get(value)
        if loop is not None and value.type is INDEX:
            return self._of_loop(value, loop)
        if isinstance(op, ops.Offset):
            return self.of(op.pointer).plus(self.of(op.index))
        found = self._of_index(op, 0) if value.type is INDEX else None
        return found or Sum(0, 0, ((self.term(value), 1),))

    def anywhere(self, op: Op) -> Sum:
        """Return the address of what `op` may access anywhere in an array."""
        return Sum(0, 0, ((self._numbered(("anywhere", op), frozenset(), varies=False), 1),))

    def replaced(self, found: Sum, values: Mapping[Value, Value]) -> Sum:
        """Return `found` as it is where arguments are other ones: `values` says which, for an array or a size or stride of it."""
        own = Sum(found.constant, found.per_thread)
        for term, coefficient in found.terms:
            own = own.plus(Sum(0, 0, ((self.replaced_term(term, values), 1),)), coefficient)
        return own

    def replaced_term(self, term: Term, values: Mapping[Value, Value]) -> Term:
        """Return the term that `term` is with these arguments for others."""
        if self.roots[term].isdisjoint(values):
            return term
        match self.keys[term]:
            case Value() as argument:
                return self.term(values[argument])
            case ("earlier", int() as later):
                key: Hashable = ("earlier", self.replaced_term(later, values))
            case (kind, result_type, result, attributes, tuple() as operands):
                key = (
                    kind,
                    result_type,
                    result,
                    attributes,
                    tuple(self.replaced_term(each, values) for each in operands),
                )
        roots = frozenset(values.get(each, each) for each in self.roots[term])
        return self._numbered(key, roots, term in self.terms_that_vary)

    def _of_index(self, op: Op | None, lane: int) -> Sum | None:
        """Return the int64 that `op` makes, or a lane of its vector, as a sum; None where it is none."""
        match op:
            case ops.Constant():
                return Sum(int(op.value))
            case ops.IntrinsicOp() if op.spec.lower["cuda"] is Native.THREAD_IDX and op.params == ("x",):
                return Sum(0, 1)
            case ops.Binary():
                return self._of_binary(op, lane)
            case ops.Extract():
                return self._of_index(self.makers.get(op.operand), op.index)
            case ops.Pack():
                return self.of(op.args[lane])
            case ops.Splat():
                return self.of(op.operand)
        return None

    def _of_lane(self, value: Value, lane: int) -> Sum | None:
        return self.of(value) if value.type is INDEX else self._of_index(self.makers.get(value), lane)

    def _of_loop(self, value: Value, loop: ops.For) -> Sum:
        """Return `start + step * (number of the iteration)` where the step is known."""
        varies = not self.terms_that_vary.isdisjoint(map(self.term, flow.deciders(loop)))
        number = self._numbered(("iteration", value), frozenset({value}), varies)
        step = self.of(loop.step)
        if step.per_thread or step.terms:
            return Sum(0, 0, ((number, 1),))
        return self.of(loop.start).plus(Sum(0, 0, ((number, step.constant),) if step.constant else ()))

    def _of_binary(self, op: ops.Binary, lane: int) -> Sum | None:
        lhs, rhs = self._of_lane(op.lhs, lane), self._of_lane(op.rhs, lane)
        if lhs is None or rhs is None:
            return None
        if op.kind in (BinaryKind.ADD, BinaryKind.SUB):
            return lhs.plus(rhs, 1 if op.kind is BinaryKind.ADD else -1)
        if op.kind is BinaryKind.MUL:
            for factor, other in ((lhs, rhs), (rhs, lhs)):
                if not factor.per_thread and not factor.terms:
                    return Sum(0).plus(other, factor.constant)
        return None

    # -- terms --------------------------------------------------------------------------------------------------

    def term(self, value: Value) -> Term:
        """Return the number of the term that `value` is."""
        found = self.terms.get(value)
        if found is None:
            op = self.makers.get(value)
            if op is None or op.BODY_FIELDS or not op.effects <= _COMPUTED:
                found = self._numbered(value, frozenset({value}), self._varies(value, op))
            else:
                found = self._of_op(value, op)
            self.terms[value] = found
        return found

    def _of_op(self, value: Value, op: Op) -> Term:
        operands = tuple(map(self.term, op.operands()))
        attributes = tuple(getattr(op, name) for name in op.ATTRIBUTE_FIELDS)
        roots = frozenset[Value]().union(*[self.roots[each] for each in operands])
        key = (type(op), value.type, op.results.index(value), attributes, operands)
        varies = Effect.VARYING in op.effects or not self.terms_that_vary.isdisjoint(operands)
        return self._numbered(key, roots, varies)

    def _varies(self, value: Value, op: Op | None) -> bool:
        """Return whether what no pure op makes may differ between threads: an element does where its address does."""
        if isinstance(op, ops.Load):
            return _is_of_each_thread(op) or not self.terms_that_vary.isdisjoint(map(self.term, op.operands()))
        return not isinstance(op, ops.Alloc) and value not in self.arguments and value in self.varying

    @cached_property
    def varying(self) -> set[Value]:
        """The values that may differ between the threads of a block, found by a walk that control flow alone makes necessary."""
        return _varying(self.every)

    def _numbered(self, key: Hashable, roots: frozenset[Value], varies: bool) -> Term:
        number = self.numbers.setdefault(key, len(self.roots))
        if number == len(self.roots):
            self.keys.append(key)
            self.roots.append(roots)
            if varies:
                self.terms_that_vary.add(number)
        return number

    def is_uniform(self, found: Sum) -> bool:
        """Return whether all threads have the same terms."""
        return self.terms_that_vary.isdisjoint(term for term, _ in found.terms)

    def earlier(self, found: Sum, inner: Collection[Value]) -> Sum:
        """Return what `found` was in an earlier iteration of the loop that defines the values `inner`."""
        terms = sorted((self.earlier_term(term, inner), coefficient) for term, coefficient in found.terms)
        return found._replace(terms=tuple(terms))

    def earlier_term(self, term: Term, inner: Collection[Value]) -> Term:
        roots = self.roots[term]
        return (
            term if roots.isdisjoint(inner) else self._numbered(("earlier", term), roots, term in self.terms_that_vary)
        )


def _varying(every: Sequence[Op]) -> set[Value]:
    """Return the values that may differ between the threads of a block."""
    found = {value for op in every if _is_of_each_thread(op) for value in op.results}
    known = -1
    while known != len(found):
        known = len(found)
        for op in every:
            if not found.isdisjoint(op.operands()):
                found.update(op.results)
            if not op.BODY_FIELDS:
                continue
            decided = not found.isdisjoint(flow.deciders(op))
            found.update(target for source, target in flow.edges(op) if decided or source in found)
            if decided and isinstance(op, ops.For):
                found.add(op.loop_body.params[0])
    return found


def _is_of_each_thread(op: Op) -> bool:
    """Return whether threads may get different results of `op` from the same operands, as old values of an atomic."""
    if isinstance(op, ops.Load):
        return op.pointer.type.space is Space.LOCAL  # type: ignore[union-attr]
    return isinstance(op, ops.InlineAsm) or bool(op.effects & _FROM_OTHERS)


# effects of ops whose results depend on their operands and the thread alone
_COMPUTED = frozenset({Effect.VARYING})
_FROM_OTHERS = frozenset({Effect.VARYING, Effect.COLLECTIVE, Effect.WRITE, Effect.ORDER})


def meets(a: Sum, b: Sum, distances: Iterable[int], threads: int) -> bool:
    """Return whether two different threads may touch one address, one by `a` and the other by `b` plus one of `distances`.

    The terms of both are uniform.
    """
    apart = b.plus(a, -1)
    unknown = math.gcd(*[coefficient for _, coefficient in apart.terms])
    wanted = [apart.constant + distance for distance in distances]
    if a.per_thread == b.per_thread:
        return _has_small_solution(a.per_thread, wanted, unknown, threads)
    reach = [sorted((0, step * (threads - 1))) for step in (a.per_thread, -b.per_thread)]
    low, high = (sum(column) for column in zip(*reach))
    return unknown > 0 or any(low <= each <= high for each in wanted)


def _has_small_solution(step: int, distances: Collection[int], modulus: int, threads: int) -> bool:
    """Return whether `step * d` is one of `distances`, modulo `modulus` if that is not 0, for a d with 0 < |d| < threads."""
    common = math.gcd(step, modulus)
    if common == 0:
        return 0 in distances and threads > 1
    parts = [distance // common for distance in distances if not distance % common]
    if modulus == 0:
        return any(0 < abs(each) < threads for each in parts)
    period = modulus // common
    inverse = pow(step // common, -1, period) if period > 1 else 0
    firsts = [each * inverse % period for each in parts]
    return any(min(first or period, period - first) < threads for first in firsts)
