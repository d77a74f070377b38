"""Analyses of a function before it is turned into steps: loops that wait, values that become an index, and the conditions
under which a result is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from stagekit.backends.interp.access import both
from stagekit.ir import PURE, Block, Effect, Function, Native, Op, Scalar, UnaryKind, Value, flow, ops, walk


def native_of(op: ops.IntrinsicOp) -> Native | None:
    """Return the operation that the interpreter itself has for `op`; None where the record's `evaluate` says it all."""
    if "interp" not in op.spec.lower:
        return None
    found = op.spec.lowering("interp", tuple(v.type for v in op.args), fastmath=False)
    return found if isinstance(found, Native) else None


# -- loops that wait --------------------------------------------------------------------------------------------------


def waiting_loops(fn: Function, sources: flow.Sources, written: frozenset[Value]) -> frozenset[Op]:
    """Return the loops that may wait for another thread: they read, in every round, memory that the kernel also writes.

        while atomic_cas(lock, 0, 1) != 0: pass          # waits: `lock` is written by whoever holds it
        while lo < hi: ... keys[mid] ...                 # does not, if the kernel never writes `keys`

    A compare-and-swap that expects what the loop itself saw last (the retry loop of `atomic_max` on floats) does not wait: it
    fails only because another lane got through. written: the parameters and allocations that the kernel may write.
    """

    def waits(loop: ops.While) -> bool:
        reads = (op for op in chain(walk(loop.before), walk(loop.after)) if Effect.READ in op.effects)
        seen = flow.upstream(chain(*(flow.pointers_of(op) for op in reads if not _is_retry(op, loop))), sources)
        return not written.isdisjoint(seen)

    return frozenset(op for op in walk(fn.body) if isinstance(op, ops.While) and waits(op))


def _is_retry(op: Op, loop: ops.While) -> bool:
    is_swap = isinstance(op, ops.IntrinsicOp) and native_of(op) is Native.ATOMIC_CAS
    return is_swap and op.operands()[1] in loop.before.params


# -- values that become an index --------------------------------------------------------------------------------------


def index_values(fn: Function) -> frozenset[Value]:
    """Return moved pointers, and the signed integers that sums, differences, products and casts turn into the index of a move.

    A value that goes through `%`, a shift or bit arithmetic is left out: it may be a hash, which is meant to wrap.
    """
    comes_from = flow.sources(fn.body, lambda op: (*flow.copies(op), *_arithmetic(op)))
    offsets = [op for op in walk(fn.body) if isinstance(op, ops.Offset)]
    pending = [op.index for op in offsets]
    found: set[Value] = set()
    while pending:
        value = pending.pop()
        if value not in found and isinstance(value.type, Scalar) and value.type.dtype.is_signed:
            found.add(value)
            pending.extend(comes_from.get(value, ()))
    return frozenset(found.union(op.result for op in offsets))


def _arithmetic(op: Op) -> Iterator[flow.Edge]:
    match op:
        case ops.Binary(kind=ops.BinaryKind.ADD | ops.BinaryKind.SUB | ops.BinaryKind.MUL):
            yield from ((op.lhs, op.result), (op.rhs, op.result))
        case ops.Unary(kind=UnaryKind.NEG) | ops.Cast():
            yield op.operand, op.result


# -- where a result is used -------------------------------------------------------------------------------------------

Conditions = frozenset[tuple[Value, bool]]  # a use: each value must be what its bool says
Uses = frozenset[Conditions]  # the result counts where one of them holds

ALWAYS: Uses = frozenset({frozenset()})
_MAX_ALTERNATIVES = 8  # more uses are taken as "always": the check may then fire where the value is not used


@dataclass(frozen=True, eq=False)
class Guard:
    """When the result of an op counts (`uses`), and the op after which every condition of that is known (`last`)."""

    last: Op
    uses: Uses

    def compile(self, number: Callable[[Value], int]) -> Callable[[list[Any], Any], Any] | None:
        """Return a function from values and mask to the lanes in which the result counts, False for none. None: in all lanes."""
        if self.uses == ALWAYS:
            return None
        uses = [[(number(value), truth) for value, truth in conditions] for conditions in self.uses]

        def lanes(values: list[Any], mask: Any) -> Any:
            found: Any = False
            for conditions in uses:
                holds: Any = True
                for condition, truth in conditions:
                    holds = holds & (values[condition] if truth else ~values[condition])
                found = found | holds
            return both(mask, found if isinstance(found, np.ndarray) else bool(found))

        return lanes


class Guards:
    """Finds where a result counts: a check of `a // b` must not fire in lanes in which a select throws the quotient away.

        %q = floordiv %a, %b                     # `b != 0 and a // b > 2` evaluates both sides: they are pure
        %g = gt %q, %two
        %r = select %nonzero, %g, %false         # %q counts where %nonzero holds

    A use that is neither pure arithmetic nor a chosen arm nor a masked access counts everywhere, and so does a use in a nested
    body. Only the ops that are asked for are analysed.
    """

    def __init__(self, fn: Function) -> None:
        self._users: dict[Value, list[Op]] = {}
        self._home: dict[Op, Block] = {}
        self._place: dict[Op, int] = {}
        self._maker: dict[Value, Op] = {}
        self._uses: dict[Value, Uses] = {}
        for block in (fn.body, *(body for op in walk(fn.body) for body in op.bodies())):
            for place, op in enumerate(block.ops):
                self._home[op], self._place[op] = block, place
                self._maker |= dict.fromkeys(op.results, op)
                for value in op.operands():
                    self._users.setdefault(value, []).append(op)

    def of(self, op: Op) -> Guard | None:
        """Return when the results of `op` count; None for never."""
        uses = self._joined(op)
        if not uses:
            return None
        home = self._home[op]
        makers = (self._maker.get(value) for conditions in uses for value, _ in conditions)
        here = [m for m in makers if m is not None and self._home[m] is home]
        return Guard(max((op, *here), key=self._place.__getitem__), uses)

    def is_used(self, value: Value) -> bool:
        return value in self._users

    def _joined(self, op: Op) -> Uses:
        """Return when any result of `op` counts."""
        for result in op.results:
            if result not in self._uses:
                users = self._users.get(result, ())
                self._uses[result] = _any_of(self._use(result, user, self._home[op]) for user in users)
        return _any_of(self._uses[result] for result in op.results)

    def _use(self, value: Value, user: Op, home: Block) -> Uses:
        """Return when `value` counts because `user` reads it."""
        if self._home[user] is not home:
            return ALWAYS
        if isinstance(user, ops.Select) and value is not user.condition:
            arms = ((user.if_true, True), (user.if_false, False))
            choices = [(user.condition, truth) for arm, truth in arms if arm is value]
            return frozenset(conditions | {choice} for conditions in self._joined(user) for choice in choices)
        if isinstance(user, ops.Load | ops.Store) and user.mask not in (None, value):
            is_fill = isinstance(user, ops.Load) and value is user.other
            return ALWAYS if is_fill else frozenset({frozenset({(user.mask, True)})})
        if user.effects == PURE and not user.bodies() and user.results:
            return self._joined(user)
        return ALWAYS


def _any_of(alternatives: Iterable[Uses]) -> Uses:
    joined: Uses = frozenset().union(*alternatives)
    return ALWAYS if frozenset() in joined or len(joined) > _MAX_ALTERNATIVES else joined
