"""`for` and `while`: unrolled over what is known at compile time, else a run-time loop."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from stagekit import dtypes
from stagekit.diagnostics import shown
from stagekit.frontend import rangeloop, statements
from stagekit.frontend.assignments import assign, binding_scope
from stagekit.frontend.conditions import assume, both, condition, negate_condition
from stagekit.frontend.control import branch
from stagekit.frontend.errors import NotIterable
from stagekit.frontend.evaluation import Site, evaluate, user_method
from stagekit.frontend.iteration import forget_position, thunks_of
from stagekit.frontend.journal import MISSING, Location
from stagekit.frontend.loops import CarriedLocations, LeafType, settle
from stagekit.frontend.source import all_nodes, names_of, remembered
from stagekit.frontend.statements import define_partials, exit_taken, join_exits, may_exit, nested, run_body, run_rest
from stagekit.frontend.tracer import BROKEN, CONTINUED, RETURN, Frame, LoopFlags, Thunk
from stagekit.frontend.values import Number, Partial, StagedRange, StaticRange
from stagekit.ir import BOOL, CompareKind, OpenBlock, Value
from stagekit.ir.intervals import counted


def trace_for(frame: Frame, node: ast.For) -> None:
    iterable = evaluate(frame, node.iter)
    flags = _enter_loop(frame)
    iterable = _begun(frame, node, iterable, flags)
    turn = user_method(frame.tracer, iterable, "__stagekit_turn__")
    take = user_method(frame.tracer, iterable, "__stagekit_take__")
    numbers = iterable.numbers if turn else iterable
    if isinstance(numbers, range | StagedRange):
        loop = rangeloop.staged(frame.tracer, numbers, frame.loc(node.iter))
        if turn:
            _for_turns(frame, node, loop, flags, lambda n: Site(frame, node.iter).invoke(turn, [iterable, n]))
            if end := user_method(frame.tracer, iterable, "__stagekit_end__"):
                Site(frame, node.iter).invoke(end, [iterable])
        else:
            _run_time_for(frame, node, loop, flags)
    elif take:
        _for_taken(frame, node, iterable, flags, lambda: Site(frame, node.iter).invoke(take, [iterable]))
    else:
        _unrolled(frame, node, iterable, flags)
    _leave_loop(frame, node, flags)


def _begun(frame: Frame, node: ast.For, iterable: Any, flags: LoopFlags) -> Any:
    """Return what a loop of the library's goes through, which may depend on whether the loop's text can leave it early."""
    begin = user_method(frame.tracer, iterable, "__stagekit_begin__")
    return iterable if begin is None else Site(frame, node.iter).invoke(begin, [iterable, bool(_exits_of(node, flags))])


def trace_while(frame: Frame, node: ast.While) -> None:
    """Trace a `while`: at compile time as long as its test and exits are known, else as a run-time loop."""
    flags = _enter_loop(frame)
    while frame.loc(node) not in frame.tracer.hints:  # not yet found to depend on run-time values
        if _static_iteration(frame, node, flags):
            _leave_loop(frame, node, flags)
            return
    carried = _carried(frame, node, is_read_after=False)

    def test() -> bool | Number:
        holds = condition(frame, node.test)
        carried.read_after = _read_after(frame, node) if holds is True or node.orelse else set()
        return holds

    body = functools.partial(_iteration, frame, flags, node.body)
    _staged_while(carried, _exits_of(node, flags), test, body, runs=False)
    _leave_loop(frame, node, flags)


def _enter_loop(frame: Frame) -> LoopFlags:
    serial = len(frame.control)
    flags = LoopFlags(f"{BROKEN}{serial}>", f"{CONTINUED}{serial}>", len(frame.tracer.exits))
    frame.tracer.assign(frame.control, flags.broken, False)
    frame.tracer.assign(frame.control, flags.continued, False)
    frame.loops.append(flags)
    return flags


def _leave_loop(frame: Frame, node: ast.For | ast.While, flags: LoopFlags) -> None:
    """Close a loop: trace its `else`, where no `break` or `return` ended it, and join the paths that broke."""
    frame.loops.pop()
    exited = exit_taken(frame, [RETURN, flags.broken])
    if not node.orelse or exited is True:
        join_exits(frame, flags.broken, flags.first_exit)
    elif exited is False:
        run_body(frame, node.orelse)
    else:
        otherwise = functools.partial(run_rest, frame, node.orelse)
        broken = functools.partial(join_exits, frame, flags.broken, flags.first_exit, only_exited=True)
        branch(frame.tracer, frame.tracer.builder.not_(exited.value), otherwise, broken, frame.loc(node), frame=frame)
    _reset(frame, flags.broken)
    if exit_taken(frame, frame.flags()) is False:
        define_partials(frame)


def _iteration(frame: Frame, flags: LoopFlags, body: Sequence[ast.stmt]) -> None:
    """Trace one pass through a loop's body, which `continue` ends."""
    _reset(frame, flags.continued)
    first_exit = len(frame.tracer.exits)
    run_body(frame, body)
    if any(map(may_exit, body)):
        join_exits(frame, flags.continued, first_exit)
        _reset(frame, flags.continued)


def _reset(frame: Frame, flag: str) -> None:
    if frame.control[flag] is not False:
        frame.tracer.assign(frame.control, flag, False)


# -- unrolled ----------------------------------------------------------------------------------------------------------


def _unrolled(frame: Frame, node: ast.For, iterable: Any, flags: LoopFlags) -> None:
    """Trace a loop over compile-time values: its body once per value."""
    loc, counted_at = frame.loc(node), frame.source.loc(node, frame.call_site, ())
    values = iterable.values if isinstance(iterable, StaticRange) else iterable
    is_known = isinstance(values, range | tuple) or type(values) in (list, dict, set)
    has_exits = bool(_exits_in(node.body))
    if is_known and not has_exits:  # then the length alone says whether it is too long
        frame.tracer.expect_unrolled(len(values[: sys.maxsize] if isinstance(values, range) else values), loc)
    iterated = f"<iterated{len(frame.control)}>"
    frame.tracer.assign(frame.control, iterated, iterable)  # the loop holds what it goes through: see `holders`
    outer, target = frame.iteration, ast.unparse(node.target)

    def once(thunk: Thunk) -> None:
        value = thunk()
        shown_value = "(run-time)" if isinstance(value, Number) else shown(value, most=40)
        frame.iteration = (f"{target} = {shown_value}", *outer)
        define_partials(frame)
        assign(frame, node.target, value)
        _iteration(frame, flags, node.body)
        frame.iteration = outer

    stopped: bool | Number = False
    with frame.certain():
        for thunk in thunks_of(Site(frame, node.iter), iterable):
            frame.tracer.count_unrolled(counted_at)
            if not isinstance(stopped, Number):
                once(thunk)
            else:
                go_on, again = frame.tracer.builder.not_(stopped.value), functools.partial(once, thunk)
                branch(frame.tracer, go_on, again, lambda: None, loc, frame=frame, after_exit=True)
            stopped = has_exits and exit_taken(frame, [RETURN, flags.broken])
            if stopped is True:
                break  # before the next item is asked for
    if isinstance(stopped, Number):
        forget_position(frame.tracer, iterable)
    frame.tracer.assign(frame.control, iterated, None)


def _static_iteration(frame: Frame, node: ast.While, flags: LoopFlags) -> bool:
    """Try one iteration at compile time; return whether the loop has ended. A run-time test or exit undoes it, for good."""
    loc = frame.loc(node)
    start = frame.tracer.checkpoint()
    with frame.tracer.builder.block() as trial:
        holds = condition(frame, node.test)
        ended: bool | Number = not holds if isinstance(holds, bool) else holds
        if holds is True:
            frame.tracer.count_unrolled(loc)
            with frame.certain():
                _iteration(frame, flags, node.body)
            ended = exit_taken(frame, [RETURN, flags.broken])
    if isinstance(ended, bool):
        frame.tracer.builder.current.ops.extend(trial.ops)
        return ended
    frame.tracer.journal.undo(start.journal)
    frame.tracer.facts.withdraw(start.asked)
    frame.tracer.forget(start)
    frame.tracer.hints.add(loc)
    return False


# -- at run time -------------------------------------------------------------------------------------------------------


def _run_time_for(frame: Frame, node: ast.For, loop: rangeloop.LoopRange, flags: LoopFlags) -> None:
    if loop.is_empty:
        return
    if not isinstance(node.target, ast.Name):
        is_one = isinstance(node.target, ast.Attribute | ast.Subscript)
        why = "a run-time loop counts in a variable" if is_one else "a `range` gives one number per iteration"
        raise frame.error(NotIterable(why, "loop over a plain name, and assign in the body"), node.target)
    carried = _carried(frame, node, is_read_after=loop.runs or bool(node.orelse), counter=node.target.id)
    scope = binding_scope(frame, node.target.id)
    variable = Location(scope.variables, node.target.id, False)
    before = variable.get()
    is_read_after = scope is not frame.scope or node.target.id in _read_outside(node, frame)
    is_carried = is_read_after and rangeloop.may_carry(before, loop)
    if is_carried:
        carried.add(variable, before, Number(loop.start), [LeafType(loop.start.type, False)])

    def body(counter: Value) -> None:
        frame.tracer.journal.assign(variable, Number(counter))
        _iteration(frame, flags, node.body)
        if not is_carried and before is not MISSING:
            frame.tracer.journal.assign(variable, before)  # an inner loop over the same name changes nothing

    first_exit = len(frame.tracer.exits)
    _counted(loop, carried, _exits_of(node, flags), body)
    if before is not MISSING and not is_read_after:
        frame.tracer.journal.assign(variable, before)  # nobody reads it, so the loop around need not carry it
    elif not is_carried or (before is MISSING and not loop.runs):
        undefined = rangeloop.poison_after(node.target.id, before, loop, carried.loc)
        exits_taken = frozenset(range(first_exit, len(frame.tracer.exits)))  # in an iteration, where it has a value
        if is_carried and exits_taken:
            undefined = Partial(undefined.diagnostic, undefined.notes, variable.get(), False, exits_taken)
        frame.tracer.journal.assign(variable, undefined)


def _for_turns(
    frame: Frame, node: ast.For, loop: rangeloop.LoopRange, flags: LoopFlags, turn: Callable[[Number], Any]
) -> None:
    """Trace a loop of the library's, each round of which begins with `turn` of its number, which gives what the round gets."""
    if loop.is_empty:
        return
    carried = _carried(frame, node, is_read_after=loop.runs or bool(node.orelse))

    def body(counter: Value) -> None:
        assign(frame, node.target, turn(Number(counter)))
        _iteration(frame, flags, node.body)

    _counted(loop, carried, _exits_of(node, flags), body)


def _for_taken(frame: Frame, node: ast.For, iterable: Any, flags: LoopFlags, take: Callable[[], Any]) -> None:
    """Trace a loop of the library's that goes on while `take()` holds, which has put what the round gets into `taken`."""
    if _exits_of(node, flags):
        why = "who leaves a loop over what a counter gives never says that there is no more for it"
        hint = "use `continue`, and a flag where the other numbers are not to be used"
        raise frame.error(NotIterable(why, hint), node)
    carried = _carried(frame, node, is_read_after=bool(node.orelse))

    def body() -> None:
        assign(frame, node.target, iterable.taken)
        _iteration(frame, flags, node.body)

    _staged_while(carried, [], take, body, runs=False)


def _counted(
    loop: rangeloop.LoopRange, carried: CarriedLocations, exits: list[str], body: Callable[[Value], None]
) -> None:
    """Trace a `for` over a range. exits: the flags that may end it early."""
    if exits or loop.is_nonempty is not None:
        _counted_while(loop, carried, exits, body)
        return
    builder, intervals = carried.tracer.builder, carried.tracer.intervals
    inside = counted(*(intervals[bound] for bound in loop.bounds))

    def trace() -> OpenBlock:
        counter = Value(loop.start.type, "i")
        intervals.known[counter] = inside
        carried.tracer.facts.loops[counter] = loop.start, loop.step
        with builder.block([counter, *(params := carried.params())]) as block:
            carried.bind(params)
            body(counter)
            builder.yield_(*carried.current())
        return block

    block, changes = settle(carried, trace)
    builder.loc = carried.loc
    results = builder.for_(loop.bounds, carried.inits(), block.done(), unroll=loop.unroll)
    carried.bind(results, is_after=True)
    carried.finish(changes, runs=loop.runs)


def _counted_while(
    loop: rangeloop.LoopRange, carried: CarriedLocations, exits: list[str], body: Callable[[Value], None]
) -> None:
    """Trace a `for` that may be left early as a `while` with its own counter.

    Where the counter may wrap at the end of its dtype it is not tested; whether there is another number is carried too.
    """

    def carry(name: str, start: Value) -> Location:
        location = Location(carried.tracer.journal.born({}), name, False)
        location.put(Number(start))
        carried.add(location, Number(start), Number(start), [LeafType(start.type, False)])
        return location

    builder, trips, counter = carried.tracer.builder, loop.trips(carried.tracer), carry("counter", loop.start)
    is_tested = trips.never_wraps and loop.is_nonempty is None
    is_more = None if is_tested else carry("more", loop.is_nonempty or trips.begins())

    def test() -> bool | Number:
        return is_more.get() if is_more else Number(trips.holds(counter.get().value))

    def advance() -> None:
        now = counter.get().value
        carried.tracer.facts.loops[now] = loop.start, loop.step
        body(now)
        following = trips.following(now)
        if is_more:
            to_last = loop.is_nonempty is not None
            more = builder.compare(CompareKind.NE, now, loop.stop) if to_last else trips.goes_on(now, following)
            carried.tracer.journal.assign(is_more, Number(more))
        carried.tracer.journal.assign(counter, Number(following))

    _staged_while(carried, exits, test, advance, runs=loop.runs)


def _staged_while(
    carried: CarriedLocations,
    exits: list[str],
    test: Callable[[], bool | Number],
    body: Callable[[], None],
    *,
    runs: bool,
) -> None:
    """Trace a run-time loop that goes on while `test()` holds and no exit is taken. runs: its first test is known to hold."""
    frame, tracer, builder, loc = carried.frame, carried.tracer, carried.tracer.builder, carried.loc
    first_exit = len(tracer.exits)
    tested: bool | Number = True  # what the test gave in the last round
    last: dict[str, Any] = {}  # what each flag was at the end of the last round's body
    for name in exits:
        start = frame.control.get(name, False)
        carried.add(Location(frame.control, name, False), start, False, [LeafType(BOOL, False)])

    def run_test() -> bool | Number:
        nonlocal tested
        tested = test()
        return tested

    def trace() -> tuple[OpenBlock, OpenBlock]:
        with builder.block(params := carried.params()) as before:
            carried.bind(params)
            mark = tracer.journal.mark()
            goes_on = negate_condition(tracer, exit_taken(frame, exits))
            wanted = both(tracer, goes_on, run_test, loc)
            carried.assumed.update(assume(tracer, wanted, True))  # for the body alone; see `CarriedLocations.finish`
            flag = builder.constant(wanted, dtypes.bool_) if isinstance(wanted, bool) else wanted.value
            carried.tested.update(tracer.journal.changes(mark))
            builder.condition(flag, *carried.current())
        with builder.block(params := carried.params()) as after:
            carried.bind(params)
            for name in exits:
                tracer.assign(frame.control, name, False)  # an exit would have ended the loop before this iteration
            body()
            last.update((name, frame.control[name]) for name in exits)
            builder.yield_(*carried.current())
        return before, after

    (before, after), changes = settle(carried, trace)
    builder.loc = loc
    results = builder.while_(carried.inits(), before.done(), after.done())
    carried.bind(results, is_after=True)
    broken, returned = (frame.exits_by(flag, first_exit) for flag in (frame.loops[-1].broken, RETURN))
    is_endless = tested is True
    carried.finish(changes, runs=runs or is_endless, is_endless=is_endless, broken=broken, returned=returned)
    sure = [name for name in exits if last[name] is not False]
    if not is_endless or len(sure) != 1:  # else it can only have been ended by that one
        sure = [name for name in exits if runs and last[name] is True][:1]
    for name in sure:
        tracer.assign(frame.control, name, True)


def _carried(frame: Frame, node: ast.For | ast.While, *, is_read_after: bool, counter: str = "") -> CarriedLocations:
    """Return what a loop carries, guessed by its text. counter: the variable that is none of it."""
    carried = CarriedLocations(frame, frame.loc(node))
    carried.guess([place for place in _assigned_locations(frame, node) if place.key != counter])
    carried.moved, carried.early_names = _moved_names(node), lambda: _early_names(node)
    if is_read_after:
        carried.read_after = _read_after(frame, node)
    return carried


def _assigned_locations(frame: Frame, node: ast.For | ast.While) -> list[Location]:
    """Return the variables that the loop's text assigns: the first guess of what it carries."""
    owners = {name: binding_scope(frame, name).variables for name in _assigned_names(node)}
    return [Location(variables, name, False) for name, variables in owners.items() if name in variables]


@remembered
def _assigned_names(node: ast.For | ast.While) -> dict[str, None]:
    """Return the names that the loop's text assigns, in its order."""
    names = (n for n in all_nodes(node) if isinstance(n, ast.Name))
    return dict.fromkeys(n.id for n in names if isinstance(n.ctx, ast.Store))


@remembered
def _moved_names(node: ast.For | ast.While) -> set[str]:
    """Return the names of the variables to which the loop's text adds, as in `column += 64`."""
    added = [n.target for n in all_nodes(node) if isinstance(n, ast.AugAssign) and isinstance(n.op, ast.Add)]
    return {target.id for target in added if isinstance(target, ast.Name)}


@remembered
def _early_names(node: ast.For | ast.While) -> set[str]:
    """Return the names that the body's text assigns before its last call, or in a loop behind which there is none."""
    calls = [i for i, statement in enumerate(node.body) if any(isinstance(n, _WORK) for n in all_nodes(statement))]
    end = calls[-1] if calls else 0
    early = node.body[: end + isinstance(node.body[end], _LOOPS)]
    names = [n for statement in early for n in all_nodes(statement) if isinstance(n, ast.Name)]
    return {n.id for n in names if isinstance(n.ctx, ast.Store)}


_LOOPS = (ast.For, ast.While)
_WORK = (*_LOOPS, ast.Call)


def _exits_of(node: ast.For | ast.While, flags: LoopFlags) -> list[str]:
    """Return the flags that may end the loop before its test does."""
    found = _exits_in(node.body)
    return [name for name, kind in ((flags.broken, ast.Break), (RETURN, ast.Return)) if kind in found]


def _exits_in(body: Iterable[ast.stmt]) -> set[type[ast.stmt]]:
    """Return which of `return` and `break` may end the loop that has this body."""
    found: set[type[ast.stmt]] = set()
    for statement in body:
        if isinstance(statement, ast.Return | ast.Break):
            found.add(type(statement))
        elif isinstance(statement, ast.For | ast.While):  # its `break` is its own, but not that of its `else`
            found |= (_exits_in(statement.body) - {ast.Break}) | _exits_in(statement.orelse)
        else:
            found |= _exits_in(nested(statement))
    return found


def _read_after(frame: Frame, node: ast.For | ast.While) -> set[Any]:
    """Return the locations that the loop's text assigns and that are read outside of its body."""
    names = _assigned_names(node).keys() & _read_outside(node, frame)
    return {Location(binding_scope(frame, name).variables, name, False).identity for name in names}


@remembered
def _read_outside(loop: ast.For | ast.While, frame: Frame) -> frozenset[str]:
    """Return the names read in the function but outside of the loop's body: its range counts, another function's own do not."""
    every = all_nodes(frame.source.node)
    left_out = {id(n) for statement in loop.body for n in all_nodes(statement)}
    for scope in every[1:]:
        if isinstance(scope, ast.FunctionDef | ast.Lambda):
            body, own = scope.body if isinstance(scope.body, list) else [scope.body], names_of(scope).local
            left_out |= {id(n) for part in body for n in all_nodes(part) if isinstance(n, ast.Name) and n.id in own}
    names = (n for n in every if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
    return frozenset(n.id for n in names if id(n) not in left_out)


statements.RUNNERS.update({ast.For: trace_for, ast.While: trace_while})
