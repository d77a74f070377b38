"""Where the result of an op is used, so that a check of `a // b` does not fire in lanes that never look at the quotient.

    %q = floordiv %a, %b
    if %go { store %p, %q }                  # %q counts in the lanes that run this body
    %r = select %nonzero, %q, %zero          # and, if %r counts, where %nonzero holds

A use that is pure arithmetic counts where its own result does. A chosen arm, what an `if` yields and a masked access count under
their condition; every other use counts wherever it runs. What a loop carries on counts as used.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from stagekit.backends.interp.access import both
from stagekit.frozen import frozen
from stagekit.intrinsics import by_name
from stagekit.ir import PURE, Block, Function, Op, Value, ops, walk

Conditions = frozenset[tuple[Value, bool]]  # each value must be what its bool says
Alternatives = frozenset[Conditions]  # one of them must hold
Uses = Mapping[Block, Alternatives]  # by the block that uses the result, or a result of it

ALWAYS: Alternatives = frozenset({frozenset()})
_QUESTIONS = (by_name("isnan"), by_name("isfinite"))  # what a program asks before it uses a value
_MAX_ALTERNATIVES = 8  # of more, what all have in common is left: the check may then fire where the value is not used


@frozen(eq=False, slots=False)
class Place:
    """One block in which a result counts: `after` which op every condition is known (or the block, before its first op)."""

    after: Op | Block
    alternatives: Alternatives

    def compile(self, number: Callable[[Value], int]) -> Callable[[list[Any], Any], Any]:
        """Return a function from values and mask to the lanes in which the result counts here, False for none."""
        uses = [[(number(value), truth) for value, truth in conditions] for conditions in self.alternatives]

        def lanes(values: list[Any], mask: Any) -> Any:
            found: Any = False
            for conditions in uses:
                holds: Any = True
                for condition, truth in conditions:
                    flag = values[condition]
                    if flag is None:  # of an arm that has never run
                        holds = False
                        break
                    holds = holds & (flag if truth else ~flag)
                found = found | holds
            return both(mask, found if isinstance(found, np.ndarray) else bool(found))

        return lanes


class UseFinder:
    """Finds the places where the results of an op count. Only the ops that are asked for are analysed."""

    def __init__(self, fn: Function) -> None:
        self._owner: dict[Block, Op] = {body: op for op in walk(fn.body) for body in op.bodies()}
        self._home: dict[Op, Block] = {}
        self._order: dict[Op, int] = {}
        self._maker: dict[Value, Op] = {}
        self._uses: dict[Value, Uses] = {}
        readers: dict[Value, list[Op]] = {}
        for block in (fn.body, *self._owner):
            for place, op in enumerate(block.ops):
                self._home[op], self._order[op] = block, place
                self._maker |= dict.fromkeys(op.results, op)
                for value in dict.fromkeys(op.operands()):
                    readers.setdefault(value, []).append(op)
        self._users: Mapping[Value, Sequence[Op]] = readers

    def but_with(self, users: Mapping[Value, Sequence[Op]]) -> UseFinder:
        """Return one for which only these ops count as users of these values."""
        other = copy.copy(self)
        other._users, other._uses = {**self._users, **users}, {}
        return other

    def of(self, op: Op, but_for: Callable[[Op], bool] = lambda user: False) -> Sequence[Place]:
        """Return the places where the results of `op` count; none if they never do. but_for: users that do not."""
        readers = ((result, user) for result in op.results for user in self._users.get(result, ()) if not but_for(user))
        uses = _any_of(self._use(result, user) for result, user in readers)
        if uses.get(self._home[op]) == ALWAYS:
            return (Place(op, ALWAYS),)
        return [Place(self._after(op, block, alternatives), alternatives) for block, alternatives in uses.items()]

    def is_used(self, value: Value) -> bool:
        return value in self._users

    def _after(self, op: Op, block: Block, alternatives: Alternatives) -> Op | Block:
        """Return the last op of `block` that is or holds `op` or what makes a condition."""
        makers = (self._maker.get(value) for conditions in alternatives for value, _ in conditions)
        holders = (self._holder(each, block) for each in (op, *makers))
        return max((each for each in holders if each is not None), key=self._order.__getitem__, default=block)

    def _holder(self, op: Op | None, block: Block) -> Op | None:
        """Return the op of `block` that is or holds `op`; None where it is outside of `block`."""
        while op is not None and self._home[op] is not block:
            op = self._owner.get(self._home[op])
        return op

    def _joined(self, op: Op) -> Uses:
        """Return where any result of `op` counts."""
        return _any_of(self._of_value(result) for result in op.results)

    def _of_value(self, value: Value) -> Uses:
        if value not in self._uses:
            self._uses[value] = _any_of(self._use(value, user) for user in self._users.get(value, ()))
        return self._uses[value]

    def _use(self, value: Value, user: Op) -> Uses:
        """Return where `value` counts because `user` reads it."""
        home = self._home[user]
        match user:
            case ops.Select() if value is not user.condition:
                chosen = ((user.if_true, True), (user.if_false, False))
                return _any_of(_under(self._joined(user), user.condition, t) for arm, t in chosen if arm is value)
            case ops.Load() if user.other is value and user.mask is not None and user.mask is not value:
                return _under(self._joined(user), user.mask, False)
            case ops.Load() | ops.Store() if user.mask is not None and user.mask is not value:
                return _under({home: ALWAYS}, user.mask, True)
            case ops.Compare() if user.lhs is user.rhs:
                return {}  # it asks whether this is NaN
            case ops.IntrinsicOp() if user.spec in _QUESTIONS:
                return {}
            case ops.Yield() if isinstance(branch := self._owner[home], ops.If):
                yielded = (self._of_value(r) for v, r in zip(user.values, branch.results) if v is value)
                return _under(_any_of(yielded), branch.condition, home is branch.then_body)
        if user.effects == PURE and not user.bodies() and user.results:
            return self._joined(user)
        return {home: ALWAYS}


def _under(uses: Uses, condition: Value, truth: bool) -> Uses:
    """Return the uses that remain where `condition` is `truth`."""
    return {block: frozenset(each | {(condition, truth)} for each in found) for block, found in uses.items()}


def _any_of(alternatives: Iterable[Uses]) -> Uses:
    joined: dict[Block, Alternatives] = {}
    for uses in alternatives:
        for block, found in uses.items():
            joined[block] = joined.get(block, frozenset()) | found
    return {block: _simplified(found) for block, found in joined.items()}


def _simplified(found: Alternatives) -> Alternatives:
    if frozenset() in found:
        return ALWAYS
    return found if len(found) <= _MAX_ALTERNATIVES else frozenset({frozenset.intersection(*found)})
