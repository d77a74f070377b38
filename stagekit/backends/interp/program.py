"""A function turned into Python closures, once per set of options; running it costs one call per op.

    program = prepare(fn, options)                               # `compile.py`
    for request in execute(program.code, team.values, team): ...

Every SSA value has a number; `team.values[number]` is what it is now. Straight-line ops are *steps*, called in a row.
Control flow, and whatever may have to wait for another warp, is a generator that yields a `Request` to the scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from stagekit.backends.interp.access import Access, Observer, Role
from stagekit.backends.interp.checks import index_values
from stagekit.backends.interp.guards import Guards
from stagekit.backends.interp.indexing import Indexings
from stagekit.backends.interp.options import Options
from stagekit.backends.interp.team import Team
from stagekit.backends.interp.waiting import WaitingLoops
from stagekit.diagnostics import InternalError
from stagekit.dtypes import DType
from stagekit.ir import Block, Effect, Function, Op, Pointer, Value, ops, semantics

Values = list[Any]
Step = Callable[[Values, Team], None]


class Arrive(NamedTuple):
    """This warp is at a block barrier with `present` lanes, of which the predicate `holds` in some. The answer: both sums."""

    op: Op
    holds: int
    present: int


class Turn(NamedTuple):
    """Others may go now. is_idle: nothing has changed in this warp since it last asked; `op`: what it repeats."""

    op: Op
    is_idle: bool


Request = Arrive | Turn
Running = Generator[Request, Any, None]
Control = Callable[[Values, Team], Running]


class Part(NamedTuple):
    """Steps, then perhaps a control."""

    steps: tuple[Step, ...]
    control: Control | None


Built = tuple[Step, ...] | Control
Builder = Callable[["Compiler", Any], Built]
Builders = Mapping[type[Op], Builder]


class Code(NamedTuple):
    """A block of ops. `yields`: numbers of the values that its terminator reads."""

    parts: tuple[Part, ...]
    params: tuple[int, ...]
    yields: tuple[int, ...]


def execute(code: Code, values: Values, team: Team) -> Running:
    """Run `code`; yields requests, to be answered by `send`."""
    for steps, control in code.parts:
        for step in steps:
            step(values, team)
        if control is not None:
            yield from control(values, team)


@dataclass(frozen=True, eq=False)
class Program:
    """A function ready to run. constants: initial values by number. shared: what each block allocates, by number.

    extra: values that the function itself does without; a launch gives them behind the parameters.
    written_params: may the kernel write through this parameter? has_fence, has_block_fence,
    has_syncwarp: does it order memory by these?
    is_scheduled: warps take turns; else teams of whole blocks run from end to end.
    is_batched: several blocks may run side by side as one team.
    """

    fn: Function
    options: Options
    code: Code
    constants: tuple[Any, ...]
    params: tuple[int, ...]
    extra: tuple[Value, ...]
    shared: tuple[ops.Alloc, ...]
    accesses: tuple[Access, ...]
    written_params: tuple[bool, ...]
    is_scheduled: bool
    is_batched: bool
    has_fence: bool
    has_block_fence: bool
    has_syncwarp: bool

    def with_seed(self, seed: int) -> Program:
        """The same, in the random order of `seed` if a random order was asked for."""
        schedule = self.options.schedule
        if schedule is None or schedule.seed == seed:
            return self
        return replace(self, options=replace(self.options, schedule=replace(schedule, seed=seed)))

    def fresh_values(self, params: tuple[Any, ...]) -> Values:
        values = list(self.constants)
        for number, value in zip(self.params, params, strict=True):
            values[number] = value
        return values


class Compiler:
    """What the builders of steps share. Builders ask it for numbers, nested code and the registration of accesses."""

    def __init__(
        self, fn: Function, options: Options, *, builders: Builders, observers: tuple[Observer, ...], is_scheduled: bool
    ) -> None:
        self.fn = fn
        self.builders = builders
        self.options = options
        self.is_scheduled = is_scheduled
        self.observers = observers
        self.waiting = WaitingLoops(fn)
        self.guards = Guards(fn)
        self.indexings = Indexings(fn)
        self.index_values = index_values(fn) if options.checks.overflow else frozenset()
        self.constants: list[Any] = []
        self.accesses: list[Access] = []
        self.shared: list[ops.Alloc] = []
        self.tails = frozenset(_tails(fn.body))
        self._numbers: dict[Value, int] = {}
        self._later: dict[Op, list[Step]] = {}  # checks that wait for the conditions they depend on

    def number(self, value: Value) -> int:
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.constants)
            self.constants.append(None)
        return found

    def numbers(self, values: tuple[Value, ...]) -> tuple[int, ...]:
        return tuple(self.number(v) for v in values)

    def is_known(self, value: Value) -> bool:
        """Is `value` a parameter, or made by an op in front?"""
        return value in self._numbers

    def constant(self, value: int) -> int:
        """A number for an int64 that no op makes."""
        self.constants.append(np.int64(value))
        return len(self.constants) - 1

    def scratch(self) -> int:
        """A number for something that a step keeps for another."""
        self.constants.append(None)
        return len(self.constants) - 1

    def access(self, op: Op, role: Role, pointer: Value) -> Access:
        """Register `op` as touching memory through `pointer`."""
        kind = pointer.type
        if not isinstance(kind, Pointer):
            raise InternalError(f"{op.mnemonic} through {kind}")
        axes = self.indexings.axes_of(self, pointer)
        made = Access(len(self.accesses) + 1, role, kind.dtype, kind.space, op.loc, axes)
        self.accesses.append(made)
        return made

    def allocate(self, op: ops.Alloc) -> int:
        """The number of this allocation among those of its block."""
        self.shared.append(op)
        return len(self.shared) - 1

    def branch_observer(self, op: Op) -> Callable[[Team, Any], None] | None:
        """What to tell of the lanes that take the first arm of `op`, if anyone wants to know."""
        if not self.options.statistics:
            return None
        return lambda team, taken: team.launch.measured.branch(team, op.loc, taken)

    def check_where_used(self, op: Op, check: Callable[[Values, Team, Any], None]) -> Step | None:
        """Run `check(values, team, mask)` on the lanes in which the result of `op` is used.

        The step to run right after `op`; None where it must wait for conditions computed later (it then runs behind those),
        or where the result is used nowhere.
        """
        guard = self.guards.of(op)
        if guard is None:
            return None
        if guard.is_always:
            return lambda values, team: check(values, team, team.mask)
        condition = guard.compile(self.number)

        def later(values: Values, team: Team) -> None:
            mask = condition(values, team.mask)
            if mask is not False:
                check(values, team, mask)

        if guard.last is op:
            return later
        self._later.setdefault(guard.last, []).append(later)
        return None

    def block(self, block: Block) -> Code:
        parts: list[Part] = []
        steps: list[Step] = []
        for op in block.ops[:-1]:
            control = self._one(op, steps)
            if control is not None:
                parts.append(Part(tuple(steps), control))
                steps = []
            steps.extend(self._later.pop(op, ()))
        parts.append(Part(tuple(steps), None))
        return Code(tuple(parts), self.numbers(block.params), self.numbers(block.ops[-1].operands()))

    def _one(self, op: Op, steps: list[Step]) -> Control | None:
        """Append the steps of `op`, or give the control that runs it."""
        if isinstance(op, ops.Constant):
            self._constant(op)
            return None
        built = self.builders[type(op)](self, op)
        if not isinstance(built, tuple):
            return built
        steps.extend(built)
        return _giving_way(op) if self._is_preempted(op) else None

    def _constant(self, op: ops.Constant) -> None:
        number = self.number(op.result)
        self.constants[number] = semantics.typed(op.value, scalar_dtype(op.result))

    def _is_preempted(self, op: Op) -> bool:
        schedule = self.options.schedule
        touches = op.effects & {Effect.READ, Effect.WRITE, Effect.COLLECTIVE}
        return schedule is not None and schedule.order == "random" and bool(touches)


def _giving_way(op: Op) -> Control:
    def control(values: Values, team: Team) -> Running:
        yield Turn(op, False)

    return control


def _tails(block: Block) -> Iterator[Op]:
    """Each `if` behind which nothing is left to do in the kernel: who takes an empty arm there has returned."""
    last = block.ops[-2] if len(block.ops) > 1 else None
    if isinstance(last, ops.If):
        yield last
        for arm in last.bodies():
            yield from _tails(arm)


def scalar_dtype(value: Value) -> DType:
    if isinstance(value.type, Pointer):
        raise InternalError(f"a number is expected, got {value.type}")
    return value.type.dtype
