"""The entry of compilation: which observers a set of options asks for, and which way teams are formed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stagekit.backends.interp.access import Access, Observer, Place
from stagekit.backends.interp.control import CONTROLS
from stagekit.backends.interp.meaning import native_of
from stagekit.backends.interp.natives import CALLS
from stagekit.backends.interp.options import Options
from stagekit.backends.interp.program import Builders, Compiler, Program
from stagekit.backends.interp.steps import STEPS
from stagekit.backends.interp.team import Team
from stagekit.backends.interp.waiting import WaitingLoops
from stagekit.ir import Function, Native, Value, ops, walk

BUILDERS: Builders = {**STEPS, **CONTROLS, **CALLS}


def prepare(fn: Function, options: Options, extra: Sequence[Value] = ()) -> Program:
    """Turn a verified function, lowered for "interp", into closures; good for any number of launches. extra: see `Program`."""
    is_scheduled = options.schedule is not None or WaitingLoops(fn).any()
    compiler = Compiler(fn, options, builders=BUILDERS, observers=tuple(_observers(options)), is_scheduled=is_scheduled)
    params = compiler.numbers((*fn.params, *extra))
    code = compiler.block(fn.body)
    return Program(
        fn=fn,
        options=options,
        code=code,
        constants=tuple(compiler.constants),
        params=params,
        extra=tuple(extra),
        shared=tuple(compiler.shared),
        accesses=tuple(compiler.accesses),
        is_scheduled=is_scheduled,
        written_params=tuple(p in compiler.waiting.written for p in fn.params),
        is_batched=not is_scheduled and not _has(fn, Native.FENCE),
        has_fence=_has(fn, Native.FENCE),
        has_block_fence=any(op.params == ("block",) for op in _calls(fn, Native.FENCE)),
        has_syncwarp=_has(fn, Native.WARP_BARRIER),
    )


def _has(fn: Function, native: Native) -> bool:
    return any(_calls(fn, native))


def _calls(fn: Function, native: Native) -> Iterator[ops.IntrinsicOp]:
    return (op for op in walk(fn.body) if isinstance(op, ops.IntrinsicOp) and native_of(op) is native)


def _observers(options: Options) -> list[Observer]:
    wanted = (
        (options.checks.races, _races),
        (options.checks.uninitialised or bool(options.outputs), _written),
        (options.statistics, _measured),
    )
    return [observer for is_wanted, observer in wanted if is_wanted]


def _races(team: Team, access: Access, place: Place, value: Any) -> None:
    team.launch.races.observe(team, access, place, value)


def _written(team: Team, access: Access, place: Place, value: Any) -> None:
    team.launch.written.observe(team, access, place, value)


def _measured(team: Team, access: Access, place: Place, value: Any) -> None:
    team.launch.measured.observe(team, access, place, value)
