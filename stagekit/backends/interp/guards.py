"""Where a result is really used: a check of `a // b` must not fire in lanes in which a select throws the quotient away.

    %q = floordiv %a, %b                     # `b != 0 and a // b > 2` evaluates both sides: they are pure
    %g = gt %q, %two
    %r = select %nonzero, %g, %false         # %q counts where %nonzero holds

In: an op. Out: its `Guard`: alternatives of conditions, each a value with the truth it must have. A use that is neither
pure arithmetic nor a chosen arm nor a masked access counts everywhere, and so does a use in a nested body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from stagekit.backends.interp.access import both
from stagekit.ir import PURE, Block, Function, Op, Value, ops

Condition = tuple[Value, bool]
Conditions = frozenset[Condition]  # all of them must hold
Uses = frozenset[Conditions]  # one of them must hold

_NEVER: Uses = frozenset()
_ALWAYS: Uses = frozenset({frozenset()})
_MAX_ALTERNATIVES = 8  # more of them are taken as "always": the check may then fire where the value is not used


@dataclass(frozen=True, eq=False)
class Guard:
    """`last`: the op after which every condition is known; `uses`: when the result counts."""

    last: Op
    uses: Uses

    @property
    def is_always(self) -> bool:
        return self.uses == _ALWAYS

    def compile(self, number: Callable[[Value], int]) -> Callable[[list[Any], Any], Any]:
        """A function of values and mask that gives the lanes in which the result counts; False for none."""
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
    """Answers for one function; analyses only what is asked."""

    def __init__(self, fn: Function) -> None:
        self._users: dict[Value, list[Op]] = {}
        self._home: dict[Op, Block] = {}
        self._place: dict[Op, int] = {}
        self._maker: dict[Value, Op] = {}
        self._known: dict[Value, Uses] = {}
        self._index(fn.body)

    def _index(self, block: Block) -> None:
        for place, op in enumerate(block.ops):
            self._home[op], self._place[op] = block, place
            for value in op.operands():
                self._users.setdefault(value, []).append(op)
            for value in op.results:
                self._maker[value] = op
            for nested in op.bodies():
                self._index(nested)

    def of(self, op: Op) -> Guard | None:
        """When the results of `op` count; None for never."""
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
        return _any_of(self._uses(result, self._home[op]) for result in op.results)

    def _uses(self, value: Value, home: Block) -> Uses:
        if value not in self._known:
            self._known[value] = _any_of(self._use(value, user, home) for user in self._users.get(value, ()))
        return self._known[value]

    def _use(self, value: Value, user: Op, home: Block) -> Uses:
        if self._home[user] is not home:
            return _ALWAYS
        if isinstance(user, ops.Select) and value is not user.condition:
            return self._arm(value, user)
        if isinstance(user, ops.Load | ops.Store) and user.mask not in (None, value):
            is_fill = isinstance(user, ops.Load) and value is user.other
            return _ALWAYS if is_fill else frozenset({frozenset({(user.mask, True)})})
        if user.effects == PURE and not user.bodies() and user.results:
            return self._joined(user)
        return _ALWAYS

    def _arm(self, value: Value, user: ops.Select) -> Uses:
        behind = self._joined(user)
        arms = ((user.if_true, True), (user.if_false, False))
        return _any_of(_and(behind, (user.condition, truth)) for arm, truth in arms if arm is value)


def _and(uses: Uses, condition: Condition) -> Uses:
    return frozenset(conditions | {condition} for conditions in uses)


def _any_of(several: Iterator[Uses]) -> Uses:
    joined: Uses = _NEVER.union(*several)
    if frozenset() in joined or len(joined) > _MAX_ALTERNATIVES:
        return _ALWAYS
    return joined


__all__ = ["Guard", "Guards"]
