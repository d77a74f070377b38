"""Calls of the library that are carried out once for arguments of one form. Later ones are *stamped*: their ops are copied.

    y = x + x                of tiles: the first two calls of such tiles are carried out, the second one is recorded
    z = y + y                four ops are copied, with the vectors of `y` as operands

A form is what values are but for the run-time numbers and pointers in them. What a call depends on beside that is asked again
before it is stamped: whether numbers are multiples, and what the block of code has computed already. Where an answer is another
one, the call is carried out, and recorded as another one. Nothing is recorded of calls that do more than emit ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from stagekit.diagnostics import Loc
from stagekit.frontend import effects
from stagekit.frontend.evaluation import Site
from stagekit.frontend.facts import Question
from stagekit.frontend.forms import OnceAsked, TakenApart, ValueParts, form_of, make_room, parts_of, taken_apart
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import Address, Array, Number, holds_run_time, is_open, mapper_of
from stagekit.ir import Block, Value, ops, walk
from stagekit.ir.builder import LookedUp
from stagekit.ir.stamps import LocTable, OpCopy, emit, op_copy

# -- recording -------------------------------------------------------------------------------------------------------------


class Stamp(NamedTuple):
    """What a call emits and returns.

    values: those of its arguments. questions: what is asked before, `Question`s, and `OnceAsked`s of which `found` is the form.
    patterns: which of all values and objects at hand are the same. steps: its ops. places: theirs, each as the places that lead
    to it from the call. made: how objects are made. result, remembered: the numbers of what it returns, and of what the block
    knows then, among all objects. form: that of the result. flags: what is true of the trace afterwards.
    """

    values: Sequence[Value]
    questions: Sequence[Any]
    patterns: Any
    steps: Sequence[OpCopy]
    places: Sequence[Sequence[Loc]]
    made: Sequence[tuple[Any, Any]]
    result: int
    remembered: Sequence[tuple[Any, Sequence[Value], int]]
    form: tuple[Any, Sequence[int], Sequence[Value]] | None
    is_born: bool
    flags: Sequence[str]


_STAMPS: dict[Any, dict[Any, Any]] = {}  # by what calls depend on beside their arguments, by function and form
_MOST_ROWS = 64
_MOST = 1024  # of a row
_MOST_IN_ALL = 8192  # of some 10 KB each
_MOST_ALIKE = 4  # that differ in the answers alone, those of which nothing could be recorded included
_FLAGS = ("is_placed", "is_of_hopper", "has_acted", "lacks_hosts")


def stamped(site: Site, fn: Any, args: list[Any], kwargs: dict[str, Any], run: Callable[..., Any]) -> Any:
    """Return `fn(*args, **kwargs)`, by `run` or by a stamp."""
    tracer = site.tracer
    if tracer.builder.log is not None:  # part of what is recorded
        return run(site, fn, args, kwargs)
    parts = ValueParts(tracer.forms, [], [], {})
    tokens = taken_apart((*args, *kwargs.values()), parts)
    if tokens is None or list in map(type, args):  # a list may be the user's, and change
        return run(site, fn, args, kwargs)
    rows, objects, values = _rows(site), parts.objects, parts.values
    same = None if len({*values}) == len(values) else (_pattern(values), _pattern([*map(id, objects)]))
    key = fn, tokens, same, *kwargs
    known = rows.get(key)
    if known is None:
        make_room(rows, _MOST)
        rows[key] = []  # most calls of a process come once: what comes again is recorded
        return run(site, fn, args, kwargs)
    for stamp in known:
        at_hand = stamp and _at_hand(stamp, tracer, values, objects)
        if at_hand is not None:
            if stamp is not known[0]:  # the one of the last call is asked first
                rows[key] = [stamp, *[each for each in known if each is not stamp]]
            return _carried_out(site, stamp, *at_hand)
    if len(known) >= _MOST_ALIKE:
        return run(site, fn, args, kwargs)
    recording = _CallRecorder(site, objects, values)
    result = recording.run(run, fn, args, kwargs)
    known.append(recording.stamp(result))
    return result


_FEW = 16  # so many are looked for one by one


def _pattern(items: list[Any]) -> Any:
    """Return which of them are the same: for each the place of the first."""
    if len(items) <= _FEW:
        return tuple(map(items.index, items))
    first = dict(zip(reversed(items), range(len(items) - 1, -1, -1)))
    return tuple(map(first.__getitem__, items))


def _rows(site: Site) -> dict[Any, Any]:
    """Return what was recorded of calls in kernels like this one, in places like this one."""
    tracer = site.tracer
    flags = tracer.is_placed, tracer.is_of_hopper, tracer.has_acted, tracer.lacks_hosts, tracer.control_depth > 0
    lengths = len(tracer.item_sizes), len(tracer.uses), len(tracer.among_threads)
    state = tracer.assumed, id(tracer.launch), tracer.whole_block, lengths, flags, site.frame.is_per_thread
    if state != tracer.stamps[0]:
        key = settings(site), *tracer.uses, *tracer.among_threads, flags
        if key not in _STAMPS:
            make_room(_STAMPS, _MOST_ROWS)
        if sum(map(len, list(_STAMPS.values()))) > _MOST_IN_ALL:
            make_room(_STAMPS, len(_STAMPS))  # the oldest row goes
        tracer.stamps = state, _STAMPS.setdefault(key, {})
    return tracer.stamps[1]  # type: ignore[no-any-return]


def settings(site: Site) -> Any:
    """Return what code of the library asks of the kernel that it is in."""
    tracer = site.tracer
    launched = tracer.launch and tuple([each for each in tracer.launch[0].block if isinstance(each, int | np.integer)])
    options = tracer.target, tracer.is_quick, tracer.options, tracer.assumed, frozenset(tracer.item_sizes)
    return *options, launched, tracer.whole_block and tracer.whole_block.shape, site.frame.is_per_thread


class _CallRecorder:
    """A call that is carried out, and what it does beside returning something.

    objects: all that a stamp has at hand before it makes some. numbers: theirs, by their ids. bound: the values at hand.
    """

    def __init__(self, site: Site, objects: list[Any], values: list[Value]) -> None:
        self.site, self.tracer, self.builder = site, site.tracer, site.tracer.builder
        self.block = self.builder.current
        self.params, self.values, self.bound = tuple(values), values.copy(), set(values)
        self.objects, self.numbers = list[Any](), dict[int, int]()
        self.add(objects)
        self.made: list[tuple[Any, Any]] = []
        self.places = LocTable()

    def add(self, objects: Iterable[Any]) -> None:
        for each in objects:
            self.numbers.setdefault(id(each), len(self.objects))
            self.objects.append(each)

    def run(self, run: Callable[..., Any], *call: Any) -> Any:
        """Return the result of the call, and log what it asks."""
        tracer, builder = self.tracer, self.builder
        effects.begin_statement(self.site)
        self.mark, self.state = tracer.journal.mark(), _state_of(tracer)
        self.count, self.before = len(self.block.ops), self.block.ops[-1].loc if self.block.ops else None
        unset = [name for name in _FLAGS if not getattr(tracer, name)]  # the key says the same of those that are set
        self.log = builder.log = list[Any]()
        try:
            return run(self.site, *call)
        finally:
            builder.log = None
            self.flags = tuple([name for name in unset if getattr(tracer, name)])

    def stamp(self, result: Any) -> Stamp | None:
        """Return what was recorded; None where the call did more than a stamp does."""
        journal, block = self.tracer.journal, self.block
        if journal.changes(self.mark) or journal.restructured_since(self.mark) or self.state != _state_of(self.tracer):
            return None
        if None in self.log or (self.count and block.ops[self.count - 1].loc is not self.before):
            return None
        try:
            questions, remembered = self.asked()
            is_alone = len(self.values) == len(self.params)  # then the key says which are the same
            patterns = None if is_alone else (_pattern(self.values), _pattern([*map(id, self.objects)]))
            steps = self.steps()
            known = [(key, values, self.number_of(found)) for key, values, found in remembered]
            number, form = self.number_of(result), self.form_of_result(result)
            places = [self.path_to(loc) for loc in self.places.every]
        except _Unstampable:
            return None
        is_born = isinstance(result, list) or is_open(result)
        return Stamp(
            self.params, questions, patterns, steps, places, self.made, number, known, form, is_born, self.flags
        )

    def asked(self) -> tuple[list[Any], list[Any]]:
        """Return what a stamp has to ask, and what the block knows by the call."""
        questions, remembered, own = list[Any](), list[Any](), set[Any]()
        emitted = {value for op in self.block.ops[self.count :] for value in op.results}
        self.fresh = emitted - {self.block.known.get(each.key) for each in self.log if type(each) is LookedUp}
        for each in self.log:
            if type(each) is Question:
                self.need(each.value in self.bound)
                questions.append(each)
            elif type(each) is OnceAsked and each.block is self.block and (*each.key, *each.values) not in own:
                is_fresh = not self.fresh.isdisjoint(each.values)  # then no block knows it before
                self.need(is_fresh or self.bound.issuperset(each.values))
                if each.was_known:
                    form = form_of(self.tracer, each.found)
                    self.need(form.token is not None)
                    self.add(form.objects)
                    self.values += form.values
                    self.bound.update(form.values)
                    questions.append(each._replace(block=None, found=form))
                    continue
                own.add((*each.key, *each.values))
                remembered.append((each.key, each.values, each.found))
                questions += [] if is_fresh else [each._replace(block=None, found=None)]
        return questions, remembered

    def need(self, holds: bool) -> None:
        if not holds:
            raise _Unstampable

    def steps(self) -> list[OpCopy]:
        """Return the ops of the call, with what it asked for and the block had made before in front of those that read it."""
        block, there = self.block, dict[Value, tuple[Any, Any]]()
        region = block.ops[self.count :]
        self.need(not region or type(region[0]) is not ops.Statement)  # which would have replaced another
        emitted = {value for op in region for value in op.results}
        asked = [each for each in self.log if type(each) is LookedUp and each.block is block]
        keys = {block.known[each.key]: each.key for each in asked}
        rows: list[list[OpCopy]] = [[] for _ in range(len(region) + 1)]
        for each in asked:
            found = block.known[each.key]
            if found not in emitted and found not in there:
                there[found] = each.key
                op = block.definitions()[found]
                self.need(set(op.operands()) <= self.bound | there.keys())
                rows[each.position - self.count].append(op_copy(op, self.places, each.loc, each.key))
        for op, row in zip(region, rows):
            row.append(op_copy(op, self.places, None, keys.get(op.results[0]) if op.results else None))
        self.bound |= there.keys()
        every = walk(Block((), tuple(region)))
        self.need(
            not any(isinstance(op, ops.For | ops.While) for op in every)
        )  # of which more is known than their ops say
        defined = {v for op in every for v in (*op.results, *[p for body in op.bodies() for p in body.params])}
        self.need({v for op in every for v in op.operands()} <= defined | self.bound)
        written = [op.indexed.values() for op in every if isinstance(op, ops.Offset) and op.indexed]
        self.need(set().union(*written) <= defined | self.bound)
        self.bound |= emitted
        return [step for row in rows for step in row]

    def path_to(self, loc: Loc) -> list[Loc]:
        """Return the places that lead from the call to a place, which is last."""
        path = list[Loc]()
        for here in loc.chain():
            if here is self.site.loc:
                return path[::-1]
            path.append(here)
        raise _Unstampable

    def number_of(self, value: Any) -> int:
        """Return the number of an object among all that a stamp has at hand, and note how it is made."""
        found = self.numbers.get(id(value))
        if found is not None:
            return found
        self.made.append(self.way_to(value))
        self.add([value])
        return self.numbers[id(value)]

    def way_to(self, value: Any) -> tuple[Any, Any]:
        """Return how a stamp makes an object: a type, and what it is given."""
        kind = type(value)
        if kind is Number:
            self.need(value.value in self.bound)
            return kind, (
                value.value,
                value.is_weak,
                value.lanes if value.lanes is None else self.number_of(value.lanes),
            )
        if kind is Address:
            self.need(value.value in self.bound and (value.start is None or value.start in self.bound))
            return kind, (value.value, value.start)
        if self.is_fixed(value):
            return None, value
        if kind is tuple or kind is list:
            return kind, [self.number_of(each) for each in value]
        parts = parts_of(value)
        self.need(parts is not None)
        if kind is Array or isinstance(value, tuple):
            return kind, [self.number_of(each) for each in parts]
        # it is made with its attributes in their order, by which it is taken apart; those that move are set anew
        moving = [(name, self.number_of(each)) for name, each in vars(value).items() if not self.is_fixed(each)]
        return kind, ({**vars(value), **dict.fromkeys(dict(moving))}, moving)

    def is_fixed(self, value: Any) -> bool:
        """Return whether a value is the same at each call: nothing in it is known at run time only, or may change."""
        if type(value) is tuple:
            return all(map(self.is_fixed, value))
        parts = ValueParts({}, [], [], {})
        self.need(taken_apart((value,), parts) is not None)
        return type(value) not in (list, dict) and not parts.objects and not holds_run_time(value)

    def form_of_result(self, result: Any) -> Any:
        """Return the token of a result that is taken apart again and again, the numbers of the objects, and the values in it."""
        if mapper_of(result) is None:
            return None
        form = form_of(self.tracer, result)
        self.need(form.token is not None)
        return form.token, [self.number_of(each) for each in form.objects], form.values


class _Unstampable(Exception):
    """Raised where a recorded call cannot be stamped."""


def _state_of(tracer: Tracer) -> Any:
    """Return what tells whether a call has done something that no stamp does."""
    return (
        tracer.assumed, tracer.launch, tracer.whole_block, tracer.unrolled_total, tracer.deep_calls, tracer.control_depth,
        *map(len, (
            tracer.at_end, tracer.sizes, tracer.shared_needs, tracer.uses, tracer.printed, tracer.scenes, tracer.widened,
            tracer.exits, tracer.among_threads, tracer.lent, tracer.tensor_maps, tracer.hints, tracer.grants, tracer.sought,
            tracer.facts.loops,
        )),
    )  # fmt: skip


_new = object.__new__

# -- stamping --------------------------------------------------------------------------------------------------------------


def _at_hand(stamp: Stamp, tracer: Tracer, values: list[Value], objects: list[Any]) -> Any:
    """Return what stands for the values of a stamp, and the objects at hand; None where something is not as it was."""
    mapping, objects, forms = dict[Any, Any](zip(stamp.values, values)), objects.copy(), tracer.forms
    for each in stamp.questions:
        if type(each) is Question:
            if tracer.facts.ask(mapping[each.value], each.divisor) is not each.answer:
                return None
            continue
        found = tracer.builder.current.known.get((*each.key, *map(mapping.__getitem__, each.values)))
        if (found is None) is each.was_known:
            return None
        if each.was_known:
            form = forms.get(id(found)) or form_of(tracer, found)
            if form.token != each.found.token:
                return None
            objects += form.objects
            values = values + form.values
            mapping.update(zip(each.found.values, form.values))
    if stamp.patterns is not None and stamp.patterns != (_pattern(values), _pattern([*map(id, objects)])):
        return None
    return mapping, objects


def _carried_out(site: Site, stamp: Stamp, mapping: dict[Any, Any], objects: list[Any]) -> Any:
    tracer, builder, outside = site.tracer, site.tracer.builder, site.loc
    effects.begin_statement(site)
    if stamp.steps:  # indices, pointers and masks have none
        emit(builder, stamp.steps, mapping, [*map(_moved, stamp.places, repeat(outside))])
    builder.loc = outside
    at = objects.__getitem__
    for kind, given in stamp.made:
        made: Any
        if kind is Number:
            value, is_weak, lanes = given
            made = _new(Number)  # without `__init__`: most of what is made
            made.value, made.is_weak = mapping[value], is_weak
            made.lanes = None if lanes is None else objects[lanes]
        elif kind is Address:
            made = Address(mapping[given[0]], mapping.get(given[1]))
        elif kind is tuple or kind is list:
            made = kind(map(at, given))
        elif kind is None:
            made = given
        elif type(given) is list:
            made = kind(*map(at, given))
        else:
            made, (fields, moving) = _new(kind), given
            held = made.__dict__
            held.update(fields)
            for name, number in moving:
                held[name] = objects[number]
        objects.append(made)
    for key, values, number in stamp.remembered:
        builder.current.known[*key, *map(mapping.__getitem__, values)] = objects[number]
    for name in stamp.flags:
        setattr(tracer, name, True)
    result = objects[stamp.result]
    if stamp.form is not None:
        token, numbers, values = stamp.form
        tracer.forms[id(result)] = TakenApart(result, token, [*map(at, numbers)], [*map(mapping.__getitem__, values)])
    return tracer.journal.born(result) if stamp.is_born else result


def _moved(path: Iterable[Loc], call: Loc) -> Loc:
    """Return the place at the end of a path from a call."""
    for each in path:
        call = Loc(each.file, each.line, each.col, each.end_line, each.end_col, each.function, call, each.iteration)
    return call
