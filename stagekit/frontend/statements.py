"""Statements: one function per kind of node, and the rules of early exits.

`break`, `continue` and `return` set flags (`Frame.control`). After a statement that may have set one, the rest of the list runs
only where no flag is set: not at all when one is set for certain, under a run-time `if` when it depends.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from stagekit import dtypes
from stagekit.diagnostics import Loc
from stagekit.frontend import expressions, matching, objects, rangeloop
from stagekit.frontend.calls import call, make_closure
from stagekit.frontend.control import branch
from stagekit.frontend.errors import BadIndex, NotIterable, UnboundLocal, UnsupportedSyntax
from stagekit.frontend.frame import RETURN, VALUE, Frame, LoopFlags
from stagekit.frontend.journal import MISSING, Location
from stagekit.frontend.loops import Carried, LeafType, settle
from stagekit.frontend.numbers import PYTHON_BINARY
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import Number, StagedRange, StaticRange
from stagekit.ir import BOOL, OpenBlock, Value

_EXITS = (ast.Return, ast.Break, ast.Continue)


def run_body(tracer: Tracer, frame: Frame, body: Sequence[ast.stmt]) -> None:
    """Run statements in order, minding early exits."""
    for position, statement in enumerate(body):
        tracer.count_ops(frame, statement)
        _RUN[type(statement)](tracer, frame, statement)
        if not may_exit(statement):
            continue
        stopped = exit_taken(tracer, frame, frame.flags())
        if stopped is True:
            return
        rest = body[position + 1 :]
        if isinstance(stopped, Number) and rest:
            _guarded(tracer, frame, stopped, rest, frame.loc(statement))
            return


def _guarded(tracer: Tracer, frame: Frame, stopped: Number, rest: Sequence[ast.stmt], loc: Loc) -> None:
    """Run `rest` where no exit was taken."""
    go_on = tracer.builder.not_(stopped.value)
    branch(tracer, go_on, lambda: run_body(tracer, frame, rest), lambda: _exit_known(tracer, frame), loc)


def may_exit(statement: ast.stmt) -> bool:
    """Does the statement contain an exit of this call or of a loop around it? Remembered on the node."""
    found: bool | None = getattr(statement, "_may_exit", None)
    if found is None:
        found = isinstance(statement, _EXITS) or any(may_exit(s) for s in _nested(statement))
        statement._may_exit = found  # type: ignore[attr-defined]
    return found


def _nested(statement: ast.stmt) -> Iterable[ast.stmt]:
    """Statements directly inside, in the same call."""
    if isinstance(statement, ast.FunctionDef):
        return ()
    if isinstance(statement, ast.Match):
        return (inner for case in statement.cases for inner in case.body)
    return (node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.stmt))


def exit_taken(tracer: Tracer, frame: Frame, flags: Sequence[str]) -> bool | Number:
    """Is one of `flags` set: False, True, or a run-time bool?"""
    values = [frame.control.get(flag, False) for flag in flags]
    if any(v is True for v in values):
        return True
    taken = [v.value for v in values if isinstance(v, Number)]
    if not taken:
        return False
    return Number(functools.reduce(tracer.builder.or_, taken))


def _exit_known(tracer: Tracer, frame: Frame) -> None:
    """Here an exit was taken. If it can only be one, its flag is set: so `if c: return a` and `return b` cover every path."""
    possible = [flag for flag in frame.flags() if frame.control.get(flag, False) is not False]
    if len(possible) == 1:
        tracer.assign(frame.control, possible[0], True)


def _nothing() -> None:
    return None


# -- simple statements ----------------------------------------------------------------------------------------------------


def _expression(tracer: Tracer, frame: Frame, node: ast.Expr) -> None:
    if not isinstance(node.value, ast.Constant):
        expressions.evaluate(tracer, frame, node.value)


def _pass(tracer: Tracer, frame: Frame, node: ast.stmt) -> None:
    pass


def _assign(tracer: Tracer, frame: Frame, node: ast.Assign) -> None:
    value = expressions.evaluate(tracer, frame, node.value)
    for target in node.targets:
        assign(tracer, frame, target, value)


def _annotated(tracer: Tracer, frame: Frame, node: ast.AnnAssign) -> None:
    if node.value is None:
        return
    value = expressions.evaluate(tracer, frame, node.value)
    assign(tracer, frame, node.target, value)


def _augmented(tracer: Tracer, frame: Frame, node: ast.AugAssign) -> None:
    """`target op= value`: the target's object and index are evaluated once."""
    symbol, _ = PYTHON_BINARY[type(node.op)]
    tracer.at(frame, node.target)
    place = expressions.place_of(tracer, frame, node.target)
    old = place.get()
    value = expressions.evaluate(tracer, frame, node.value)
    method = next((m for kind, m in _IN_PLACE.get(symbol, {}).items() if isinstance(old, kind)), None)
    if method is not None:
        call(tracer, frame, node, objects.attribute(tracer, frame, node, old, method), [value], {})
        place.put(old)
        return
    loc = tracer.at(frame, node)
    place.put(expressions.in_place(tracer, frame, node, symbol, old, value, loc))


# Containers change in place, so that every name of theirs sees it.
_IN_PLACE: dict[str, dict[type, str]] = {
    "+": {list: "extend"},
    "*": {list: "__imul__"},
    "|": {dict: "update", set: "update"},
    "&": {set: "intersection_update"},
    "-": {set: "difference_update"},
    "^": {set: "symmetric_difference_update"},
}


def assign(tracer: Tracer, frame: Frame, target: ast.expr, value: Any) -> None:
    """Bind `value` to a target: name, tuple, item or attribute."""
    if isinstance(target, ast.Tuple | ast.List):
        _unpack(tracer, frame, target, value)
    else:
        tracer.at(frame, target)
        expressions.place_of(tracer, frame, target).put(value)


def _unpack(tracer: Tracer, frame: Frame, target: ast.Tuple | ast.List, value: Any) -> None:
    items = expressions.items_of(tracer, frame, target, value)
    starred = [i for i, t in enumerate(target.elts) if isinstance(t, ast.Starred)]
    wanted = len(target.elts)
    if len(items) < wanted - len(starred) or (not starred and len(items) != wanted):
        message = f"{len(items)} values for {wanted} targets"
        raise tracer.error(BadIndex(message, "the number of values must be known and fit"), frame, target)
    if starred:
        at, after = starred[0], wanted - starred[0] - 1
        middle = tracer.journal.born(list(items[at : len(items) - after]))
        items = [*items[:at], middle, *items[len(items) - after :]]
    for each, item in zip(target.elts, items, strict=True):
        assign(tracer, frame, each.value if isinstance(each, ast.Starred) else each, item)


def _delete(tracer: Tracer, frame: Frame, node: ast.Delete) -> None:
    for target in node.targets:
        _unbind(tracer, frame, target)


def _unbind(tracer: Tracer, frame: Frame, target: ast.expr) -> None:
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            _unbind(tracer, frame, each)
    elif isinstance(target, ast.Name):
        variables = expressions.binding_scope(frame, target.id).variables
        if variables.get(target.id, MISSING) is MISSING:
            raise tracer.error(UnboundLocal(target.id), frame, target)
        tracer.assign(variables, target.id, MISSING)
    elif isinstance(target, ast.Attribute):
        objects.delete(tracer, frame, target, expressions.evaluate(tracer, frame, target.value), target.attr)
    elif isinstance(target, ast.Subscript):
        owner = expressions.evaluate(tracer, frame, target.value)
        index = expressions.evaluate(tracer, frame, target.slice)
        remove = objects.attribute(tracer, frame, target, owner, "__delitem__")
        call(tracer, frame, target, remove, [index], {})


def _define(tracer: Tracer, frame: Frame, node: ast.FunctionDef) -> None:
    made: Any = make_closure(tracer, frame, node)
    for decorator in reversed(node.decorator_list):
        made = call(tracer, frame, decorator, expressions.evaluate(tracer, frame, decorator), [made], {})
    tracer.assign(expressions.binding_scope(frame, node.name).variables, node.name, made)


def _assert(tracer: Tracer, frame: Frame, node: ast.Assert) -> None:
    """A run-time check; the message is built only for those threads that fail."""
    condition = expressions.condition(tracer, frame, node.test)
    loc = tracer.at(frame, node)
    if condition is True:
        return
    value = tracer.builder.false() if condition is False else condition.value
    text, operands = (
        expressions.message(tracer, frame, node.msg)
        if node.msg
        else (ast.unparse(node.test).replace("{", "{{").replace("}", "}}"), ())
    )
    tracer.builder.loc = loc
    tracer.builder.check(value, text, operands)


# -- exits ----------------------------------------------------------------------------------------------------------------


def _return(tracer: Tracer, frame: Frame, node: ast.Return) -> None:
    value = expressions.evaluate(tracer, frame, node.value) if node.value else None
    tracer.assign(frame.control, VALUE, value)
    tracer.assign(frame.control, RETURN, True)


def _break(tracer: Tracer, frame: Frame, node: ast.Break) -> None:
    tracer.assign(frame.control, frame.loops[-1].broken, True)


def _continue(tracer: Tracer, frame: Frame, node: ast.Continue) -> None:
    tracer.assign(frame.control, frame.loops[-1].continued, True)


# -- branches -------------------------------------------------------------------------------------------------------------


def _if(tracer: Tracer, frame: Frame, node: ast.If) -> None:
    condition = expressions.condition(tracer, frame, node.test)
    if isinstance(condition, bool):
        run_body(tracer, frame, node.body if condition else node.orelse)
        return

    def then() -> None:
        run_body(tracer, frame, node.body)

    def otherwise() -> None:
        run_body(tracer, frame, node.orelse)

    branch(tracer, condition.value, then, otherwise, frame.loc(node.test))


def _match(tracer: Tracer, frame: Frame, node: ast.Match) -> None:
    subject = expressions.evaluate(tracer, frame, node.subject)

    def attempt(cases: Sequence[ast.match_case]) -> None:
        if not cases:
            return
        case, rest = cases[0], cases[1:]
        matched = matching.attempt(tracer, frame, case.pattern, subject)
        if case.guard is not None:
            matched = expressions.both(tracer, frame, matched, lambda: holds(case, case.guard), node)
        if matched is True:
            take(case)
        elif matched is False:
            attempt(rest)
        else:
            branch(tracer, matched.value, lambda: take(case), lambda: attempt(rest), frame.loc(case.pattern))

    def holds(case: ast.match_case, guard: Any) -> bool | Number:
        matching.bind(tracer, frame, case.pattern)
        return expressions.condition(tracer, frame, guard)

    def take(case: ast.match_case) -> None:
        matching.bind(tracer, frame, case.pattern)
        run_body(tracer, frame, case.body)

    attempt(node.cases)


# -- loops ----------------------------------------------------------------------------------------------------------------


def _enter_loop(tracer: Tracer, frame: Frame) -> LoopFlags:
    serial = len(frame.control)
    flags = LoopFlags(f"broken{serial}", f"continued{serial}")
    tracer.assign(frame.control, flags.broken, False)
    tracer.assign(frame.control, flags.continued, False)
    frame.loops.append(flags)
    return flags


def _iteration(tracer: Tracer, frame: Frame, flags: LoopFlags, body: Sequence[ast.stmt]) -> None:
    """One pass through a loop's body; `continue` ends here."""
    tracer.assign(frame.control, flags.continued, False)
    run_body(tracer, frame, body)
    tracer.assign(frame.control, flags.continued, False)


def _for(tracer: Tracer, frame: Frame, node: ast.For) -> None:
    _refuse_else(tracer, frame, node)
    iterable = expressions.evaluate(tracer, frame, node.iter)
    flags = _enter_loop(tracer, frame)
    if isinstance(iterable, range | StagedRange):
        _run_time_for(tracer, frame, node, rangeloop.staged(tracer, iterable, frame.loc(node.iter)), flags)
    else:
        _unrolled(tracer, frame, node, _items(tracer, frame, node.iter, iterable), flags)
    frame.loops.pop()


def _items(tracer: Tracer, frame: Frame, node: ast.expr, iterable: Any) -> Iterable[Any]:
    """What an unrolled loop goes through. Containers that its body may change, and iterators, are not read ahead."""
    if isinstance(iterable, StaticRange):
        return iterable.values
    if type(iterable) in (list, dict, set) or isinstance(iterable, Iterator):
        return expressions.one_by_one(tracer, frame, node, iterable)
    return expressions.items_of(tracer, frame, node, iterable)


def _refuse_else(tracer: Tracer, frame: Frame, node: ast.For | ast.While) -> None:
    if node.orelse:
        what = "`else` of a loop"
        raise tracer.error(
            UnsupportedSyntax(what, "set a flag in the loop and test it afterwards"), frame, node.orelse[0]
        )


def _unrolled(tracer: Tracer, frame: Frame, node: ast.For, values: Iterable[Any], flags: LoopFlags) -> None:
    """A loop over compile-time values: its body once per value."""
    outer = frame.iteration
    target = ast.unparse(node.target)

    def once(value: Any) -> None:
        assign(tracer, frame, node.target, value)
        _iteration(tracer, frame, flags, node.body)

    for value in values:
        frame.iteration = (f"{target} = {_short(value)}", *outer)
        tracer.count_unrolled(frame.source.loc(node, frame.call_site, ()))
        stopped = exit_taken(tracer, frame, [RETURN, flags.broken])
        if stopped is True:
            break
        if stopped is False:
            once(value)
        else:
            go_on = tracer.builder.not_(stopped.value)
            branch(tracer, go_on, lambda v=value: once(v), _nothing, frame.loc(node))  # type: ignore[misc]
    frame.iteration = outer


def _short(value: Any) -> str:
    text = "(run-time)" if isinstance(value, Number) else repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _assigned_locations(frame: Frame, node: ast.For | ast.While) -> list[Location]:
    """Variables of this call that the loop's text assigns: the first guess of what it carries."""
    names: dict[str, None] = getattr(node, "_assigned", None) or {}
    if not names:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                names[inner.id] = None
        node._assigned = names  # type: ignore[union-attr]
    owners = {name: expressions.binding_scope(frame, name).variables for name in names}
    return [Location(variables, name, False) for name, variables in owners.items() if name in variables]


def _carry_exits(frame: Frame, carried: Carried, flags: LoopFlags) -> list[str]:
    """Carry the flags that end the loop, so that they are known at its test. Returns their names."""
    names = [flags.broken, RETURN]
    for name in names:
        start = frame.control.get(name, False)
        carried.add(Location(frame.control, name, False), start, False, [LeafType(BOOL, False)])
    return names


def _run_time_for(tracer: Tracer, frame: Frame, node: ast.For, loop: rangeloop.Range, flags: LoopFlags) -> None:
    if loop.is_empty:
        return
    if not isinstance(node.target, ast.Name):
        raise tracer.error(
            NotIterable("a `range` gives one number per iteration", "use a single loop variable"), frame, node.target
        )
    loc = frame.loc(node)
    carried = Carried(tracer, loc)
    carried.guess([place for place in _assigned_locations(frame, node) if place.key != node.target.id])
    variable = Location(expressions.binding_scope(frame, node.target.id).variables, node.target.id, False)
    before = variable.get()
    is_read_after = _is_read_outside(frame, node, node.target.id)
    is_kept = is_read_after and rangeloop.may_carry(before, loop)
    if is_kept:
        carried.add(variable, before, Number(loop.start), [LeafType(loop.start.type, False)])

    def body(counter: Value) -> None:
        tracer.journal.assign(variable, Number(counter))
        _iteration(tracer, frame, flags, node.body)
        if not is_kept and before is not MISSING:
            tracer.journal.assign(variable, before)  # an inner loop over the same name hands nothing on

    if any(may_exit_loop(s) for s in node.body):
        _counted_while(tracer, frame, loop, carried, flags, body)
    else:
        _plain_for(tracer, frame, loop, carried, body)
    if not is_kept or (before is MISSING and not loop.runs):
        tracer.journal.assign(variable, rangeloop.after(node.target.id, before, loop, loc))


def may_exit_loop(statement: ast.stmt) -> bool:
    """Does the statement contain `return`, or a `break` of the loop around it?"""
    if isinstance(statement, ast.Return | ast.Break):
        return True
    inner = list(_nested(statement))
    if isinstance(statement, ast.For | ast.While):
        return any(isinstance(n, ast.Return) for s in inner for n in ast.walk(s))
    return any(may_exit_loop(s) for s in inner)


def _is_read_outside(frame: Frame, loop: ast.For, name: str) -> bool:
    """Is the loop variable read anywhere in the function but in this loop?"""
    inside = {id(n) for n in ast.walk(loop)}
    return any(
        isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) and id(n) not in inside
        for n in ast.walk(frame.source.node)
    )


def _plain_for(
    tracer: Tracer, frame: Frame, loop: rangeloop.Range, carried: Carried, body: Callable[[Value], None]
) -> None:
    builder = tracer.builder

    def trace() -> OpenBlock:
        counter = Value(loop.start.type, "i")
        with builder.block([counter, *(params := carried.params())]) as block:
            carried.bind(params)
            body(counter)
            builder.yield_(*carried.current())
        return block

    block, changes = settle(tracer, carried, trace)
    builder.loc = carried.loc
    results = builder.for_(loop.bounds, carried.inits(), block.done(), unroll=loop.unroll)
    carried.bind(results)
    carried.leave(changes)


def _counted_while(
    tracer: Tracer,
    frame: Frame,
    loop: rangeloop.Range,
    carried: Carried,
    flags: LoopFlags,
    body: Callable[[Value], None],
) -> None:
    """A `for` that may be left early: a `while` with its own counter."""
    builder = tracer.builder
    counter = Location(tracer.journal.born({}), "counter", False)
    counter.put(Number(loop.start))
    carried.add(counter, Number(loop.start), Number(loop.start), [LeafType(loop.start.type, False)])

    def test() -> bool | Number:
        return Number(loop.goes_on(builder, counter.get().value))

    def advance() -> None:
        now = counter.get().value
        body(now)
        tracer.journal.assign(counter, Number(builder.add(now, loop.step)))

    _staged_while(tracer, frame, carried, flags, test, advance, has_exits=True)


def _while(tracer: Tracer, frame: Frame, node: ast.While) -> None:
    """A `while` whose test and exits stay known at compile time runs at compile time; else it is a run-time loop."""
    _refuse_else(tracer, frame, node)
    flags = _enter_loop(tracer, frame)
    while not _is_run_time_while(tracer, frame, node, flags):
        if _static_iteration(tracer, frame, node, flags):
            frame.loops.pop()
            return
    carried = Carried(tracer, frame.loc(node))
    carried.guess(_assigned_locations(frame, node))
    has_exits = any(may_exit_loop(s) for s in node.body)

    def test() -> bool | Number:
        return expressions.condition(tracer, frame, node.test)

    def body() -> None:
        _iteration(tracer, frame, flags, node.body)

    _staged_while(tracer, frame, carried, flags, test, body, has_exits=has_exits)
    frame.loops.pop()


def _is_run_time_while(tracer: Tracer, frame: Frame, node: ast.While, flags: LoopFlags) -> bool:
    """Was this loop found to depend on run-time values, here or in an earlier round of a loop around it?"""
    return frame.loc(node) in tracer.hints


def _static_iteration(tracer: Tracer, frame: Frame, node: ast.While, flags: LoopFlags) -> bool:
    """Try one iteration at compile time; says whether the loop has ended. A run-time test or exit undoes it and is remembered."""
    loc = frame.loc(node)
    mark, printed = tracer.journal.mark(), len(tracer.printed)
    with tracer.builder.block() as trial:
        condition = expressions.condition(tracer, frame, node.test)
        ended: bool | Number = not condition if isinstance(condition, bool) else condition
        if condition is True:
            tracer.count_unrolled(loc)
            _iteration(tracer, frame, flags, node.body)
            ended = exit_taken(tracer, frame, [RETURN, flags.broken])
    if isinstance(ended, bool):
        tracer.builder.current.ops.extend(trial.ops)
        return ended
    tracer.journal.undo(mark)
    del tracer.printed[printed:]
    tracer.hints[loc] = True
    return False


def _staged_while(
    tracer: Tracer,
    frame: Frame,
    carried: Carried,
    flags: LoopFlags,
    test: Callable[[], bool | Number],
    body: Callable[[], None],
    *,
    has_exits: bool,
) -> None:
    builder, loc = tracer.builder, carried.loc
    exits = _carry_exits(frame, carried, flags) if has_exits else []

    def go_on() -> Value:
        stopped = exit_taken(tracer, frame, exits)
        wanted = test() if stopped is False else _unless(stopped)
        return builder.constant(wanted, dtypes.bool_) if isinstance(wanted, bool) else wanted.value

    def _unless(stopped: bool | Number) -> bool | Number:
        if stopped is True:
            return False
        assert isinstance(stopped, Number)
        outcome: bool | Number = branch(tracer, builder.not_(stopped.value), test, lambda: False, loc)
        return outcome

    def trace() -> tuple[OpenBlock, OpenBlock]:
        with builder.block(params := carried.params()) as before:
            carried.bind(params)
            mark = tracer.journal.mark()
            flag = go_on()
            carried.tested.update(tracer.journal.changes(mark))
            builder.condition(flag, *carried.current())
        with builder.block(params := carried.params()) as after:
            carried.bind(params)
            body()
            builder.yield_(*carried.current())
        return before, after

    (before, after), changes = settle(tracer, carried, trace)
    builder.loc = loc
    results = builder.while_(carried.inits(), before.done(), after.done())
    carried.bind(results)
    carried.leave(changes)


_RUN: dict[type[ast.stmt], Callable[..., None]] = {
    ast.Expr: _expression,
    ast.Pass: _pass,
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.Delete: _delete,
    ast.FunctionDef: _define,
    ast.Assert: _assert,
    ast.Return: _return,
    ast.Break: _break,
    ast.Continue: _continue,
    ast.If: _if,
    ast.Match: _match,
    ast.For: _for,
    ast.While: _while,
    ast.Nonlocal: _pass,
}
